//! Assignments, audio and cancels for nodes that are connected to another instance.
//!
//! Start at [`Engine::assign_elsewhere`] on the job's side and at [`Engine::assign_here`]
//! on the node's side. An assignment that comes twice goes out once; one for a node that is gone is
//! refused to its owner.

use std::sync::Arc;

use lingua_core::job::{Grant, Payload};
use lingua_core::{Epoch, Fence, InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{Bytes, LeaseKey};
use tokio::sync::mpsc::error::TrySendError;

use super::message::{AssignHead, BusMessage, Head, Text};
use super::remote_jobs::RemoteJob;
use crate::job_spec_codec;
use crate::node::{Assignment, LocalNode};
use crate::request::JobRequest;
use crate::runner::SEND_TICKET_MS;
use crate::speech::Speech;
use crate::{Engine, Timer};

/// Writes an assignment for a node.
pub(super) fn encode(
    a: &Assignment,
    node: &NodeId,
    epoch: Epoch,
    used: u16,
    now_ms: u64,
) -> (AssignHead, Vec<Bytes>) {
    let mut blobs: Vec<Bytes> = vec![job_spec_codec::encode(&a.request.spec).into()];
    let mut audio = None;
    if let Some((format, sample_rate, data)) = a.request.audio() {
        audio = Some((format.to_string(), sample_rate.unwrap_or(0)));
        blobs.extend((!a.stream).then(|| data.clone()));
    }
    let head = AssignHead {
        key: LeaseKey { job: a.job, attempt: a.attempt }.into(),
        node: Text(node.clone()),
        epoch: epoch.0,
        fence: a.fence.0,
        left_ms: a.deadline_ms.saturating_sub(now_ms),
        served_as: a.served_as.as_deref().copied().map(Text),
        moved: a.moved,
        used,
        audio,
        stream: a.stream,
    };
    (head, blobs)
}

/// Reads an assignment; logs why it cannot.
pub(super) fn decode(head: &AssignHead, blobs: &[Bytes], now_ms: u64) -> Option<Assignment> {
    let LeaseKey { job, attempt } = head.key.lease();
    let mut spec = job_spec_codec::decode(blobs.first()?)
        .inspect_err(|error| tracing::warn!(job_id = %job, %error, "cannot read an assignment"))
        .ok()?;
    let mut speech = None;
    if let Some((format, sample_rate)) = &head.audio {
        let format = format.as_str().into();
        if head.stream {
            speech = Some(Arc::new(Speech::new(format, *sample_rate)));
        } else {
            let sample_rate = Some(*sample_rate).filter(|rate| *rate > 0);
            let data = blobs.get(1)?.clone();
            spec.payload = Payload::Audio { format, sample_rate, data };
        }
    }
    Some(Assignment {
        job,
        attempt,
        fence: Fence(head.fence),
        served_as: head.served_as.as_ref().map(|pair| Box::new(pair.0)),
        request: JobRequest { speech, ..JobRequest::new(job, spec) },
        deadline_ms: now_ms.saturating_add(head.left_ms),
        moved: head.moved,
        stream: head.stream,
    })
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Sends a job to a node of another instance; says whether it is on its way.
    pub(crate) async fn assign_elsewhere(
        &self,
        grant: &Grant,
        assignment: &Assignment,
        used: u16,
    ) -> bool {
        if grant.via == self.options.instance {
            // The node was connected here and is no longer.
            return false;
        }
        let (head, blobs) = encode(assignment, &grant.node, grant.epoch, used, self.now_ms());
        self.send_and_wait(&grant.via, BusMessage { head: Head::Assign(head), blobs }).await
    }

    /// Sends an assignment of another instance to a node here.
    pub(super) fn assign_here(&self, owner: InstanceId, head: &AssignHead, blobs: &[Bytes]) {
        let (key, now_ms) = (head.key.lease(), self.now_ms());
        let Some(mut assignment) = decode(head, blobs, now_ms) else {
            return self.refuse_assignment(&owner, key);
        };
        let node = self.nodes.get(&head.node.0);
        let Some(node) = node.filter(|node| node.has_epoch(Epoch(head.epoch))) else {
            return self.refuse_assignment(&owner, key);
        };
        let Ok(held) = self.budgets.audio.take(assignment.request.audio_bytes()) else {
            return self.refuse_assignment(&owner, key);
        };
        assignment.request.held_audio = Some(Arc::new(held));
        let times = self.options.times;
        let keep_ms = times.ack_ms + times.run_ms;
        let job = RemoteJob {
            owner: owner.clone(),
            sent_ms: now_ms,
            complete_ms: (!head.stream).then_some(now_ms),
            pair: assignment.pair(),
            used: head.used,
            audio_sent: 0,
        };
        if !self.bus.remote_jobs.lock().insert(key, job, keep_ms) {
            // It came twice.
            return;
        }
        let ticket = node.queue_send(assignment.fence);
        // Audio that follows must not come before its assignment.
        if ticket.is_next() || assignment.stream {
            drop(ticket);
            return self.send_assignment(&owner, &node, assignment);
        }
        let engine = self.handle();
        self.spawn_background(async move {
            engine.timer.within(SEND_TICKET_MS, ticket.wait()).await;
            engine.send_assignment(&owner, &node, assignment);
            drop(ticket);
        });
    }

    fn send_assignment(&self, owner: &InstanceId, node: &Arc<LocalNode>, assignment: Assignment) {
        let key = LeaseKey { job: assignment.job, attempt: assignment.attempt };
        let Err(error) = node.send_assignment(assignment, self.now_ms()) else { return };
        if let TrySendError::Full(_) = error {
            let (engine, node) = (self.handle(), Arc::clone(node));
            self.spawn_background(async move {
                engine.disconnect_slow(&node.node, node.place().epoch).await;
            });
        }
        self.refuse_assignment(owner, key);
    }

    fn refuse_assignment(&self, owner: &InstanceId, key: LeaseKey) {
        // If this message is lost too, the owner's ACK timer rings.
        self.send(owner, Head::NotSent { key: key.into() });
    }

    /// Tells a node of another instance to stop.
    pub(crate) fn cancel_elsewhere(&self, grant: &Grant, key: LeaseKey) {
        if grant.via != self.options.instance {
            let node = Text(grant.node.clone());
            self.send(&grant.via, Head::Cancel { node, key: key.into() });
        }
    }

    /// Sends audio from byte `at` on to a node of another instance. `total` is the length of all
    /// audio, if this is the last.
    pub(crate) fn send_audio_elsewhere(
        &self,
        grant: &Grant,
        key: LeaseKey,
        at: usize,
        audio: &[Bytes],
        total: Option<usize>,
    ) {
        let (node, key) = (Text(grant.node.clone()), key.into());
        if !audio.is_empty() {
            let head = Head::Audio { node: node.clone(), key, at };
            self.send(&grant.via, BusMessage { head, blobs: vec![audio.concat().into()] });
        }
        if let Some(bytes) = total {
            self.send(&grant.via, Head::AudioEnd { node, key, bytes });
        }
    }
}
