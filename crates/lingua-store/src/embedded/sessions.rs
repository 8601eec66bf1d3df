//! Session records, in memory.
//!
//! Invariant: at most `sessions_max` records. Expired ones are dropped when room is needed.

use hashbrown::HashMap;

use super::StoreLimits;
use crate::contract::{SaveSessionReply, SaveSessionRequest, SessionRecord};
use crate::error::{Result, StoreError};

#[derive(Debug, Clone)]
pub(super) struct SessionTable {
    limits: StoreLimits,
    known: HashMap<String, (SessionRecord, u64)>,
}

impl SessionTable {
    pub(super) fn new(limits: StoreLimits) -> Self {
        Self { limits, known: HashMap::new() }
    }

    pub(super) fn save(
        &mut self,
        request: SaveSessionRequest,
        now_ms: u64,
    ) -> Result<SaveSessionReply> {
        request.check()?;
        let SaveSessionRequest { id, replaces, body, keep_ms } = request;
        let present = self.get(&id, now_ms);
        let version = present.as_ref().map_or(0, |record| record.version);
        let is_repeated =
            present.is_some_and(|record| record.version == replaces + 1 && record.body == body);
        if version != replaces && !is_repeated {
            return Ok(SaveSessionReply::Conflict { version });
        }
        if keep_ms == 0 {
            self.known.remove(&id);
            return Ok(SaveSessionReply::Saved);
        }
        let limit = self.limits.sessions_max;
        if self.known.len() >= limit && !self.known.contains_key(&id) {
            self.known.retain(|_, (_, until_ms)| *until_ms >= now_ms);
            StoreError::check_limit("the number of sessions", self.known.len() + 1, limit)?;
        }
        let record = SessionRecord { version: replaces + 1, body };
        self.known.insert(id, (record, now_ms.saturating_add(keep_ms)));
        Ok(SaveSessionReply::Saved)
    }

    pub(super) fn get(&self, id: &str, now_ms: u64) -> Option<SessionRecord> {
        let (record, until_ms) = self.known.get(id)?;
        (*until_ms >= now_ms).then(|| record.clone())
    }
}
