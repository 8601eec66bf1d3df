//! How a segment becomes a job here: what the server's composer does, with the world's numbers.
//!
//! Start at [`Composer::job`](Compose::job). A session's plan is a line of text.

use std::fmt;
use std::sync::Weak;

use lingua_core::JobId;
use lingua_core::job::{JobSpec, Payload};
use lingua_core::session::Speaker;
use lingua_engine::request::{JobRequest, ResultJson};
use lingua_engine::session::{Compose, SegmentAsk, SegmentInput};

use super::World;
use super::plan::GROUPS;

/// How long a segment's job waits for a slot.
const WAIT_MS: u64 = 2_000;

/// What a session was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Talk {
    /// Which group of languages.
    pub(super) home: usize,
    pub(super) two_way: bool,
}

impl Talk {
    pub(super) fn written(self) -> String {
        format!("{} {}", self.home, self.two_way)
    }

    fn read(plan: &[u8]) -> Option<Self> {
        let (home, two_way) = std::str::from_utf8(plan).ok()?.split_once(' ')?;
        Some(Self { home: home.parse().ok()?, two_way: two_way.parse().ok()? })
    }

    /// The direction of what this speaker says, and whether a node has to find it out.
    pub(super) fn direction(self, speaker: Option<Speaker>) -> (String, bool) {
        let [a, b] = GROUPS[self.home];
        match (self.two_way, speaker) {
            (true, Some(Speaker::B)) => (format!("{b}:{a}"), false),
            (true, None) => (format!("{a}:{b}"), true),
            _ => (format!("{a}:{b}"), false),
        }
    }
}

/// Makes jobs of segments. Without a hold on the world: whoever talks is a part of it.
pub(super) struct Composer(pub(super) Weak<World>);

impl fmt::Debug for Composer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Composer")
    }
}

impl Compose for Composer {
    fn job_id(&self, _: u64) -> JobId {
        let number = self.0.upgrade().map_or(0, |world| world.next_segment());
        JobId::new(number as u128)
    }

    fn job(&self, ask: SegmentAsk<'_>) -> Option<JobRequest> {
        let (pair, two_way) = Talk::read(ask.plan)?.direction(ask.speaker);
        let (payload, speech) = match ask.input {
            SegmentInput::Text(text) => (Payload::Text(text), None),
            SegmentInput::Speech(speech) => (Payload::Absent, Some(speech)),
        };
        let spec = JobSpec {
            session: ask.session,
            two_way,
            context: ask.context,
            bind_key: Some(ask.bind_key),
            wait_ms: Some(WAIT_MS),
            deadline_ms: Some(ask.deadline_ms),
            ..JobSpec::new(pair.parse().ok()?, payload)
        };
        Some(JobRequest { speech, ..JobRequest::new(ask.id, spec) })
    }

    fn text_of(&self, result: &ResultJson) -> Option<String> {
        Some(result.as_str().trim_matches('"').to_owned())
    }
}
