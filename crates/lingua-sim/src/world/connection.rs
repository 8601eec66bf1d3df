//! The connection of a node process to a run of an instance.
//!
//! Start at [`join`]. It does what the server does for a socket, over the simulated network: it
//! forwards messages, pings, refuses stale results, closes silent connections, and reports the end
//! of the connection to the engine once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::job::AttemptReport;
use lingua_core::{Epoch, Fence, Health, Profile};
use lingua_engine::NodeError;
use lingua_engine::handle::{HeartbeatResult, NodeHeartbeat, NodeRegistration};
use lingua_engine::node::{Assignment, ToNode};
use lingua_store::contract::LeaseKey;
use tokio::sync::{mpsc, watch};

use super::World;
use super::client_job::node_id;
use super::instance::InstanceRun;
use super::network::NetworkEnd;
use super::trace::Subject;

/// A node that sends nothing for this long is disconnected.
const SILENCE_MS: u64 = 15_000;

/// How often a node is pinged.
const PING_MS: u64 = 5_000;

/// A node that sends nothing for this many pings, not even a pong, is disconnected.
const SILENT_PINGS: u32 = 3;

/// How long an assignment may wait behind an earlier message to the same node.
const QUEUED_MS: u64 = 20;

/// An event for a node process.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    Joined(Option<Arc<SimNodeConnection>>),
    Message(Epoch, ToNode),
    HeartbeatAck(Epoch, Result<HeartbeatResult, NodeError>),
    /// The connection of this epoch was closed.
    Disconnected(Epoch),
    /// The scheduler asks whether the process is there.
    Ping(Epoch),
    /// The work with this serial number is finished.
    WorkFinished(LeaseKey, u64),
    /// The deadline of this work has passed.
    OutOfTime(LeaseKey, u64),
    /// Pauses the process until this time.
    Pause(u64),
    /// Kills the process; `loudly` if the instance notices the broken connection.
    Kill {
        loudly: bool,
    },
}

/// A message of a node.
#[derive(Debug, Clone)]
pub(super) enum SimNodeMessage {
    /// With what the node runs, if it lists that.
    NodeHeartbeat(Option<Vec<LeaseKey>>),
    Pong,
    /// Another registration on a connection that is registered.
    Register(Arc<Profile>),
    Ack(LeaseKey, Fence),
    Done(LeaseKey, Fence, String),
    Fail(LeaseKey, Fence, &'static str, bool),
    Partial(LeaseKey, Fence, String),
}

/// A connection that was registered.
#[derive(Debug)]
pub(super) struct SimNodeConnection {
    world: Arc<World>,
    pub(super) run: InstanceRun,
    node: usize,
    pub(super) epoch: Epoch,
    received_ms: AtomicU64,
    /// Whether anything came since the last ping.
    is_heard: AtomicBool,
    /// Whether a heartbeat came since the last ping.
    is_renewed: AtomicBool,
    /// Where the node is registered again. Not a sender of its own: when the engine drops the node,
    /// the inbox ends.
    outbox: mpsc::WeakSender<ToNode>,
    /// When the last audio message arrives; audio keeps its order.
    audio_ms: AtomicU64,
    open: watch::Sender<bool>,
    to: mpsc::Sender<ProcessEvent>,
}

/// Tries to connect a node process to an instance; the process gets the result, unless it is lost.
pub(super) fn join(
    world: &Arc<World>,
    node: usize,
    instance: usize,
    profile: Arc<Profile>,
    to: mpsc::Sender<ProcessEvent>,
) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let (me, there) = (NetworkEnd::Node(node), NetworkEnd::Instance(instance));
        let Some(delay_ms) = world.delay(me, there) else { return };
        sleep(delay_ms).await;
        let Some(run) = world.run(instance) else {
            to.try_send(ProcessEvent::Joined(None)).ok();
            return;
        };
        if !run.faults.wait_while_paused().await {
            return;
        }
        let (outbox, inbox) = mpsc::channel(run.engine.options().bounds.outbox_max);
        let weak = outbox.downgrade();
        let registration = NodeRegistration::new(node_id(node), profile, outbox);
        let registered = tokio::select! {
            biased;
            () = run.faults.until_dead() => return,
            registered = run.engine.register(registration) => registered,
        };
        let conn = registered.ok().map(|registered| {
            Arc::new(SimNodeConnection {
                world: Arc::clone(&world),
                run,
                node,
                epoch: registered.place.epoch,
                received_ms: AtomicU64::new(world.now_ms()),
                is_heard: AtomicBool::new(false),
                is_renewed: AtomicBool::new(true),
                outbox: weak,
                audio_ms: AtomicU64::new(0),
                open: watch::Sender::new(true),
                to: to.clone(),
            })
        });
        if let Some(conn) = &conn {
            let (i, epoch) = (instance, conn.epoch);
            world.note(Subject::node(node), format_args!("i{i} registered n{node} epoch {epoch}"));
            tokio::spawn(Arc::clone(conn).serve(inbox));
        }
        let Some(delay_ms) = world.delay(there, me) else { return };
        sleep(delay_ms).await;
        to.try_send(ProcessEvent::Joined(conn)).ok();
    });
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

impl SimNodeConnection {
    /// The process closes the connection, and the instance notices.
    pub(super) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Forwards messages of the instance until the connection ends.
    async fn serve(self: Arc<Self>, mut inbox: mpsc::Receiver<ToNode>) {
        let mut open = self.open.subscribe();
        let is_pinged = self.world.plan.habits(self.node).is_pinged;
        let (mut ping_ms, mut silent_pings) = (self.world.now_ms(), 0);
        loop {
            let received_ms = self.received_ms.load(Ordering::Relaxed);
            let due_ms = if is_pinged { ping_ms } else { received_ms + SILENCE_MS };
            let left_ms = due_ms.saturating_sub(self.world.now_ms());
            if left_ms == 0 {
                ping_ms += PING_MS;
                if !is_pinged || !self.ping(&mut silent_pings) {
                    break;
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.run.faults.until_dead() => {
                    self.send_event(ProcessEvent::Disconnected(self.epoch));
                    return;
                }
                _ = open.wait_for(|open| !open) => break,
                order = inbox.recv() => match order {
                    Some(ToNode::Superseded) => {
                        self.send_event(ProcessEvent::Message(self.epoch, ToNode::Superseded));
                        break;
                    }
                    Some(order) => self.forward(order),
                    None => break,
                },
                () = sleep(left_ms) => {}
            }
        }
        self.close();
        self.send_event(ProcessEvent::Disconnected(self.epoch));
        self.run.faults.wait_while_paused().await;
        self.run.engine.disconnect(&node_id(self.node), self.epoch).await.ok();
    }

    /// Pings the node, as the server does. If it has answered the last ping and sent no heartbeat
    /// since, that answer is its sign of life. Says whether the connection goes on.
    fn ping(&self, silent_pings: &mut u32) -> bool {
        let is_heard = self.is_heard.swap(false, Ordering::Relaxed);
        *silent_pings = if is_heard { 1 } else { *silent_pings + 1 };
        if *silent_pings > SILENT_PINGS {
            return false;
        }
        if !self.is_renewed.swap(false, Ordering::Relaxed) && is_heard {
            self.run.engine.touch_later(&node_id(self.node));
        }
        self.send_event(ProcessEvent::Ping(self.epoch));
        true
    }

    fn forward(&self, mut order: ToNode) {
        if let ToNode::Assign(assignment) = &mut order {
            self.check_owner(assignment);
            // A node is told how much time is left.
            let left_ms = assignment.deadline_ms.saturating_sub(self.run.engine.now_ms());
            assignment.deadline_ms = self.world.now_ms() + left_ms;
            let (run, node) = (&self.run, self.node);
            let job = assignment.job.number() as usize;
            let about = Subject::both(job, node);
            let (attempt, fence) = (assignment.attempt, assignment.fence);
            self.world.note(
                about,
                format_args!("i{} sends {about} a{attempt} fence {fence} to n{node}", run.index),
            );
            let link = run.faults.store_link();
            let now_ms = self.world.now_ms();
            if link.is_cut(now_ms) && now_ms > link.cut_ms.0 + QUEUED_MS {
                let text = format!("i{} sent {about} without a store", run.index);
                self.world.fail(super::Checker::S6, about, text);
            }
            // An assignment that was lost on the bus leaves a binding to a node that never got it,
            // so only jobs of this instance are checked.
            let me = (run.index, run.number);
            if self.world.dispatchers.lock().get(&assignment.job) == Some(&me) {
                let found = self.world.observer.lock().sent(run.index, &node_id(node), assignment);
                if let Some((checker, text)) = found {
                    self.world.fail(checker, about, text);
                }
            }
        }
        if matches!(order, ToNode::Sound { .. } | ToNode::SoundEnd { .. }) {
            return self.forward_audio(order);
        }
        // Each copy of a message has a delay of its own.
        for delay_ms in
            self.world.delays(NetworkEnd::Instance(self.run.index), NetworkEnd::Node(self.node))
        {
            self.deliver(delay_ms, ProcessEvent::Message(self.epoch, order.clone()));
        }
    }

    /// A node gets jobs that its owner takes only.
    fn check_owner(&self, assignment: &Assignment) {
        let (spec, profile) = (&assignment.request.spec, self.world.profile(self.node));
        if !profile.admits(spec.public, spec.tenant) {
            let about = Subject::both(assignment.job.number() as usize, self.node);
            let (kind, tenant) = (if spec.public { "public" } else { "private" }, spec.tenant);
            let text = format!("{about}, {kind} of {tenant}, was sent to n{}", self.node);
            self.world.fail(super::Checker::S11, about, text);
        }
    }

    /// Audio may be lost but is neither repeated nor reordered: it has no sequence numbers.
    fn forward_audio(&self, order: ToNode) {
        let ends = (NetworkEnd::Instance(self.run.index), NetworkEnd::Node(self.node));
        let Some(delay_ms) = self.world.delay(ends.0, ends.1) else { return };
        let now_ms = self.world.now_ms();
        let at_ms = self.audio_ms.load(Ordering::Relaxed).max(now_ms + delay_ms);
        self.audio_ms.store(at_ms, Ordering::Relaxed);
        self.deliver(at_ms - now_ms, ProcessEvent::Message(self.epoch, order));
    }

    fn send_event(&self, event: ProcessEvent) {
        if let Some(delay_ms) =
            self.world.delay(NetworkEnd::Instance(self.run.index), NetworkEnd::Node(self.node))
        {
            self.deliver(delay_ms, event);
        }
    }

    fn deliver(&self, delay_ms: u64, event: ProcessEvent) {
        let to = self.to.clone();
        tokio::spawn(async move {
            sleep(delay_ms).await;
            // A process that is gone or whose inbox is full gets nothing.
            to.try_send(event).ok();
        });
    }

    /// Sends a message to the instance over the network.
    pub(super) fn send(self: &Arc<Self>, message: SimNodeMessage) {
        for delay_ms in
            self.world.delays(NetworkEnd::Node(self.node), NetworkEnd::Instance(self.run.index))
        {
            let (conn, message) = (Arc::clone(self), message.clone());
            tokio::spawn(async move {
                sleep(delay_ms).await;
                if conn.run.faults.wait_while_paused().await && *conn.open.borrow() {
                    conn.received_ms.store(conn.world.now_ms(), Ordering::Relaxed);
                    conn.is_heard.store(true, Ordering::Relaxed);
                    conn.handle(message).await;
                }
            });
        }
    }

    async fn handle(&self, message: SimNodeMessage) {
        let engine = &self.run.engine;
        let report = |key: LeaseKey, fence| AttemptReport {
            attempt: key.attempt,
            node: node_id(self.node),
            fence: Some(fence),
        };
        let (key, handled) = match message {
            SimNodeMessage::NodeHeartbeat(running) => {
                // Who does not list what it runs says nothing else either.
                let told = running.as_ref().map(|_| (self.epoch, Health::Ready));
                let (epoch, health) = told.unzip();
                let bare = NodeHeartbeat::of(node_id(self.node));
                let beaten = engine.heartbeat(NodeHeartbeat { epoch, health, running, ..bare });
                let beaten = beaten.await;
                self.is_renewed.fetch_or(beaten.is_ok(), Ordering::Relaxed);
                self.send_event(ProcessEvent::HeartbeatAck(self.epoch, beaten));
                return;
            }
            SimNodeMessage::Pong => return,
            SimNodeMessage::Register(profile) => return self.register_again(profile).await,
            SimNodeMessage::Ack(key, fence) => {
                engine.acked(key.job, report(key, fence), false).await.ok();
                return;
            }
            SimNodeMessage::Partial(key, fence, text) => {
                engine.partial(key.job, report(key, fence), &text);
                return;
            }
            SimNodeMessage::Done(key, fence, result) => {
                (key, engine.done(key.job, report(key, fence), result, false).await)
            }
            SimNodeMessage::Fail(key, fence, reason, retryable) => {
                let reason = reason.to_owned();
                let report = report(key, fence);
                (key, engine.failed(key.job, report, reason, retryable, false).await)
            }
        };
        // The job itself confirms a report that it accepted; a report is not confirmed while the
        // store is down.
        if handled.is_err_and(|error| !matches!(error, NodeError::Store(_))) {
            self.send_event(ProcessEvent::Message(
                self.epoch,
                ToNode::Confirmed { key, accepted: false },
            ));
        }
    }

    async fn register_again(&self, profile: Arc<Profile>) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        let registration = NodeRegistration::new(node_id(self.node), profile, outbox);
        match self.run.engine.register_again(registration).await {
            Ok(registered) => {
                self.is_renewed.store(true, Ordering::Relaxed);
                let (i, n, epoch) = (self.run.index, self.node, registered.place.epoch);
                let what = format_args!("i{i} registered n{n} again, epoch {epoch}");
                self.world.note(Subject::node(self.node), what);
            }
            Err(NodeError::Store(_)) => {}
            Err(_) => self.close(),
        }
    }
}
