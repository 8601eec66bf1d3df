//! The process of a node: it does jobs, and misbehaves if the plan says so.
//!
//! Start at [`Process::run`]. As the SDK does, it refuses jobs beyond its slots or with an old
//! fence, keeps each result until it is confirmed, and reconnects. What it does with a job is in
//! `node/work.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lingua_core::{Capabilities, Fence, Lang, LangSet, Nmt, Profile, Service, ServiceSet};
use lingua_engine::NodeError;
use lingua_engine::node::ToNode;
use lingua_store::contract::LeaseKey;
use tokio::sync::mpsc;

use super::World;
use super::client_job::node_id;
use super::connection::{ProcessEvent, SimNodeConnection, SimNodeMessage, join};
use super::fleet::NodeHabits;
use super::job_audio::JobAudio;
use super::plan::{GROUPS, NodePlan};
use super::rng::SimRng;
use super::trace::Subject;

mod work;

pub(super) use work::WRONG;
use work::{JobBehaviour, result};

/// The most events that wait for a process; more are lost.
const INBOX_MAX: usize = 1024;

/// How long a process waits for any word of the scheduler before it connects anew.
const REPLY_MS: u64 = 15_000;

const TICK_MS: u64 = 100;

/// How long a process waits for the reply to its registration.
const REGISTER_MS: u64 = 3_000;

/// How long a process waits for the confirmation of a result before it sends it again.
const RESEND_MS: u64 = 4_000;

/// How often a streaming node sends a partial text, per thousand parts of audio.
const PARTIALS_PERMILLE: u32 = 300;

/// How long a process stays connected to another instance than its home.
const AWAY_MS: u64 = 10_000;

/// How the world reaches and observes a process.
#[derive(Debug, Clone)]
pub(super) struct ProcessHandle {
    pub(super) number: u32,
    pub(super) to: mpsc::Sender<ProcessEvent>,
    pub(super) running: Arc<AtomicUsize>,
    pub(super) at_home: Arc<AtomicBool>,
    /// Another process has its node id; the process ends when it learns that.
    pub(super) superseded: Arc<AtomicBool>,
}

/// The connection state of a process.
#[derive(Debug)]
enum Link {
    Disconnected {
        retry_ms: u64,
    },
    Connecting {
        until_ms: u64,
    },
    Connected {
        conn: Arc<SimNodeConnection>,
        since_ms: u64,
        next_heartbeat_ms: u64,
        next_register_ms: u64,
        replied_ms: u64,
    },
}

#[derive(Debug)]
struct Work {
    fence: Fence,
    serial: u64,
    behaviour: JobBehaviour,
    audio: JobAudio,
}

#[derive(Debug)]
struct UnconfirmedResult {
    message: SimNodeMessage,
    sent_ms: u64,
}

pub(super) struct Process {
    world: Arc<World>,
    node: usize,
    plan: NodePlan,
    habits: NodeHabits,
    handle: ProcessHandle,
    inbox: mpsc::Receiver<ProcessEvent>,
    rng: SimRng,
    profile: Arc<Profile>,
    link: Link,
    fence_highest: Fence,
    draining: bool,
    running: BTreeMap<LeaseKey, Work>,
    unconfirmed: BTreeMap<LeaseKey, UnconfirmedResult>,
    serial: u64,
}

impl World {
    /// Starts a process for a node; it supersedes the one that the node has.
    pub(super) fn start_node(self: &Arc<Self>, node: usize) {
        let plan = self.plan.nodes[node];
        let mut processes = self.processes.lock();
        let number = processes.count;
        processes.count += 1;
        let (to, inbox) = mpsc::channel(INBOX_MAX);
        let handle = ProcessHandle {
            number,
            to,
            running: Arc::default(),
            at_home: Arc::default(),
            superseded: Arc::default(),
        };
        if let Some(before) = processes.present[node].replace(handle.clone()) {
            before.superseded.store(true, Ordering::Relaxed);
        }
        drop(processes);
        self.note(Subject::node(node), format_args!("n{node} starts as process {number}"));
        let process = Process {
            world: Arc::clone(self),
            node,
            plan,
            habits: self.plan.habits(node),
            handle,
            inbox,
            rng: SimRng::new(self.plan.seed, &format!("process {number}")),
            profile: self.profile(node),
            link: Link::Disconnected { retry_ms: 0 },
            fence_highest: Fence(0),
            draining: false,
            running: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            serial: 0,
        };
        tokio::spawn(process.run());
    }

    /// What a node says when it registers.
    pub(super) fn profile(&self, node: usize) -> Arc<Profile> {
        let NodePlan { home, slots } = self.plan.nodes[node];
        let langs = || -> LangSet {
            GROUPS[home].iter().map(|tag| Lang::new(tag).expect("a language")).collect()
        };
        let services = match self.plan.listens(node) {
            true => ServiceSet::ALL,
            false => ServiceSet::ALL.without(Service::Streaming),
        };
        let caps = Capabilities::new(langs(), langs(), langs(), Nmt::AnyToAny, services);
        let caps = caps.expect("both ends are spoken");
        let profile = Profile::new(caps, slots.into(), true).expect("a number of slots");
        Arc::new(match &self.plan.fleet {
            Some(fleet) => fleet.own(node, profile),
            None => profile,
        })
    }
}

impl Process {
    async fn run(mut self) {
        loop {
            let tick = Duration::from_millis(TICK_MS);
            match tokio::time::timeout(tick, self.inbox.recv()).await {
                Ok(Some(ProcessEvent::Kill { loudly })) => {
                    if let (true, Link::Connected { conn, .. }) = (loudly, &self.link) {
                        conn.close();
                    }
                    break;
                }
                Ok(Some(event)) => {
                    if !self.handle_event(event).await {
                        break;
                    }
                }
                Ok(None) => break,
                Err(_) => {}
            }
            self.tick();
        }
        self.running.clear();
        self.count();
        self.handle.at_home.store(false, Ordering::Relaxed);
        let (node, number) = (self.node, self.handle.number);
        self.world.note(Subject::node(node), format_args!("n{node} ends, process {number}"));
        let mut processes = self.world.processes.lock();
        if processes.present[node].as_ref().is_some_and(|handle| handle.number == number) {
            processes.present[node] = None;
        }
    }

    fn note(&self, about: Subject, what: std::fmt::Arguments<'_>) {
        self.world.note(about, format_args!("n{} {what}", self.node));
    }

    /// Connects, sends heartbeats and repeats results when they are due.
    fn tick(&mut self) {
        let now_ms = self.world.now_ms();
        let is_quiet = self.world.is_quiet();
        match &mut self.link {
            Link::Disconnected { retry_ms } if now_ms >= *retry_ms => self.connect(now_ms),
            Link::Connecting { until_ms } if now_ms >= *until_ms => {
                self.link = Link::Disconnected { retry_ms: now_ms };
            }
            Link::Connected { conn, since_ms, next_heartbeat_ms, next_register_ms, replied_ms } => {
                let away = conn.run.index != self.plan.home
                    && !self.habits.roams
                    && (is_quiet || now_ms > *since_ms + AWAY_MS)
                    && self.world.run(self.plan.home).is_some();
                if away || now_ms > *replied_ms + REPLY_MS {
                    conn.close();
                    self.link = Link::Disconnected { retry_ms: now_ms };
                } else if now_ms >= *next_heartbeat_ms {
                    *next_heartbeat_ms = now_ms + next_in(&mut self.rng, self.habits.heartbeat_ms);
                    let lists = self.habits.lists_running;
                    let running = lists.then(|| self.running.keys().copied().collect());
                    conn.send(SimNodeMessage::NodeHeartbeat(running));
                    let conn = Arc::clone(conn);
                    self.resend_results(&conn, now_ms, RESEND_MS);
                } else if now_ms >= *next_register_ms {
                    *next_register_ms = next_register(self.habits, now_ms);
                    conn.send(SimNodeMessage::Register(Arc::clone(&self.profile)));
                }
            }
            _ => {}
        }
        let is_home = |at: usize| self.habits.roams || at == self.plan.home;
        let at_home = matches!(&self.link, Link::Connected { conn, .. } if is_home(conn.run.index));
        self.handle.at_home.store(at_home, Ordering::Relaxed);
    }

    fn connect(&mut self, now_ms: u64) {
        let anywhere = self.rng.between(0, self.world.plan.instances as u64 - 1) as usize;
        let home = self.plan.home;
        let goes_home = self.world.is_quiet() || self.world.run(home).is_some();
        let instance = if goes_home && !self.rng.permille(100) { home } else { anywhere };
        let instance = match (self.habits.roams, self.world.is_quiet()) {
            (true, _) => anywhere,
            (false, true) => home,
            (false, false) => instance,
        };
        let (profile, to) = (Arc::clone(&self.profile), self.handle.to.clone());
        join(&self.world, self.node, instance, profile, to);
        self.link = Link::Connecting { until_ms: now_ms + REGISTER_MS };
    }

    /// Sends results again that were not confirmed.
    fn resend_results(&mut self, conn: &Arc<SimNodeConnection>, now_ms: u64, after_ms: u64) {
        for unconfirmed in self
            .unconfirmed
            .values_mut()
            .filter(|unconfirmed| now_ms >= unconfirmed.sent_ms + after_ms)
        {
            unconfirmed.sent_ms = now_ms;
            conn.send(unconfirmed.message.clone());
        }
    }

    /// Handles an event; whether the process goes on.
    async fn handle_event(&mut self, event: ProcessEvent) -> bool {
        let now_ms = self.world.now_ms();
        let epoch = match &self.link {
            Link::Connected { conn, .. } => Some(conn.epoch),
            _ => None,
        };
        match event {
            ProcessEvent::Joined(None) => {
                let retry_ms = now_ms + self.rng.between(50, 400);
                self.link = Link::Disconnected { retry_ms };
            }
            ProcessEvent::Joined(Some(conn)) => self.joined(conn, now_ms),
            ProcessEvent::Message(from, message) if epoch == Some(from) => {
                self.heard(now_ms);
                return self.handle_message(message);
            }
            ProcessEvent::Ping(from) if epoch == Some(from) => {
                self.heard(now_ms);
                self.send(SimNodeMessage::Pong);
            }
            ProcessEvent::OutOfTime(key, serial)
                if self.running.get(&key).is_some_and(|work| work.serial == serial) =>
            {
                self.drop_work(key, "has no time left for");
            }
            ProcessEvent::HeartbeatAck(from, reply) if epoch == Some(from) => {
                return self.on_heartbeat_reply(reply, now_ms);
            }
            ProcessEvent::Disconnected(from) if epoch == Some(from) => {
                self.drop_streaming_jobs();
                let retry_ms = now_ms + self.rng.between(0, 300);
                self.link = Link::Disconnected { retry_ms };
            }
            ProcessEvent::WorkFinished(key, serial) => self.on_work_finished(key, serial, now_ms),
            ProcessEvent::Pause(until_ms) => {
                let ms = until_ms.saturating_sub(now_ms);
                self.note(Subject::node(self.node), format_args!("does nothing for {ms} ms"));
                while self.world.now_ms() < until_ms && !self.world.is_quiet() {
                    tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
                }
            }
            _ => {}
        }
        true
    }

    fn joined(&mut self, conn: Arc<SimNodeConnection>, now_ms: u64) {
        if let Link::Connected { conn: known, .. } = &self.link {
            if known.epoch >= conn.epoch {
                return;
            }
            known.close();
        }
        self.drop_streaming_jobs();
        self.draining = false;
        self.resend_results(&conn, now_ms, 0);
        let (since_ms, replied_ms) = (now_ms, now_ms);
        // The first heartbeat reports the running jobs at once: after a failover nobody else knows
        // them.
        let next_heartbeat_ms = match self.habits.lists_running {
            true => now_ms,
            false => now_ms + next_in(&mut self.rng, self.habits.heartbeat_ms),
        };
        let next_register_ms = next_register(self.habits, now_ms);
        self.link =
            Link::Connected { conn, since_ms, next_heartbeat_ms, next_register_ms, replied_ms };
    }

    /// A node that is pinged takes any word for a sign of life.
    fn heard(&mut self, now_ms: u64) {
        if let (true, Link::Connected { replied_ms, .. }) = (self.habits.is_pinged, &mut self.link)
        {
            *replied_ms = now_ms;
        }
    }

    fn on_heartbeat_reply(
        &mut self,
        reply: Result<lingua_engine::handle::HeartbeatResult, NodeError>,
        now: u64,
    ) -> bool {
        match reply {
            Ok(reply) => {
                self.world.store_checker.lock().answered(&node_id(self.node));
                if let Link::Connected { replied_ms, .. } = &mut self.link {
                    *replied_ms = now;
                }
                self.draining = reply.drain;
                for key in reply.cancel {
                    self.drop_work(key, "is told that it has no lease for");
                }
                true
            }
            Err(NodeError::Store(_)) => true,
            Err(_) => self.on_unregistered(),
        }
    }

    /// The scheduler does not know its registration.
    fn on_unregistered(&mut self) -> bool {
        if let Link::Connected { conn, .. } = &self.link {
            conn.close();
        }
        self.drop_streaming_jobs();
        self.link = Link::Disconnected { retry_ms: self.world.now_ms() };
        !self.handle.superseded.load(Ordering::Relaxed)
    }

    fn handle_message(&mut self, message: ToNode) -> bool {
        match message {
            ToNode::Assign(assignment) => self.admit(&assignment),
            // Half of the jobs that hang ignore a cancel, too; they end by the reply to a
            // heartbeat.
            ToNode::Cancel { key, .. } => {
                let work = self.running.get(&key);
                let is_deaf = |work: &Work| {
                    self.habits.lists_running
                        && work.behaviour == JobBehaviour::Hangs
                        && work.serial.is_multiple_of(2)
                };
                if !work.is_some_and(is_deaf) {
                    self.drop_work(key, "is told to stop");
                }
            }
            ToNode::Confirmed { key, .. } => drop(self.unconfirmed.remove(&key)),
            ToNode::Sound { key, sound } => self.on_audio(key, &sound.concat()),
            ToNode::SoundEnd { key, bytes } => self.on_audio_end(key, bytes),
            ToNode::Drain => self.draining = true,
            // The connection goes on under the epoch that it began with.
            ToNode::AckRefused { .. } | ToNode::Registered(_) => {}
            ToNode::Superseded => return self.on_unregistered(),
        }
        true
    }

    /// Takes a part of streamed audio, and now and then sends a partial text.
    fn on_audio(&mut self, key: LeaseKey, sound: &[u8]) {
        let Some(work) = self.running.get_mut(&key) else { return };
        work.audio.push(sound);
        let is_shown = self.rng.permille(PARTIALS_PERMILLE);
        if is_shown && work.audio.is_open() {
            let text = work.audio.echo(result(key, work.fence, self.node));
            let fence = work.fence;
            self.send(SimNodeMessage::Partial(key, fence, text));
        }
    }

    /// The audio is complete: starts the work.
    fn on_audio_end(&mut self, key: LeaseKey, bytes: usize) {
        let Some(work) = self.running.get_mut(&key) else { return };
        if work.audio.end(bytes) {
            let (serial, behaviour) = (work.serial, work.behaviour);
            self.work(key, serial, behaviour);
        }
    }

    /// Drops jobs whose audio was still streaming: the connection is closed.
    fn drop_streaming_jobs(&mut self) {
        let open = self.running.iter().filter(|(_, work)| work.audio.is_open());
        for key in open.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.drop_work(key, "hears no more of");
        }
    }

    fn drop_work(&mut self, key: LeaseKey, why: &str) {
        if self.running.remove(&key).is_some() {
            let about = Subject::both(key.job.number() as usize, self.node);
            self.note(about, format_args!("{why} {about} a{}", key.attempt));
        }
        self.count();
    }

    fn count(&self) {
        self.handle.running.store(self.running.len(), Ordering::Relaxed);
        let running = self.running.keys().copied().collect();
        self.world.store_checker.lock().works(self.handle.number, node_id(self.node), running);
    }

    fn send(&self, message: SimNodeMessage) {
        if let Link::Connected { conn, .. } = &self.link {
            conn.send(message);
        }
    }
}

/// How long until the next heartbeat.
fn next_in(rng: &mut SimRng, (least_ms, most_ms): (u64, u64)) -> u64 {
    match least_ms == most_ms {
        true => least_ms,
        false => rng.between(least_ms, most_ms),
    }
}

/// When the node registers again on its connection.
fn next_register(habits: NodeHabits, now_ms: u64) -> u64 {
    habits.registers_every_ms.map_or(u64::MAX, |ms| now_ms + ms)
}
