//! What is to be known of a session, so that another instance can go on with it.

use super::Bytes;
use crate::error::{Result, StoreError};

/// Most bytes of a session's record.
pub const SESSION_BYTES_MAX: usize = 64 << 10;

/// Longest name of a session, in bytes.
pub const SESSION_NAME_BYTES_MAX: usize = 128;

/// A session's record to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveSessionRequest {
    /// Which session.
    pub id: String,
    /// The version that it replaces; 0 for the first. The new one is one more.
    pub replaces: u64,
    /// What is to be known.
    pub body: Bytes,
    /// How long it is kept; with 0 it is removed.
    pub keep_ms: u64,
}

impl SaveSessionRequest {
    /// Whether it is within the limits; every store asks this first.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("a session's record in bytes", self.body.len(), SESSION_BYTES_MAX),
            ("a session's name in bytes", self.id.len(), SESSION_NAME_BYTES_MAX),
        ];
        match sizes.into_iter().find(|(_, bytes, limit)| bytes > limit) {
            Some((what, _, limit)) => Err(StoreError::LimitReached { what, limit }),
            None => Ok(()),
        }
    }
}

/// What writing a session's record answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveSessionReply {
    /// Written, now or by an earlier call with the same content.
    Saved,
    /// The version is another one; nothing was changed.
    Conflict {
        /// Which; 0 if there is no record.
        version: u64,
    },
}

/// A session's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Rises by one with each writing.
    pub version: u64,
    /// What is known.
    pub body: Bytes,
}
