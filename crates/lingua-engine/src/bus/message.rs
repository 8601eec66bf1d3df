//! What instances say to each other, and how it is written.
//!
//! Start at [`BusMessage`]. A message is a head in JSON and up to two blobs behind it (a request, sound, a result), which are
//! passed on as they are. Fields that are not known are passed over and new ones have defaults, so that instances of two versions understand
//! each other while they are replaced one by one. Times are spans: two instances' clocks are not the same.
//!
//! Invariant: what cannot be read is dropped with a word in the log, and harms nothing but itself.

use lingua_core::job::{JobState, Refusal, Stage};
use lingua_core::{Attempt, InstanceId, JobId};
use lingua_store::contract::{Bytes, LeaseKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::events::EngineEvent;
use crate::request::{AttemptRecord, Progress};

/// Most blobs behind a head.
const BLOBS_MAX: usize = 2;

/// One message, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Head {
    /// A job for a node there. Blobs: the request, and the sound if there is any.
    Assign(Assign),
    /// More of what is being said, from this byte on, for a job that a node there listens to. Blob: the sound.
    Sound { node: String, key: Key, at: usize },
    /// That was all of it.
    SoundEnd { node: String, key: Key, bytes: usize },
    /// The attempt is over: a node there is to stop.
    Cancel { node: String, key: Key },
    /// An order did not get to its node.
    NotSent { key: Key },
    /// A node says something about a job there. Blob: the result, if it has one.
    Word(Word),
    /// Whether that counted.
    Heard { id: u64, heard: Heard },
    /// A node has a part of a job's text.
    Partial { key: Key, node: String, fence: Option<u64>, text: String },
    /// Leases of jobs there are gone.
    Lost { keys: Vec<Key> },
    /// Wants to know how far a job there is, at the latest after so long, at once if it stands there.
    Watch { id: u64, job: Id, ended: bool, wait_ms: u64 },
    /// How far it is; nothing if it does not run there.
    Seen { id: u64, seen: Option<Seen> },
    /// A client does not want a job there any more.
    CallOff { job: Id },
    /// Somebody watches what happens, for so long.
    Interest { for_ms: u64 },
    /// What happened to a job.
    Happened(Happened),
    /// A node that is registered there asks here for jobs.
    Poll { id: u64, node: String, wait_ms: u64 },
    /// Jobs for it. Nothing if it is not registered there over HTTP. Blobs are in messages of their own: one for each job.
    Polled { id: u64, jobs: Option<u32> },
    /// One of those jobs. Blobs as for an order.
    PolledJob { id: u64, order: Assign },
}

/// A job for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Assign {
    pub(crate) key: Key,
    pub(crate) node: String,
    pub(crate) epoch: u64,
    pub(crate) fence: u64,
    /// How long it may take.
    pub(crate) left_ms: u64,
    #[serde(default)]
    pub(crate) moved: bool,
    /// Leases of the node when it got this one.
    #[serde(default)]
    pub(crate) used: u16,
    /// Format and rate of the sound.
    #[serde(default)]
    pub(crate) audio: Option<(String, u32)>,
    /// Whether the sound follows as it is said.
    #[serde(default)]
    pub(crate) stream: bool,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    /// What the answer is to name; 0 if none is wanted.
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) node: String,
    pub(crate) fence: Option<u64>,
    pub(crate) said: Spoken,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spoken {
    Acked,
    Done,
    Refused,
    Overtaken,
    Failed { reason: String, retryable: bool },
}

/// Whether a word counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Heard {
    Counted,
    Stale {
        state: State,
        attempt: u32,
    },
    Ended {
        state: State,
    },
    OutOfPlace {
        state: State,
    },
    NoSuchJob,
    /// It belongs to another instance.
    Elsewhere {
        owner: String,
    },
}

impl Heard {
    pub(crate) fn of(heard: Result<(), Refusal>) -> Self {
        match heard {
            Ok(()) => Self::Counted,
            Err(Refusal::StaleAttempt { current: Stage { state, attempt } }) => {
                Self::Stale { state: State(state), attempt: attempt.0 }
            }
            Err(Refusal::Ended { state }) => Self::Ended { state: State(state) },
            Err(Refusal::OutOfPlace { state }) => Self::OutOfPlace { state: State(state) },
        }
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    state: State,
    attempt: u32,
    node: Option<String>,
    #[serde(default)]
    attempts: Vec<AttemptRecord>,
    #[serde(default)]
    partial: Option<String>,
}

impl Seen {
    pub(crate) fn of(progress: &Progress) -> Self {
        Self {
            state: State(progress.state),
            attempt: progress.attempt.0,
            node: progress.node.as_ref().map(ToString::to_string),
            attempts: progress.attempts().to_vec(),
            partial: progress.partial.as_ref().map(ToString::to_string),
        }
    }

    /// Whether the job has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.state.0.is_terminal()
    }

    /// Puts this into what the store says of the job. Its end is the store's to tell.
    pub(crate) fn add_to(self, progress: &mut Progress) {
        let is_older = self.attempt < progress.attempt.0;
        if progress.ended.is_some() || self.state.0.is_terminal() || is_older {
            return;
        }
        (progress.state, progress.attempt) = (self.state.0, Attempt(self.attempt));
        progress.node = self.node.and_then(|node| node.parse().ok());
        progress.so_far = self.attempts;
        progress.partial = self.partial.map(Into::into);
    }
}

/// What happened to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Happened {
    key: Key,
    state: State,
    node: Option<String>,
    text: Option<String>,
}

impl Happened {
    /// Only what happens to jobs: the rest is in the feed, which everybody follows.
    pub(crate) fn of(event: &EngineEvent) -> Option<Self> {
        match event {
            EngineEvent::Job { job, attempt, state, node } => {
                let (key, state) = (Key { job: Id(*job), attempt: attempt.0 }, State(*state));
                Some(Self { key, state, node: node.as_ref().map(ToString::to_string), text: None })
            }
            EngineEvent::Partial { job, attempt, state, node, text } => {
                let (key, state) = (Key { job: Id(*job), attempt: attempt.0 }, State(*state));
                let (node, text) = (Some(node.to_string()), Some(text.to_string()));
                Some(Self { key, state, node, text })
            }
            EngineEvent::Node { .. } | EngineEvent::Pools { .. } | EngineEvent::Leader { .. } => {
                None
            }
        }
    }

    pub(crate) fn into_event(self) -> Option<EngineEvent> {
        let LeaseKey { job, attempt } = self.key.lease();
        let state = self.state.0;
        let node = self.node.and_then(|node| node.parse().ok());
        match (self.text, node) {
            (Some(text), Some(node)) => {
                Some(EngineEvent::Partial { job, attempt, state, node, text: text.into() })
            }
            (Some(_), None) => None,
            (None, node) => Some(EngineEvent::Job { job, attempt, state, node }),
        }
    }
}

/// A job and one of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    job: Id,
    attempt: u32,
}

impl Key {
    pub(crate) fn lease(self) -> LeaseKey {
        LeaseKey { job: self.job.0, attempt: Attempt(self.attempt) }
    }
}

impl From<LeaseKey> for Key {
    fn from(key: LeaseKey) -> Self {
        Self { job: Id(key.job), attempt: key.attempt.0 }
    }
}

/// A job's id, written as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) JobId);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A job's state, written as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(pub(crate) JobState);

impl Serialize for State {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || serde::de::Error::custom(format!("there is no state {name:?}"));
        JobState::from_name(&name).map(Self).ok_or_else(unknown)
    }
}

/// A head and what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusMessage {
    pub(crate) head: Head,
    pub(crate) blobs: Vec<Bytes>,
}

impl From<Head> for BusMessage {
    fn from(head: Head) -> Self {
        Self { head, blobs: vec![] }
    }
}

impl BusMessage {
    /// Writes it behind others.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let head = serde_json::to_vec(&self.head).expect("names and numbers can be written");
        debug_assert!(self.blobs.len() <= BLOBS_MAX, "more blobs than anybody reads");
        out.extend((head.len() as u32).to_le_bytes());
        out.push(self.blobs.len() as u8);
        for blob in &self.blobs {
            out.extend((blob.len() as u32).to_le_bytes());
        }
        out.extend(head);
        self.blobs.iter().for_each(|blob| out.extend(&blob[..]));
    }
}

/// What one instance sends at once: who it is, and messages.
pub(crate) fn seal(from: &InstanceId, messages: &[Vec<u8>]) -> Bytes {
    let bytes = messages.iter().map(Vec::len).sum::<usize>();
    let mut out = Vec::with_capacity(1 + from.as_str().len() + bytes);
    out.push(from.as_str().len() as u8);
    out.extend(from.as_str().as_bytes());
    messages.iter().for_each(|message| out.extend(message));
    out.into()
}

/// Reads what was sealed; `None` if it says not even who sent it. Messages that cannot be read are passed over.
pub(crate) fn open(sealed: &[u8]) -> Option<(InstanceId, Vec<BusMessage>)> {
    let (&name_bytes, rest) = sealed.split_first()?;
    let (name, mut rest) = rest.split_at_checked(name_bytes.into())?;
    let from = InstanceId::new(std::str::from_utf8(name).ok()?).ok()?;
    let mut messages = vec![];
    while !rest.is_empty() {
        let Some((message, after)) = read(rest) else {
            tracing::warn!(%from, "a message of another instance is cut off");
            break;
        };
        messages.extend(message);
        rest = after;
    }
    Some((from, messages))
}

/// The first message and what follows it.
fn read(bytes: &[u8]) -> Option<(Option<BusMessage>, &[u8])> {
    let (head_bytes, rest) = length(bytes)?;
    let (&count, mut rest) = rest.split_first()?;
    if usize::from(count) > BLOBS_MAX {
        return None;
    }
    let mut lengths = [0; BLOBS_MAX];
    for slot in &mut lengths[..count.into()] {
        (*slot, rest) = length(rest)?;
    }
    let (head, mut rest) = rest.split_at_checked(head_bytes)?;
    let mut blobs = vec![];
    for &blob_bytes in &lengths[..count.into()] {
        let (blob, after) = rest.split_at_checked(blob_bytes)?;
        blobs.push(Bytes::copy_from_slice(blob));
        rest = after;
    }
    let message = match serde_json::from_slice(head) {
        Ok(head) => Some(BusMessage { head, blobs }),
        Err(error) => {
            tracing::warn!(%error, "a message of another instance is not understood");
            None
        }
    };
    Some((message, rest))
}

fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_at_checked(4)?;
    Some((u32::from_le_bytes(length.try_into().ok()?) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &BusMessage) -> Vec<u8> {
        let mut bytes = vec![];
        message.write(&mut bytes);
        bytes
    }

    fn some() -> Vec<BusMessage> {
        let key = Key { job: Id(JobId::new(7)), attempt: 2 };
        let word = |said| Word { id: 1, key, node: "n".into(), fence: Some(9), said };
        let blob = |text: &str| Bytes::from(text.to_owned());
        let order = Assign {
            key,
            node: "n".into(),
            epoch: 1,
            fence: 9,
            left_ms: 5,
            moved: true,
            used: 1,
            audio: Some(("pcm16".into(), 16_000)),
            stream: false,
        };
        let failed = Spoken::Failed { reason: "MODEL 坏".into(), retryable: true };
        vec![
            BusMessage { head: Head::Assign(order), blobs: vec![blob("{}"), blob("sound")] },
            BusMessage { head: Head::Word(word(Spoken::Done)), blobs: vec![blob("\"你好\"")] },
            Head::Word(word(failed)).into(),
            Head::Heard { id: 3, heard: Heard::Ended { state: State(JobState::Done) } }.into(),
            Head::Lost { keys: vec![key, key] }.into(),
        ]
    }

    #[test]
    fn what_is_sealed_opens_as_it_was() {
        let from = InstanceId::new("host:7410").unwrap();
        let frames: Vec<Vec<u8>> = some().iter().map(written).collect();
        assert_eq!(open(&seal(&from, &frames)), Some((from, some())));
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        let from = InstanceId::new("a").unwrap();
        let mut strange = vec![];
        let head = br#"{"of_next_year":{}}"#;
        strange.extend((head.len() as u32).to_le_bytes());
        strange.push(0);
        strange.extend(head);
        let frames = [written(&some()[0]), strange, written(&some()[1])];
        assert_eq!(open(&seal(&from, &frames)).unwrap().1, some()[..2]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let from = InstanceId::new("a").unwrap();
        let frames: Vec<Vec<u8>> = some().iter().map(written).collect();
        let whole = seal(&from, &frames);
        for end in 0..whole.len() {
            open(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0x80;
            open(&bytes);
        }
    }
}
