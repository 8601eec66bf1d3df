//! Performs what the state machine decided.
//!
//! Start at [`Runner::apply`]. Both matches list every effect, so that a new one does not compile
//! until it is handled.

use lingua_core::NodeId;
use lingua_core::job::{AttemptOutcome, Cause, Effect, JobEvent, JobFailure, RetryPolicy};
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{CommitReply, LeaseKey};

use super::Runner;
use crate::clock::Timer;
use crate::state::timed;

impl<S: Store, T: Timer> Runner<S, T> {
    /// Applies an event and performs its effects. Gives back the effects, because sending is left
    /// to the caller; none if the event was refused or the job was abandoned.
    pub(super) async fn apply(&mut self, event: JobEvent) -> Vec<Effect> {
        let retry = RetryPolicy { max_retry: self.engine.options.max_retry };
        let Ok(effects) = self.machine.apply(event, retry) else {
            let stage = self.machine.stage();
            tracing::debug!(attempt_id = stage.attempt.0, state = %stage.state, "event refused");
            return vec![];
        };
        for effect in &effects {
            self.note(effect);
        }
        let state = self.machine.stage().state;
        let must_be_written = effects.contains(&Effect::Send) || state.is_terminal();
        self.is_abandoned = must_be_written && !self.write().await;
        for effect in &effects {
            self.perform(effect).await;
        }
        if self.is_abandoned {
            Box::pin(self.release_abandoned()).await;
            return vec![];
        }
        if state.is_terminal() {
            self.publish();
        }
        effects
    }

    /// Logs why the job failed; its id is in the span.
    fn log_failed(&self, reason: &'static str) {
        let Some(left_out) = self.engine.refused_log.admit(reason, self.engine.now_ms()) else {
            return;
        };
        let (pair, attempt_id) = (self.spec.pair, self.machine.stage().attempt.0);
        let node_id = self.machine.grant().map(|grant| grant.node.as_str());
        let detail = self.end.detail.as_deref();
        tracing::info!(reason, detail, %pair, node_id, attempt_id, left_out, "the job failed");
    }

    /// Notes what belongs into the job's record, before that is written.
    fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Fail(failure) => {
                if let JobFailure::RetriesExhausted { last } = failure {
                    self.end_attempt(*last);
                }
                let detail = self.end.detail.take();
                self.end.fail(*failure, detail);
                self.engine.metrics.jobs_failed.count(failure.code());
                self.log_failed(failure.code());
            }
            Effect::ConfirmCancel => self.end.detail = Some("cancelled".to_owned()),
            Effect::Retry { cause } => self.note_retry(*cause),
            Effect::Commit | Effect::CancelOnNode { .. } | Effect::Release { .. } => {}
            Effect::Send => {}
        }
    }

    fn note_retry(&mut self, cause: Cause) {
        self.engine.metrics.retries.count(cause.as_str());
        self.clear_partial();
        let node = self.end_attempt(cause);
        let (attempt_id, reason) = (self.machine.stage().attempt.0, cause.as_str());
        let node_id = node.as_ref().map(|node| node.as_str());
        tracing::info!(attempt_id, node_id, reason, "retrying");
    }

    /// Notes why the last attempt failed, unless its node said so; gives the node.
    fn end_attempt(&self, cause: Cause) -> Option<NodeId> {
        let now_ms = self.engine.now_ms();
        self.live.edit_attempts(|attempts| {
            let last = attempts.last_mut()?;
            last.ended_ms = Some(now_ms);
            last.reason.get_or_insert_with(|| cause.as_str().to_owned());
            Some(last.node.clone())
        })
    }

    /// Performs an effect that must not come before the write.
    async fn perform(&mut self, effect: &Effect) {
        match effect {
            Effect::Commit => {
                let Some(cell) = self.machine.grant().map(|grant| grant.cell) else { return };
                let (key, lease_ms) = (self.key(), self.engine.options.times.run_lease_ms);
                let store = &self.engine.store;
                let committed = timed!(self.engine, "commit", store.commit(cell, key, lease_ms));
                if matches!(committed, Ok(CommitReply::Gone | CommitReply::Stale)) {
                    // The node runs it without a lease, so another attempt takes its place.
                    self.engine.metrics.node_rejected.count("late_ack");
                    self.engine.live.send_node_lost(self.id(), key.attempt, None);
                }
            }
            Effect::CancelOnNode { grant, attempt } => {
                let key = LeaseKey { job: self.id(), attempt: *attempt };
                match self.engine.nodes.get(&grant.node) {
                    Some(node) => {
                        node.cancel(key);
                    }
                    None => self.engine.cancel_elsewhere(grant, key),
                }
            }
            Effect::Release { .. } if planted::is(Bug::SlotNeverReleased) => {}
            Effect::Release { grant, attempt, outcome } => {
                let key = LeaseKey { job: self.id(), attempt: *attempt };
                let store = &self.engine.store;
                let call = store.finish(grant.cell, key, *outcome);
                let freed = timed!(self.engine, "finish", call);
                // Before the wake, which depends on it.
                self.slot_count = None;
                // If the store did not answer, the lease expires by itself.
                if let Ok(Some(_)) = freed {
                    self.engine.routes.freed(self.route_key(), grant.cell, self.slot_weight);
                    let (queue, node) = (&self.engine.queue, &grant.node);
                    match self.connection_of(node) {
                        Some(local) => queue.wake_node(node, &local.profile()),
                        None => queue.wake_like(node, self.served, &self.slot_request().class),
                    }
                }
            }
            Effect::Fail(_) | Effect::ConfirmCancel | Effect::Retry { .. } => {}
            Effect::Send => {}
        }
    }

    /// Releases the slot of an abandoned job without any message.
    async fn release_abandoned(&mut self) {
        if let Some(grant) = self.machine.grant().cloned() {
            let attempt = self.machine.stage().attempt;
            let outcome = AttemptOutcome::Unknown;
            self.perform(&Effect::Release { grant, attempt, outcome }).await;
        }
    }
}
