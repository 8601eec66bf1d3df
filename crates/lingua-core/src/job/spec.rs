//! A job as its client asked for it, checked and within all bounds.
//!
//! Start at [`JobSpec`]. The edge makes one from a request, the engine schedules by it, and the
//! part that outlives an instance is kept in the store. It never changes after it was made.

use std::sync::Arc;

use bytes::Bytes;

use crate::capability::Needs;
use crate::id::{NodeId, Tenant};
use crate::lang::{LangPair, Source};

/// Everything that a client can say about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The conversation that the job belongs to.
    pub session: Arc<str>,
    /// The id that follows the job through logs and nodes.
    pub trace: Arc<str>,
    /// The direction. With `two_way` it stands for both directions.
    pub pair: LangPair,
    /// The node finds out which of the two languages is spoken, so it must serve both directions.
    pub two_way: bool,
    /// The services that a node must have.
    pub needs: Needs,
    /// What is to be translated.
    pub payload: Payload,
    /// Earlier texts of the conversation, oldest first.
    pub context: Vec<Arc<str>>,
    /// The node that the client prefers.
    pub preferred: Option<NodeId>,
    /// Fail rather than use another node than the preferred one.
    pub strict: bool,
    /// Nodes that must not get the job.
    pub exclude: Vec<NodeId>,
    /// Jobs with the same key go to the same node while it lives and has a free slot.
    pub bind_key: Option<Arc<str>>,
    /// How long the job may wait for a slot; `None` means the scheduler's default.
    pub wait_ms: Option<u64>,
    /// How long the job may take in all, from its acceptance on; `None` means no limit.
    pub deadline_ms: Option<u64>,
    /// Waiting jobs of a higher priority go first; 0 is usual.
    pub priority: i32,
    /// Only nodes that accept public jobs may get it; if false, only nodes of its own tenant.
    pub public: bool,
    /// The tenant whose limits and share apply, and that may see the job.
    pub tenant: Tenant,
}

/// What is to be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Audio that the node fetches itself.
    AudioRef(Arc<str>),
    /// Audio that came with the request. It lives in memory only.
    Audio {
        /// `pcm16`, `wav`, `opus`, …
        format: Arc<str>,
        /// In Hz; `None` if the format has a header that says it.
        sample_rate: Option<u32>,
        /// The encoded audio.
        data: Bytes,
    },
    /// Text, so that nothing has to be recognised.
    Text(Arc<str>),
    /// Nothing here: the audio is still being spoken, or it was lost with the instance that held
    /// it, or the client only asks which node would get the job.
    Absent,
}

impl JobSpec {
    /// A public job without any wishes: speech to text on whichever node has a free slot.
    pub fn new(pair: LangPair, payload: Payload) -> Self {
        Self {
            session: Arc::default(),
            trace: Arc::default(),
            pair,
            two_way: false,
            needs: Needs::SPEECH_TO_TEXT,
            payload,
            context: Vec::new(),
            preferred: None,
            strict: false,
            exclude: Vec::new(),
            bind_key: None,
            wait_ms: None,
            deadline_ms: None,
            priority: 0,
            public: true,
            tenant: Tenant::default(),
        }
    }

    /// The spoken language, as far as it is known before a node has listened.
    pub fn source(&self) -> Source {
        if self.two_way { Source::Auto } else { self.pair.src }
    }

    /// Whether another instance could run the job from what the store keeps of it.
    pub fn is_recoverable(&self) -> bool {
        matches!(self.payload, Payload::AudioRef(_) | Payload::Text(_))
    }
}
