//! Reads the inbox and handles each message.
//!
//! Start at [`Engine::receive_messages`]. It waits for nothing but the next batch: what takes time
//! runs in the background.

use lingua_core::{InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{Envelope, LeaseKey};

use super::message::{self, BusMessage, Head};
use crate::live_jobs::{JobMessage, PartialText};
use crate::node::ToNode;
use crate::{Engine, Timer};

/// Batches read at a time.
const BATCHES_MAX: usize = 64;

/// Pause after the store did not answer.
const PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Handles the messages of other instances, for ever.
    pub(crate) async fn receive_messages(&self) {
        let mut after = 0;
        loop {
            match self.store.receive(&self.options.instance, after, BATCHES_MAX).await {
                Ok(batches) => {
                    after = batches.last().map_or(after, |batch| batch.seq);
                    self.on_batches(&batches);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot read the messages of other instances");
                    self.timer.sleep(PAUSE_MS).await;
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
            self.metrics.bus.count_many("received", messages.len() as u64);
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
            self.assign_here(from, &assign, &blobs);
        }
    }

    /// Sends a message to a node here. A node that is gone or does not read misses it, and loses
    /// its attempt by that.
    fn send_to_node(&self, node: &NodeId, message: ToNode) {
        if let Some(node) = self.nodes.get(node) {
            node.outbox.try_send(message).ok();
        }
    }

    fn on_message(&self, from: &InstanceId, BusMessage { head, blobs }: BusMessage) {
        // A job whose inbox is full misses the message; a timer or a repetition makes up for it.
        let to_job = |job, message| {
            if let Some(live) = self.live.get(job) {
                live.send(message).ok();
            }
        };
        match head {
            Head::Assign(assign) => self.assign_here(from.clone(), &assign, &blobs),
            Head::Cancel { node, key } => {
                if let Some(node) = self.nodes.get(&node.0) {
                    node.cancel(key.lease());
                }
            }
            Head::Audio { node, key, at } => {
                let key = key.lease();
                let mut jobs = self.bus.remote_jobs.lock();
                let new = blobs.first().and_then(|audio| jobs.new_audio(key, at, audio));
                drop(jobs);
                if let Some(audio) = new {
                    let sound = vec![audio];
                    self.send_to_node(&node.0, ToNode::Sound { key, sound });
                }
            }
            Head::AudioEnd { node, key, bytes } => {
                self.bus.remote_jobs.lock().audio_ended(key.lease(), self.now_ms());
                self.send_to_node(&node.0, ToNode::SoundEnd { key: key.lease(), bytes });
            }
            Head::NotSent { key } => {
                let LeaseKey { job, attempt } = key.lease();
                to_job(job, JobMessage::NotSent(attempt));
            }
            Head::Report { id, source, kind } => self.on_report(from, id, source, kind),
            Head::Verdict { id, .. }
            | Head::Progress { id, .. }
            | Head::FullResult { id, .. }
            | Head::PollReply { id, .. } => self.on_reply(id, head),
            Head::FetchResult { id, job } => self.on_fetch_result(from, id, job.0),
            Head::Partial { source, text } => {
                let (job, report) = source.into_report();
                to_job(
                    job,
                    JobMessage::Partial(Box::new(PartialText { report, text: text.into() })),
                );
            }
            Head::LeasesLost { keys, node } => {
                let node = node.map(|node| node.0);
                for LeaseKey { job, attempt } in keys.into_iter().map(|key| key.lease()) {
                    self.live.send_node_lost(job, attempt, node.as_ref());
                }
            }
            Head::Watch { id, job, ended, wait_ms } => {
                self.on_watch(from, id, job.0, ended, wait_ms);
            }
            Head::Forget { job } => self.forget(job.0),
            Head::CancelJob { job } => to_job(job.0, JobMessage::Cancel),
            Head::Subscribe { for_ms } => self.on_subscribe(from, for_ms),
            Head::Event(event) => drop(self.events.send(event.into_event())),
            Head::NodeSeen(seen) => self.on_node_seen(seen),
            Head::Poll { id, node, wait_ms } => self.on_poll(from, id, &node.0, wait_ms),
            Head::PolledJob { id, .. } => {
                if let Some(pending) = self.bus.pending.lock().get_mut(&id) {
                    pending.parts.push(BusMessage { head, blobs });
                }
            }
        }
    }
}
