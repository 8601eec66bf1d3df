//! Idempotency keys: which job a client's key stands for.

use lingua_core::JobId;

/// The SHA-256 of a key and its owner, or of a request.
pub type Digest = [u8; 32];

/// Lets a key stand for a job that is about to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimKeyRequest {
    /// The key and its owner.
    pub key: Digest,
    /// What the client asked for.
    pub body: Digest,
    /// The job that the key stands for from now on.
    pub job: JobId,
    /// The key may be taken from this job.
    pub replaces: Option<JobId>,
}

/// The job that a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRecord {
    /// The job. It may not exist: it is created after its key is claimed, and an ended job may be
    /// dropped before its key.
    pub job: JobId,
    /// What the client asked for.
    pub body: Digest,
}

/// The reply to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimKeyReply {
    /// The key stands for the job of the request, since now or since an earlier call.
    Claimed,
    /// The key stands for another job; nothing was changed.
    Taken(KeyRecord),
}
