//! How a segment becomes a job here: what the server's composer does, with the world's numbers.
//!
//! Start at [`Composer::job`](Compose::job). A session's plan is a line of text, and so is what an heir reads of a segment's job.

use std::fmt;
use std::sync::{Arc, Weak};

use lingua_core::JobId;
use lingua_core::session::Speaker;
use lingua_engine::request::{Extras, Input, JobRequest, JobResult};
use lingua_engine::session::{Compose, SegmentAsk};

use super::World;
use super::plan::GROUPS;

/// The first word of what is written of a segment's job.
const SEGMENT: &str = "segment";

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
        let (text, input) = match &ask.input {
            Input::Text(text) => (text.to_string(), ask.input.clone()),
            _ => (String::new(), ask.input.clone()),
        };
        let (session, deadline_ms) = (&ask.session, ask.deadline_ms);
        let spec = format!("{SEGMENT} {session} {pair} {two_way} {deadline_ms} {text}");
        let request = read(ask.id, &spec)?;
        let context = ask.context;
        let extras = Some(Arc::new(Extras { two_way, context }));
        Some(JobRequest { input, extras, bind_key: Some(ask.bind_key), ..request })
    }

    fn text_of(&self, result: &JobResult) -> Option<String> {
        Some(result.as_str().trim_matches('"').to_owned())
    }
}

/// Reads back what was written of a segment's job.
pub(super) fn read(id: JobId, spec: &str) -> Option<JobRequest> {
    let mut words = spec.splitn(6, ' ');
    let (SEGMENT, session) = (words.next()?, words.next()?) else { return None };
    let pair = words.next()?.parse().ok()?;
    let two_way = words.next()?.parse().ok()?;
    let deadline_ms = Some(words.next()?.parse().ok()?);
    let input = Input::Text(words.next()?.into());
    Some(JobRequest {
        session: session.into(),
        wait_ms: WAIT_MS,
        deadline_ms,
        extras: Some(Arc::new(Extras { two_way, context: vec![] })),
        spec: Arc::from(spec.as_bytes()),
        ..JobRequest::plain(id, pair, input)
    })
}
