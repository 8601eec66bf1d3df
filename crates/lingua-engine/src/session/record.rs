//! A session's record in the store, from which another instance continues the session.
//!
//! Start at [`LiveSession::save`] and [`StoredSession::decode`]. The record is written before each
//! segment becomes a job and holds the job's id, so that an instance that takes the session over
//! finds the job of every segment, or knows that there is none.
//!
//! Invariant: only the instance that took the session over last writes its record.

use std::sync::Arc;

use lingua_core::session::{AudioEncoding, Direction, SegmentId, SessionPlan};
use lingua_core::{JobId, LangPair, NodeId, RequiredLabels, Source, Tenant};
use lingua_store::Store;
use lingua_store::contract::{Bytes, SaveSessionReply, SaveSessionRequest};
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use super::connection::CloseReason;
use super::live::LiveSession;
use super::registry::{NewSession, SecretHash};
use crate::clock::Timer;
use crate::versioned;

/// How often to write a record whose version in the store is not the expected one.
const WRITE_ATTEMPTS: u32 = 3;

/// A session as it is stored.
#[serde_as]
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    /// Who wrote it: see [`LiveSession::incarnation`].
    incarnation: u64,
    pub(super) takeovers: u64,
    secret: SecretHash,
    token: Option<SecretHash>,
    #[serde_as(as = "DisplayFromStr")]
    tenant: Tenant,
    plan: PlanRecord,
    pub(super) turns: u32,
    pub(super) segments: Vec<SegmentRecord>,
}

/// A [`SessionPlan`] as it is stored.
#[serde_as]
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlanRecord {
    /// Source and target, or the languages of both speakers.
    #[serde_as(as = "DisplayFromStr")]
    pair: LangPair,
    two_way: bool,
    require_tts: bool,
    partials: bool,
    context: bool,
    vad: Option<bool>,
    /// Of `pcm16`; Opus if absent.
    sample_rate: Option<u32>,
    #[serde_as(as = "Option<DisplayFromStr>")]
    preferred: Option<NodeId>,
    public: Option<bool>,
    labels: Vec<String>,
}

/// A segment: its `seq`, turn, number within the turn, and job if it became one.
#[serde_as]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentRecord(
    u64,
    u32,
    u32,
    #[serde_as(as = "Option<DisplayFromStr>")] Option<JobId>,
);

impl SegmentRecord {
    pub(super) fn new(seq: u64, id: SegmentId, job: Option<JobId>) -> Self {
        Self(seq, id.turn, id.segment, job)
    }

    pub(super) fn seq(&self) -> u64 {
        self.0
    }

    pub(super) fn id(&self) -> SegmentId {
        SegmentId { turn: self.1, segment: self.2 }
    }

    pub(super) fn job(&self) -> Option<JobId> {
        self.3
    }
}

impl StoredSession {
    /// The first byte of a record: the version of what follows, JSON.
    pub(crate) const VERSION: u8 = 4;

    /// Reads a record; `None` if another version of Lingua wrote it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        versioned::decode(Self::VERSION, bytes).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        versioned::encode(Self::VERSION, self)
    }

    /// The session as it was started; `None` if the record is damaged.
    pub(crate) fn session(&self, id: &str) -> Option<NewSession> {
        let plan = self.plan.to_plan()?;
        let Self { secret, token, tenant, .. } = *self;
        // The limits of its token are known where the session started.
        Some(NewSession { id: id.into(), secret, token, tenant, limited: None, plan })
    }
}

impl PlanRecord {
    fn new(plan: &SessionPlan) -> Self {
        let (pair, two_way) = match plan.direction {
            Direction::OneWay { src, tgt } => (LangPair { src, tgt }, false),
            Direction::TwoWay { a, b } => (LangPair::known(a, b), true),
        };
        Self {
            pair,
            two_way,
            require_tts: plan.require_tts,
            partials: plan.partials,
            context: plan.context,
            vad: plan.vad,
            sample_rate: match plan.audio {
                AudioEncoding::Pcm16 { sample_rate } => Some(sample_rate),
                AudioEncoding::Opus => None,
            },
            preferred: plan.preferred.clone(),
            public: plan.public,
            labels: plan.labels.iter().map(|label| label.to_string()).collect(),
        }
    }

    fn to_plan(&self) -> Option<SessionPlan> {
        let LangPair { src, tgt } = self.pair;
        let direction = match (self.two_way, src) {
            (false, _) => Direction::OneWay { src, tgt },
            (true, Source::Known(a)) => Direction::TwoWay { a, b: tgt },
            (true, Source::Auto) => return None,
        };
        let audio = match self.sample_rate {
            Some(sample_rate) => AudioEncoding::Pcm16 { sample_rate },
            None => AudioEncoding::Opus,
        };
        let Self { require_tts, partials, context, vad, public, .. } = *self;
        let labels: Option<Vec<_>> = self.labels.iter().map(|label| label.parse().ok()).collect();
        Some(SessionPlan {
            direction,
            require_tts,
            partials,
            context,
            vad,
            audio,
            preferred: self.preferred.clone(),
            public,
            labels: RequiredLabels::new(labels?).ok()?,
        })
    }
}

impl<S: Store, T: Timer> LiveSession<S, T> {
    /// Writes the record; returns false if another instance owns the session.
    pub(super) async fn save(&self) -> lingua_store::Result<bool> {
        let options = &self.registry.options;
        self.write(options.idle_ms.saturating_add(options.resume_ms)).await
    }

    pub(super) fn spawn_save(self: &Arc<Self>) {
        let session = Arc::clone(self);
        tokio::spawn(async move { session.save().await.ok() });
    }

    /// Deletes the record, unless another instance owns the session.
    pub(super) async fn delete_record(&self) {
        // If the store fails, the record expires.
        self.write(0).await.ok();
    }

    async fn write(&self, keep_ms: u64) -> lingua_store::Result<bool> {
        let store = &self.engine().store;
        let mut version = self.version.lock().await;
        if keep_ms > 0 && self.is_closed() {
            return Ok(false);
        }
        let record = self.record();
        let last_seq = record.segments.last().map_or(0, SegmentRecord::seq);
        let body = Bytes::from(record.encode());
        for _ in 0..WRITE_ATTEMPTS {
            let identity = store.identity();
            let (id, body) = (self.info.id.to_string(), body.clone());
            let save = SaveSessionRequest { id, replaces: *version, body, keep_ms };
            match store.save_session(save).await? {
                SaveSessionReply::Saved => {
                    *version += 1;
                    let mut state = self.state.lock();
                    (state.saved_seq, state.stored_in) = (Some(last_seq), Some(identity));
                    return Ok(true);
                }
                SaveSessionReply::Conflict { .. } => {
                    // This instance may have written it itself, if a reply was lost.
                    let Some(found) = store.session(&self.info.id).await? else {
                        if keep_ms == 0 {
                            return Ok(true);
                        }
                        // Without a failover nobody has lost the record: the session has moved, and
                        // has ended elsewhere.
                        if self.state.lock().stored_in == Some(store.identity()) {
                            break;
                        }
                        *version = 0;
                        continue;
                    };
                    if !StoredSession::decode(&found.body).is_some_and(|r| self.outranks(&r)) {
                        break;
                    }
                    *version = found.version;
                }
            }
        }
        self.close(CloseReason::Superseded);
        Ok(false)
    }

    /// Whether this instance may overwrite the record: it wrote the record itself, or a failover
    /// brought back the record of an earlier owner.
    fn outranks(&self, record: &StoredSession) -> bool {
        let was_owner = self.state.lock().saved_seq.is_some();
        record.incarnation == self.incarnation || was_owner && record.takeovers < self.takeovers
    }

    fn record(&self) -> StoredSession {
        let mut state = self.state.lock();
        (state.saved_ms, state.is_save_pending) = (self.now_ms(), false);
        StoredSession {
            incarnation: self.incarnation,
            takeovers: self.takeovers,
            secret: self.info.secret,
            token: self.info.token,
            tenant: self.info.tenant,
            plan: PlanRecord::new(&self.info.plan),
            turns: state.segmenter.turns(),
            segments: state.segments.iter().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_this_version_reads_back_and_others_are_refused() {
        let directions = [
            Direction::OneWay { src: Source::Auto, tgt: "en".parse().unwrap() },
            Direction::TwoWay { a: "zh".parse().unwrap(), b: "en".parse().unwrap() },
        ];
        for (direction, audio) in directions
            .into_iter()
            .zip([AudioEncoding::Opus, AudioEncoding::Pcm16 { sample_rate: 8_000 }])
        {
            let plan = SessionPlan {
                direction,
                require_tts: true,
                partials: false,
                context: true,
                vad: Some(true),
                audio,
                preferred: NodeId::new("n1").ok(),
                public: Some(false),
                labels: RequiredLabels::new(["eu".parse().unwrap()]).unwrap(),
            };
            let id = SegmentId { turn: 3, segment: 2 };
            let record = StoredSession {
                incarnation: u64::MAX,
                takeovers: 1,
                secret: [7; 32],
                token: None,
                tenant: "alice".parse().unwrap(),
                plan: PlanRecord::new(&plan),
                turns: 3,
                segments: vec![SegmentRecord::new(9, id, Some(JobId::new(5)))],
            };
            let bytes = record.encode();
            let read = StoredSession::decode(&bytes).unwrap();
            assert_eq!(read, record);
            assert_eq!(read.session("s").unwrap().plan, plan);
            assert_eq!((read.segments[0].id(), read.segments[0].job()), (id, Some(JobId::new(5))));
            assert_eq!(StoredSession::decode(&bytes[1..]), None, "without a version");
            assert_eq!(
                StoredSession::decode(&[&[StoredSession::VERSION + 1], &bytes[1..]].concat()),
                None
            );
        }
        assert_eq!(StoredSession::decode(b""), None);
    }
}
