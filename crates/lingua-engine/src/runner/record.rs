//! What the store and those who watch are told about a job.

use std::sync::Arc;

use lingua_core::job::Stage;
use lingua_store::Store;
use lingua_store::contract::{Advance, AdvanceReply};

use super::Runner;
use crate::clock::Timer;
use crate::events;
use crate::metrics::Metrics;
use crate::request::Progress;

/// How often writing is tried before the job is left to the clean-up.
const WRITE_TRIES: u32 = 40;

/// How long between two such tries.
const WRITE_PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> Runner<S, T> {
    /// Writes where the job stands. An end is tried again until it is written: it must not be lost.
    pub(super) async fn write(&mut self) {
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
            return;
        };
        let mut step = step.with_grant(self.job.grant().cloned());
        if to.state.is_terminal()
            && let Ok(json) = serde_json::to_vec(&self.ended)
        {
            step = step.with_outcome(json.into());
        }
        for _ in 0..WRITE_TRIES {
            let advance = self.shared.store.advance_job(step.clone());
            match self.shared.timed("advance_job", advance).await {
                Ok(AdvanceReply::Advanced) => {
                    self.written = to;
                    return;
                }
                Ok(reply) => {
                    // Another instance has taken the job over: it is not ours to end.
                    tracing::warn!(job_id = %self.id(), ?reply, "the job is no longer ours");
                    return;
                }
                Err(error) if error.is_safe_to_retry() => {
                    self.shared.timer.sleep(WRITE_PAUSE_MS).await;
                }
                Err(error) => {
                    tracing::error!(job_id = %self.id(), %error, "cannot write the job");
                    return;
                }
            }
        }
    }

    /// Shows everybody who watches where the job stands.
    pub(super) fn publish(&self) {
        let Stage { state, attempt } = self.job.stage();
        let ended = state.is_terminal().then(|| Arc::new(self.ended.clone()));
        let node = self.job.grant().map(|grant| grant.node.clone());
        self.shared.tell(events::Event::Job { job: self.id(), state, node: node.clone() });
        let tries = self.ended.tries.clone();
        self.progress.send_replace(Progress { state, attempt, node, tries, ended });
    }
}
