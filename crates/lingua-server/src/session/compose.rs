//! How a segment becomes a job.
//!
//! Start at [`Composer::job`](Compose::job). What a session was started with is kept as the client said it, so that another
//! instance can go on with the session.

use std::borrow::Cow;

use lingua_core::id::hex;
use lingua_core::job::{JobSpec, Payload};
use lingua_core::session::Speaker;
use lingua_core::{JobId, LangPair, Needs, ServiceSet};
use lingua_engine::request::{JobRequest, ResultJson};
use lingua_engine::session::{Compose, SegmentAsk, SegmentInput};
use lingua_wire::RawJson;
use lingua_wire::node::JobResult as Known;
use lingua_wire::session::{Direction, Plan, SessionMessage};

use crate::routes::jobs::new_number;

/// Makes jobs of segments.
#[derive(Debug)]
pub(crate) struct Composer {
    /// How long a job waits for a slot.
    pub(super) wait_ms: u64,
}

/// Reads back what a session was started with.
pub(super) fn plan(said: &[u8]) -> Option<Plan> {
    match SessionMessage::parse(std::str::from_utf8(said).ok()?) {
        Ok(SessionMessage::Start(start)) => start.into_plan().ok(),
        _ => None,
    }
}

impl Compose for Composer {
    fn job_id(&self, now_ms: u64) -> JobId {
        JobId::new(new_number(now_ms))
    }

    fn job(&self, ask: SegmentAsk<'_>) -> Option<JobRequest> {
        let plan = plan(ask.plan)?;
        let (pair, two_way) = match (plan.direction, ask.speaker) {
            (Direction::OneWay { src, tgt }, _) => (LangPair { src, tgt }, false),
            (Direction::TwoWay { a, b }, Some(Speaker::A)) => (LangPair::known(a, b), false),
            (Direction::TwoWay { a, b }, Some(Speaker::B)) => (LangPair::known(b, a), false),
            (Direction::TwoWay { a, b }, None) => (LangPair::known(a, b), true),
        };
        let (payload, speech) = match ask.input {
            SegmentInput::Text(text) => (Payload::Text(text), None),
            SegmentInput::Speech(speech) => (Payload::Absent, Some(speech)),
        };
        let (asr, tts) = (speech.is_some(), plan.require_tts);
        let spec = JobSpec {
            session: ask.session,
            trace: std::str::from_utf8(&hex(ask.id.number())).unwrap_or_default().into(),
            two_way,
            needs: Needs { asr, tts, extra: ServiceSet::EMPTY },
            context: ask.context,
            bind_key: Some(ask.bind_key),
            wait_ms: Some(self.wait_ms),
            deadline_ms: Some(ask.deadline_ms),
            ..JobSpec::new(pair, payload)
        };
        Some(JobRequest { speech, ..JobRequest::new(ask.id, spec) })
    }

    fn text_of(&self, result: &ResultJson) -> Option<String> {
        let raw = RawJson::from(result.raw());
        let known = Known::read(&raw).ok()?;
        known.text_asr.or(known.text_translated).map(Cow::into_owned)
    }
}
