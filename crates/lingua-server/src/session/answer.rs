//! What came of a segment, in the wire's words.
//!
//! Start at [`delivered`].

use std::borrow::Cow;

use lingua_core::session::SegmentId;
use lingua_core::{JobId, Lang, Source};
use lingua_engine::request::JobStatus;
use lingua_engine::session::{Delivered, What};
use lingua_wire::node::JobResult;
use lingua_wire::session::{JobAccepted, Missing, SegmentResult, SegmentTimings, SessionPartial};
use lingua_wire::{ErrorCode, RawJson, lang, to_json};

use crate::convert;

pub(super) fn accepted(id: SegmentId, job_id: JobId) -> JobAccepted {
    JobAccepted { turn: id.turn, segment: id.segment, job_id }
}

pub(super) fn partial(id: SegmentId, text: &str) -> SessionPartial<'_> {
    SessionPartial { turn: id.turn, segment: id.segment, text: Cow::Borrowed(text) }
}

/// A result or a missing one, as JSON.
pub(super) fn delivered(delivered: &Delivered) -> String {
    let SegmentId { turn, segment } = delivered.id;
    let seq = delivered.seq;
    let missing = |job_id, error: &str, detail: &str| {
        let (error, detail) = (Cow::Owned(error.to_owned()), Cow::Owned(detail.to_owned()));
        to_json(&Missing { seq, turn, segment, job_id, error, detail })
    };
    let (view, speech_ms, delay_ms) = match &delivered.what {
        What::Result { view, speech_ms, delay_ms } => (view, *speech_ms, *delay_ms),
        What::Missing { job, error, detail } => return missing(*job, error, detail),
    };
    let result = view.progress.ended.as_ref().and_then(|ended| ended.result.as_ref());
    let raw = result.map(|result| RawJson::from(result.raw()));
    let known = match raw.as_ref().map(JobResult::read) {
        Some(Ok(known)) => known,
        Some(Err(error)) => {
            return missing(Some(view.id), ErrorCode::NodeFailed.as_str(), &error.detail);
        }
        None => JobResult::default(),
    };
    let (src_lang, tgt_lang) = languages(view, known.src_lang.as_deref());
    let timings = SegmentTimings { speech_ms, delay_ms, job: convert::timings(view) };
    to_json(&SegmentResult {
        seq,
        turn,
        segment,
        job_id: view.id,
        src_lang,
        tgt_lang,
        text_asr: known.text_asr,
        text_translated: known.text_translated,
        tts_audio: known.tts_audio,
        timings,
    })
}

/// What was spoken and what it became: where the node found out who spoke, it says so.
fn languages(view: &JobStatus, told: Option<&str>) -> (Source, Lang) {
    let told = told.and_then(|told| lang::language("src_lang", told).ok());
    let Some(spec) = &view.spec else { return (Source::Auto, convert::unknown_language()) };
    let tgt = spec.pair.tgt;
    match (spec.pair.src, told) {
        (Source::Known(other), told) if spec.two_way => match told {
            Some(told) if told == tgt => (Source::Known(told), other),
            Some(told) => (Source::Known(told), tgt),
            None => (Source::Auto, tgt),
        },
        (Source::Auto, Some(told)) => (Source::Known(told), tgt),
        (src, _) => (src, tgt),
    }
}
