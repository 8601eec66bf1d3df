//! What the store and those who watch are told about a job.

use std::sync::Arc;

use lingua_core::job::Stage;
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{AdvanceReply, AdvanceRequest, Bytes, CreateReply, JOB_BYTES_MAX};

use super::Runner;
use crate::clock::Timer;
use crate::events;
use crate::live::Partial;
use crate::reconcile::{End, FIRST};
use crate::request::JobEnd;
use crate::state::timed;

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
        let outcome = match to.state.is_terminal() {
            true => {
                self.shared.metrics.jobs.count(to.state.as_str());
                self.shared.metrics.stage("total", now_ms - self.live.accepted_ms);
                Some(self.outcome(now_ms))
            }
            false => None,
        };
        let token = self.shared.random_u64();
        let Some(step) = self.step(to, token, outcome.clone()) else { return false };
        let store = &self.shared.store;
        let (reply, _) = timed!(self.shared, "advance_job", store.advance_job(step));
        match reply {
            Ok(AdvanceReply::Advanced) => {
                self.has_written(to, token, outcome);
                true
            }
            reply => Box::pin(self.write_again(to, token, outcome, reply)).await,
        }
    }

    /// What was told to the store stands there.
    fn has_written(&mut self, to: Stage, token: u64, outcome: Option<Bytes>) {
        self.written = to;
        self.remember_end(to, token, outcome);
    }

    fn remember_end(&self, to: Stage, token: u64, outcome: Option<Bytes>) {
        if let Some(outcome) = outcome.filter(|_| self.shared.store.may_forget()) {
            let job = self.shared.new_job(&self.live.request, self.live.accepted_ms);
            let written_ms = self.over.as_ref().map_or(0, |over| over.ended_ms);
            self.shared.reconciler.remember(End { job, stage: to, outcome, token, written_ms });
        }
    }

    /// Goes on writing after a reply that was not what it should be.
    async fn write_again(
        &mut self,
        to: Stage,
        token: u64,
        outcome: Option<Bytes>,
        mut reply: lingua_store::Result<AdvanceReply>,
    ) -> bool {
        for _ in 0..WRITE_TRIES {
            match reply {
                Ok(AdvanceReply::Advanced) => {
                    self.has_written(to, token, outcome);
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
                Err(_) if planted::is(Bug::ActWithoutStore) && !to.state.is_terminal() => {
                    return true;
                }
                Err(error) if error.is_safe_to_retry() => {
                    self.shared.timer.sleep(WRITE_PAUSE_MS).await;
                }
                Err(error) => {
                    tracing::error!(job_id = %self.id(), %error, "cannot write the job");
                    break;
                }
            }
            let Some(step) = self.step(to, token, outcome.clone()) else { return false };
            let store = &self.shared.store;
            (reply, _) = timed!(self.shared, "advance_job", store.advance_job(step));
        }
        self.given_up = true;
        // It may have been written all the same, and be read by somebody: it stays the end.
        self.remember_end(to, token, outcome);
        false
    }

    fn step(&self, to: Stage, token: u64, outcome: Option<Bytes>) -> Option<AdvanceRequest> {
        let owner = self.shared.options.instance.clone();
        let Ok(step) = AdvanceRequest::new(self.id(), owner, self.written, to, token) else {
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
        let new = self.shared.new_job(&self.live.request, self.live.accepted_ms);
        let store = &self.shared.store;
        match timed!(self.shared, "create_job", store.create_job(new)).0 {
            Ok(CreateReply::Created) => self.written = FIRST,
            // Whose it is and where it stands is found out by the next step.
            Ok(CreateReply::Exists(_)) => {}
            Err(_) => self.shared.timer.sleep(WRITE_PAUSE_MS).await,
        }
    }

    /// How the job ended, as the store keeps it. A result that is too large to be kept goes only
    /// to the client that waits for it.
    fn outcome(&mut self, now_ms: u64) -> Bytes {
        let attempts = self.live.edit_attempts(|attempts| {
            if let Some(last) = attempts.last_mut() {
                last.ended_ms.get_or_insert(now_ms);
            }
            attempts.clone()
        });
        let end = JobEnd { attempts, ended_ms: now_ms, ..std::mem::take(&mut self.ended) };
        let mut kept = encode_end(&end);
        if kept.len() > JOB_BYTES_MAX {
            let bytes = end.result.as_ref().map_or(0, |result| result.as_str().len());
            let detail = Some(format!("the result has {bytes} bytes, too many to be kept"));
            kept = encode_end(&JobEnd { detail, result: None, ..end.clone() });
        }
        self.over = Some(Arc::new(end));
        kept.into()
    }

    /// Shows everybody who watches where the job stands.
    pub(super) fn publish(&mut self) {
        let Stage { state, attempt } = self.job.stage();
        let node = self.job.grant().map(|grant| grant.node.clone());
        let job = self.id();
        self.shared.publish_job(|| events::EngineEvent::Job {
            job,
            attempt,
            state,
            node: node.clone(),
        });
        let over = self.over.take();
        self.live.set_progress(|progress| {
            (progress.state, progress.attempt, progress.node) = (state, attempt, node);
            if let Some(over) = over {
                progress.ended = Some(over);
                progress.so_far = vec![];
                progress.partial = None;
            }
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
        let told = || events::EngineEvent::Partial {
            job,
            attempt,
            state,
            node: node.clone(),
            text: Arc::clone(&text),
        };
        self.shared.publish_job(told);
        self.live.set_progress(|progress| progress.partial = Some(text));
    }

    pub(super) fn refuse_partial(&self) {
        self.shared.metrics.node_rejected.count("stale_partial");
    }

    /// What an attempt had is of no use to the next.
    pub(super) fn forget_partial(&self) {
        self.live.set_progress(|progress| progress.partial = None);
    }
}

fn encode_end(end: &JobEnd) -> Vec<u8> {
    serde_json::to_vec(end).expect("texts and numbers can be written")
}
