//! A node's process: it takes jobs, works, answers, and misbehaves if it is told to.
//!
//! Start at [`Process::run`]. It does what the SDK's node does: refuses what it has no room for and what
//! has an old fence, keeps each result until it is confirmed, and comes back after every broken connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lingua_core::{Capabilities, Fence, Lang, LangSet, Nmt, Profile, Service, ServiceSet};
use lingua_engine::NodeError;
use lingua_engine::node::{Assignment, ToNode};
use lingua_store::contract::LeaseKey;
use tokio::sync::mpsc;

use super::World;
use super::client_job::node_id;
use super::conn::{Conn, Heard, Word, join};
use super::ear::Ear;
use super::luck::Luck;
use super::plan::{Fault, GROUPS, NodePlan};
use super::planted::NodeBug;
use super::trace::About;

/// Most messages that wait for a process; more are lost.
const INBOX_MAX: usize = 1024;

const BEAT_MS: u64 = 5_000;
const TICK_MS: u64 = 100;

/// How long a process waits for an answer to its registration.
const JOIN_MS: u64 = 3_000;

/// How long after having said it a process says a last word again.
const AGAIN_MS: u64 = 4_000;

/// How often a node that listens along says what it made of it so far, out of a thousand pieces.
const PARTS: u32 = 300;

/// How long a process stays away from home.
const AWAY_MS: u64 = 10_000;

/// What the world sees of a process.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) number: u32,
    pub(super) to: mpsc::Sender<Heard>,
    pub(super) running: Arc<AtomicUsize>,
    pub(super) at_home: Arc<AtomicBool>,
    /// Another process has its name: it goes when it hears of that.
    pub(super) superseded: Arc<AtomicBool>,
}

/// How things stand between a process and the scheduler.
#[derive(Debug)]
enum Link {
    Away { retry_ms: u64 },
    Joining { until_ms: u64 },
    There { conn: Arc<Conn>, since_ms: u64, next_beat_ms: u64, answered_ms: u64 },
}

#[derive(Debug)]
struct Work {
    fence: Fence,
    serial: u64,
    answer: Answer,
    ear: Ear,
}

/// How a job will be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Well,
    Twice,
    WrongAttemptFirst,
    WrongFenceFirst,
    LateAck,
    NoAck,
    Never,
    Hangs,
    Fails { retryable: bool },
}

#[derive(Debug)]
struct Kept {
    word: Word,
    said_ms: u64,
}

pub(super) struct Process {
    world: Arc<World>,
    node: usize,
    plan: NodePlan,
    seen: Seen,
    inbox: mpsc::Receiver<Heard>,
    luck: Luck,
    profile: Arc<Profile>,
    link: Link,
    fence_highest: Fence,
    draining: bool,
    running: BTreeMap<LeaseKey, Work>,
    kept: BTreeMap<LeaseKey, Kept>,
    serial: u64,
}

impl World {
    /// Starts a process for a node; one that it has is superseded.
    pub(super) fn start_node(self: &Arc<Self>, node: usize) {
        let plan = self.plan.nodes[node];
        let mut processes = self.processes.lock();
        let number = processes.count;
        processes.count += 1;
        let (to, inbox) = mpsc::channel(INBOX_MAX);
        let seen = Seen {
            number,
            to,
            running: Arc::default(),
            at_home: Arc::default(),
            superseded: Arc::default(),
        };
        if let Some(before) = processes.present[node].replace(seen.clone()) {
            before.superseded.store(true, Ordering::Relaxed);
        }
        drop(processes);
        self.note(About::node(node), format_args!("n{node} starts as process {number}"));
        let process = Process {
            world: Arc::clone(self),
            node,
            plan,
            seen,
            inbox,
            luck: Luck::new(self.plan.seed, &format!("process {number}")),
            profile: profile(plan, self.plan.listens(node)),
            link: Link::Away { retry_ms: 0 },
            fence_highest: Fence(0),
            draining: false,
            running: BTreeMap::new(),
            kept: BTreeMap::new(),
            serial: 0,
        };
        tokio::spawn(process.run());
    }
}

fn profile(plan: NodePlan, listens: bool) -> Arc<Profile> {
    let langs = || -> LangSet {
        GROUPS[plan.home].iter().map(|tag| Lang::new(tag).expect("a language")).collect()
    };
    let services = match listens {
        true => ServiceSet::ALL,
        false => ServiceSet::ALL.without(Service::Streaming),
    };
    let caps = Capabilities::new(langs(), langs(), langs(), Nmt::AnyToAny, services);
    let caps = caps.expect("both ends are spoken");
    Arc::new(Profile::new(caps, plan.slots.into(), true).expect("a number of slots"))
}

impl Process {
    async fn run(mut self) {
        loop {
            let tick = Duration::from_millis(TICK_MS);
            match tokio::time::timeout(tick, self.inbox.recv()).await {
                Ok(Some(Heard::Die { loudly })) => {
                    if let (true, Link::There { conn, .. }) = (loudly, &self.link) {
                        conn.close();
                    }
                    break;
                }
                Ok(Some(heard)) => {
                    if !self.hear(heard).await {
                        break;
                    }
                }
                Ok(None) => break,
                Err(_) => {}
            }
            self.tick();
        }
        self.seen.running.store(0, Ordering::Relaxed);
        self.seen.at_home.store(false, Ordering::Relaxed);
        let (node, number) = (self.node, self.seen.number);
        self.world.note(About::node(node), format_args!("n{node} ends, process {number}"));
        let mut processes = self.world.processes.lock();
        if processes.present[node].as_ref().is_some_and(|seen| seen.number == number) {
            processes.present[node] = None;
        }
    }

    fn note(&self, about: About, what: std::fmt::Arguments<'_>) {
        self.world.note(about, format_args!("n{} {what}", self.node));
    }

    /// Does what is due.
    fn tick(&mut self) {
        let now_ms = self.world.now_ms();
        let is_quiet = self.world.is_quiet();
        match &mut self.link {
            Link::Away { retry_ms } if now_ms >= *retry_ms => self.connect(now_ms),
            Link::Joining { until_ms } if now_ms >= *until_ms => {
                self.link = Link::Away { retry_ms: now_ms };
            }
            Link::There { conn, since_ms, next_beat_ms, answered_ms } => {
                let away = conn.life.index != self.plan.home
                    && (is_quiet || now_ms > *since_ms + AWAY_MS)
                    && self.world.life(self.plan.home).is_some();
                if away || now_ms > *answered_ms + 3 * BEAT_MS {
                    conn.close();
                    self.link = Link::Away { retry_ms: now_ms };
                } else if now_ms >= *next_beat_ms {
                    *next_beat_ms = now_ms + BEAT_MS;
                    conn.say(Word::NodeHeartbeat(self.running.keys().copied().collect()));
                    let conn = Arc::clone(conn);
                    self.say_again(&conn, now_ms, AGAIN_MS);
                }
            }
            _ => {}
        }
        let at_home =
            matches!(&self.link, Link::There { conn, .. } if conn.life.index == self.plan.home);
        self.seen.at_home.store(at_home, Ordering::Relaxed);
    }

    fn connect(&mut self, now_ms: u64) {
        let anywhere = self.luck.between(0, self.world.plan.instances as u64 - 1) as usize;
        let home = self.plan.home;
        let goes_home = self.world.is_quiet() || self.world.life(home).is_some();
        let instance = if goes_home && !self.luck.permille(100) { home } else { anywhere };
        let instance = if self.world.is_quiet() { home } else { instance };
        let (profile, to) = (Arc::clone(&self.profile), self.seen.to.clone());
        join(&self.world, self.node, instance, profile, to);
        self.link = Link::Joining { until_ms: now_ms + JOIN_MS };
    }

    /// Says last words again that nobody has confirmed.
    fn say_again(&mut self, conn: &Arc<Conn>, now_ms: u64, after_ms: u64) {
        for kept in self.kept.values_mut().filter(|kept| now_ms >= kept.said_ms + after_ms) {
            kept.said_ms = now_ms;
            conn.say(kept.word.clone());
        }
    }

    /// Takes what it heard; says whether it goes on living.
    async fn hear(&mut self, heard: Heard) -> bool {
        let now_ms = self.world.now_ms();
        let epoch = match &self.link {
            Link::There { conn, .. } => Some(conn.epoch),
            _ => None,
        };
        match heard {
            Heard::Joined(None) => {
                let retry_ms = now_ms + self.luck.between(50, 400);
                self.link = Link::Away { retry_ms };
            }
            Heard::Joined(Some(conn)) => self.joined(conn, now_ms),
            Heard::Order(from, order) if epoch == Some(from) => return self.obey(order),
            Heard::HeartbeatAck(from, beaten) if epoch == Some(from) => {
                return self.beaten(beaten, now_ms);
            }
            Heard::HungUp(from) if epoch == Some(from) => {
                self.break_off();
                let retry_ms = now_ms + self.luck.between(0, 300);
                self.link = Link::Away { retry_ms };
            }
            Heard::Worked(key, serial) => self.worked(key, serial, now_ms),
            Heard::Pause(until_ms) => {
                let ms = until_ms.saturating_sub(now_ms);
                self.note(About::node(self.node), format_args!("does nothing for {ms} ms"));
                while self.world.now_ms() < until_ms && !self.world.is_quiet() {
                    tokio::time::sleep(Duration::from_millis(TICK_MS)).await;
                }
            }
            _ => {}
        }
        true
    }

    fn joined(&mut self, conn: Arc<Conn>, now_ms: u64) {
        if let Link::There { conn: known, .. } = &self.link {
            if known.epoch >= conn.epoch {
                return;
            }
            known.close();
        }
        self.break_off();
        self.draining = false;
        self.say_again(&conn, now_ms, 0);
        let (since_ms, answered_ms) = (now_ms, now_ms);
        // Says at once what it runs: after a takeover or a lost store nobody else knows.
        self.link = Link::There { conn, since_ms, next_beat_ms: now_ms, answered_ms };
    }

    fn beaten(
        &mut self,
        beaten: Result<lingua_engine::handle::HeartbeatAck, NodeError>,
        now: u64,
    ) -> bool {
        match beaten {
            Ok(beaten) => {
                self.world.oracle.lock().answered(&node_id(self.node));
                if let Link::There { answered_ms, .. } = &mut self.link {
                    *answered_ms = now;
                }
                self.draining = beaten.drain;
                for key in beaten.cancel {
                    self.drop_work(key, "is told that it has no lease for");
                }
                true
            }
            Err(NodeError::Store(_)) => true,
            Err(_) => self.turned_away(),
        }
    }

    /// Its registration is not known (any more).
    fn turned_away(&mut self) -> bool {
        if let Link::There { conn, .. } = &self.link {
            conn.close();
        }
        self.break_off();
        self.link = Link::Away { retry_ms: self.world.now_ms() };
        !self.seen.superseded.load(Ordering::Relaxed)
    }

    fn obey(&mut self, order: ToNode) -> bool {
        match order {
            ToNode::Assign(assignment) => self.admit(&assignment),
            // One that hangs is often deaf, too; what a heartbeat answers is heard by another part of it.
            ToNode::Cancel { key, .. } => {
                let work = self.running.get(&key);
                let is_deaf =
                    |work: &Work| work.answer == Answer::Hangs && work.serial.is_multiple_of(2);
                if !work.is_some_and(is_deaf) {
                    self.drop_work(key, "is told to stop");
                }
            }
            ToNode::Confirmed { key, .. } => drop(self.kept.remove(&key)),
            ToNode::Sound { key, sound } => self.listen(key, &sound.concat()),
            ToNode::SoundEnd { key, bytes } => self.heard_all(key, bytes),
            ToNode::Drain => self.draining = true,
            ToNode::Superseded => return self.turned_away(),
        }
        true
    }

    /// A piece of what is being said; a node that likes to talk says what it made of it so far.
    fn listen(&mut self, key: LeaseKey, sound: &[u8]) {
        let Some(work) = self.running.get_mut(&key) else { return };
        work.ear.hear(sound);
        let is_shown = self.luck.permille(PARTS);
        if is_shown && work.ear.is_open() {
            let text = work.ear.echo(result(key, work.fence, self.node));
            let fence = work.fence;
            self.say(Word::Part(key, fence, text));
        }
    }

    /// All was said: the work begins.
    fn heard_all(&mut self, key: LeaseKey, bytes: usize) {
        let Some(work) = self.running.get_mut(&key) else { return };
        if work.ear.end(bytes) {
            let (serial, answer) = (work.serial, work.answer);
            self.work(key, serial, answer);
        }
    }

    /// Nothing more will come of what is being said: the connection is over.
    fn break_off(&mut self) {
        let open = self.running.iter().filter(|(_, work)| work.ear.is_open());
        for key in open.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.drop_work(key, "hears no more of");
        }
    }

    fn drop_work(&mut self, key: LeaseKey, why: &str) {
        if self.running.remove(&key).is_some() {
            let about = About::both(key.job.number() as usize, self.node);
            self.note(about, format_args!("{why} {about} a{}", key.attempt));
        }
        self.count();
    }

    fn count(&self) {
        self.seen.running.store(self.running.len(), Ordering::Relaxed);
    }

    fn say(&self, word: Word) {
        if let Link::There { conn, .. } = &self.link {
            conn.say(word);
        }
    }

    /// The last admission check.
    fn admit(&mut self, assignment: &Assignment) {
        let Assignment { job, attempt, fence, .. } = *assignment;
        let key = LeaseKey { job, attempt };
        if self.running.get(&key).is_some_and(|work| work.fence == fence) {
            return self.say(Word::Acked(key, fence));
        }
        if let Some(kept) = self.kept.get(&key) {
            return self.say(kept.word.clone());
        }
        let is_stale = fence <= self.fence_highest && !self.world.has_bug(NodeBug::NoFence);
        let is_full = self.running.len() >= usize::from(self.plan.slots) || self.draining;
        let is_full = is_full && !self.world.has_bug(NodeBug::NoAdmission);
        self.fence_highest = self.fence_highest.max(fence);
        let about = About::both(job.number() as usize, self.node);
        if is_stale || is_full {
            let reason = if is_stale { "STALE_FENCE" } else { "BUSY" };
            self.note(about, format_args!("refuses {about} a{attempt}: {reason}"));
            return self.say(Word::Failed(key, fence, reason, true));
        }
        let answer = self.choose_answer();
        if answer == Answer::Never {
            return self.note(about, format_args!("ignores {about} a{attempt}"));
        }
        self.begin(key, fence, answer, Ear::of(assignment));
    }

    fn choose_answer(&mut self) -> Answer {
        const BAD: [Answer; 9] = [
            Answer::Twice,
            Answer::WrongAttemptFirst,
            Answer::WrongFenceFirst,
            Answer::LateAck,
            Answer::NoAck,
            Answer::Never,
            Answer::Hangs,
            Answer::Fails { retryable: true },
            Answer::Fails { retryable: false },
        ];
        let (is_bad, bad) = (self.luck.permille(200), *self.luck.pick(&BAD));
        if !is_bad || self.world.is_quiet() || !self.world.plan.has(Fault::BadNodes) {
            return Answer::Well;
        }
        self.world.count_fault(Fault::BadNodes);
        bad
    }

    fn begin(&mut self, key: LeaseKey, fence: Fence, answer: Answer, ear: Ear) {
        self.serial += 1;
        let serial = self.serial;
        let is_open = ear.is_open();
        self.running.insert(key, Work { fence, serial, answer, ear });
        self.count();
        let job = key.job.number() as usize;
        let about = About::both(job, self.node);
        let attempt = key.attempt;
        self.note(about, format_args!("begins {about} a{attempt} ({answer:?})"));
        self.world.began(job, self.node, self.seen.number, fence, self.running.len());
        match answer {
            Answer::NoAck => {}
            Answer::LateAck => {
                if let Link::There { conn, .. } = &self.link {
                    let (conn, ms) = (Arc::clone(conn), self.luck.between(4_000, 8_000));
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        conn.say(Word::Acked(key, fence));
                    });
                }
            }
            _ => self.say(Word::Acked(key, fence)),
        }
        if !is_open {
            self.work(key, serial, answer);
        }
    }

    /// Works for a while.
    fn work(&mut self, key: LeaseKey, serial: u64, answer: Answer) {
        let ms = match answer {
            Answer::Hangs => return,
            Answer::LateAck => self.luck.between(5_000, 9_000),
            _ => self.luck.between(20, 900) * self.luck.between(1, 3),
        };
        let to = self.seen.to.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            to.send(Heard::Worked(key, serial)).await.ok();
        });
    }

    fn worked(&mut self, key: LeaseKey, serial: u64, now_ms: u64) {
        let Some(work) = self.running.get(&key).filter(|work| work.serial == serial) else {
            return;
        };
        let (fence, answer) = (work.fence, work.answer);
        let (is_cut, made) = (work.ear.is_cut(), work.ear.echo(result(key, fence, self.node)));
        self.running.remove(&key);
        self.count();
        let about = About::both(key.job.number() as usize, self.node);
        self.note(about, format_args!("has worked on {about} a{}", key.attempt));
        let wrong = || WRONG.to_owned();
        match answer {
            Answer::WrongAttemptFirst => {
                let other =
                    if self.luck.permille(500) { key.attempt.0 + 1 } else { key.attempt.0 - 1 };
                let other = LeaseKey { job: key.job, attempt: lingua_core::Attempt(other) };
                self.say(Word::Done(other, fence, wrong()));
            }
            Answer::WrongFenceFirst => self.say(Word::Done(key, Fence(fence.0 - 1), wrong())),
            _ => {}
        }
        let word = match answer {
            Answer::Fails { retryable } => Word::Failed(key, fence, "MODEL_LOAD_FAILED", retryable),
            _ if is_cut => Word::Failed(key, fence, "AUDIO_INCOMPLETE", true),
            _ => Word::Done(key, fence, made),
        };
        if answer == Answer::Twice {
            self.say(word.clone());
        }
        self.say(word.clone());
        self.kept.insert(key, Kept { word, said_ms: now_ms });
    }
}

/// The result of a word that must not count.
pub(super) const WRONG: &str = "wrong";

/// What a node makes of a job; says which attempt it is of.
pub(super) fn result(key: LeaseKey, fence: Fence, node: usize) -> String {
    format!("j{} a{} f{fence} n{node}", key.job.number(), key.attempt)
}
