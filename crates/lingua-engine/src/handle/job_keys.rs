//! Idempotency keys: the same key and body answer with the same job.
//!
//! Start at [`Engine::claim_key`]. A key stands for the id of a job before that job is created, so
//! that of two requests with one key both create, or find, the same job.

use std::ops::ControlFlow;

use lingua_core::JobId;
use lingua_store::Store;
use lingua_store::contract::{ClaimKeyReply, ClaimKeyRequest};

use crate::request::{IdempotencyKey, JobRequest};
use crate::state::timed;
use crate::{Engine, SubmitError, Timer};

/// How often a key is claimed while other requests take it at the same moment.
const CLAIMS_MAX: u32 = 4;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Lets the key of a request stand for its job. Breaks with the job that an earlier request
    /// with this key started. Continues with a request to create, whose id may be the one that an
    /// earlier request claimed but did not create.
    pub(super) async fn claim_key(
        &self,
        mut request: JobRequest,
    ) -> Result<ControlFlow<JobId, JobRequest>, SubmitError> {
        let Some(IdempotencyKey { key, body }) = request.key.as_deref().copied() else {
            return Ok(ControlFlow::Continue(request));
        };
        let (new, mut replaces) = (request.id, None);
        for _ in 0..CLAIMS_MAX {
            let claim = ClaimKeyRequest { key, body, job: new, replaces };
            let known = match timed!(self, "claim_key", self.store.claim_key(claim))? {
                ClaimKeyReply::Claimed => return Ok(ControlFlow::Continue(request)),
                ClaimKeyReply::Taken(known) if known.body != body => {
                    return Err(SubmitError::KeyReused);
                }
                ClaimKeyReply::Taken(known) => known.job,
            };
            match self.job(known).await? {
                None => {
                    request.id = known;
                    return Ok(ControlFlow::Continue(request));
                }
                Some(job) if job.may_be_sent_again() => replaces = Some(known),
                Some(_) => return Ok(ControlFlow::Break(known)),
            }
        }
        // Others started its job again and again meanwhile; the last one counts.
        Ok(ControlFlow::Break(replaces.unwrap_or(new)))
    }
}
