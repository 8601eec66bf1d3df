//! What follows from each message of the scheduler.
//!
//! Start at [`Worker::on_received`]. A message that this version does not know is passed over, so
//! that the scheduler may be newer than its nodes.
//!
//! Invariant: an order is answered at once, with `job_ack` or a refusal, whether or not its audio is
//! there yet.

use bytes::Bytes;
use lingua_wire::ErrorCode;
use lingua_wire::node::JobRef;
use lingua_wire::scheduler::{ErrorMessage, JobAssign, SchedulerMessage, untag};
use tokio::sync::watch;

use super::desk::Verdict;
use super::error::Trouble;
use super::handler::{CancelReason, Handler};
use super::job::{Failure, Job, Sound};
use super::link::{Link, Received};
use super::report;
use super::worker::Worker;

/// Audio that the next frame has to bring.
#[derive(Debug)]
pub(super) struct Announced {
    bytes: usize,
    /// The job that waits for it; `None` if the job was refused.
    job: Option<(Box<JobAssign<'static>>, watch::Receiver<CancelReason>)>,
}

impl Announced {
    /// The job that waits for it.
    pub(super) fn into_job(self) -> Option<JobRef> {
        self.job.map(|(assign, _)| job_ref(&assign))
    }
}

impl<H: Handler> Worker<H> {
    /// Takes what the scheduler sent.
    pub(super) fn on_received(&mut self, received: Received, link: &Link) -> Result<(), Trouble> {
        match received {
            Received::Nothing => Ok(()),
            Received::Audio(audio) => self.on_audio(audio, link),
            Received::Text(text) => {
                if let Some(job) = self.announced.take().and_then(Announced::into_job) {
                    let why = "another message came where its audio was announced";
                    self.hand_in(job, Err(bad_audio(why)), Some(link))?;
                }
                match SchedulerMessage::parse(&text) {
                    Ok(message) => self.on_message(message, link),
                    Err(error) => {
                        tracing::warn!(%error, "a message was not understood");
                        Ok(())
                    }
                }
            }
        }
    }

    fn on_message(&mut self, message: SchedulerMessage<'_>, link: &Link) -> Result<(), Trouble> {
        match message {
            SchedulerMessage::JobAssign(assign) => self.on_assign(assign, link),
            SchedulerMessage::JobCancel(cancel) => {
                let job = JobRef { job_id: cancel.job_id, attempt_id: cancel.attempt_id };
                self.desk.cancel(job, &cancel.reason);
                Ok(())
            }
            SchedulerMessage::JobConfirmed(confirmed) => {
                let (job_id, attempt_id) = (confirmed.job_id, confirmed.attempt_id);
                if !confirmed.accepted {
                    tracing::debug!(%job_id, %attempt_id, "the job had moved on");
                }
                self.desk.confirm(JobRef { job_id, attempt_id });
                Ok(())
            }
            SchedulerMessage::HeartbeatAck(ack) => {
                for job in ack.cancel {
                    self.desk.cancel(job, "nobody waits for it");
                }
                self.on_drain(ack.drain, link)
            }
            SchedulerMessage::Drain(_) => self.on_drain(true, link),
            SchedulerMessage::Error(error) => self.on_error(&error),
            SchedulerMessage::AudioEnd(end) => {
                let job = JobRef { job_id: end.job_id, attempt_id: end.attempt_id };
                self.streams.end(job, end.bytes);
                Ok(())
            }
            SchedulerMessage::Registered(_) => Ok(()),
        }
    }

    fn on_error(&self, error: &ErrorMessage<'_>) -> Result<(), Trouble> {
        // A scheduler that has forgotten the node may leave the connection open, but nothing comes
        // of it until the node has registered again.
        let is_forgotten = error.code() == Some(ErrorCode::NodeNotRegistered);
        match &self.identity {
            Some(identity) if error.fatal || is_forgotten => {
                Err(Trouble::of_fatal(error, &identity.node_id))
            }
            _ => {
                tracing::warn!(code = %error.error, detail = %error.detail, "refused");
                Ok(())
            }
        }
    }

    /// What the node says of its health follows the order, at once.
    fn on_drain(&mut self, ordered: bool, link: &Link) -> Result<(), Trouble> {
        if self.desk.set_drain(ordered) {
            tracing::info!(ordered, "drain");
            self.beat(link)?;
        }
        Ok(())
    }

    fn on_assign(&mut self, assign: JobAssign<'_>, link: &Link) -> Result<(), Trouble> {
        let (job, fence) = (job_ref(&assign), assign.fence);
        let bytes = assign.audio.as_ref().and_then(|audio| audio.frame_bytes());
        let cancelled = match self.desk.admit(job, fence) {
            Verdict::Taken(cancelled) => Some(cancelled),
            Verdict::Repeated => {
                link.send(report::ack(job, fence))?;
                None
            }
            Verdict::Finished(result) => {
                link.send(report::ack(job, fence))?;
                link.send(result)?;
                None
            }
            Verdict::Refused(reason) => {
                link.send(report::fail(job, fence, &Failure::retryable(reason)))?;
                None
            }
        };
        let Some(cancelled) = cancelled else {
            self.announced = bytes.map(|bytes| Announced { bytes, job: None });
            return Ok(());
        };
        link.send(report::ack(job, fence))?;
        if let Some(bytes) = bytes {
            let job = Some((Box::new(assign.into_owned()), cancelled));
            self.announced = Some(Announced { bytes, job });
            return Ok(());
        }
        if let Some(audio) = assign.audio.as_ref().filter(|audio| audio.stream) {
            let stream = self.streams.open(job, audio.format.to_string(), audio.sample_rate);
            let started = Job { stream: Some(stream), ..Job::new(assign, None) };
            self.start(started, cancelled);
            return Ok(());
        }
        match inline_audio(&assign) {
            Ok(audio) => {
                self.start(Job::new(assign, audio), cancelled);
                Ok(())
            }
            Err(failure) => self.hand_in(job, Err(failure), Some(link)),
        }
    }

    fn on_audio(&mut self, audio: Bytes, link: &Link) -> Result<(), Trouble> {
        let Some(Announced { bytes, job }) = self.announced.take() else {
            if let Some((job, piece)) = untag(&audio) {
                let piece = audio.slice_ref(piece);
                if !self.streams.push(job, piece) {
                    self.desk.cancel(job, "the handler does not keep up with its audio");
                }
                return Ok(());
            }
            tracing::warn!(bytes = audio.len(), "audio that belongs to no job");
            return Ok(());
        };
        let Some((assign, cancelled)) = job else { return Ok(()) };
        if audio.len() != bytes {
            let why = format!("{} bytes came, {bytes} were announced", audio.len());
            return self.hand_in(job_ref(&assign), Err(bad_audio(why)), Some(link));
        }
        let sound = sound(&assign, audio);
        self.start(Job::new(*assign, sound), cancelled);
        Ok(())
    }
}

fn job_ref(assign: &JobAssign<'_>) -> JobRef {
    JobRef { job_id: assign.job_id, attempt_id: assign.attempt_id }
}

/// Another node may get what this one did not.
fn bad_audio(detail: impl Into<String>) -> Failure {
    Failure::retryable(Failure::BAD_AUDIO).with_detail(detail)
}

/// The audio inside the message, if there is any.
fn inline_audio(assign: &JobAssign<'_>) -> Result<Option<Sound>, Failure> {
    let Some(audio) = &assign.audio else { return Ok(None) };
    let bytes = audio.decode("audio").map_err(|error| bad_audio(error.detail))?;
    Ok(sound(assign, bytes.into()))
}

fn sound(assign: &JobAssign<'_>, bytes: Bytes) -> Option<Sound> {
    let audio = assign.audio.as_ref()?;
    Some(Sound { format: audio.format.to_string(), sample_rate: audio.sample_rate, bytes })
}
