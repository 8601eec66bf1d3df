//! How a segment becomes a job.
//!
//! Start at [`Composer::job`](Compose::job). What a session was started with is kept as the client said it, so that another
//! instance can go on with the session.

use std::borrow::Cow;

use lingua_core::lang::AUTO;
use lingua_core::session::Speaker;
use lingua_core::{JobId, Source};
use lingua_engine::request::{Input, JobRequest, JobResult};
use lingua_engine::session::{Compose, SegmentAsk};
use lingua_wire::RawJson;
use lingua_wire::client::{Dispatch, DispatchOptions};
use lingua_wire::node::JobResult as Known;
use lingua_wire::session::{Direction, Plan, SessionMessage};

use crate::convert;
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
        let (src, tgt, two_way) = match (plan.direction, ask.speaker) {
            (Direction::OneWay { src, tgt }, _) => (src, tgt, None),
            (Direction::TwoWay { a, b }, Some(Speaker::A)) => (Source::Known(a), b, None),
            (Direction::TwoWay { a, b }, Some(Speaker::B)) => (Source::Known(b), a, None),
            (Direction::TwoWay { a, b }, None) => {
                (Source::Auto, b, Some(vec![a.to_string(), b.to_string()]))
            }
        };
        let text = match &ask.input {
            Input::Text(text) => Some(Cow::Borrowed(&**text)),
            _ => None,
        };
        let context: Vec<String> = ask.context.iter().map(|text| text.to_string()).collect();
        let options = DispatchOptions {
            require_tts: Some(plan.require_tts),
            bind_key: Some(ask.bind_key.to_string()),
            wait_ms: Some(self.wait_ms),
            deadline_ms: Some(ask.deadline_ms),
            ..DispatchOptions::default()
        };
        let dispatch = Dispatch {
            session_id: Some(Cow::Borrowed(&*ask.session)),
            src_lang: match src {
                Source::Known(src) => src.to_string().into(),
                Source::Auto => Cow::Borrowed(AUTO),
            },
            tgt_lang: tgt.to_string().into(),
            text,
            two_way,
            context: Some(context).filter(|texts| !texts.is_empty()),
            options: Some(options),
            ..Dispatch::default()
        };
        convert::segment(ask.id, dispatch, ask.input.clone()).ok()
    }

    fn text_of(&self, result: &JobResult) -> Option<String> {
        let raw = RawJson::from(result.raw());
        let known = Known::read(&raw).ok()?;
        known.text_asr.or(known.text_translated).map(Cow::into_owned)
    }
}
