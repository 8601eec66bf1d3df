//! Runs one job, from the first search for a slot to its end, in a task of its own.
//!
//! Start at [`spawn`] and [`Runner::drive`]. The core's state machine decides what follows from
//! what happened; the runner performs it: it reserves slots, waits, sends, sets timers, and writes
//! to the store what others must be able to read before it acts on it.
//!
//! | file | what |
//! |---|---|
//! | `slot.rs` | finding a slot, and waiting for one |
//! | `pin.rs` | preferred nodes, and nodes that a key is bound to |
//! | `effects.rs` | performing what the state machine decided |
//! | `report.rs` | the reports of nodes |
//! | `stream.rs` | audio that is still being spoken |
//! | `record.rs` | the job's record in the store, and its published progress |
//!
//! Invariants: an end is written before it is shown; a job that cannot be written is
//! abandoned. A runner that panics fails its job and nothing else.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use lingua_core::job::{Effect, Grant, JobEvent, JobMachine, JobSpec, JobState, Stage};
use lingua_core::{JobId, LangPair, NodeId};
use lingua_store::Store;
use lingua_store::contract::{JobRecord, LeaseKey};
use tokio::sync::mpsc::error::TrySendError;
use tracing::Instrument;

use crate::live_jobs::{JobMessage, LiveJob};
use crate::node::{Assignment, LocalNode};
use crate::queue::SlotCount;
use crate::request::{AttemptRecord, JobEnd, JobRequest, ResultJson};
use crate::{Engine, Timer};

mod effects;
mod pin;
mod record;
mod report;
mod slot;
mod stream;

use pin::PinState;
use slot::{Found, NoSlot};
use stream::StreamState;

/// How long an assignment waits for an earlier one to the same node.
pub(crate) const SEND_TICKET_MS: u64 = 20;

/// A job that another instance, or an earlier incarnation of this one, has left.
#[derive(Debug)]
pub(crate) struct TakenOver {
    /// What happens to the job now.
    pub(crate) event: JobEvent,
    /// Its attempts so far.
    pub(crate) attempts: Vec<AttemptRecord>,
}

impl TakenOver {
    pub(crate) fn new(event: JobEvent, record: &JobRecord) -> Self {
        let outcome = record.outcome.as_deref().and_then(JobEnd::decode);
        let mut attempts = outcome.unwrap_or_default().attempts;
        // The first attempt is in the record's grant only.
        let attempt = record.stage.attempt.0;
        let is_known = attempts.iter().any(|known| known.attempt == attempt);
        if let Some(grant) = record.grant.as_ref().filter(|_| !is_known) {
            let reserved_ms = record.updated_ms;
            attempts.push(AttemptRecord::new(attempt, grant.node.clone(), reserved_ms));
        }
        Self { event, attempts }
    }
}

/// Starts the task that runs a job. `taken_over` is what happened to a job that another instance
/// or an earlier incarnation of this one has left.
pub(crate) fn spawn<S: Store, T: Timer>(
    engine: Arc<Engine<S, T>>,
    live: Arc<LiveJob>,
    machine: JobMachine,
    taken_over: Option<JobEvent>,
) {
    let JobRequest { id, spec, .. } = &live.request;
    // Made only if its level is logged: the arguments of a disabled span are not even formatted.
    let (trace_id, session_id) = (&*spec.trace, &*spec.session);
    let span = tracing::info_span!("job", job_id = %id, trace_id, session_id);
    let runner = Box::new(Runner::new(engine, live, machine));
    tokio::spawn(runner.run(taken_over).instrument(span));
}

struct Runner<S, T> {
    engine: Arc<Engine<S, T>>,
    spec: Arc<JobSpec>,
    machine: JobMachine,
    /// The stage that the store knows.
    written: Stage,
    /// The slot of the last attempt that was written.
    last_grant: Option<Grant>,
    live: Arc<LiveJob>,
    /// What is known of the job's end so far; its attempts are in `live`.
    end: JobEnd,
    /// The end as it was written, until it is published.
    written_end: Option<Arc<JobEnd>>,
    /// What the node gave, if that is more than is written.
    full_result: Option<ResultJson>,
    deadline_ms: u64,
    /// The pair that nodes were asked for: the job's own, or one with fewer subtags.
    served: LangPair,
    /// The same in the tags that the node of this attempt registered.
    registered: LangPair,
    /// Until then nodes may still be reconnecting, so that finding none says nothing.
    nodes_return_until_ms: u64,
    /// What happens to a job that was taken over, unless its node reports in time.
    pending_takeover: Option<JobEvent>,
    /// The audio was lost with the instance that held it: there is nothing to send again.
    is_audio_lost: bool,
    /// The job could not be written, so another instance may run it.
    is_abandoned: bool,
    /// The store did not take the last write; the job may be open there under our name.
    is_unwritten: bool,
    /// Leases of the node when this attempt got its slot.
    used: u16,
    /// What its slot counts in the capacity of the cell.
    slot_weight: u32,
    sent_ms: u64,
    /// Counts the job among those of its tenant that hold a slot.
    slot_count: Option<SlotCount>,
    /// The connection of the node that has the job.
    connection: Option<Arc<LocalNode>>,
    stream: StreamState,
    pin: PinState,
}

/// No task waits for a runner that is gone, even if its task was dropped.
impl<S, T> Drop for Runner<S, T> {
    fn drop(&mut self) {
        self.live.close();
    }
}

impl<S: Store, T: Timer> Runner<S, T> {
    fn new(engine: Arc<Engine<S, T>>, live: Arc<LiveJob>, machine: JobMachine) -> Self {
        let (spec, accepted_ms) = (Arc::clone(&live.request.spec), live.accepted_ms);
        let slot_count = machine.grant().map(|_| engine.queue.count(spec.tenant));
        let deadline_ms = spec.deadline_ms.map_or(u64::MAX, |ms| accepted_ms.saturating_add(ms));
        Self {
            engine,
            written: machine.stage(),
            last_grant: machine.grant().cloned(),
            end: JobEnd { accepted_ms, ..JobEnd::default() },
            written_end: None,
            full_result: None,
            served: spec.pair,
            registered: spec.pair,
            spec,
            machine,
            live,
            deadline_ms,
            nodes_return_until_ms: 0,
            pending_takeover: None,
            is_audio_lost: false,
            is_abandoned: false,
            is_unwritten: false,
            used: 0,
            slot_weight: 0,
            sent_ms: 0,
            slot_count,
            connection: None,
            stream: StreamState::default(),
            pin: PinState::default(),
        }
    }

    async fn run(mut self: Box<Self>, taken_over: Option<JobEvent>) {
        if !completes(Box::pin(self.drive(taken_over))).await {
            let stage = self.machine.stage();
            tracing::error!(attempt_id = stage.attempt.0, state = %stage.state, "runner panicked");
            // If this panics as well, the store may still show the job as open.
            self.is_unwritten |= !completes(Box::pin(self.fail_after_panic())).await;
        }
        self.finish();
    }

    async fn drive(&mut self, taken_over: Option<JobEvent>) {
        if let Some(event) = taken_over {
            Box::pin(self.resume(event)).await;
        }
        while !self.machine.stage().state.is_terminal() && !self.is_abandoned {
            match self.machine.stage().state {
                JobState::New | JobState::Retrying if self.is_audio_lost => {
                    self.apply(JobEvent::InstanceLost).await;
                }
                JobState::New | JobState::Retrying => {
                    self.apply(JobEvent::Select).await;
                }
                JobState::Selecting => self.select().await,
                JobState::Reserved => self.dispatch().await,
                _ => self.wait_for_node().await,
            }
        }
    }

    async fn fail_after_panic(&mut self) {
        match self.machine.stage().state.is_terminal() {
            // It is unknown whether that was written.
            true => self.is_unwritten = true,
            false => drop(self.apply(JobEvent::InternalError).await),
        }
    }

    fn finish(&mut self) {
        self.engine.live.remove(self.id());
        for message in self.live.close() {
            if let JobMessage::Report(report, verdict_to) = message {
                self.refuse_report(&report, verdict_to);
            }
        }
        if self.is_unwritten {
            // Not before it is removed from the live jobs: the clean-up passes over those.
            self.engine.reconciler.release(self.live.request.clone(), self.live.accepted_ms);
        }
        self.engine.job_ended.notify_waiters();
    }

    /// Goes on with a job of an instance that is gone. If this instance has just started, nodes
    /// reconnect after it, and one of them may have the result already.
    async fn resume(&mut self, event: JobEvent) {
        let times = self.engine.options.times;
        let now_ms = self.engine.now_ms();
        self.is_audio_lost = event == JobEvent::InstanceLost;
        self.nodes_return_until_ms = now_ms.saturating_add(times.ack_ms + times.stale_ms);
        self.recall_served().await;
        if self.machine.stage().state == JobState::Dispatched {
            self.sent_ms = now_ms;
            self.pending_takeover = Some(event);
        } else {
            self.apply(event).await;
        }
    }

    /// The pair that the job is served as, if that is not the one that was asked for.
    fn served_as(&self) -> Option<LangPair> {
        Some(self.registered).filter(|served| *served != self.spec.pair)
    }

    /// Finds out by which tags the node knows the pair that it was asked for.
    async fn note_registered(&mut self, grant: &Grant) {
        let profile = match self.engine.nodes.get(&grant.node) {
            Some(node) => Some(node.profile()),
            None => {
                let record = self.engine.timed_record_of(&grant.node).await;
                record.ok().flatten().map(|(_, node)| node.profile)
            }
        };
        self.registered =
            profile.map_or(self.served, |profile| profile.capabilities().registered(self.served));
    }

    /// Finds out as which pair the node of a job that was taken over serves it: records of open
    /// jobs do not say.
    async fn recall_served(&mut self) {
        let Some(grant) = self.machine.grant().cloned() else { return };
        if self.spec.pair.lookups().nth(1).is_none() {
            return;
        }
        let Ok(Some((_, node))) = self.engine.timed_record_of(&grant.node).await else { return };
        self.served = self.engine.served_pair(&self.spec, &node).unwrap_or(self.spec.pair);
        self.registered = node.profile.capabilities().registered(self.served);
        let served_as = self.served_as();
        self.live.edit_attempts(|attempts| {
            if let Some(last) = attempts.last_mut() {
                last.served_as = served_as;
            }
        });
    }

    fn id(&self) -> JobId {
        self.live.request.id
    }

    fn key(&self) -> LeaseKey {
        LeaseKey { job: self.id(), attempt: self.machine.stage().attempt }
    }

    /// Waits until this time of the instance's clock.
    async fn sleep_until(&self, at_ms: u64) {
        self.engine.timer.sleep(at_ms.saturating_sub(self.engine.now_ms())).await;
    }

    async fn select(&mut self) {
        let started_ms = self.engine.now_ms();
        let found = self.find_slot(started_ms).await;
        let waited_ms = self.engine.now_ms() - started_ms;
        self.end.waited_ms += waited_ms;
        self.engine.metrics.stage("queue", waited_ms);
        match found {
            Ok(Found { grant, used, weight, .. }) => {
                (self.used, self.slot_weight) = (used, weight);
                let count = || self.engine.queue.count(self.spec.tenant);
                self.slot_count.get_or_insert_with(count);
                if self.spec.pair.lookups().nth(1).is_some() {
                    Box::pin(self.note_registered(&grant)).await;
                }
                let (attempt, node) = (self.machine.stage().attempt.0, grant.node.clone());
                let attempt = AttemptRecord {
                    served_as: self.served_as(),
                    ..AttemptRecord::new(attempt, node, started_ms + waited_ms)
                };
                self.live.edit_attempts(|attempts| attempts.push(attempt));
                self.apply(JobEvent::Granted(grant)).await;
            }
            Err(NoSlot::Failed(failure, detail)) => {
                self.end.detail = detail;
                self.apply(JobEvent::NoSlot(failure)).await;
            }
            Err(NoSlot::Interrupted(event)) => {
                self.apply(event).await;
            }
        }
    }

    /// Writes where the job goes, then sends it.
    async fn dispatch(&mut self) {
        let Some(grant) = self.machine.grant().cloned() else { return };
        let attempt = self.machine.stage().attempt;
        let reserved_ms = self.engine.now_ms();
        let ticket = self.engine.nodes.get(&grant.node).map(|node| node.queue_send(grant.fence));
        let effects = self.apply(JobEvent::Dispatch).await;
        if !effects.contains(&Effect::Send) {
            return;
        }
        let is_bound = self.spec.bind_key.is_some();
        let bound = if is_bound { Box::pin(self.bind(&grant)).await } else { Ok((false, None)) };
        let Ok((moved, before)) = bound else {
            self.apply(JobEvent::SendFailed(attempt)).await;
            return;
        };
        if let Some(ticket) = &ticket {
            // If the earlier assignment is delayed, the node may refuse this one as out of order; a
            // late job would be worse.
            self.engine.timer.within(SEND_TICKET_MS, ticket.wait()).await;
        }
        let now_ms = self.engine.now_ms();
        // After a pause of this process the ack lease has ended, and the slot may be another job's.
        if now_ms - reserved_ms >= self.engine.options.times.ack_ms {
            Box::pin(self.unbind(&grant, before)).await;
            self.apply(JobEvent::SendFailed(attempt)).await;
            return;
        }
        self.pin.has_moved = moved;
        let assignment = Assignment {
            job: self.id(),
            attempt,
            fence: grant.fence,
            request: self.live.request.clone(),
            deadline_ms: self.deadline_ms.min(now_ms + self.engine.options.times.run_ms),
            served_as: self.served_as().map(Box::new),
            moved,
            stream: self.stream.is_on,
        };
        self.connection =
            self.engine.nodes.get(&grant.node).filter(|node| node.has_epoch(grant.epoch));
        self.sent_ms = now_ms;
        let is_sent = match &self.connection {
            Some(node) => match node.send_assignment(assignment, now_ms) {
                Err(TrySendError::Full(_)) => {
                    self.engine.disconnect_slow(&grant.node, grant.epoch).await;
                    false
                }
                sent => sent.is_ok(),
            },
            None => Box::pin(self.engine.assign_elsewhere(&grant, &assignment, self.used)).await,
        };
        self.engine.metrics.dispatch.count(if is_sent { "sent" } else { "send_failed" });
        let since_ms = now_ms - self.live.accepted_ms;
        self.engine.metrics.dispatch_seconds.observe(since_ms as f64 / 1000.0);
        if is_sent {
            self.publish();
        } else {
            Box::pin(self.unbind(&grant, before)).await;
            self.apply(JobEvent::SendFailed(attempt)).await;
        }
    }

    /// Waits for a message or a timeout, and handles whichever comes first.
    async fn wait_for_node(&mut self) {
        if self.stream.is_on {
            Box::pin(self.send_speech()).await;
        }
        let times = self.engine.options.times;
        let Stage { state, attempt } = self.machine.stage();
        let (limit_ms, timeout) = match (state, &self.pending_takeover) {
            (_, Some(event)) => (times.ack_ms, event.clone()),
            (JobState::Dispatched, None) => (times.ack_ms, JobEvent::AckTimeout(attempt)),
            (_, None) => (times.run_ms, JobEvent::RunTimeout(attempt)),
        };
        let limit_ms = self.sent_ms.saturating_add(limit_ms);
        let (limit_ms, timeout) = match limit_ms <= self.deadline_ms {
            true => (limit_ms, timeout),
            false => (self.deadline_ms, JobEvent::DeadlinePassed),
        };
        let message = tokio::select! {
            biased;
            message = self.live.next() => message,
            () = self.sleep_until(limit_ms) => return self.on_timeout(timeout).await,
        };
        match message {
            // A node that sends partial texts without end does not postpone the timeout.
            JobMessage::Partial(_) if self.engine.now_ms() >= limit_ms => {
                self.on_timeout(timeout).await;
            }
            message => self.on_message(message).await,
        }
    }

    async fn on_message(&mut self, message: JobMessage) {
        let Stage { state, attempt } = self.machine.stage();
        match message {
            JobMessage::Partial(partial) => self.on_partial(*partial),
            JobMessage::Cancel => drop(self.apply(JobEvent::Cancel).await),
            JobMessage::NodeLost(lost, node) if lost == attempt && self.is_on(node.as_ref()) => {
                self.apply(JobEvent::NodeLost(attempt)).await;
            }
            JobMessage::NotSent(unsent) if unsent == attempt && state == JobState::Dispatched => {
                self.apply(JobEvent::SendFailed(attempt)).await;
            }
            // About an earlier attempt, or from a node that does not have it.
            JobMessage::NodeLost(..) | JobMessage::NotSent(_) => {}
            // It has a slot.
            JobMessage::Wake => {}
            // The new owner has the slot as well.
            JobMessage::NotOwner => self.is_abandoned = true,
            JobMessage::Report(report, verdict_to) => self.on_report(report, verdict_to).await,
        }
    }

    /// Whether this node has the current attempt; `None` stands for the node that has it.
    fn is_on(&self, node: Option<&NodeId>) -> bool {
        let grant = self.machine.grant();
        node.is_none_or(|node| grant.is_some_and(|grant| grant.node == *node))
    }

    async fn on_timeout(&mut self, event: JobEvent) {
        if matches!(event, JobEvent::AckTimeout(_)) {
            self.engine.metrics.ack_timeouts.inc();
        }
        self.pending_takeover = None;
        self.apply(event).await;
    }
}

/// Whether the future completes without a panic.
async fn completes<F: Future<Output = ()>>(mut future: Pin<Box<F>>) -> bool {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        polled.map_or(std::task::Poll::Ready(false), |poll| poll.map(|()| true))
    })
    .await
}
