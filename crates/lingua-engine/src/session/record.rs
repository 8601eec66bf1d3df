//! What the store knows of a session, so that another instance can go on with it.
//!
//! Start at [`Talk::save`] and [`Record::read`]. It is written before each segment becomes a job, with the name that the job will
//! have: whoever goes on finds a job for every segment, or knows that there will be none.
//!
//! Invariant: the latest instance that took a session over is the only one that writes it.

use std::str::FromStr;

use lingua_core::JobId;
use lingua_core::session::{Format, SegmentId};
use lingua_store::Store;
use lingua_store::contract::{Bytes, SaveSessionReply, SaveSessionRequest};
use serde::{Deserialize, Serialize};

use super::attached::Over;
use super::hub::{Holder, NewSession};
use super::talk::Talk;
use crate::clock::Timer;

/// How often it is tried to write a record that is not what it was thought to be.
const WRITE_TRIES: u32 = 3;

/// A session, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Tells who wrote it.
    life: u64,
    /// How often it was taken over before that.
    #[serde(default)]
    pub(super) hands: u64,
    secret: Holder,
    holder: Option<Holder>,
    plan: String,
    /// Samples a second of raw audio; Opus without.
    rate: Option<u32>,
    partials: bool,
    context: bool,
    pub(super) turns: u32,
    pub(super) segments: Vec<Segment>,
}

/// A segment: its number, its place, and its job if it became one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment(u64, u32, u32, Option<String>);

impl Segment {
    pub(super) fn new(seq: u64, id: SegmentId, job: Option<JobId>) -> Self {
        Self(seq, id.turn, id.segment, job.map(|job| job.to_string()))
    }

    pub(super) fn seq(&self) -> u64 {
        self.0
    }

    pub(super) fn id(&self) -> SegmentId {
        SegmentId { turn: self.1, segment: self.2 }
    }

    pub(super) fn job(&self) -> Option<JobId> {
        self.3.as_deref().and_then(|job| JobId::from_str(job).ok())
    }
}

impl Record {
    /// Reads a record; `None` if it was written by a version that is not understood.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    pub(super) fn secret(&self) -> &Holder {
        &self.secret
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// What the session was started with.
    pub(super) fn session(&self, id: &str) -> NewSession {
        NewSession {
            id: id.into(),
            secret: self.secret,
            holder: self.holder,
            plan: self.plan.clone().into_bytes().into(),
            format: match self.rate {
                Some(sample_rate) => Format::Pcm16 { sample_rate },
                None => Format::Opus,
            },
            partials: self.partials,
            context: self.context,
        }
    }
}

impl<S: Store, T: Timer> Talk<S, T> {
    /// Writes what is to be known; says whether the session is still this instance's.
    pub(super) async fn save(&self) -> lingua_store::Result<bool> {
        let options = &self.hub.options;
        self.write(options.idle_ms.saturating_add(options.resume_ms)).await
    }

    /// Lets the store forget the session, unless another instance has it.
    pub(super) async fn unsave(&self) {
        // If the store does not answer, the record runs out by itself.
        self.write(0).await.ok();
    }

    async fn write(&self, keep_ms: u64) -> lingua_store::Result<bool> {
        let store = &self.hub.engine.shared.store;
        let mut version = self.version.lock().await;
        if keep_ms > 0 && self.is_over() {
            return Ok(false);
        }
        let (body, last_seq) = self.record();
        for _ in 0..WRITE_TRIES {
            let (id, body) = (self.new.id.to_string(), body.clone());
            let save = SaveSessionRequest { id, replaces: *version, body, keep_ms };
            match store.save_session(save).await? {
                SaveSessionReply::Saved => {
                    *version += 1;
                    self.state.lock().written_seq = Some(last_seq);
                    return Ok(true);
                }
                SaveSessionReply::Conflict { .. } => {
                    // It may have been this one, whose answer was lost.
                    let Some(found) = store.session(&self.new.id).await? else {
                        if keep_ms == 0 {
                            return Ok(true);
                        }
                        // Nobody has it, and it lives: a failover has forgotten it, or it was silent for long.
                        *version = 0;
                        continue;
                    };
                    // Or a failover has brought back what somebody wrote who had it before.
                    let was_ours = self.state.lock().written_seq.is_some();
                    let is_ours =
                        |r: Record| r.life == self.life || was_ours && r.hands < self.hands;
                    if !Record::read(&found.body).is_some_and(is_ours) {
                        break;
                    }
                    *version = found.version;
                }
            }
        }
        self.finish(Over::Superseded);
        Ok(false)
    }

    /// What is to be known, and the last segment in it.
    fn record(&self) -> (Bytes, u64) {
        let mut state = self.state.lock();
        (state.saved_ms, state.is_unwritten) = (self.now_ms(), false);
        let record = Record {
            life: self.life,
            hands: self.hands,
            secret: self.new.secret,
            holder: self.new.holder,
            plan: String::from_utf8_lossy(&self.new.plan).into_owned(),
            rate: match self.new.format {
                Format::Pcm16 { sample_rate } => Some(sample_rate),
                Format::Opus => None,
            },
            partials: self.new.partials,
            context: self.new.context,
            turns: state.segmenter.turns(),
            segments: state.segments.iter().cloned().collect(),
        };
        let last_seq = record.segments.last().map_or(0, Segment::seq);
        (serde_json::to_vec(&record).unwrap_or_default().into(), last_seq)
    }
}
