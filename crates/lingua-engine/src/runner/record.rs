//! The job's record in the store, and its published progress.
//!
//! Start at [`Runner::write`].

use std::sync::Arc;

use lingua_core::Attempt;
use lingua_core::job::{JobSpec, Payload, Stage};
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, Bytes, CreateReply, JOB_BYTES_MAX, KeptShare, Retention,
};

use super::Runner;
use crate::clock::Timer;
use crate::events::EngineEvent;
use crate::handle::label_of;
use crate::job_spec_codec;
use crate::reconcile::{FIRST, WrittenEnd};
use crate::request::JobEnd;
use crate::state::timed;

/// Writes that are tried before the job is left to the clean-up.
const WRITES_MAX: u32 = 40;

/// How long between two such writes.
const WRITE_PAUSE_MS: u64 = 250;

/// What follows from a write that did not succeed.
enum Unwritten {
    Repeat,
    /// Of a planted bug: the runner acts without the write.
    Ignore,
    NotOwner,
    GiveUp,
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// Writes the job's stage; says whether it is written. If not, the runner must not act on it:
    /// another instance owns the job by now, or the store is gone and the clean-up will find the
    /// job there.
    pub(super) async fn write(&mut self) -> bool {
        let to = self.machine.stage();
        let now_ms = self.engine.now_ms();
        let outcome = match to.state.is_terminal() {
            true => {
                self.engine.metrics.jobs.count(to.state.as_str());
                self.engine.metrics.stage("total", now_ms - self.live.accepted_ms);
                Some(self.outcome(now_ms))
            }
            false => None,
        };
        let token = self.engine.random_u64();
        if let Some(grant) = self.machine.grant() {
            self.last_grant = Some(grant.clone());
        }
        for _ in 0..WRITES_MAX {
            let Some(step) = self.step(to, token, outcome.clone()) else { return false };
            let store = &self.engine.store;
            let reply = timed!(self.engine, "advance_job", store.advance_job(step));
            if let Ok(AdvanceReply::Advanced) = reply {
                self.written = to;
                if to.state.is_terminal() {
                    let result = self.written_end.as_ref().and_then(|end| end.result.as_ref());
                    let result = self.full_result.as_ref().or(result);
                    self.engine.count_usage(&self.live.request, to.state, result);
                }
                self.remember_end(to, token, outcome, true);
                return true;
            }
            match Box::pin(self.on_unwritten(to, reply)).await {
                Unwritten::Repeat => {}
                Unwritten::Ignore => return true,
                Unwritten::NotOwner => return false,
                Unwritten::GiveUp => break,
            }
        }
        self.is_unwritten = true;
        // It may have been written all the same, and somebody may have read it: it stays the end.
        self.remember_end(to, token, outcome, false);
        false
    }

    fn remember_end(&self, to: Stage, token: u64, outcome: Option<Bytes>, is_confirmed: bool) {
        if let Some(outcome) = outcome.filter(|_| self.engine.store.may_forget()) {
            let mut job = self.engine.new_job(&self.live.request, self.live.accepted_ms);
            let retention = self.retention();
            job.spec = retention.spec.clone().unwrap_or(job.spec);
            let written_ms = self.written_end.as_ref().map_or(0, |end| end.ended_ms);
            let stage = to;
            let end =
                WrittenEnd { is_confirmed, job, stage, outcome, retention, token, written_ms };
            self.engine.reconciler.remember(end);
        }
    }

    /// Prepares the next write after an unexpected reply, if another one may help.
    async fn on_unwritten(
        &mut self,
        to: Stage,
        reply: lingua_store::Result<AdvanceReply>,
    ) -> Unwritten {
        match reply {
            // Only the owner advances a job: if it is ours and at an earlier stage, the store has
            // forgotten our last steps.
            Ok(AdvanceReply::Conflict { stage, owner })
                if owner == self.engine.options.instance
                    && stage != self.written
                    && stage.may_reach(to) =>
            {
                self.written = stage;
            }
            Ok(AdvanceReply::NotFound) => self.write_anew().await,
            Ok(reply) => {
                tracing::warn!(?reply, "another instance has taken over the job");
                return Unwritten::NotOwner;
            }
            Err(_) if planted::is(Bug::ActWithoutStore) && !to.state.is_terminal() => {
                return Unwritten::Ignore;
            }
            Err(error) if error.is_safe_to_retry() => {
                self.engine.timer.sleep(WRITE_PAUSE_MS).await;
            }
            Err(error) => {
                tracing::error!(reason = %error, "cannot write the job");
                return Unwritten::GiveUp;
            }
        }
        Unwritten::Repeat
    }

    fn step(&self, to: Stage, token: u64, outcome: Option<Bytes>) -> Option<AdvanceRequest> {
        let owner = self.engine.options.instance.clone();
        let Ok(step) = AdvanceRequest::new(self.id(), owner, self.written, to, token) else {
            tracing::error!(from = %self.written, to = %to, "illegal step");
            return None;
        };
        // The record of an ended job names the node of its last attempt.
        let last = self.last_grant.as_ref().filter(|_| to.state.is_terminal());
        let step = step.with_grant(self.machine.grant().or(last).cloned());
        let step = match to.state.is_terminal() {
            true => step.with_retention(self.retention()),
            false => step,
        };
        Some(match outcome.or_else(|| self.history(to)) {
            Some(outcome) => step.with_outcome(outcome),
            None => step,
        })
    }

    /// What the rules of its tenant say about the record of the ended job.
    fn retention(&self) -> Retention {
        let tenants = &self.engine.options.tenants;
        let rules = tenants.rules(self.spec.tenant);
        let stripped = (!rules.keep_text).then(|| {
            let spec =
                JobSpec { payload: Payload::Absent, context: vec![], ..(*self.spec).clone() };
            job_spec_codec::encode(&spec).into()
        });
        let (part, of) = tenants.share_of(self.spec.tenant);
        let group = KeptShare::group_of(label_of(self.spec.tenant, &self.spec.session));
        let share = KeptShare { group, part, of };
        Retention { spec: stripped, keep_ms: rules.retention_ms, share }
    }

    /// The attempts of an open job, for an instance that may take it over. A first attempt follows
    /// from the grant.
    fn history(&self, to: Stage) -> Option<Bytes> {
        if to.state.is_terminal() || to.attempt == Attempt::FIRST {
            return None;
        }
        let attempts = self.live.edit_attempts(|attempts| attempts.clone());
        Some(JobEnd { attempts, ..JobEnd::default() }.encode().into())
    }

    /// Creates the job again, as it was accepted, because the store has forgotten it.
    async fn write_anew(&mut self) {
        tracing::warn!("the store has forgotten the job");
        let new = self.engine.new_job(&self.live.request, self.live.accepted_ms);
        let store = &self.engine.store;
        match timed!(self.engine, "create_job", store.create_job(new)) {
            Ok(CreateReply::Created) => self.written = FIRST,
            // The next step finds out its owner and its stage.
            Ok(CreateReply::Exists(_)) => {}
            Err(_) => self.engine.timer.sleep(WRITE_PAUSE_MS).await,
        }
    }

    /// How the job ended, as the store keeps it: without audio. A text that is too large, or that
    /// may not be kept, goes only to the client that waits for it.
    fn outcome(&mut self, now_ms: u64) -> Bytes {
        let attempts = self.live.edit_attempts(|attempts| {
            if let Some(last) = attempts.last_mut() {
                last.ended_ms.get_or_insert(now_ms);
            }
            attempts.clone()
        });
        let mut end = JobEnd { attempts, ended_ms: now_ms, ..std::mem::take(&mut self.end) };
        let mut kept = end.encode();
        if !self.keeps_text() && end.result.is_some() {
            end.had_more = true;
            self.full_result = self.full_result.take().or(end.result.clone());
            kept = JobEnd { result: None, ..end.clone() }.encode();
        }
        if kept.len() > JOB_BYTES_MAX {
            let bytes = end.result.as_ref().map_or(0, |result| result.as_str().len());
            let detail = Some(format!("the result has {bytes} bytes, too many to be kept"));
            kept = JobEnd { detail, result: None, ..end.clone() }.encode();
        }
        self.written_end = Some(Arc::new(end));
        kept.into()
    }

    fn keeps_text(&self) -> bool {
        self.engine.options.tenants.rules(self.spec.tenant).keep_text
    }

    /// Publishes the job's stage to everybody who waits for it or watches events.
    pub(super) fn publish(&mut self) {
        let Stage { state, attempt } = self.machine.stage();
        let node = self.machine.grant().map(|grant| grant.node.clone());
        let (job, tenant) = (self.id(), self.spec.tenant);
        self.engine.publish_job(|| {
            let (node, text) = (node.clone(), None);
            EngineEvent::Job { job, tenant, attempt, state, node, text }
        });
        let end = self.written_end.take();
        // Before the clients that wait are woken: they look for it.
        if let Some(full) = self.full_result.take() {
            let keeps_text = self.keeps_text();
            self.engine.recent_results.put((tenant, job), full, self.engine.now_ms(), keeps_text);
        }
        self.live.set_progress(|progress| {
            (progress.state, progress.attempt, progress.node) = (state, attempt, node);
            if let Some(end) = end {
                progress.ended = Some(end);
                progress.so_far = vec![];
                progress.partial = None;
            }
        });
    }
}
