//! One job's life, from the first look for a slot to its end.
//!
//! Start at [`Runner::run`]. The core's state machine says what follows from what; this file carries
//! it out: it asks cells for slots, waits, sends, minds the timers, and writes to the store what others
//! must be able to read before it acts on it.
//!
//! | file | what |
//! |---|---|
//! | `slot.rs` | finding a slot, and waiting for one |
//! | `listen.rs` | jobs whose speaker is still speaking |
//! | `record.rs` | what the store and those who watch are told |
//!
//! Invariant: nobody is told of an end that was not written; a job that cannot be written is let go of.

use std::pin::Pin;
use std::sync::Arc;

use lingua_core::job::{
    Cause, Effect, Grant, JobEvent, JobMachine, JobSpec, JobState, Refusal, RetryPolicy, Stage,
};
use lingua_core::planted::{self, Bug};
use lingua_core::{JobId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{CommitReply, LeaseKey, Place};
use tokio::sync::mpsc::error::TrySendError;

use crate::alarm::Alarm;
use crate::clock::Timer;
use crate::live::{Answer, Heard, LiveJob, NodeReport, ReportKind, ToJob};
use crate::node::{Assignment, LocalNode, ToNode};
use crate::request::{AttemptRecord, JobEnd};
use crate::state::{EngineState, timed};

mod listen;
mod record;
mod slot;

use listen::Feed;
use slot::{Found, NoSlot};

/// A job's life.
pub(crate) type Life = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long an order waits for an earlier one to the same node.
pub(crate) const SEND_TICKET_MS: u64 = 20;

pub(crate) struct Runner<S, T> {
    shared: Arc<EngineState<S, T>>,
    spec: Arc<JobSpec>,
    job: JobMachine,
    /// What the store knows.
    written: Stage,
    live: Arc<LiveJob>,
    /// What is known of its end so far; its tries are in `live`.
    ended: JobEnd,
    /// Its end, as it is being written.
    over: Option<Arc<JobEnd>>,
    deadline_ms: u64,
    /// Until then nodes may still be on their way back, so that none is no answer.
    patient_until_ms: u64,
    /// What happens to a job that was taken over, unless its node speaks up.
    unless_heard: Option<JobEvent>,
    /// What was said died with the instance that had it: there is nothing to send again.
    input_lost: bool,
    /// The job could not be written, so it is not ours to go on with.
    abandoned: bool,
    /// The store did not take it; it may stand there under our name.
    given_up: bool,
    /// Leases of the node when this attempt got its slot.
    used: u16,
    sent_ms: u64,
    /// The connection of the node that has the job.
    link: Option<Arc<LocalNode>>,
    feed: Feed,
    alarm: Alarm,
}

/// However a runner ends, nobody waits for it any longer.
impl<S, T> Drop for Runner<S, T> {
    fn drop(&mut self) {
        self.live.close();
    }
}

impl<S: Store, T: Timer> Runner<S, T> {
    pub(crate) fn new(shared: Arc<EngineState<S, T>>, live: Arc<LiveJob>, job: JobMachine) -> Self {
        let (spec, accepted_ms) = (Arc::clone(&live.request.spec), live.accepted_ms);
        let deadline_ms = match spec.deadline_ms {
            Some(ms) => accepted_ms.saturating_add(ms),
            None => u64::MAX,
        };
        let ended = JobEnd { accepted_ms, ..JobEnd::default() };
        let written = job.stage();
        let alarm = Alarm::new(Arc::clone(&shared.crew(live.request.id).alarms));
        Self {
            shared,
            spec,
            job,
            written,
            live,
            ended,
            over: None,
            deadline_ms,
            patient_until_ms: 0,
            unless_heard: None,
            input_lost: false,
            abandoned: false,
            given_up: false,
            used: 0,
            sent_ms: 0,
            link: None,
            feed: Feed::default(),
            alarm,
        }
    }

    /// Lives the job's life, after something that has happened to it before. In a box from the start:
    /// it is large, and it is handed on before it begins.
    pub(crate) fn run(self, before: Option<JobEvent>) -> Life {
        Box::pin(self.live_through(before))
    }

    async fn live_through(mut self, before: Option<JobEvent>) {
        if let Some(event) = before {
            Box::pin(self.take_over(event)).await;
        }
        while !self.job.stage().state.is_terminal() && !self.abandoned {
            match self.job.stage().state {
                JobState::New | JobState::Retrying if self.input_lost => {
                    self.apply(JobEvent::InstanceLost).await;
                }
                JobState::New | JobState::Retrying => {
                    self.apply(JobEvent::Select).await;
                }
                JobState::Selecting => self.select().await,
                JobState::Reserved => self.dispatch().await,
                _ => self.attend().await,
            }
        }
        self.shared.live.remove(self.id());
        for word in self.live.close() {
            if let ToJob::Node(word, answer) = word {
                self.refuse(&word, answer);
            }
        }
        if self.given_up {
            // Not before it is gone from the live ones: nobody takes up a job that somebody has.
            self.shared.reconciler.release(self.live.request.clone(), self.live.accepted_ms);
        }
        self.shared.ended_bell.notify_waiters();
    }

    /// Goes on with a job of an instance that is gone. The instance may just have started, and the
    /// nodes come after it: one of them may have the result already.
    async fn take_over(&mut self, event: JobEvent) {
        let times = self.shared.options.times;
        let now_ms = self.shared.now_ms();
        self.input_lost = event == JobEvent::InstanceLost;
        self.patient_until_ms = now_ms.saturating_add(times.ack_ms + times.stale_ms);
        if self.job.stage().state == JobState::Dispatched {
            self.sent_ms = now_ms;
            self.unless_heard = Some(event);
        } else {
            self.apply(event).await;
        }
    }

    fn id(&self) -> JobId {
        self.live.request.id
    }

    fn key(&self) -> LeaseKey {
        LeaseKey { job: self.id(), attempt: self.job.stage().attempt }
    }

    async fn select(&mut self) {
        let started_ms = self.shared.now_ms();
        let found = self.find_slot(started_ms).await;
        let waited_ms = self.shared.now_ms() - started_ms;
        self.ended.waited_ms += waited_ms;
        self.shared.metrics.stage("queue", waited_ms);
        match found {
            Ok(Found { grant, used, .. }) => {
                self.used = used;
                let this = AttemptRecord {
                    attempt: self.job.stage().attempt.0,
                    node: grant.node.clone(),
                    reserved_ms: started_ms + waited_ms,
                    acked_ms: None,
                    ended_ms: None,
                    reason: None,
                };
                self.live.edit_attempts(|attempts| attempts.push(this));
                self.apply(JobEvent::Granted(grant)).await;
            }
            Err(NoSlot::Failed(failure, detail)) => {
                self.ended.detail = detail;
                self.apply(JobEvent::NoSlot(failure)).await;
            }
            Err(NoSlot::Interrupted(event)) => {
                self.apply(event).await;
            }
        }
    }

    /// Writes where the job goes, then sends it.
    async fn dispatch(&mut self) {
        let Some(grant) = self.job.grant().cloned() else { return };
        let attempt = self.job.stage().attempt;
        let ticket = self.shared.nodes.get(&grant.node).map(|node| node.queue_send(grant.fence));
        let effects = self.apply(JobEvent::Dispatch).await;
        if !effects.contains(&Effect::Send) {
            return;
        }
        if let Some(ticket) = &ticket {
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                biased;
                () = ticket.wait() => {}
                // The one before is in trouble: rather refused than late.
                () = shared.timer.sleep(SEND_TICKET_MS) => {}
            }
        }
        let now_ms = self.shared.now_ms();
        let bound = self.bind(&grant);
        let moved = bound.is_some_and(|(moved, _)| moved);
        let assignment = Assignment {
            job: self.id(),
            attempt,
            fence: grant.fence,
            request: self.live.request.clone(),
            deadline_ms: self.deadline_ms.min(now_ms + self.shared.options.times.run_ms),
            moved,
            stream: self.feed.is_on,
        };
        self.link = self.shared.nodes.get(&grant.node).filter(|n| n.place.epoch == grant.epoch);
        self.sent_ms = now_ms;
        let sent = match &self.link {
            Some(link) => match link.outbox.try_send(ToNode::Assign(assignment)) {
                Err(TrySendError::Full(_)) => {
                    self.shared.disconnect_slow(&grant.node, grant.epoch).await;
                    false
                }
                sent => sent.is_ok(),
            },
            None => {
                let used = self.used;
                Box::pin(self.shared.assign_elsewhere(&grant, &assignment, used)).await
            }
        };
        let outcome = if sent { "sent" } else { "send_failed" };
        self.shared.metrics.dispatch.count(outcome);
        let since_ms = now_ms - self.live.accepted_ms;
        self.shared.metrics.dispatch_seconds.observe(since_ms as f64 / 1000.0);
        if sent {
            self.publish();
        } else {
            if let (Some((_, before)), Some(key)) = (bound, &self.spec.bind_key) {
                self.shared.bindings.take_back(key, &grant, before);
            }
            self.apply(JobEvent::SendFailed { attempt }).await;
        }
    }

    /// Binds the turn to this node, if it is to be bound; says whether it moves, and from where. Told and remembered in one
    /// breath: jobs of one key may be on their way together.
    fn bind(&self, grant: &Grant) -> Option<(bool, Option<Place>)> {
        let key = self.spec.bind_key.as_ref()?;
        let (moved, before) =
            (self.shared.bindings.moves(key, grant), self.shared.bindings.get(key));
        self.shared.bindings.remember(key, grant);
        Some((moved, before))
    }

    /// Waits for the node, the timers and the client, and takes whatever comes first.
    async fn attend(&mut self) {
        if self.feed.is_on {
            Box::pin(self.feed()).await;
        }
        let times = self.shared.options.times;
        let Stage { state, attempt } = self.job.stage();
        let (limit_ms, too_late) = match (state, &self.unless_heard) {
            (_, Some(event)) => (times.ack_ms, event.clone()),
            (JobState::Dispatched, None) => (times.ack_ms, JobEvent::AckTimeout { attempt }),
            (_, None) => (times.run_ms, JobEvent::RunTimeout { attempt }),
        };
        let end_ms = self.sent_ms.saturating_add(limit_ms);
        let (end_ms, too_late) = match end_ms <= self.deadline_ms {
            true => (end_ms, too_late),
            false => (self.deadline_ms, JobEvent::DeadlinePassed),
        };
        let word = tokio::select! {
            biased;
            heard = self.live.next() => match heard {
                Heard::Word(word) => word,
                // It has a slot.
                Heard::Room => return,
            },
            () = self.alarm.at(&self.shared.timer, end_ms) => {
                return self.time_is_up(too_late).await;
            }
        };
        match word {
            // A node that talks without end does not stop the clock.
            ToJob::Partial(_) if self.shared.now_ms() >= end_ms => self.time_is_up(too_late).await,
            ToJob::Partial(partial) => self.hear_partial(*partial),
            ToJob::Cancel => {
                self.apply(JobEvent::Cancel).await;
            }
            ToJob::NodeLost(lost) => {
                if lost == attempt {
                    self.apply(JobEvent::NodeLost { attempt }).await;
                }
            }
            ToJob::NotSent(unsent) => {
                if unsent == attempt && state == JobState::Dispatched {
                    self.apply(JobEvent::SendFailed { attempt }).await;
                }
            }
            // Whoever has it now has its slot, too.
            ToJob::NotOurs => self.abandoned = true,
            ToJob::Node(word, answer) => self.hear(word, answer).await,
        }
    }

    async fn time_is_up(&mut self, event: JobEvent) {
        if matches!(event, JobEvent::AckTimeout { .. }) {
            self.shared.metrics.ack_timeouts.inc();
        }
        self.unless_heard = None;
        self.apply(event).await;
    }

    async fn hear(&mut self, word: NodeReport, answer: Option<Answer>) {
        let NodeReport { report, kind } = word;
        let (node, key) =
            (report.node.clone(), LeaseKey { job: self.id(), attempt: report.attempt });
        let is_last_word = !matches!(kind, ReportKind::Acked);
        let now_ms = self.shared.now_ms();
        let took_ms = now_ms - self.sent_ms;
        let (event, reason, result) = match kind {
            ReportKind::Acked => (JobEvent::Acked(report), None, None),
            ReportKind::Done { result } => (JobEvent::Done(report), None, Some(result)),
            ReportKind::Refused => (JobEvent::Refused(report), Some("refused".to_owned()), None),
            ReportKind::Overtaken => {
                (JobEvent::Overtaken(report), Some("overtaken".to_owned()), None)
            }
            ReportKind::Failed { reason, retryable } => {
                (JobEvent::NodeFailed { report, retryable }, Some(reason), None)
            }
        };
        // What is refused must leave no trace.
        let heard = self.job.check(&event);
        if heard.is_ok() {
            self.unless_heard = None;
            let is_ack = matches!(event, JobEvent::Acked(_));
            self.live.edit_attempts(|attempts| match attempts.last_mut() {
                Some(last) if is_ack => last.acked_ms = Some(now_ms),
                Some(last) => last.reason = reason.clone(),
                None => {}
            });
            if is_ack {
                self.shared.metrics.stage("ack", took_ms);
            }
            if matches!(event, JobEvent::NodeFailed { .. })
                && let Some(local) = self.link_to(&node)
            {
                local.failed();
            }
            if let Some(result) = result {
                self.ended.result = Some(result);
                self.shared.metrics.stage("run", took_ms);
                if let Some(local) = self.link_to(&node) {
                    local.learn(took_ms, self.used);
                }
            } else if matches!(event, JobEvent::NodeFailed { retryable: false, .. }) {
                self.ended.detail = reason;
            }
            self.apply(event).await;
            if self.abandoned {
                // Not confirmed: the node keeps its result for whoever has the job now.
                return;
            }
            if self.job.stage().state == JobState::Acked {
                self.publish();
            }
        }
        self.answer(&node, key, is_last_word, heard, answer);
    }

    fn refuse(&self, word: &NodeReport, answer: Option<Answer>) {
        let refusal = Refusal::StaleAttempt { current: self.job.stage() };
        let key = LeaseKey { job: self.id(), attempt: word.report.attempt };
        let is_last_word = !matches!(word.kind, ReportKind::Acked);
        self.answer(&word.report.node, key, is_last_word, Err(refusal), answer);
    }

    /// Tells the node whether its word counted: directly, or on its connection.
    fn answer(
        &self,
        node: &NodeId,
        key: LeaseKey,
        is_last_word: bool,
        heard: Result<(), Refusal>,
        answer: Option<Answer>,
    ) {
        if heard.is_err() {
            self.shared.metrics.node_rejected.count("stale_attempt");
        }
        match answer {
            // A caller that has gone away does not mind.
            Some(Answer::Caller(caller)) => drop(caller.send(heard)),
            Some(Answer::Peer { to, id }) => self.shared.reply_to_peer(&to, id, heard),
            None if is_last_word => {
                if let Some(local) = self.link_to(node) {
                    let accepted = heard.is_ok();
                    local.outbox.try_send(ToNode::Confirmed { key, accepted }).ok();
                }
            }
            None => {}
        }
    }

    /// The connection that a node has now: usually the one that the job was sent by.
    fn link_to(&self, node: &NodeId) -> Option<Arc<LocalNode>> {
        let known = self.link.as_ref();
        let known = known.filter(|link| link.node == *node && !link.is_over());
        known.cloned().or_else(|| self.shared.nodes.get(node))
    }

    fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy { max_retry: self.shared.options.max_retry }
    }

    /// Takes an event and carries out what follows from it. Effects that the caller has to carry out
    /// are given back.
    async fn apply(&mut self, event: JobEvent) -> Vec<Effect> {
        let Ok(effects) = self.job.apply(event, self.retry_policy()) else {
            tracing::debug!(job_id = %self.id(), stage = %self.job.stage(), "event out of place");
            return vec![];
        };
        // The state machine ends a job last; what others read is written first.
        for effect in &effects {
            match effect {
                Effect::Fail(failure) => {
                    let detail = self.ended.detail.take();
                    self.ended.fail(*failure, detail);
                }
                Effect::ConfirmCancel => self.ended.detail = Some("cancelled".to_owned()),
                Effect::Retry { cause } => self.note_retry(*cause),
                // After the write.
                Effect::Commit | Effect::CancelOnNode { .. } | Effect::Release { .. } => {}
                // By the caller.
                Effect::Send => {}
            }
        }
        let state = self.job.stage().state;
        let must_be_written = effects.contains(&Effect::Send) || state.is_terminal();
        self.abandoned = must_be_written && !self.write().await;
        for effect in &effects {
            self.carry_out(effect).await;
        }
        if self.abandoned {
            Box::pin(self.let_go()).await;
            return vec![];
        }
        if state.is_terminal() {
            self.publish();
        }
        effects
    }

    /// Gives back the slot of a job that is not ours any more; nobody is told anything.
    async fn let_go(&mut self) {
        if let Some(grant) = self.job.grant().cloned() {
            let attempt = self.job.stage().attempt;
            self.carry_out(&Effect::Release { grant, attempt }).await;
        }
    }

    fn note_retry(&mut self, cause: Cause) {
        self.shared.metrics.retries.count(cause.as_str());
        self.forget_partial();
        let now_ms = self.shared.now_ms();
        self.live.edit_attempts(|attempts| {
            if let Some(last) = attempts.last_mut() {
                last.ended_ms = Some(now_ms);
                last.reason.get_or_insert_with(|| cause.as_str().to_owned());
            }
        });
        tracing::info!(job_id = %self.id(), attempt_id = self.job.stage().attempt.0, reason = cause.as_str(), "retrying");
    }

    async fn carry_out(&mut self, effect: &Effect) {
        match effect {
            Effect::Commit => {
                let Some(cell) = self.job.grant().map(|grant| grant.cell) else { return };
                let (key, lease_ms) = (self.key(), self.shared.options.times.run_lease_ms);
                let store = &self.shared.store;
                let (committed, _) =
                    timed!(self.shared, "commit", store.commit(cell, key, lease_ms));
                if matches!(committed, Ok(CommitReply::Gone | CommitReply::Stale)) {
                    // The node runs it without a lease: not here, then.
                    self.shared.metrics.node_rejected.count("late_ack");
                    self.shared.live.lost(self.id(), key.attempt);
                }
            }
            Effect::CancelOnNode { grant, attempt } => {
                let key = LeaseKey { job: self.id(), attempt: *attempt };
                match self.shared.nodes.get(&grant.node) {
                    Some(local) => {
                        let cancel = ToNode::Cancel { key, reason: "the attempt is over" };
                        local.outbox.try_send(cancel).ok();
                    }
                    None => self.shared.cancel_elsewhere(grant, key),
                }
            }
            Effect::Release { .. } if planted::is(Bug::SlotNeverReleased) => {}
            Effect::Release { grant, attempt } => {
                let key = LeaseKey { job: self.id(), attempt: *attempt };
                // If the store does not answer, the lease runs out by itself.
                let store = &self.shared.store;
                let (freed, _) = timed!(self.shared, "finish", store.finish(grant.cell, key));
                if let Ok(Some(_)) = freed {
                    self.shared.routes.freed(self.spec.pair, grant.cell);
                    match self.link_to(&grant.node) {
                        Some(local) => self.shared.queue.wake_for(&local.profile()),
                        // What else that node can do is not known here.
                        None => self.shared.queue.wake_pair(self.spec.pair),
                    }
                }
            }
            // By the caller.
            Effect::Send => {}
            // Before the write.
            Effect::Fail(_) | Effect::ConfirmCancel | Effect::Retry { .. } => {}
        }
    }
}
