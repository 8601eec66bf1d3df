//! What a job asks for, and what came of it.
//!
//! The engine looks at directions, needs and times; what is said in a request or a result it only
//! passes on.

use std::fmt;
use std::sync::Arc;

use lingua_core::job::{Failure, JobState, Stage};
use lingua_core::{Attempt, InstanceId, JobId, LangPair, Needs, NodeId};
use lingua_store::contract::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::speech::Speech;

mod kept;

pub(crate) use kept::Kept;

/// What the speaker said, in one of four forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Somewhere else; survives this instance.
    AudioRef(Arc<str>),
    /// Here.
    Audio {
        /// How it is coded.
        format: Arc<str>,
        /// In Hz.
        sample_rate: u32,
        /// The sound.
        data: Bytes,
    },
    /// Here, and perhaps still growing.
    Speech(Arc<Speech>),
    /// Already written down.
    Text(Arc<str>),
}

impl Input {
    /// What was said, if it is sound that is here: format, rate in Hz, and the sound.
    pub fn sound(&self) -> Option<(Arc<str>, u32, Bytes)> {
        match self {
            Self::Audio { format, sample_rate, data } => {
                Some((Arc::clone(format), *sample_rate, Arc::clone(data)))
            }
            Self::Speech(speech) => {
                Some((Arc::clone(&speech.format), speech.sample_rate, speech.since(0).0))
            }
            Self::AudioRef(_) | Self::Text(_) => None,
        }
    }
}

/// An utterance to translate.
#[derive(Debug, Clone)]
pub struct JobRequest {
    /// Its id, made by the edge (from the idempotency key, if there is one).
    pub id: JobId,
    /// Who speaks.
    pub session: Arc<str>,
    /// Follows the job through logs and nodes.
    pub trace: Arc<str>,
    /// Direction.
    pub pair: LangPair,
    /// Services.
    pub needs: Needs,
    /// What was said.
    pub input: Input,
    /// Whether only nodes that accept public jobs may get it.
    pub public: bool,
    /// The node that the client would like.
    pub preferred: Option<NodeId>,
    /// Rather fail than go to another one.
    pub strict: bool,
    /// Nodes that must not get it.
    pub exclude: Vec<NodeId>,
    /// Jobs with the same key go to the same node while it lives and has room.
    pub bind_key: Option<Arc<str>>,
    /// How long it may wait for a slot.
    pub wait_ms: u64,
    /// How long it may take in all.
    pub deadline_ms: Option<u64>,
    /// Higher goes first.
    pub priority: i32,
    /// What only some jobs have.
    pub extras: Option<Arc<Extras>>,
    /// The request as the edge can read it back.
    pub spec: Bytes,
}

/// What only some jobs have, those of conversations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// It may also be the other direction: the node finds out, so it has to be able to do both.
    pub two_way: bool,
    /// What was said before, the oldest first.
    pub context: Vec<Arc<str>>,
}

impl JobRequest {
    /// A job without any wishes: speech to text, whichever node is free at once.
    pub fn plain(id: JobId, pair: LangPair, input: Input) -> Self {
        let nothing: Arc<str> = Arc::from("");
        Self {
            id,
            session: Arc::clone(&nothing),
            trace: nothing,
            pair,
            needs: Needs::SPEECH_TO_TEXT,
            input,
            public: true,
            preferred: None,
            strict: false,
            exclude: vec![],
            bind_key: None,
            wait_ms: 0,
            deadline_ms: None,
            priority: 0,
            extras: None,
            spec: Arc::from(&b""[..]),
        }
    }

    /// Whether the direction is left to the node.
    pub fn is_two_way(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.two_way)
    }

    /// Whether another instance could go on with it.
    pub fn is_recoverable(&self) -> bool {
        !matches!(self.input, Input::Audio { .. } | Input::Speech(_))
    }
}

/// Reads a [`JobRequest`] back from its `spec`.
#[derive(Clone)]
pub struct Decode(Arc<DecodeFn>);

type DecodeFn = dyn Fn(JobId, &[u8]) -> Option<JobRequest> + Send + Sync;

impl Decode {
    /// From a function of the edge.
    pub fn new(f: impl Fn(JobId, &[u8]) -> Option<JobRequest> + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    pub(crate) fn request(&self, id: JobId, spec: &[u8]) -> Option<JobRequest> {
        (self.0)(id, spec)
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decode")
    }
}

/// A try of a job, as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// Which.
    pub attempt: u32,
    /// Where.
    #[serde(serialize_with = "write_name", deserialize_with = "read_name")]
    pub node: NodeId,
    /// When it got its slot.
    pub reserved_ms: u64,
    /// When the node confirmed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_ms: Option<u64>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Why it came to nothing, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn write_name<S: Serializer>(node: &NodeId, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(node.as_str())
}

fn read_name<'de, D: Deserializer<'de>>(from: D) -> Result<NodeId, D::Error> {
    NodeId::new(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

/// What a node made of a job: JSON that is passed on as it came, and never copied.
#[derive(Clone)]
pub struct JobResult(Arc<RawValue>);

impl JobResult {
    /// The JSON.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The JSON, to be put into another.
    pub fn raw(&self) -> Arc<RawValue> {
        Arc::clone(&self.0)
    }
}

impl From<Arc<RawValue>> for JobResult {
    fn from(raw: Arc<RawValue>) -> Self {
        Self(raw)
    }
}

/// A text that is no JSON becomes a JSON text.
impl From<String> for JobResult {
    fn from(text: String) -> Self {
        let raw = RawValue::from_string(text.clone());
        let raw = raw.or_else(|_| serde_json::value::to_raw_value(&text));
        Self(raw.expect("a text can be written as JSON").into())
    }
}

impl Serialize for JobResult {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(out)
    }
}

impl<'de> Deserialize<'de> for JobResult {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(from)?.into()))
    }
}

impl PartialEq for JobResult {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JobResult {}

impl fmt::Debug for JobResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ended {
    /// The code of its failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The result, as the node's JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Its tries.
    pub tries: Vec<Try>,
    /// When it was accepted.
    pub accepted_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// How long it waited for slots, over all tries.
    pub waited_ms: u64,
    /// As the store keeps it, once somebody has asked for that.
    #[serde(skip)]
    pub(crate) kept: Kept,
}

impl Ended {
    pub(crate) fn fail(&mut self, failure: Failure, detail: Option<String>) {
        self.error = Some(failure.code().to_owned());
        self.detail = Some(detail.unwrap_or_else(|| failure.to_string()));
    }
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Its state.
    pub state: JobState,
    /// Its attempt.
    pub attempt: Attempt,
    /// The node of the attempt.
    pub node: Option<NodeId>,
    /// Its tries, until it has ended.
    pub so_far: Vec<Try>,
    /// How it ended, if it has.
    pub ended: Option<Arc<Ended>>,
    /// The latest part of the text, while the attempt that gave it goes on.
    pub partial: Option<Arc<str>>,
}

impl Progress {
    /// A job that stands here, and of which no more is known.
    pub fn at(stage: Stage) -> Self {
        let Stage { state, attempt } = stage;
        Self { state, attempt, node: None, so_far: vec![], ended: None, partial: None }
    }

    /// The job's tries.
    pub fn tries(&self) -> &[Try] {
        self.ended.as_deref().map_or(&self.so_far, |ended| &ended.tries)
    }
}

/// A job as people see it.
#[derive(Debug, Clone)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// The instance that runs it.
    pub owner: InstanceId,
    /// Where it stands.
    pub progress: Progress,
    /// What it asked for, if it runs here.
    pub request: Option<Arc<JobRequest>>,
    /// The request as the edge can read it back.
    pub spec: Bytes,
    /// When it was accepted.
    pub accepted_ms: u64,
    /// When it last moved.
    pub updated_ms: u64,
}
