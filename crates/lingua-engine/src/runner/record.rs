//! What the store and those who watch are told about a job.

use std::sync::Arc;

use lingua_core::job::Stage;
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{Advance, AdvanceReply, Bytes, CreateReply, JOB_BYTES_MAX};

use super::Runner;
use crate::amends::{End, FIRST};
use crate::clock::Timer;
use crate::events;
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
        let token = self.shared.random_u64();
        let outcome = to.state.is_terminal().then(|| self.outcome());
        for _ in 0..WRITE_TRIES {
            let Some(step) = self.step(to, token, outcome.clone()) else { return false };
            let advance = self.shared.store.advance_job(step);
            match self.shared.timed("advance_job", advance).await {
                Ok(AdvanceReply::Advanced) => {
                    self.written = to;
                    if let Some(outcome) = outcome {
                        let job = self.shared.new_job(&self.request, self.ended.accepted_ms);
                        let end = End { job, stage: to, outcome, token, written_ms: now_ms };
                        self.shared.amends.remember(end);
                    }
                    return true;
                }
                // The owner alone moves a job: if it is ours and stands further back, the store has
                // forgotten our last steps.
                Ok(AdvanceReply::Conflict { stage, owner })
                    if owner == self.shared.options.instance
                        && stage != self.written
                        && stage.may_reach(to) =>
                {
                    self.written = stage;
                }
                Ok(AdvanceReply::NotFound) => self.write_anew().await,
                Ok(reply) => {
                    // Another instance has taken the job over: it is not ours to end.
                    tracing::warn!(job_id = %self.id(), ?reply, "the job is no longer ours");
                    return false;
                }
                Err(_) if planted::is(Bug::FailOpen) && !to.state.is_terminal() => return true,
                Err(error) if error.is_safe_to_retry() => {
                    self.shared.timer.sleep(WRITE_PAUSE_MS).await;
                }
                Err(error) => {
                    tracing::error!(job_id = %self.id(), %error, "cannot write the job");
                    break;
                }
            }
        }
        self.given_up = true;
        false
    }

    fn step(&self, to: Stage, token: u64, outcome: Option<Bytes>) -> Option<Advance> {
        let owner = self.shared.options.instance.clone();
        let Ok(step) = Advance::new(self.id(), owner, self.written, to, token) else {
            tracing::error!(job_id = %self.id(), from = %self.written, to = %to, "illegal step");
            return None;
        };
        let step = step.with_grant(self.job.grant().cloned());
        Some(match outcome {
            Some(outcome) => step.with_outcome(outcome),
            None => step,
        })
    }

    /// Writes the job down once more, as it was accepted: the store has forgotten it.
    async fn write_anew(&mut self) {
        tracing::warn!(job_id = %self.id(), "the store has forgotten the job");
        let new = self.shared.new_job(&self.request, self.ended.accepted_ms);
        match self.shared.timed("create_job", self.shared.store.create_job(new)).await {
            Ok(CreateReply::Created) => self.written = FIRST,
            // Whose it is and where it stands is found out by the next step.
            Ok(CreateReply::Exists(_)) => {}
            Err(_) => self.shared.timer.sleep(WRITE_PAUSE_MS).await,
        }
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
        self.shared.tell(events::Event::Job { job: self.id(), state, node: node.clone() });
        let tries = self.ended.tries.clone();
        self.progress.send_replace(Progress { state, attempt, node, tries, ended });
    }
}
