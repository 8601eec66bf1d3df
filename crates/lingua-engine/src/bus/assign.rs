//! Orders to nodes that are connected to another instance.
//!
//! Start at [`EngineState::assign_elsewhere`] on the side of the job and at [`EngineState::assign_here`] on the side of the node. An order that comes
//! twice goes out once; one for a node that has gone is sent back.

use std::sync::Arc;

use lingua_core::job::{Grant, Payload};
use lingua_core::{Epoch, Fence, InstanceId};
use lingua_store::Store;
use lingua_store::contract::{Bytes, LeaseKey};
use tokio::sync::mpsc::error::TrySendError;

use super::message::{Assign, BusMessage, Head};
use super::{Posted, Remote};
use crate::clock::Timer;
use crate::job_spec_codec;
use crate::node::{Assignment, LocalNode, ToNode};
use crate::request::JobRequest;
use crate::runner::SEND_TICKET_MS;
use crate::speech::Speech;
use crate::state::EngineState;

/// An assignment as it is written, with its blobs.
pub(super) fn written(
    a: &Assignment,
    (node, epoch): (&str, Epoch),
    used: u16,
    now_ms: u64,
) -> (Assign, Vec<Bytes>) {
    let mut blobs: Vec<Bytes> = vec![job_spec_codec::encode(&a.request.spec).into()];
    let mut audio = None;
    if let Some((format, sample_rate, data)) = a.request.audio() {
        audio = Some((format.to_string(), sample_rate.unwrap_or(0)));
        blobs.extend((!a.stream).then(|| data.clone()));
    }
    let order = Assign {
        key: LeaseKey { job: a.job, attempt: a.attempt }.into(),
        node: node.to_owned(),
        epoch: epoch.0,
        fence: a.fence.0,
        left_ms: a.deadline_ms.saturating_sub(now_ms),
        moved: a.moved,
        used,
        audio,
        stream: a.stream,
    };
    (order, blobs)
}

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Sends a job to a node of another instance; says whether it is on its way.
    pub(crate) async fn assign_elsewhere(
        self: &Arc<Self>,
        grant: &Grant,
        assignment: &Assignment,
        used: u16,
    ) -> bool {
        if grant.via == self.options.instance {
            // It was connected here, and is not any more.
            return false;
        }
        let to = (grant.node.as_str(), grant.epoch);
        let (order, blobs) = written(assignment, to, used, self.now_ms());
        let message = BusMessage { head: Head::Assign(order), blobs };
        self.deliver(&grant.via, message).await == Posted::Sent
    }

    /// An assignment as it is read.
    pub(super) fn read_order(&self, order: &Assign, blobs: &[Bytes]) -> Option<Assignment> {
        let LeaseKey { job, attempt } = order.key.lease();
        let spec = job_spec_codec::decode(blobs.first()?);
        let warn = |error: &_| tracing::warn!(job_id = %job, %error, "an order cannot be read");
        let mut spec = spec.inspect_err(warn).ok()?;
        let mut speech = None;
        if let Some((format, sample_rate)) = &order.audio {
            let format = format.as_str().into();
            match order.stream {
                true => speech = Some(Arc::new(Speech::new(format, *sample_rate))),
                false => {
                    let sample_rate = Some(*sample_rate).filter(|rate| *rate > 0);
                    let data = blobs.get(1)?.clone();
                    spec.payload = Payload::Audio { format, sample_rate, data };
                }
            }
        }
        Some(Assignment {
            job,
            attempt,
            fence: Fence(order.fence),
            request: JobRequest { id: job, spec: Arc::new(spec), speech },
            deadline_ms: self.now_ms().saturating_add(order.left_ms),
            moved: order.moved,
            stream: order.stream,
        })
    }

    /// Passes on an order to a node here.
    pub(super) fn assign_here(
        self: &Arc<Self>,
        owner: InstanceId,
        order: &Assign,
        blobs: &[Bytes],
    ) {
        let key = order.key.lease();
        let Some(assignment) = self.read_order(order, blobs) else {
            return self.not_sent(&owner, key);
        };
        let node = order.node.parse().ok().and_then(|node| self.nodes.get(&node));
        let Some(node) = node.filter(|node| node.place.epoch.0 == order.epoch) else {
            return self.not_sent(&owner, key);
        };
        let times = self.options.times;
        let (now_ms, used) = (self.now_ms(), order.used);
        let remote = Remote { owner: owner.clone(), sent_ms: now_ms, used, heard: 0 };
        if !self.bus.remember(key, remote, times.ack_ms + times.run_ms) {
            // It came twice.
            return;
        }
        let ticket = node.queue_send(assignment.fence);
        // Sound that follows must not come before its order.
        if ticket.is_next() || assignment.stream {
            drop(ticket);
            return self.hand_over(&owner, &node, assignment);
        }
        let shared = Arc::clone(self);
        self.spawn_background(async move {
            tokio::select! {
                biased;
                () = ticket.wait() => {}
                () = shared.timer.sleep(SEND_TICKET_MS) => {}
            }
            shared.hand_over(&owner, &node, assignment);
            drop(ticket);
        });
    }

    fn hand_over(self: &Arc<Self>, owner: &InstanceId, node: &Arc<LocalNode>, order: Assignment) {
        let key = LeaseKey { job: order.job, attempt: order.attempt };
        let Err(error) = node.outbox.try_send(ToNode::Assign(order)) else { return };
        if let TrySendError::Full(_) = error {
            let (shared, node) = (Arc::clone(self), Arc::clone(node));
            self.spawn_background(async move {
                shared.disconnect_slow(&node.node, node.place.epoch).await
            });
        }
        self.not_sent(owner, key);
    }

    fn not_sent(self: &Arc<Self>, owner: &InstanceId, key: LeaseKey) {
        // If this is not heard either, the ACK timer rings.
        self.send(owner, Head::NotSent { key: key.into() });
    }

    /// Tells a node of another instance to stop.
    pub(crate) fn cancel_elsewhere(self: &Arc<Self>, grant: &Grant, key: LeaseKey) {
        if grant.via != self.options.instance {
            let node = grant.node.to_string();
            self.send(&grant.via, Head::Cancel { node, key: key.into() });
        }
    }

    /// More of what is being said, for a node of another instance.
    pub(crate) fn send_audio_elsewhere(
        self: &Arc<Self>,
        grant: &Grant,
        key: LeaseKey,
        at: usize,
        sound: &[bytes::Bytes],
    ) {
        let head = Head::Sound { node: grant.node.to_string(), key: key.into(), at };
        self.send(&grant.via, BusMessage { head, blobs: vec![sound.concat().into()] });
    }

    pub(crate) fn send_audio_end_elsewhere(
        self: &Arc<Self>,
        grant: &Grant,
        key: LeaseKey,
        bytes: usize,
    ) {
        let node = grant.node.to_string();
        self.send(&grant.via, Head::SoundEnd { node, key: key.into(), bytes });
    }
}
