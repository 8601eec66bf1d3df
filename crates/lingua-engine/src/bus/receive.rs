//! Reads the inbox and handles each message.
//!
//! Start at [`Handle::receive_messages`]. It waits for nothing but the next batch: what takes time
//! runs in the background.

use lingua_core::{InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{Envelope, LeaseKey};

use super::PeerReply;
use super::message::{self, BusMessage, Head};
use crate::clock::Timer;
use crate::handle::Handle;
use crate::live_jobs::{JobMessage, PartialText};
use crate::node::ToNode;

/// Batches read at a time.
const BATCHES_MAX: usize = 64;

/// Pause after the store did not answer.
const PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Handles the messages of other instances, for ever.
    pub(crate) async fn receive_messages(&self) {
        let shared = &self.shared;
        let mut after = 0;
        loop {
            match shared.store.receive(&shared.options.instance, after, BATCHES_MAX).await {
                Ok(batches) => {
                    after = batches.last().map_or(after, |batch| batch.seq);
                    self.on_batches(&batches);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot read the messages of other instances");
                    shared.timer.sleep(PAUSE_MS).await;
                }
            }
        }
    }

    fn on_batches(&self, batches: &[Envelope]) {
        let mut assigned = vec![];
        for batch in batches {
            let Some((from, messages)) = message::decode_batch(&batch.message) else {
                tracing::warn!("cannot read a batch of messages of another instance");
                continue;
            };
            self.shared.metrics.bus.count_many("received", messages.len() as u64);
            for message in messages {
                match message.head {
                    Head::Assign(assign) if !assign.stream => {
                        assigned.push((from.clone(), assign, message.blobs))
                    }
                    _ => self.on_message(&from, message),
                }
            }
        }
        // They come from several instances; a node refuses a fence that is older than one it has.
        assigned.sort_by_key(|(_, assign, _)| assign.fence);
        for (from, assign, blobs) in assigned {
            self.shared.assign_here(from, &assign, &blobs);
        }
    }

    /// Sends a message to a node here. A node that is gone or does not read misses it, and loses
    /// its attempt by that.
    fn send_to_node(&self, node: &NodeId, message: ToNode) {
        if let Some(node) = self.shared.nodes.get(node) {
            node.outbox.try_send(message).ok();
        }
    }

    fn on_message(&self, from: &InstanceId, BusMessage { head, blobs }: BusMessage) {
        let shared = &self.shared;
        // A job whose inbox is full misses the message; a timer or a repetition makes up for it.
        let to_job = |job, message| {
            if let Some(live) = shared.live.get(job) {
                live.send(message).ok();
            }
        };
        match head {
            Head::Assign(assign) => shared.assign_here(from.clone(), &assign, &blobs),
            Head::Cancel { node, key } => {
                let (key, reason) = (key.lease(), "the attempt is over");
                self.send_to_node(&node.0, ToNode::Cancel { key, reason });
            }
            Head::Audio { node, key, at } => {
                let key = key.lease();
                let mut jobs = shared.bus.remote_jobs.lock();
                let new = blobs.first().and_then(|audio| jobs.new_audio(key, at, audio));
                drop(jobs);
                if let Some(audio) = new {
                    let sound = vec![audio];
                    self.send_to_node(&node.0, ToNode::Sound { key, sound });
                }
            }
            Head::AudioEnd { node, key, bytes } => {
                self.send_to_node(&node.0, ToNode::SoundEnd { key: key.lease(), bytes });
            }
            Head::NotSent { key } => {
                let LeaseKey { job, attempt } = key.lease();
                to_job(job, JobMessage::NotSent(attempt));
            }
            Head::Report { id, source, kind } => self.on_report(from, id, source, kind),
            Head::Verdict { id, verdict } => shared.on_reply(id, |_| PeerReply::Verdict(verdict)),
            Head::Partial { source, text } => {
                let (job, report) = source.into_report();
                to_job(
                    job,
                    JobMessage::Partial(Box::new(PartialText { report, text: text.into() })),
                );
            }
            Head::LeasesLost { keys } => {
                for LeaseKey { job, attempt } in keys.into_iter().map(|key| key.lease()) {
                    shared.live.send_node_lost(job, attempt);
                }
            }
            Head::Watch { id, job, ended, wait_ms } => {
                self.on_watch(from, id, job.0, ended, wait_ms);
            }
            Head::Progress { id, progress } => {
                shared.on_reply(id, |_| PeerReply::Progress(progress));
            }
            Head::CancelJob { job } => to_job(job.0, JobMessage::Cancel),
            Head::Subscribe { for_ms } => shared.on_subscribe(from, for_ms),
            Head::Event(event) => {
                if let Some(event) = event.into_event() {
                    shared.events.send(event).ok();
                }
            }
            Head::Poll { id, node, wait_ms } => self.on_poll(from, id, &node.0, wait_ms),
            Head::PolledJob { id, .. } => {
                if let Some(pending) = shared.bus.pending.lock().get_mut(&id) {
                    pending.parts.push(BusMessage { head, blobs });
                }
            }
            Head::PollReply { id, jobs } => {
                shared.on_reply(id, |parts| PeerReply::Polled(jobs.map(|_| parts)));
            }
        }
    }
}
