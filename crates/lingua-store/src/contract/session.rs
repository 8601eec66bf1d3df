//! Session records: what another instance needs to take over a session.

use super::Bytes;
use crate::error::{Result, StoreError};

/// Most bytes of a session's record.
pub const SESSION_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a session's name.
pub const SESSION_NAME_BYTES_MAX: usize = 128;

/// Writes a session's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveSessionRequest {
    /// The session's name, at most [`SESSION_NAME_BYTES_MAX`].
    pub id: String,
    /// The version that this one replaces; 0 for the first. The new version is one more.
    pub replaces: u64,
    /// The content, at most [`SESSION_BYTES_MAX`].
    pub body: Bytes,
    /// How long the record is kept; 0 removes it.
    pub keep_ms: u64,
}

impl SaveSessionRequest {
    /// Checks the sizes; every store does this first.
    pub fn check(&self) -> Result<()> {
        let (record, name) = ("a session's record in bytes", "a session's name in bytes");
        StoreError::check_limit(record, self.body.len(), SESSION_BYTES_MAX)?;
        StoreError::check_limit(name, self.id.len(), SESSION_NAME_BYTES_MAX)
    }
}

/// The reply to a write of a session's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum SaveSessionReply {
    /// Written, now or by an earlier call with the same content.
    Saved,
    /// The present version is another one, 0 if there is no record; nothing was changed.
    Conflict { version: u64 },
}

/// A session's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Rises by one with each write.
    pub version: u64,
    /// The encoded session; the store does not look inside.
    pub body: Bytes,
}
