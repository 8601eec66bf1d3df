//! A job's request, its progress and its end, as the edge and the runner see them.
//!
//! Start at [`JobRequest`] and [`JobStatus`]. The engine schedules by the request's
//! [`JobSpec`]; texts, audio and results it only passes on.

use std::sync::Arc;

use bytes::Bytes;
use lingua_core::job::{JobFailure, JobSpec, JobState, Payload, Stage};
use lingua_core::{Attempt, InstanceId, JobId, LangPair, NodeId, Tenant};
use lingua_store::contract::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};

use crate::byte_budget::HeldBytes;
use crate::speech::Speech;
use crate::usage_limit::{HeldUsage, LimitedToken};
use crate::versioned;

/// Bytes that an open job counts beside its spec: its task, its progress, its record.
pub(crate) const OPEN_JOB_BYTES: usize = 4 << 10;

/// A job to be done. Clones share the spec and the speech.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// Made by the edge; replaced if the key stands for another job.
    pub id: JobId,
    /// What is to be done.
    pub spec: Arc<JobSpec>,
    /// Audio that may still be growing while the job runs; the spec's payload is absent then.
    pub speech: Option<Arc<Speech>>,
    /// The client's idempotency key, if it sent one.
    pub key: Option<Box<IdempotencyKey>>,
    /// The token of the client, if that has limits of its own.
    pub token: Option<Arc<LimitedToken>>,
    /// The bytes that the job, and its inline audio, take of the instance's budgets.
    pub(crate) held: Option<Arc<HeldBytes>>,
    pub(crate) held_audio: Option<Arc<HeldBytes>>,
    /// What it counts towards the limits of its tenant and token.
    pub(crate) usage: Option<Arc<HeldUsage>>,
}

/// The same key and body mean the same job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The SHA-256 of the key and its owner.
    pub key: Digest,
    /// The SHA-256 of the request.
    pub body: Digest,
}

impl JobRequest {
    /// A job whose payload is in its spec.
    pub fn new(id: JobId, spec: JobSpec) -> Self {
        Self {
            id,
            spec: Arc::new(spec),
            speech: None,
            key: None,
            token: None,
            held: None,
            held_audio: None,
            usage: None,
        }
    }

    /// Bytes that the job holds in memory here, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let spec = &self.spec;
        let text = if let Payload::Text(text) = &spec.payload { text.len() } else { 0 };
        let context: usize = spec.context.iter().map(|text| text.len()).sum();
        OPEN_JOB_BYTES + text + context + self.audio_bytes()
    }

    /// Bytes of audio that is in memory here.
    pub(crate) fn audio_bytes(&self) -> usize {
        match (&self.speech, &self.spec.payload) {
            (Some(speech), _) => speech.len(),
            (None, Payload::Audio { data, .. }) => data.len(),
            (None, _) => 0,
        }
    }

    /// The audio that is in memory here, as far as it was spoken: format, rate in Hz, and bytes.
    pub fn audio(&self) -> Option<(Arc<str>, Option<u32>, Bytes)> {
        if let Some(speech) = &self.speech {
            let rate = Some(speech.sample_rate).filter(|rate| *rate > 0);
            return Some((Arc::clone(&speech.format), rate, speech.to_bytes()));
        }
        match &self.spec.payload {
            Payload::Audio { format, sample_rate, data } => {
                Some((Arc::clone(format), *sample_rate, data.clone()))
            }
            Payload::AudioRef(_) | Payload::Text(_) | Payload::Absent => None,
        }
    }
}

/// One attempt of a job.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Counted from 1.
    pub attempt: u32,
    /// The node that got it.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub node: NodeId,
    /// When it got its slot.
    pub reserved_ms: u64,
    /// The direction in the tags that the node registered, if those are not the job's.
    #[serde(default)]
    #[serde_as(as = "Option<DisplayFromStr>")]
    pub served_as: Option<LangPair>,
    /// When the node confirmed it.
    pub acked_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// Why it failed, if it did.
    pub reason: Option<String>,
}

impl AttemptRecord {
    /// An attempt that has just got its slot.
    pub(crate) fn new(attempt: u32, node: NodeId, reserved_ms: u64) -> Self {
        let (served_as, acked_ms, ended_ms, reason) = (None, None, None, None);
        Self { attempt, node, reserved_ms, served_as, acked_ms, ended_ms, reason }
    }
}

fn write_name<S: Serializer>(node: &NodeId, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(node.as_str())
}

fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<NodeId, D::Error> {
    NodeId::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// What a node gave for a job: JSON that is passed on as it came, and never copied.
#[derive(Debug, Clone)]
pub struct ResultJson(Arc<RawValue>);

impl ResultJson {
    /// The result as the JSON text that the client gets.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The JSON, to be embedded in other JSON.
    pub fn raw(&self) -> Arc<RawValue> {
        Arc::clone(&self.0)
    }
}

impl From<Arc<RawValue>> for ResultJson {
    fn from(raw: Arc<RawValue>) -> Self {
        Self(raw)
    }
}

/// A text that is not JSON becomes a JSON string.
impl From<String> for ResultJson {
    fn from(text: String) -> Self {
        let raw = RawValue::from_string(text.clone());
        let raw = raw.or_else(|_| serde_json::value::to_raw_value(&text));
        Self(raw.expect("a text can be written as JSON").into())
    }
}

impl Serialize for ResultJson {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ResultJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(from)?.into()))
    }
}

impl PartialEq for ResultJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for ResultJson {}

/// What a node gave for a job, in two forms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    /// What is kept with the job: texts, never audio.
    pub kept: ResultJson,
    /// All of it, if that is more: speech, and fields that the scheduler does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<ResultJson>,
}

impl From<ResultJson> for JobOutput {
    fn from(kept: ResultJson) -> Self {
        Self { kept, full: None }
    }
}

impl From<String> for JobOutput {
    fn from(kept: String) -> Self {
        ResultJson::from(kept).into()
    }
}

/// How a job ended. The store keeps it as a version byte and JSON.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobEnd {
    /// The code of its failure.
    pub error: Option<String>,
    /// What went wrong, for people.
    pub detail: Option<String>,
    /// What the node gave, as far as it is kept: never audio.
    pub result: Option<ResultJson>,
    /// The node gave more than is kept; it is in the owner's memory for a while, see
    /// [`Engine::with_full_result`](crate::Engine::with_full_result).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub had_more: bool,
    /// All attempts, in order.
    pub attempts: Vec<AttemptRecord>,
    /// When the job was accepted.
    pub accepted_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// How long it waited for slots, over all attempts.
    pub waited_ms: u64,
}

impl JobEnd {
    /// The first byte of a stored end; raised with every change of its fields.
    pub(crate) const VERSION: u8 = 2;

    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned::encode(Self::VERSION, self)
    }

    /// Reads a stored end; `None` if another version wrote it, or it is damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        versioned::decode(Self::VERSION, bytes).ok()
    }

    pub(crate) fn fail(&mut self, failure: JobFailure, detail: Option<String>) {
        self.error = Some(failure.code().to_owned());
        self.detail = Some(detail.unwrap_or_else(|| failure.to_string()));
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The state of the current attempt.
    pub state: JobState,
    /// The current attempt.
    pub attempt: Attempt,
    /// The node of the current attempt.
    pub node: Option<NodeId>,
    /// The attempts so far; empty once the job has ended, because `ended` has them.
    pub so_far: Vec<AttemptRecord>,
    /// How it ended, if it has.
    pub ended: Option<Arc<JobEnd>>,
    /// The latest partial text of the current attempt.
    pub partial: Option<Arc<str>>,
}

impl Progress {
    /// A job at this stage, of which no more is known.
    pub fn at(stage: Stage) -> Self {
        let Stage { state, attempt } = stage;
        Self { state, attempt, node: None, so_far: vec![], ended: None, partial: None }
    }

    /// The job's attempts, in order.
    pub fn attempts(&self) -> &[AttemptRecord] {
        self.ended.as_deref().map_or(&self.so_far, |ended| &ended.attempts)
    }
}

impl JobStatus {
    /// Whether the job belongs to this tenant. A job whose spec cannot be read belongs to none.
    pub fn is_of(&self, tenant: Tenant) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.tenant == tenant)
    }
}

/// Which jobs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only jobs of this tenant.
    pub tenant: Option<Tenant>,
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs of this session.
    pub session: Option<Arc<str>>,
    /// Only jobs whose last attempt is or was on this node.
    pub node: Option<NodeId>,
    /// Only jobs before this one: the `next` of the page before.
    pub after: Option<JobId>,
    /// At most this many.
    pub limit: usize,
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobStatusPage {
    /// At most as many as were asked for. The work for one page is bounded, so that there may be
    /// fewer, or none, while more follow.
    pub jobs: Vec<JobStatus>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<JobId>,
}

/// All that is known of a job.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// The id under which the client asks for it.
    pub id: JobId,
    /// The instance that runs it.
    pub owner: InstanceId,
    /// How far it is.
    pub progress: Progress,
    /// What was asked for; absent if the store's record of it cannot be read.
    pub spec: Option<Arc<JobSpec>>,
    /// When it was accepted.
    pub accepted_ms: u64,
    /// When it last changed.
    pub updated_ms: u64,
}

impl JobStatus {
    /// Whether it ended in a way that asks the client to send it again.
    pub fn may_be_sent_again(&self) -> bool {
        let error = self.progress.ended.as_ref().and_then(|ended| ended.error.as_deref());
        error.is_some_and(JobFailure::asks_to_send_again)
    }
}
