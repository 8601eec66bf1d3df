//! What is heard on the bus, and what follows.
//!
//! Start at [`Handle::listen`]. It never waits for anything but the next letter: what takes time is an errand.

use lingua_core::job::AttemptReport;
use lingua_core::{Fence, InstanceId};
use lingua_store::Store;
use lingua_store::contract::{Envelope, LeaseKey};

use super::Answered;
use super::message::{self, BusMessage, Head};
use crate::clock::Timer;
use crate::handle::Handle;
use crate::live_jobs::{JobMessage, PartialText};
use crate::node::ToNode;

/// Letters read at a time.
const LETTERS_MAX: usize = 64;

/// How long to wait after the store did not answer.
const PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Hears what other instances say, for ever.
    pub(crate) async fn listen(&self) {
        let shared = &self.shared;
        let mut after = 0;
        loop {
            match shared.store.receive(&shared.options.instance, after, LETTERS_MAX).await {
                Ok(letters) => {
                    after = letters.last().map_or(after, |letter| letter.seq);
                    self.read_letters(&letters);
                }
                Err(error) => {
                    tracing::debug!(%error, "the bus cannot be read");
                    shared.timer.sleep(PAUSE_MS).await;
                }
            }
        }
    }

    fn read_letters(&self, letters: &[Envelope]) {
        let mut orders = vec![];
        for letter in letters {
            let Some((from, messages)) = message::open(&letter.message) else {
                tracing::warn!("a letter of another instance cannot be read");
                continue;
            };
            self.shared.metrics.bus.count_many("received", messages.len() as u64);
            for message in messages {
                match message.head {
                    Head::Assign(order) if !order.stream => {
                        orders.push((from.clone(), order, message.blobs))
                    }
                    _ => self.hear_message(&from, message),
                }
            }
        }
        // Orders come from several instances; a node refuses those that come behind a later one.
        orders.sort_by_key(|(_, order, _)| order.fence);
        for (from, order, blobs) in orders {
            self.shared.assign_here(from, &order, &blobs);
        }
    }

    /// A node that has gone, or does not read, does not hear it: its attempt ends by that.
    fn pass_on(&self, node: &str, order: ToNode) {
        let node = node.parse().ok().and_then(|node| self.shared.nodes.get(&node));
        if let Some(node) = node {
            node.outbox.try_send(order).ok();
        }
    }

    fn hear_message(&self, from: &InstanceId, BusMessage { head, blobs }: BusMessage) {
        let shared = &self.shared;
        match head {
            Head::Assign(order) => shared.assign_here(from.clone(), &order, &blobs),
            Head::Cancel { node, key } => {
                let (key, reason) = (key.lease(), "the attempt is over");
                self.pass_on(&node, ToNode::Cancel { key, reason });
            }
            Head::Sound { node, key, at } => {
                let key = key.lease();
                let unheard = blobs.first().and_then(|sound| shared.bus.unheard(key, at, sound));
                if let Some(sound) = unheard {
                    let sound = vec![sound];
                    self.pass_on(&node, ToNode::Sound { key, sound });
                }
            }
            Head::SoundEnd { node, key, bytes } => {
                self.pass_on(&node, ToNode::SoundEnd { key: key.lease(), bytes });
            }
            Head::NotSent { key } => {
                let LeaseKey { job, attempt } = key.lease();
                if let Some(live) = shared.live.get(job) {
                    // If it has too much to hear, the ACK timer says it.
                    live.send(JobMessage::NotSent(attempt)).ok();
                }
            }
            Head::Word(word) => self.hear_word(from, word, &blobs),
            Head::Heard { id, heard } => shared.answered(id, |_| Answered::Heard(heard)),
            Head::Partial { key, node, fence, text } => {
                let LeaseKey { job, attempt } = key.lease();
                if let (Some(live), Ok(node)) = (shared.live.get(job), node.parse()) {
                    let report = AttemptReport { attempt, node, fence: fence.map(Fence) };
                    let partial = PartialText { report, text: text.into() };
                    live.send(JobMessage::Partial(Box::new(partial))).ok();
                }
            }
            Head::Lost { keys } => {
                for key in keys {
                    let LeaseKey { job, attempt } = key.lease();
                    shared.live.send_node_lost(job, attempt);
                }
            }
            Head::Watch { id, job, ended, wait_ms } => {
                self.show_job(from, id, job.0, ended, wait_ms);
            }
            Head::Seen { id, seen } => shared.answered(id, |_| Answered::Seen(seen)),
            Head::CallOff { job } => {
                if let Some(live) = shared.live.get(job.0) {
                    live.send(JobMessage::Cancel).ok();
                }
            }
            Head::Interest { for_ms } => shared.is_watched_by(from, for_ms),
            Head::Happened(happened) => {
                if let Some(event) = happened.into_event() {
                    shared.events.send(event).ok();
                }
            }
            Head::Poll { id, node, wait_ms } => self.answer_poll(from, id, &node, wait_ms),
            Head::PolledJob { id, order } => {
                let part = BusMessage { head: Head::PolledJob { id, order }, blobs };
                if let Some(pending) = shared.bus.pending.lock().get_mut(&id) {
                    pending.parts.push(part);
                }
            }
            Head::Polled { id, jobs } => {
                shared.answered(id, |parts| Answered::Polled(jobs.map(|_| parts)));
            }
        }
    }
}
