//! What a session yields, as messages to its client.
//!
//! Start at [`delivery`].

use lingua_core::session::{Delivery, SegmentDirection, SegmentId};
use lingua_core::{JobId, Lang, Source};
use lingua_engine::request::JobStatus;
use lingua_engine::session::SegmentOutcome;
use lingua_wire::node::JobResult;
use lingua_wire::session::{
    JobAccepted, SegmentMissing, SegmentResult, SegmentTimings, SessionPartial,
};
use lingua_wire::{ErrorCode, RawJson, lang, to_json};

use crate::convert;

pub(super) fn accepted(id: SegmentId, job_id: JobId) -> JobAccepted {
    JobAccepted { turn: id.turn, segment: id.segment, job_id }
}

pub(super) fn partial(id: SegmentId, text: &str) -> SessionPartial {
    SessionPartial { turn: id.turn, segment: id.segment, text: text.to_owned() }
}

/// `result` or `missing`, as JSON.
pub(super) fn delivery(delivery: Delivery<SegmentOutcome>) -> String {
    let Delivery { seq, id: SegmentId { turn, segment }, outcome } = delivery;
    let missing = |job_id, error: String, detail: String| {
        to_json(&SegmentMissing { seq, turn, segment, job_id, error, detail })
    };
    let (view, speech_ms, delay_ms) = match outcome {
        SegmentOutcome::Result { view, speech_ms, delay_ms } => (view, speech_ms, delay_ms),
        SegmentOutcome::Missing { job, error, detail } => return missing(job, error, detail),
    };
    let result = view.progress.ended.as_ref().and_then(|ended| ended.result.as_ref());
    let raw = result.map(|result| RawJson::from(result.raw()));
    let known = match raw.as_ref().map(JobResult::read_kept) {
        Some(Ok(known)) => known,
        Some(Err(error)) => {
            let code = ErrorCode::NodeFailed.as_str().to_owned();
            return missing(Some(view.id), code, error.detail);
        }
        None => JobResult::default(),
    };
    let (src_lang, tgt_lang) = languages(&view, known.src_lang.as_deref());
    let timings = SegmentTimings { speech_ms, delay_ms, job: convert::timings(&view) };
    to_json(&SegmentResult {
        seq,
        turn,
        segment,
        job_id: view.id,
        src_lang,
        tgt_lang,
        served_as: convert::served_as(&view),
        text_asr: known.text_asr,
        text_translated: known.text_translated,
        tts_audio: known.tts_audio,
        timings,
    })
}

/// The languages of a result; the node may have reported the spoken one.
fn languages(view: &JobStatus, reported: Option<&str>) -> (Source, Lang) {
    let reported = reported.and_then(|reported| lang::language("src_lang", reported).ok());
    match &view.spec {
        Some(spec) => {
            let direction = SegmentDirection { pair: spec.pair, two_way: spec.two_way };
            // The node reports a tag that it registered; the client gets the one that it asked for.
            let as_asked = |tag| match (convert::served_as(view), spec.pair.src) {
                (Some(served), _) if tag == served.tgt => spec.pair.tgt,
                (Some(served), Source::Known(src)) if served.src == Source::Known(tag) => src,
                _ => tag,
            };
            direction.spoken(reported.map(as_asked))
        }
        None => (Source::Auto, convert::unknown_language()),
    }
}
