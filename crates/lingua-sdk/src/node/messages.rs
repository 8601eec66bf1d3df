//! What the node does on each message of the scheduler.
//!
//! Start at [`Worker::on_frame`]. A message that this version does not know is ignored, so that the
//! scheduler may be newer than its nodes.
//!
//! Invariant: an assignment is answered at once, with `job_ack` or a refusal, whether or not its
//! audio has arrived.

use bytes::Bytes;
use lingua_wire::ErrorCode;
use lingua_wire::node::JobRef;
use lingua_wire::scheduler::{ErrorMessage, JobAssign, SchedulerMessage, untag};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message as Frame;

use super::admission::AdmitResult;
use super::error::Disconnect;
use super::handler::{CancelReason, Handler};
use super::job::{Failure, Job};
use super::report;
use super::worker::Worker;

/// Audio that the next binary frame has to bring.
#[derive(Debug)]
pub(super) struct PendingAudio {
    bytes: usize,
    /// The job that waits for the audio; `None` if the job was refused.
    job: Option<(Box<Job>, watch::Receiver<CancelReason>)>,
}

impl PendingAudio {
    /// The job that waits for the audio.
    pub(super) fn into_job(self) -> Option<JobRef> {
        self.job.map(|(job, _)| job.job_ref())
    }
}

impl<H: Handler> Worker<H> {
    pub(super) fn on_frame(&mut self, frame: Frame) -> Result<(), Disconnect> {
        match frame {
            Frame::Binary(audio) => self.on_audio(audio),
            Frame::Text(text) => {
                if let Some(job) = self.pending_audio.take().and_then(PendingAudio::into_job) {
                    let why = "a message came where the audio of the job was announced";
                    self.finish(job, Err(bad_audio(why)))?;
                }
                match SchedulerMessage::parse(&text) {
                    Ok(message) => self.on_message(message),
                    Err(error) => {
                        tracing::warn!(%error, "ignored an unknown message");
                        Ok(())
                    }
                }
            }
            // The library answers pings by itself.
            _ => Ok(()),
        }
    }

    fn on_message(&mut self, message: SchedulerMessage<'_>) -> Result<(), Disconnect> {
        match message {
            SchedulerMessage::JobAssign(assign) => return self.on_assign(assign),
            SchedulerMessage::JobCancel(cancel) => {
                let job = JobRef { job_id: cancel.job_id, attempt_id: cancel.attempt_id };
                self.admission.cancel(job, &cancel.reason);
            }
            SchedulerMessage::JobConfirmed(confirmed) => {
                let (job_id, attempt_id) = (confirmed.job_id, confirmed.attempt_id);
                if !confirmed.accepted {
                    tracing::debug!(%job_id, %attempt_id, "the result came too late to count");
                }
                self.admission.confirm(JobRef { job_id, attempt_id });
            }
            SchedulerMessage::HeartbeatAck(ack) => {
                for job in ack.cancel {
                    self.admission.cancel(job, "nobody waits for it");
                }
                return self.on_drain(ack.drain);
            }
            SchedulerMessage::Drain(_) => return self.on_drain(true),
            SchedulerMessage::Error(error) => return self.on_error(error),
            SchedulerMessage::AudioEnd(end) => {
                let job = JobRef { job_id: end.job_id, attempt_id: end.attempt_id };
                self.streams.end(job, end.bytes);
            }
            SchedulerMessage::Registered(registered) => {
                // The scheduler's store had forgotten the node; the connection goes on.
                let (node_id, epoch) = (&registered.node_id, registered.epoch);
                tracing::info!(%node_id, %epoch, "registered again");
                self.registered = Some(registered);
                return self.send_heartbeat();
            }
        }
        Ok(())
    }

    fn on_error(&self, error: ErrorMessage<'_>) -> Result<(), Disconnect> {
        // A scheduler that has forgotten the node may leave the connection open, but it sends no
        // jobs until the node has registered again.
        let is_forgotten = error.code() == Some(ErrorCode::NodeNotRegistered);
        match &self.registered {
            Some(known) if error.fatal || is_forgotten => {
                Err(Disconnect::after_registration(error, &known.node_id))
            }
            _ => {
                tracing::warn!(code = %error.error, detail = %error.detail, "refused");
                Ok(())
            }
        }
    }

    /// Reports the new health at once.
    fn on_drain(&mut self, drain: bool) -> Result<(), Disconnect> {
        if self.admission.set_draining(drain) {
            tracing::info!(drain, "the scheduler changed whether the node drains");
            self.send_heartbeat()?;
        }
        Ok(())
    }

    fn on_assign(&mut self, assign: JobAssign<'_>) -> Result<(), Disconnect> {
        let job_ref = JobRef { job_id: assign.job_id, attempt_id: assign.attempt_id };
        let fence = assign.fence;
        let frame_bytes = assign.audio.as_ref().and_then(|audio| audio.frame_bytes());
        let result = self.admission.admit(job_ref, fence);
        self.send(match &result {
            AdmitResult::Refused(why) => report::fail(job_ref, fence, &Failure::retryable(*why)),
            _ => report::ack(job_ref, fence),
        })?;
        let cancel = match result {
            AdmitResult::Accepted(cancel) => cancel,
            other => {
                self.pending_audio = frame_bytes.map(|bytes| PendingAudio { bytes, job: None });
                return match other {
                    AdmitResult::AlreadyFinished(result) => self.send(result),
                    _ => Ok(()),
                };
            }
        };
        let is_stream = assign.audio.as_ref().is_some_and(|audio| audio.stream);
        let inline_audio = match &assign.audio {
            Some(audio) if frame_bytes.is_none() && !is_stream => audio.decode("audio"),
            _ => Ok(vec![]),
        };
        let mut job = match inline_audio {
            Ok(bytes) => Job::new(assign, bytes.into()),
            Err(error) => return self.finish(job_ref, Err(bad_audio(error.detail))),
        };
        if let Some(bytes) = frame_bytes {
            self.pending_audio = Some(PendingAudio { bytes, job: Some((Box::new(job), cancel)) });
            return Ok(());
        }
        if is_stream && let Some(sound) = job.audio.take() {
            job.stream = Some(self.streams.open(job_ref, sound));
        }
        self.start(job, cancel);
        Ok(())
    }

    fn on_audio(&mut self, audio: Bytes) -> Result<(), Disconnect> {
        let Some(PendingAudio { bytes, job }) = self.pending_audio.take() else {
            match untag(&audio) {
                Some((job, piece)) => {
                    if !self.streams.push(job, audio.slice_ref(piece)) {
                        self.admission.cancel(job, "the handler is too slow for its audio");
                    }
                }
                None => tracing::warn!(bytes = audio.len(), "ignored audio that has no job"),
            }
            return Ok(());
        };
        let Some((mut job, cancelled)) = job else { return Ok(()) };
        if audio.len() != bytes {
            let why = format!("{} bytes arrived, {bytes} were announced", audio.len());
            return self.finish(job.job_ref(), Err(bad_audio(why)));
        }
        if let Some(sound) = &mut job.audio {
            sound.bytes = audio;
        }
        self.start(*job, cancelled);
        Ok(())
    }
}

/// Another node may receive the audio that this one did not.
fn bad_audio(detail: impl Into<String>) -> Failure {
    Failure::retryable(Failure::BAD_AUDIO).with_detail(detail)
}
