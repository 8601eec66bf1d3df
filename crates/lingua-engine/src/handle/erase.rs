//! Erasing what is kept of jobs.
//!
//! Start at [`Engine::erase`]. What is kept is the record in the store, and for a while, in the
//! memory of instances, results that were not delivered and ends that a failover may lose.

use lingua_core::JobId;
use lingua_store::Store;
use lingua_store::contract::EraseReply;

use crate::bus::message::{Head, Text};
use crate::request::JobQuery;
use crate::{Engine, SubmitError, Timer};

/// What came of many erasures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErasedJobs {
    /// How many jobs were erased.
    pub erased: u64,
    /// There may be more of them, or some have not ended yet: ask again.
    pub more: bool,
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Erases everything that is kept of a job. A job that has not ended is cancelled first; if it
    /// has not ended in time it is still open.
    pub async fn erase(&self, id: JobId) -> Result<EraseReply, SubmitError> {
        let mut reply = self.store.erase_job(id).await?;
        if reply == EraseReply::Open {
            self.cancel(id).await?;
            reply = self.store.erase_job(id).await?;
        }
        if reply != EraseReply::Open {
            self.forget(id);
            let others = self.alive.lock().clone();
            for other in others.iter().filter(|other| **other != self.options.instance) {
                self.send(other, Head::Forget { job: Text(id) });
            }
        }
        Ok(reply)
    }

    /// Erases a page of jobs.
    pub async fn erase_jobs(&self, query: &JobQuery) -> Result<ErasedJobs, SubmitError> {
        let page = self.jobs(query).await?;
        let mut done = ErasedJobs { erased: 0, more: page.next.is_some() };
        for job in page.jobs {
            match self.erase(job.id).await? {
                EraseReply::Erased => done.erased += 1,
                EraseReply::Open => done.more = true,
                EraseReply::NotFound => {}
            }
        }
        Ok(done)
    }

    /// Forgets what this instance remembers of a job that was erased.
    pub(crate) fn forget(&self, id: JobId) {
        self.recent_results.forget(id);
        self.reconciler.forget(id);
    }
}
