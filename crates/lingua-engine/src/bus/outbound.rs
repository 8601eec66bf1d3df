//! One outbound queue for each other instance; messages are sent in batches.
//!
//! Start at [`Engine::send`]. While one batch to an instance is on its way the next messages
//! for it gather, so that a busy bus costs few calls and an idle one no time.
//!
//! Invariant: while a queue exists, one task sends its messages.

use std::collections::VecDeque;
use std::sync::Arc;

use lingua_core::InstanceId;
use lingua_store::Store;
use lingua_store::contract::{BusDelivery, MESSAGE_BYTES_MAX};
use tokio::sync::oneshot;

use super::Bus;
use super::message::{self, BusMessage};
use crate::{Engine, Timer};

/// Most messages that wait for one instance.
const QUEUE_MAX: usize = 4096;

/// Most bytes that wait for one instance.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Most messages in one batch.
const BATCH_MAX: usize = 128;

/// Most bytes in one batch, with room for the sender's name. A larger message has its own batch.
const BATCH_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 1024;

#[derive(Debug)]
struct QueuedMessage {
    bytes: Vec<u8>,
    /// Learns whether the message is in the other instance's inbox.
    sent: Option<oneshot::Sender<bool>>,
}

#[derive(Debug, Default)]
pub(super) struct OutboundQueue {
    messages: VecDeque<QueuedMessage>,
    bytes: usize,
}

impl Bus {
    /// Takes the next batch for an instance; removes the queue when it is empty.
    fn next_batch(&self, to: &InstanceId) -> Option<Vec<QueuedMessage>> {
        let mut outbound = self.outbound.lock();
        let queue = outbound.get_mut(to)?;
        let (mut batch, mut bytes) = (vec![], 0);
        while let Some(next) = queue.messages.front() {
            let fits = batch.len() < BATCH_MAX && bytes + next.bytes.len() <= BATCH_BYTES_MAX;
            if !fits && !batch.is_empty() {
                break;
            }
            bytes += next.bytes.len();
            batch.extend(queue.messages.pop_front());
        }
        queue.bytes -= bytes;
        if batch.is_empty() {
            outbound.remove(to);
            return None;
        }
        Some(batch)
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Queues a message for another instance; says whether there was room.
    pub(crate) fn send(&self, to: &InstanceId, message: impl Into<BusMessage>) -> bool {
        self.enqueue(to, message.into(), None)
    }

    /// Sends a message and waits until it is in the other instance's inbox; says whether it is.
    pub(super) async fn send_and_wait(
        &self,
        to: &InstanceId,
        message: impl Into<BusMessage>,
    ) -> bool {
        let (sent, is_sent) = oneshot::channel();
        self.enqueue(to, message.into(), Some(sent)) && is_sent.await.unwrap_or(false)
    }

    fn enqueue(
        &self,
        to: &InstanceId,
        message: BusMessage,
        sent: Option<oneshot::Sender<bool>>,
    ) -> bool {
        let bytes = message.encode();
        let mut outbound = self.bus.outbound.lock();
        let has_task = outbound.contains_key(to);
        let queue = outbound.entry(to.clone()).or_default();
        let has_room =
            queue.messages.len() < QUEUE_MAX && queue.bytes + bytes.len() <= QUEUE_BYTES_MAX;
        if has_room {
            queue.bytes += bytes.len();
            queue.messages.push_back(QueuedMessage { bytes, sent });
        } else {
            self.metrics.bus.count("dropped");
        }
        if !has_task {
            tokio::spawn(self.handle().send_batches(to.clone()));
        }
        has_room
    }

    /// Sends one batch after the other until the queue is empty.
    async fn send_batches(self: Arc<Self>, to: InstanceId) {
        while let Some(batch) = self.bus.next_batch(&to) {
            let messages = batch.iter().map(|message| message.bytes.as_slice());
            let encoded = message::encode_batch(&self.options.instance, messages);
            let delivery = self.store.send(&to, encoded).await;
            let is_sent = matches!(delivery, Ok(BusDelivery::Sent));
            if let Err(error) = delivery {
                tracing::debug!(%error, %to, "the store did not take a batch of messages");
            }
            let outcome = if is_sent { "sent" } else { "undelivered" };
            self.metrics.bus.count_many(outcome, batch.len() as u64);
            for sent in batch.into_iter().filter_map(|message| message.sent) {
                sent.send(is_sent).ok();
            }
        }
    }
}
