//! What the store and those who watch are told about a job.

use std::sync::Arc;

use lingua_core::job::Stage;
use lingua_store::Store;
use lingua_store::contract::{Advance, AdvanceReply, Bytes, JOB_BYTES_MAX};

use super::Runner;
use crate::clock::Timer;
use crate::events;
use crate::live::Partial;
use crate::metrics::Metrics;
use crate::request::{Ended, Progress};

/// How often writing is tried before the job is left to the clean-up.
const WRITE_TRIES: u32 = 40;

/// How long between two such tries.
const WRITE_PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> Runner<S, T> {
    /// Writes where the job stands; says whether it is written. What is not must not be acted upon:
    /// the job belongs to another instance by then, or the store is gone and the job is left to
    /// whoever finds it there.
    pub(super) async fn write(&mut self) -> bool {
        let to = self.job.stage();
        let now_ms = self.shared.now_ms();
        self.ended.ended_ms = now_ms;
        if to.state.is_terminal() {
            Metrics::count(&self.shared.metrics.jobs, "state", to.state.as_str());
            self.shared.metrics.stage("total", now_ms - self.ended.accepted_ms);
            if let Some(last) = self.ended.tries.last_mut() {
                last.ended_ms.get_or_insert(now_ms);
            }
        }
        let owner = self.shared.options.instance.clone();
        let token = self.shared.random_u64();
        let Ok(step) = Advance::new(self.id(), owner, self.written, to, token) else {
            tracing::error!(job_id = %self.id(), from = %self.written, to = %to, "illegal step");
            return false;
        };
        let mut step = step.with_grant(self.job.grant().cloned());
        if to.state.is_terminal() {
            step = step.with_outcome(self.outcome());
        }
        for _ in 0..WRITE_TRIES {
            let advance = self.shared.store.advance_job(step.clone());
            match self.shared.timed("advance_job", advance).await {
                Ok(AdvanceReply::Advanced) => {
                    self.written = to;
                    return true;
                }
                Ok(reply) => {
                    // Another instance has taken the job over: it is not ours to end.
                    tracing::warn!(job_id = %self.id(), ?reply, "the job is no longer ours");
                    return false;
                }
                Err(error) if error.is_safe_to_retry() => {
                    self.shared.timer.sleep(WRITE_PAUSE_MS).await;
                }
                Err(error) => {
                    tracing::error!(job_id = %self.id(), %error, "cannot write the job");
                    return false;
                }
            }
        }
        false
    }

    /// How the job ended, as it is kept. A result that is too large to be kept is given to whoever
    /// waits for it and left out here.
    fn outcome(&self) -> Bytes {
        let json = |ended: &Ended| serde_json::to_vec(ended).unwrap_or_default();
        let whole = json(&self.ended);
        if whole.len() <= JOB_BYTES_MAX {
            return whole.into();
        }
        let bytes = self.ended.result.as_ref().map_or(0, String::len);
        let detail = format!("the result has {bytes} bytes, too many to be kept");
        let ended = Ended { result: None, detail: Some(detail), ..self.ended.clone() };
        json(&ended).into()
    }

    /// Shows everybody who watches where the job stands.
    pub(super) fn publish(&self) {
        let Stage { state, attempt } = self.job.stage();
        let ended = state.is_terminal().then(|| Arc::new(self.ended.clone()));
        let node = self.job.grant().map(|grant| grant.node.clone());
        self.shared.tell(events::Event::Job { job: self.id(), attempt, state, node: node.clone() });
        let tries = self.ended.tries.clone();
        self.progress.send_modify(|progress| {
            // A node may confirm the job once more after it has said something.
            let partial = progress.partial.take().filter(|_| !state.is_terminal());
            *progress = Progress { state, attempt, node, tries, ended, partial };
        });
    }

    /// Shows everybody who watches what the node has so far. Only the latest text is kept, and only
    /// the attempt that goes on is heard.
    pub(super) fn hear_partial(&self, partial: Partial) {
        let Partial { report, text } = partial;
        if self.job.would_hear(&report).is_err() {
            return self.refuse_partial();
        }
        let Stage { state, attempt } = self.job.stage();
        let (job, node) = (self.id(), report.node);
        let told = Arc::clone(&text);
        self.shared.tell(events::Event::Partial { job, attempt, state, node, text: told });
        self.progress.send_modify(|progress| progress.partial = Some(text));
    }

    pub(super) fn refuse_partial(&self) {
        Metrics::count(&self.shared.metrics.node_rejected, "reason", "stale_partial");
    }

    /// What an attempt had is of no use to the next.
    pub(super) fn forget_partial(&self) {
        self.progress.send_if_modified(|progress| progress.partial.take().is_some());
    }
}
