//! Records of sessions, in memory.
//!
//! Invariant: at most so many as the limits say; what is over is forgotten when there is need for room.

use hashbrown::HashMap;

use super::Limits;
use crate::contract::{SaveReply, SaveSession, SessionRecord};
use crate::error::{Error, Result};

#[derive(Debug, Clone)]
pub(super) struct Sessions {
    limits: Limits,
    known: HashMap<String, (SessionRecord, u64)>,
}

impl Sessions {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, known: HashMap::new() }
    }

    pub(super) fn save(&mut self, session: SaveSession, now_ms: u64) -> Result<SaveReply> {
        session.check()?;
        let SaveSession { id, replaces, body, keep_ms } = session;
        let stands = self.get(&id, now_ms);
        let version = stands.as_ref().map_or(0, |record| record.version);
        let is_repeated =
            stands.is_some_and(|record| record.version == replaces + 1 && record.body == body);
        if version != replaces && !is_repeated {
            return Ok(SaveReply::Conflict { version });
        }
        if keep_ms == 0 {
            self.known.remove(&id);
            return Ok(SaveReply::Saved);
        }
        let limit = self.limits.sessions_max;
        if self.known.len() >= limit && !self.known.contains_key(&id) {
            self.known.retain(|_, (_, until_ms)| *until_ms >= now_ms);
            if self.known.len() >= limit {
                return Err(Error::LimitReached { what: "the number of sessions", limit });
            }
        }
        let record = SessionRecord { version: replaces + 1, body };
        self.known.insert(id, (record, now_ms.saturating_add(keep_ms)));
        Ok(SaveReply::Saved)
    }

    pub(super) fn get(&self, id: &str, now_ms: u64) -> Option<SessionRecord> {
        let (record, until_ms) = self.known.get(id)?;
        (*until_ms >= now_ms).then(|| record.clone())
    }
}
