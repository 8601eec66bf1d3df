//! A connection between a node's process and a life of an instance.
//!
//! Start at [`join`]. What the server does for a socket is done here, through the network of the world:
//! it passes words on, confirms last words that nobody wants, hangs up on the silent, and tells the engine once
//! when it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::job::AttemptReport;
use lingua_core::{Epoch, Fence, Health, Load, Profile};
use lingua_engine::NodeError;
use lingua_engine::handle::{HeartbeatAck, NodeHeartbeat, NodeRegistration};
use lingua_engine::node::ToNode;
use lingua_store::contract::LeaseKey;
use tokio::sync::{mpsc, watch};

use super::World;
use super::client_job::node_id;
use super::instance::Life;
use super::network::End;
use super::trace::About;

/// A node that says nothing for so long is gone.
const SILENCE_MS: u64 = 15_000;

/// How long an order that was granted and written may wait for an earlier one to the same node.
const IN_LINE_MS: u64 = 20;

/// Something that reaches a process.
#[derive(Debug)]
pub(super) enum Heard {
    Joined(Option<Arc<Conn>>),
    Order(Epoch, ToNode),
    HeartbeatAck(Epoch, Result<HeartbeatAck, NodeError>),
    /// The connection of this epoch is over.
    HungUp(Epoch),
    /// The work of this serial number is over.
    Worked(LeaseKey, u64),
    /// Does nothing until then.
    Pause(u64),
    /// Ends it; loudly if its connection is seen to break.
    Die {
        loudly: bool,
    },
}

/// What a node says.
#[derive(Debug, Clone)]
pub(super) enum Word {
    NodeHeartbeat(Vec<LeaseKey>),
    Acked(LeaseKey, Fence),
    Done(LeaseKey, Fence, String),
    Failed(LeaseKey, Fence, &'static str, bool),
    Part(LeaseKey, Fence, String),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    world: Arc<World>,
    pub(super) life: Life,
    node: usize,
    pub(super) epoch: Epoch,
    heard_ms: AtomicU64,
    /// When what was last said to the node about sound arrives: it comes in the order in which it was sent.
    sound_ms: AtomicU64,
    open: watch::Sender<bool>,
    to: mpsc::Sender<Heard>,
}

/// Tries to connect a node's process to an instance; the process hears what came of it, if it arrives.
pub(super) fn join(
    world: &Arc<World>,
    node: usize,
    instance: usize,
    profile: Arc<Profile>,
    to: mpsc::Sender<Heard>,
) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let (me, there) = (End::Node(node), End::Instance(instance));
        let Some(delay_ms) = world.first_fate(me, there) else { return };
        sleep(delay_ms).await;
        let Some(life) = world.life(instance) else {
            to.try_send(Heard::Joined(None)).ok();
            return;
        };
        if !life.gate.pass().await {
            return;
        }
        let (outbox, inbox) = mpsc::channel(life.engine.options().bounds.outbox_max);
        let health = Health::Ready;
        let registration =
            NodeRegistration { node: node_id(node), profile, health, version: None, outbox };
        let registered = tokio::select! {
            biased;
            () = life.gate.died() => return,
            registered = life.engine.register(registration) => registered,
        };
        let conn = registered.ok().map(|registered| {
            let (open, heard_ms) = (watch::Sender::new(true), AtomicU64::new(world.now_ms()));
            let (world, epoch) = (Arc::clone(&world), registered.place.epoch);
            let (sound_ms, to) = (AtomicU64::new(0), to.clone());
            Arc::new(Conn { world, life, node, epoch, heard_ms, sound_ms, open, to })
        });
        if let Some(conn) = &conn {
            let (i, epoch) = (instance, conn.epoch);
            world.note(About::node(node), format_args!("i{i} registered n{node} epoch {epoch}"));
            tokio::spawn(Arc::clone(conn).serve(inbox));
        }
        let Some(delay_ms) = world.first_fate(there, me) else { return };
        sleep(delay_ms).await;
        to.try_send(Heard::Joined(conn)).ok();
    });
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

impl Conn {
    /// The process hangs up, and the instance notices.
    pub(super) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Passes on what the instance says, until either side is gone.
    async fn serve(self: Arc<Self>, mut inbox: mpsc::Receiver<ToNode>) {
        let mut open = self.open.subscribe();
        loop {
            let heard_ms = self.heard_ms.load(Ordering::Relaxed);
            let left_ms = (heard_ms + SILENCE_MS).saturating_sub(self.world.now_ms());
            if left_ms == 0 {
                break;
            }
            tokio::select! {
                biased;
                () = self.life.gate.died() => {
                    self.tell(Heard::HungUp(self.epoch));
                    return;
                }
                _ = open.wait_for(|open| !open) => break,
                order = inbox.recv() => match order {
                    Some(ToNode::Superseded) => {
                        self.tell(Heard::Order(self.epoch, ToNode::Superseded));
                        break;
                    }
                    Some(order) => self.pass_on(order),
                    None => break,
                },
                () = sleep(left_ms) => {}
            }
        }
        self.close();
        self.tell(Heard::HungUp(self.epoch));
        self.life.gate.pass().await;
        self.life.engine.disconnect(&node_id(self.node), self.epoch).await.ok();
    }

    fn pass_on(&self, order: ToNode) {
        if let ToNode::Assign(assignment) = &order {
            let (life, node) = (&self.life, self.node);
            let job = assignment.job.number() as usize;
            let about = About::both(job, node);
            let (attempt, fence) = (assignment.attempt, assignment.fence);
            self.world.note(
                about,
                format_args!("i{} sends {about} a{attempt} fence {fence} to n{node}", life.index),
            );
            let way = life.gate.way();
            let now_ms = self.world.now_ms();
            if way.is_cut(now_ms) && now_ms > way.cut_ms.0 + IN_LINE_MS {
                let text = format!("i{} sent {about} without a store", life.index);
                self.world.fail(super::Checker::S6, about, text);
            }
            let who = (life.index, life.number);
            let found = self.world.watch.lock().sent(who, (node, self.epoch), assignment, now_ms);
            if let Some((checker, text)) = found {
                self.world.fail(checker, about, text);
            }
        }
        if matches!(order, ToNode::Sound { .. } | ToNode::SoundEnd { .. }) {
            return self.pass_on_sound(order);
        }
        // Each copy of an order takes its own time.
        for delay_ms in self.world.fate(End::Instance(self.life.index), End::Node(self.node)) {
            self.deliver(delay_ms, Heard::Order(self.epoch, order.clone()));
        }
    }

    /// Sound gets lost, but comes neither twice nor out of order: it has no numbers.
    fn pass_on_sound(&self, order: ToNode) {
        let ends = (End::Instance(self.life.index), End::Node(self.node));
        let Some(delay_ms) = self.world.first_fate(ends.0, ends.1) else { return };
        let now_ms = self.world.now_ms();
        let at_ms = self.sound_ms.load(Ordering::Relaxed).max(now_ms + delay_ms);
        self.sound_ms.store(at_ms, Ordering::Relaxed);
        self.deliver(at_ms - now_ms, Heard::Order(self.epoch, order));
    }

    fn tell(&self, heard: Heard) {
        if let Some(delay_ms) =
            self.world.first_fate(End::Instance(self.life.index), End::Node(self.node))
        {
            self.deliver(delay_ms, heard);
        }
    }

    fn deliver(&self, delay_ms: u64, heard: Heard) {
        let to = self.to.clone();
        tokio::spawn(async move {
            sleep(delay_ms).await;
            // A process that is gone or drowned hears nothing.
            to.try_send(heard).ok();
        });
    }

    /// Says something to the instance, if the network lets it through.
    pub(super) fn say(self: &Arc<Self>, word: Word) {
        for delay_ms in self.world.fate(End::Node(self.node), End::Instance(self.life.index)) {
            let (conn, word) = (Arc::clone(self), word.clone());
            tokio::spawn(async move {
                sleep(delay_ms).await;
                if conn.life.gate.pass().await && *conn.open.borrow() {
                    conn.heard_ms.store(conn.world.now_ms(), Ordering::Relaxed);
                    conn.hear(word).await;
                }
            });
        }
    }

    async fn hear(&self, word: Word) {
        let engine = &self.life.engine;
        let report = |key: LeaseKey, fence| AttemptReport {
            attempt: key.attempt,
            node: node_id(self.node),
            fence: Some(fence),
        };
        let (key, heard) = match word {
            Word::NodeHeartbeat(running) => {
                let (node, epoch) = (node_id(self.node), Some(self.epoch));
                let (health, load, profile) = (Some(Health::Ready), Load::default(), None);
                let beat = NodeHeartbeat { node, epoch, health, load, running, profile };
                let beaten = engine.heartbeat(beat).await;
                self.tell(Heard::HeartbeatAck(self.epoch, beaten));
                return;
            }
            Word::Acked(key, fence) => {
                engine.acked(key.job, report(key, fence), false).await.ok();
                return;
            }
            Word::Part(key, fence, text) => {
                engine.partial(key.job, report(key, fence), &text);
                return;
            }
            Word::Done(key, fence, result) => {
                (key, engine.done(key.job, report(key, fence), result, false).await)
            }
            Word::Failed(key, fence, reason, retryable) => {
                let reason = reason.to_owned();
                let report = report(key, fence);
                (key, engine.failed(key.job, report, reason, retryable, false).await)
            }
        };
        // A word that was heard is confirmed by the job; one that cannot be judged, by nobody.
        if heard.is_err_and(|error| !matches!(error, NodeError::Store(_))) {
            self.tell(Heard::Order(self.epoch, ToNode::Confirmed { key, accepted: false }));
        }
    }
}
