//! The messages between instances and their encoding.
//!
//! Start at [`BusMessage`]: a head in JSON and up to two blobs (a spec, audio), which are passed on
//! as they are. Unknown fields are ignored and new ones have defaults, so that instances of two
//! versions understand each other while they are replaced one by one. Times are spans, because the
//! clocks of two instances differ.
//!
//! Invariant: a message that cannot be read is logged and dropped; the others are read.

use std::fmt::Display;
use std::str::FromStr;

use lingua_core::job::{AttemptReport, JobState, Refusal, Stage};
use lingua_core::{Attempt, Fence, InstanceId, JobId, LangPair, NodeId, Tenant};
use lingua_store::contract::{Bytes, LeaseKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::events::EngineEvent;
use crate::live_jobs::ReportKind;
use crate::request::{AttemptRecord, Progress, ResultJson};

/// Most blobs of one message.
const BLOBS_MAX: usize = 2;

/// The head of a message, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Head {
    /// A job for a node there. Blobs: the spec, and the audio if there is any.
    Assign(AssignHead),
    /// More audio for a job that a node there streams, from byte `at` on. Blob: the audio.
    Audio { node: Text<NodeId>, key: AttemptKey, at: usize },
    /// The audio is complete and has so many bytes.
    AudioEnd { node: Text<NodeId>, key: AttemptKey, bytes: usize },
    /// The attempt is over: the node has to stop it.
    Cancel { node: Text<NodeId>, key: AttemptKey },
    /// An assignment did not reach its node.
    NotSent { key: AttemptKey },
    /// A node reports about a job there. A verdict with this id is wanted, unless the id is 0.
    Report { id: u64, source: ReportSource, kind: ReportKind },
    /// Whether that report counted.
    Verdict { id: u64, verdict: PeerVerdict },
    /// A node has a partial text of a job there.
    Partial { source: ReportSource, text: String },
    /// Leases of jobs there are lost. If a node reports it, only its own leases count.
    LeasesLost { keys: Vec<AttemptKey>, node: Option<Text<NodeId>> },
    /// Asks for the progress of a job there: at once if it was sent (or has ended, with `ended`),
    /// at the latest after `wait_ms`.
    Watch { id: u64, job: Text<JobId>, ended: bool, wait_ms: u64 },
    /// The progress; `None` if the job does not run there.
    Progress { id: u64, progress: Option<RemoteProgress> },
    /// Asks for all that the node of a job there gave, speech included.
    FetchResult { id: u64, job: Text<JobId> },
    /// That result; `None` if it is not in memory any more.
    FullResult { id: u64, result: Option<ResultJson> },
    /// What is kept of a job was erased.
    Forget { job: Text<JobId> },
    /// A client cancels a job there.
    CancelJob { job: Text<JobId> },
    /// Asks for job events, for so long.
    Subscribe { for_ms: u64 },
    /// A job event.
    Event(JobEventHead),
    /// A node that is registered there has called here.
    NodeSeen(NodeSeen),
    /// A node that is registered there polls here.
    Poll { id: u64, node: Text<NodeId>, wait_ms: u64 },
    /// How many jobs there are for it, each in a message before this one; `None` if the node does
    /// not poll there.
    PollReply { id: u64, jobs: Option<u32> },
    /// One of those jobs. Blobs as for an assignment.
    PolledJob { id: u64, assign: AssignHead },
}

/// A sign of life of a node at another instance than its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeSeen {
    pub(crate) node: Text<NodeId>,
    /// What it runs, if it has listed that.
    #[serde(default)]
    pub(crate) running: Option<Vec<AttemptKey>>,
    /// Whether it has changed what it can do, its health or its load.
    #[serde(default)]
    pub(crate) is_changed: bool,
}

/// A job for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AssignHead {
    pub(crate) key: AttemptKey,
    pub(crate) node: Text<NodeId>,
    pub(crate) epoch: u64,
    pub(crate) fence: u64,
    /// How long the attempt may take.
    pub(crate) left_ms: u64,
    /// The direction in the tags of the node, if those are not the job's.
    #[serde(default)]
    pub(crate) served_as: Option<Text<LangPair>>,
    #[serde(default)]
    pub(crate) moved: bool,
    /// Leases of the node when it got this one.
    #[serde(default)]
    pub(crate) used: u16,
    /// Format and sample rate of the audio.
    #[serde(default)]
    pub(crate) audio: Option<(String, u32)>,
    /// Whether the audio follows while the speaker speaks.
    #[serde(default)]
    pub(crate) stream: bool,
}

/// The attempt that a report is about, and the node that sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportSource {
    pub(crate) key: AttemptKey,
    node: Text<NodeId>,
    fence: Option<u64>,
}

impl ReportSource {
    pub(crate) fn new(job: JobId, report: &AttemptReport) -> Self {
        let key = LeaseKey { job, attempt: report.attempt }.into();
        let fence = report.fence.map(|fence| fence.0);
        Self { key, node: Text(report.node.clone()), fence }
    }

    pub(crate) fn into_report(self) -> (JobId, AttemptReport) {
        let LeaseKey { job, attempt } = self.key.lease();
        (job, AttemptReport { attempt, node: self.node.0, fence: self.fence.map(Fence) })
    }
}

/// Whether a report counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PeerVerdict {
    Counted,
    Stale {
        state: Text<JobState>,
        attempt: u32,
    },
    Ended {
        state: Text<JobState>,
    },
    OutOfPlace {
        state: Text<JobState>,
    },
    NoSuchJob,
    /// The job belongs to another instance.
    Elsewhere {
        owner: Text<InstanceId>,
    },
}

impl From<Result<(), Refusal>> for PeerVerdict {
    fn from(counted: Result<(), Refusal>) -> Self {
        match counted {
            Ok(()) => Self::Counted,
            Err(Refusal::StaleAttempt { current: Stage { state, attempt } }) => {
                Self::Stale { state: Text(state), attempt: attempt.0 }
            }
            Err(Refusal::Ended { state }) => Self::Ended { state: Text(state) },
            Err(Refusal::OutOfPlace { state }) => Self::OutOfPlace { state: Text(state) },
        }
    }
}

/// The progress of a job, as its owner sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteProgress {
    state: Text<JobState>,
    attempt: u32,
    node: Option<Text<NodeId>>,
    #[serde(default)]
    attempts: Vec<AttemptRecord>,
    #[serde(default)]
    partial: Option<String>,
}

impl RemoteProgress {
    pub(crate) fn of(progress: &Progress) -> Self {
        Self {
            state: Text(progress.state),
            attempt: progress.attempt.0,
            node: progress.node.clone().map(Text),
            attempts: progress.attempts().to_vec(),
            partial: progress.partial.as_deref().map(str::to_owned),
        }
    }

    /// Whether the job has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.0.is_terminal()
    }

    /// Adds this to what the store says about the job. Only the store knows how a job ended.
    pub(crate) fn add_to(self, progress: &mut Progress) {
        let is_older = self.attempt < progress.attempt.0;
        if progress.ended.is_some() || self.has_ended() || is_older {
            return;
        }
        (progress.state, progress.attempt) = (self.state.0, Attempt(self.attempt));
        progress.node = self.node.map(|node| node.0);
        progress.so_far = self.attempts;
        progress.partial = self.partial.map(Into::into);
    }
}

/// A job event. Events about nodes, pools and leaders are in the change feed, which every instance
/// follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobEventHead {
    key: AttemptKey,
    tenant: Text<Tenant>,
    state: Text<JobState>,
    node: Option<Text<NodeId>>,
    text: Option<String>,
}

impl JobEventHead {
    pub(crate) fn of(event: &EngineEvent) -> Option<Self> {
        let EngineEvent::Job { job, tenant, attempt, state, node, text } = event else {
            return None;
        };
        let key = LeaseKey { job: *job, attempt: *attempt }.into();
        let (node, text) = (node.clone().map(Text), text.as_deref().map(str::to_owned));
        Some(Self { key, tenant: Text(*tenant), state: Text(*state), node, text })
    }

    pub(crate) fn into_event(self) -> EngineEvent {
        let LeaseKey { job, attempt } = self.key.lease();
        let (tenant, state) = (self.tenant.0, self.state.0);
        let (node, text) = (self.node.map(|node| node.0), self.text.map(Into::into));
        EngineEvent::Job { job, tenant, attempt, state, node, text }
    }
}

/// A job and one of its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptKey {
    job: Text<JobId>,
    attempt: u32,
}

impl AttemptKey {
    pub(crate) fn lease(self) -> LeaseKey {
        LeaseKey { job: self.job.0, attempt: Attempt(self.attempt) }
    }
}

impl From<LeaseKey> for AttemptKey {
    fn from(key: LeaseKey) -> Self {
        Self { job: Text(key.job), attempt: key.attempt.0 }
    }
}

/// An id or a name, written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A head and its blobs.
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
    /// The length of the head, the number of blobs, their lengths, the head, the blobs.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(&self.head).expect("names, numbers and JSON are JSON");
        debug_assert!(self.blobs.len() <= BLOBS_MAX, "no instance reads so many blobs");
        let mut out = vec![];
        out.extend((head.len() as u32).to_le_bytes());
        out.push(self.blobs.len() as u8);
        for blob in &self.blobs {
            out.extend((blob.len() as u32).to_le_bytes());
        }
        out.extend(head);
        self.blobs.iter().for_each(|blob| out.extend(&blob[..]));
        out
    }
}

/// The first byte of a batch. Raised when instances of two versions would misunderstand each other;
/// a new kind of message, or a field with a default, does not do that.
pub(crate) const BATCH_VERSION: u8 = 2;

/// Puts messages behind the version and the name of their sender.
pub(crate) fn encode_batch<'a>(
    from: &InstanceId,
    messages: impl Iterator<Item = &'a [u8]>,
) -> Bytes {
    let name = from.as_str().as_bytes();
    let mut out = vec![BATCH_VERSION, name.len() as u8];
    out.extend(name);
    messages.for_each(|message| out.extend(message));
    out.into()
}

/// Reads a batch; `None` if it has another version or does not name its sender. Messages that
/// cannot be read are skipped.
pub(crate) fn decode_batch(batch: &[u8]) -> Option<(InstanceId, Vec<BusMessage>)> {
    let (&[BATCH_VERSION, name_bytes], rest) = batch.split_first_chunk()? else { return None };
    let (name, mut rest) = rest.split_at_checked(name_bytes.into())?;
    let from = InstanceId::new(std::str::from_utf8(name).ok()?).ok()?;
    let mut messages = vec![];
    while !rest.is_empty() {
        let Some((message, after)) = decode(rest) else {
            tracing::warn!(%from, "a message of another instance is cut off");
            break;
        };
        messages.extend(message);
        rest = after;
    }
    Some((from, messages))
}

/// The first message and the bytes behind it.
fn decode(bytes: &[u8]) -> Option<(Option<BusMessage>, &[u8])> {
    let (head_bytes, rest) = decode_length(bytes)?;
    let (&count, mut rest) = rest.split_first()?;
    if usize::from(count) > BLOBS_MAX {
        return None;
    }
    let mut lengths = [0; BLOBS_MAX];
    let lengths = &mut lengths[..count.into()];
    for length in lengths.iter_mut() {
        (*length, rest) = decode_length(rest)?;
    }
    let (head, mut rest) = rest.split_at_checked(head_bytes)?;
    let mut blobs = vec![];
    for &mut length in lengths {
        let (blob, after) = rest.split_at_checked(length)?;
        blobs.push(Bytes::copy_from_slice(blob));
        rest = after;
    }
    let head = serde_json::from_slice(head)
        .inspect_err(|error| tracing::warn!(%error, "cannot read a message of another instance"));
    Some((head.ok().map(|head| BusMessage { head, blobs }), rest))
}

fn decode_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*length) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(from: &InstanceId, messages: &[Vec<u8>]) -> Bytes {
        encode_batch(from, messages.iter().map(Vec::as_slice))
    }

    fn some() -> Vec<BusMessage> {
        let key: AttemptKey = LeaseKey { job: JobId::new(7), attempt: Attempt(2) }.into();
        let node = Text(NodeId::new("n").unwrap());
        let source = ReportSource { key, node: node.clone(), fence: Some(9) };
        let report = |kind| Head::Report { id: 1, source: source.clone(), kind };
        let blob = |text: &str| Bytes::from(text.to_owned());
        let assign = AssignHead {
            key,
            node,
            epoch: 1,
            fence: 9,
            left_ms: 5,
            served_as: "zh:en".parse().ok().map(Text),
            moved: true,
            used: 1,
            audio: Some(("pcm16".into(), 16_000)),
            stream: false,
        };
        let done = ReportKind::Done { output: r#"{"text": "你好"}"#.to_owned().into() };
        let failed = ReportKind::Failed { reason: "MODEL 坏".into(), retryable: true };
        let ended = PeerVerdict::Ended { state: Text(JobState::Done) };
        vec![
            BusMessage { head: Head::Assign(assign), blobs: vec![blob("{}"), blob("audio")] },
            report(done).into(),
            report(failed).into(),
            Head::Verdict { id: 3, verdict: ended }.into(),
            Head::LeasesLost { keys: vec![key, key], node: None }.into(),
        ]
    }

    fn encoded() -> Vec<Vec<u8>> {
        some().iter().map(BusMessage::encode).collect()
    }

    #[test]
    fn a_batch_reads_back_as_it_was_written() {
        let from = InstanceId::new("host:7410").unwrap();
        assert_eq!(decode_batch(&batch(&from, &encoded())), Some((from, some())));
    }

    #[test]
    fn a_batch_of_another_version_is_not_read() {
        let mut bytes = batch(&InstanceId::new("a").unwrap(), &encoded()).to_vec();
        bytes[0] += 1;
        assert_eq!(decode_batch(&bytes), None);
    }

    #[test]
    fn an_unknown_message_is_skipped() {
        let from = InstanceId::new("a").unwrap();
        let mut unknown = vec![];
        let head = br#"{"of_next_year":{}}"#;
        unknown.extend((head.len() as u32).to_le_bytes());
        unknown.push(0);
        unknown.extend(head);
        let messages = [some()[0].encode(), unknown, some()[1].encode()];
        assert_eq!(decode_batch(&batch(&from, &messages)).unwrap().1, some()[..2]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let from = InstanceId::new("a").unwrap();
        let whole = batch(&from, &encoded());
        for end in 0..whole.len() {
            decode_batch(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0x80;
            decode_batch(&bytes);
        }
    }
}
