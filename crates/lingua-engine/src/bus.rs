//! The bus between instances: a job of one, a node of another.
//!
//! Start at `EngineState::post` for what is said and at [`Handle::listen`](crate::Handle) in `listen.rs` for what is heard. The store
//! carries messages from inbox to inbox, at least once; who receives one is idempotent by (job, attempt). While one
//! letter to an instance is on its way the next messages for it gather, so that a busy bus costs few calls and an idle one no time.
//!
//! | file | what |
//! |---|---|
//! | `message.rs` | what is said, and how it is written |
//! | `listen.rs` | what is heard, and what follows |
//! | `order.rs` | orders to nodes of other instances |
//! | `word.rs` | words of nodes about jobs of other instances |
//! | `stray.rs` | lost leases of jobs of other instances |
//! | `watch.rs` | waiting for jobs of other instances, calling them off, watching what happens |
//! | `poll.rs` | nodes that ask another instance for their jobs than the one that has them |
//!
//! Invariants: nothing that is local goes over the bus. Nothing depends on a message arriving: an order that is lost runs into the ACK timer,
//! a word is carried again until it is answered, and whoever waits looks at the record from time to time.

mod assign;
mod lost_leases;
pub(crate) mod message;
mod polling;
mod receive;
mod reports;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use lingua_core::InstanceId;
use lingua_core::planted::{self, Bug};
use lingua_store::Store;
use lingua_store::contract::{BusDelivery, Bytes, LeaseKey, MESSAGE_BYTES_MAX};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clock::Timer;
use crate::state::EngineState;
use message::{BusMessage, Heard, Seen};
pub use polling::Polls;

/// Messages that wait for one instance.
const LANE_MAX: usize = 4096;

/// Bytes of those.
const LANE_BYTES_MAX: usize = 64 << 20;

/// Messages in one letter.
const LETTER_MAX: usize = 128;

/// Bytes of those, with room for the sender's name. A message that is larger has a letter of its own.
const LETTER_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;

/// Questions that wait for an answer.
const PENDING_MAX: usize = 65_536;

/// Things that are done in the background for the bus at a time.
const ERRANDS_MAX: usize = 16_384;

/// Jobs of other instances that are remembered with the nodes that they were sent to.
const REMOTE_MAX: usize = 65_536;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It is in the inbox.
    Sent,
    /// Nobody is there.
    Nobody,
    /// Too much waits for that instance.
    Full,
    /// The store did not take it, or nobody knows.
    Failed,
}

/// An answer from another instance.
#[derive(Debug)]
pub(crate) enum Answered {
    Heard(Heard),
    Seen(Option<Seen>),
    Polled(Option<Vec<BusMessage>>),
}

/// A question that waits.
#[derive(Debug)]
struct Pending {
    tell: oneshot::Sender<Answered>,
    /// What has come so far, if the answer comes in parts.
    parts: Vec<BusMessage>,
}

/// A job of another instance that was sent to a node here.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) owner: InstanceId,
    pub(crate) sent_ms: u64,
    pub(crate) used: u16,
    /// How much of what is being said the node was told.
    pub(crate) heard: usize,
}

#[derive(Debug, Default)]
struct Remotes {
    by_key: HashMap<LeaseKey, Remote>,
    order: VecDeque<(u64, LeaseKey)>,
}

#[derive(Debug)]
struct Posting {
    message: Vec<u8>,
    tell: Option<oneshot::Sender<Posted>>,
}

/// What waits for one instance. While there is a lane, somebody drives it.
#[derive(Debug, Default)]
struct Lane {
    postings: VecDeque<Posting>,
    bytes: usize,
}

/// What an instance knows of its talks with others.
#[derive(Debug)]
pub(crate) struct Bus {
    lanes: Mutex<HashMap<InstanceId, Lane>>,
    pending: Mutex<HashMap<u64, Pending>>,
    next_id: AtomicU64,
    errands: AtomicUsize,
    remotes: Mutex<Remotes>,
    strays: Mutex<VecDeque<LeaseKey>>,
    stray_bell: Notify,
    /// Who watches what happens to our jobs, and until when.
    watchers: Mutex<Vec<(InstanceId, u64)>>,
    /// Whether anybody does.
    is_watched: AtomicBool,
    polls: std::sync::OnceLock<Polls>,
}

impl Bus {
    /// Numbers of questions begin where chance says: an answer to a former life must not be taken for one to this.
    pub(crate) fn new(first_id: u64) -> Self {
        Self {
            lanes: Mutex::default(),
            pending: Mutex::default(),
            next_id: AtomicU64::new(first_id >> 1),
            errands: AtomicUsize::new(0),
            remotes: Mutex::default(),
            strays: Mutex::default(),
            stray_bell: Notify::new(),
            watchers: Mutex::default(),
            is_watched: AtomicBool::new(false),
            polls: std::sync::OnceLock::new(),
        }
    }

    /// A job of another instance that was sent to a node here.
    pub(crate) fn remote(&self, key: LeaseKey) -> Option<Remote> {
        self.remotes.lock().by_key.get(&key).cloned()
    }

    /// Remembers one, unless it is known; says whether it is new. Forgets those that are older than a job can get.
    fn remember(&self, key: LeaseKey, remote: Remote, keep_ms: u64) -> bool {
        let mut remotes = self.remotes.lock();
        let now_ms = remote.sent_ms;
        if remotes.by_key.contains_key(&key) {
            return false;
        }
        remotes.by_key.insert(key, remote);
        remotes.order.push_back((now_ms, key));
        while let Some(&(sent_ms, oldest)) = remotes.order.front() {
            if sent_ms.saturating_add(keep_ms) >= now_ms && remotes.order.len() <= REMOTE_MAX {
                break;
            }
            remotes.order.pop_front();
            remotes.by_key.remove(&oldest);
        }
        true
    }

    /// What a node here has not been told of a piece of sound that begins at this byte. Letters come twice and out of order; what
    /// is missing in between stays missing, and the node says so at the end.
    fn unheard(&self, key: LeaseKey, at: usize, sound: &[u8]) -> Option<Bytes> {
        let mut remotes = self.remotes.lock();
        let remote = remotes.by_key.get_mut(&key)?;
        let known = match planted::is(Bug::AudioTwice) {
            false => remote.heard.checked_sub(at)?,
            true => 0,
        };
        let unheard = sound.get(known..).filter(|unheard| !unheard.is_empty())?;
        remote.heard += unheard.len();
        Some(Bytes::copy_from_slice(unheard))
    }

    /// Takes a message for an instance; says whether somebody has to drive the lane.
    fn put(&self, to: &InstanceId, posting: Posting) -> Result<bool, Posting> {
        let mut lanes = self.lanes.lock();
        let is_first = !lanes.contains_key(to);
        let lane = lanes.entry(to.clone()).or_default();
        if lane.postings.len() >= LANE_MAX || lane.bytes + posting.message.len() > LANE_BYTES_MAX {
            return Err(posting);
        }
        lane.bytes += posting.message.len();
        lane.postings.push_back(posting);
        Ok(is_first)
    }

    /// The next letter for an instance. When there is none, the lane is closed.
    fn take(&self, to: &InstanceId) -> Option<Vec<Posting>> {
        let mut lanes = self.lanes.lock();
        let lane = lanes.get_mut(to)?;
        let (mut letter, mut bytes) = (vec![], 0);
        while let Some(next) = lane.postings.front() {
            let fits = letter.len() < LETTER_MAX && bytes + next.message.len() <= LETTER_BYTES_MAX;
            if !fits && !letter.is_empty() {
                break;
            }
            bytes += next.message.len();
            letter.extend(lane.postings.pop_front());
        }
        lane.bytes -= bytes;
        if letter.is_empty() {
            lanes.remove(to);
            return None;
        }
        Some(letter)
    }
}

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Says something to another instance and does not wait; says whether it was taken.
    pub(crate) fn send(self: &Arc<Self>, to: &InstanceId, message: impl Into<BusMessage>) -> bool {
        self.put(to, message.into(), None)
    }

    /// Says something to another instance and waits until it is in its inbox, or is not going to be.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        to: &InstanceId,
        message: impl Into<BusMessage>,
    ) -> Posted {
        let (tell, told) = oneshot::channel();
        match self.put(to, message.into(), Some(tell)) {
            true => told.await.unwrap_or(Posted::Failed),
            false => Posted::Full,
        }
    }

    fn put(
        self: &Arc<Self>,
        to: &InstanceId,
        message: BusMessage,
        tell: Option<oneshot::Sender<Posted>>,
    ) -> bool {
        let mut bytes = vec![];
        message.write(&mut bytes);
        match self.bus.put(to, Posting { message: bytes, tell }) {
            Ok(true) => {
                tokio::spawn(Arc::clone(self).drive(to.clone()));
                true
            }
            Ok(false) => true,
            Err(_) => {
                self.metrics.bus.count("dropped");
                false
            }
        }
    }

    /// Sends letter after letter until nothing waits.
    async fn drive(self: Arc<Self>, to: InstanceId) {
        while let Some(letter) = self.bus.take(&to) {
            let (messages, tells): (Vec<_>, Vec<_>) =
                letter.into_iter().map(|posting| (posting.message, posting.tell)).unzip();
            let sealed = message::seal(&self.options.instance, &messages);
            let posted = match self.store.send(&to, sealed).await {
                Ok(BusDelivery::Sent) => Posted::Sent,
                Ok(BusDelivery::NoInstance) => Posted::Nobody,
                Ok(BusDelivery::InboxFull) => Posted::Full,
                Err(error) => {
                    tracing::debug!(%error, %to, "a letter was not taken");
                    Posted::Failed
                }
            };
            let outcome = if posted == Posted::Sent { "sent" } else { "undelivered" };
            self.metrics.bus.count_many(outcome, tells.len() as u64);
            for tell in tells.into_iter().flatten() {
                // Who does not wait any more does not mind.
                tell.send(posted).ok();
            }
        }
    }

    /// Asks another instance something; nothing if nobody is there or no answer comes in time.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        to: &InstanceId,
        wait_ms: u64,
        question: impl FnOnce(u64) -> BusMessage,
    ) -> Option<Answered> {
        let id = self.bus.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        {
            let mut pending = self.bus.pending.lock();
            if pending.len() >= PENDING_MAX {
                return None;
            }
            pending.insert(id, Pending { tell, parts: vec![] });
        }
        // Whoever stops waiting leaves nothing behind.
        let _asked = Asked { bus: &self.bus, id };
        if self.deliver(to, question(id)).await != Posted::Sent {
            return None;
        }
        tokio::select! {
            biased;
            answered = told => answered.ok(),
            () = self.timer.sleep(wait_ms) => None,
        }
    }

    /// An answer has come.
    fn answered(&self, id: u64, answered: impl FnOnce(Vec<BusMessage>) -> Answered) {
        let pending = self.bus.pending.lock().remove(&id);
        if let Some(pending) = pending {
            pending.tell.send(answered(pending.parts)).ok();
        }
    }

    /// Does something in the background, unless too much is done already.
    pub(crate) fn spawn_background(
        self: &Arc<Self>,
        errand: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        if self.bus.errands.fetch_add(1, Ordering::Relaxed) >= ERRANDS_MAX {
            self.bus.errands.fetch_sub(1, Ordering::Relaxed);
            self.metrics.bus.count("dropped");
            return false;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            errand.await;
            shared.bus.errands.fetch_sub(1, Ordering::Relaxed);
        });
        true
    }
}

struct Asked<'a> {
    bus: &'a Bus,
    id: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.bus.pending.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{Attempt, JobId};

    use super::*;

    #[test]
    fn sound_that_comes_twice_or_out_of_order_is_told_once_and_in_order() {
        let bus = Bus::new(1);
        let key = LeaseKey { job: JobId::new(1), attempt: Attempt(1) };
        let unheard = |at, sound: &str| {
            let told = bus.unheard(key, at, sound.as_bytes())?;
            Some(String::from_utf8_lossy(&told).into_owned())
        };
        assert_eq!(unheard(0, "ab"), None, "no order came before it");
        let owner = InstanceId::new("i").expect("a name");
        bus.remember(key, Remote { owner, sent_ms: 1, used: 1, heard: 0 }, 1_000);
        assert_eq!(unheard(0, "ab").as_deref(), Some("ab"));
        assert_eq!(unheard(0, "ab"), None, "it came twice");
        assert_eq!(unheard(4, "ef"), None, "something is missing before it");
        assert_eq!(unheard(1, "bcd").as_deref(), Some("cd"));
        assert_eq!(unheard(4, "ef").as_deref(), Some("ef"));
    }
}
