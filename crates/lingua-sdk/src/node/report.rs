//! Messages about jobs.
//!
//! Start at [`finished`]. Invariant: the scheduler can read every message made here; a result or a
//! reason that breaks a bound becomes a failure whose reason names the bound.

use std::borrow::Cow;

use bytes::Bytes;
use lingua_core::Fence;
use lingua_wire::audio::Audio;
use lingua_wire::limits::AUDIO_BYTES_MAX;
use lingua_wire::node::{JobAck, JobDone, JobFail, JobPartial, JobRef, JobResult};
use lingua_wire::{Message, RawJson, to_json};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::job::{Failure, Output};

/// Longest result without its audio, in bytes of JSON.
const RESULT_BYTES_MAX: usize = 512 * 1024;

/// A message and the audio that belongs to it. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutboundMessage {
    pub(super) text: Utf8Bytes,
    pub(super) audio: Option<Bytes>,
}

impl OutboundMessage {
    pub(super) fn new<M: Message + serde::Serialize>(message: &M) -> Self {
        Self { text: to_json(message).into(), audio: None }
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.audio.as_ref().map_or(0, Bytes::len)
    }
}

/// Confirms that the job has arrived.
pub(super) fn ack(job: JobRef, fence: Fence) -> OutboundMessage {
    let JobRef { job_id, attempt_id } = job;
    OutboundMessage::new(&JobAck { job_id, attempt_id, node_id: None, fence: Some(fence) })
}

/// Sends a partial text.
pub(super) fn partial(job: JobRef, fence: Fence, text: &str) -> OutboundMessage {
    let JobRef { job_id, attempt_id } = job;
    let (text, fence) = (Cow::Borrowed(text), Some(fence));
    OutboundMessage::new(&JobPartial { job_id, attempt_id, node_id: None, fence, text })
}

/// The result of a job, and whether it is a success.
pub(super) fn finished(
    job: JobRef,
    fence: Fence,
    outcome: Result<Output, Failure>,
) -> (OutboundMessage, bool) {
    match outcome.and_then(|output| done(job, fence, output)) {
        Ok(frames) => (frames, true),
        Err(failure) => (fail(job, fence, &failure), false),
    }
}

/// Reports a failure or a refusal.
pub(super) fn fail(job: JobRef, fence: Fence, failure: &Failure) -> OutboundMessage {
    let JobRef { job_id, attempt_id } = job;
    let mut message = JobFail {
        job_id,
        attempt_id,
        node_id: None,
        fence: Some(fence),
        status: Some(Cow::Borrowed("error")),
        reason: Cow::Borrowed(&failure.reason),
        detail: failure.detail.as_deref().map(Cow::Borrowed),
        retryable: Some(failure.retryable),
    };
    if let Err(error) = message.check() {
        tracing::warn!(%job_id, %error, "replaced a failure reason that cannot be sent");
        message.reason = Cow::Borrowed(Failure::UNNAMED);
        message.detail = Some(Cow::Owned(error.detail));
    }
    OutboundMessage::new(&message)
}

fn done(job: JobRef, fence: Fence, output: Output) -> Result<OutboundMessage, Failure> {
    let bad = |detail: String| Failure::permanent(Failure::BAD_OUTPUT).with_detail(detail);
    let audio = output.tts_audio.as_ref().map(|sound| sound.bytes.clone());
    if let Some(audio) = audio.as_ref().filter(|audio| audio.len() > AUDIO_BYTES_MAX) {
        let bytes = audio.len();
        return Err(bad(format!("the audio has {bytes} bytes; send at most {AUDIO_BYTES_MAX}")));
    }
    let result = result_json(output)?;
    let bytes = result.as_str().len();
    if bytes > RESULT_BYTES_MAX {
        return Err(bad(format!("the result has {bytes} bytes; send at most {RESULT_BYTES_MAX}")));
    }
    let JobRef { job_id, attempt_id } = job;
    let message = JobDone {
        job_id,
        attempt_id,
        node_id: None,
        fence: Some(fence),
        status: Some(Cow::Borrowed("ok")),
        result: Some(result),
    };
    Ok(OutboundMessage { audio, ..OutboundMessage::new(&message) })
}

/// The known fields and the further ones; where both have a field, the known one counts.
fn result_json(mut output: Output) -> Result<RawJson, Failure> {
    #[derive(Serialize)]
    struct Fields<'a> {
        #[serde(flatten)]
        known: JobResult<'a>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }

    let mut extra = std::mem::take(&mut output.extra);
    for name in JobResult::FIELDS {
        extra.remove(name);
    }
    let known = JobResult {
        text_asr: output.text_asr.as_deref().map(Cow::Borrowed),
        text_translated: output.text_translated.as_deref().map(Cow::Borrowed),
        tts_audio: output
            .tts_audio
            .as_ref()
            .map(|sound| Audio::in_next_frame(&sound.format, sound.sample_rate, sound.bytes.len())),
        src_lang: output.src_lang.as_deref().map(Cow::Borrowed),
    };
    let bad = |detail| Failure::permanent(Failure::BAD_OUTPUT).with_detail(detail);
    // What the scheduler would refuse is a failure here.
    known.check().map_err(|error| bad(error.detail))?;
    RawJson::of(&Fields { known, extra }).map_err(|error| bad(error.detail))
}

#[cfg(test)]
mod tests;
