//! Which jobs a node accepts, which ones run, and which results wait for their confirmation.
//!
//! Start at [`Admission::admit`]. Nothing here waits or uses a connection.
//!
//! Invariant: at most `slots` jobs run; a result stays until it is confirmed, or until newer ones
//! need its place.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lingua_core::{Fence, Health};
use lingua_wire::limits::RUNNING_MAX;
use lingua_wire::node::{JobFail, JobRef};
use tokio::sync::watch;

use super::handler::CancelReason;
use super::report::OutboundMessage;
use super::stats::Stats;

/// Most results that wait for their confirmation.
pub(super) const UNCONFIRMED_MAX: usize = 256;

/// Most bytes of results that wait for their confirmation.
pub(super) const UNCONFIRMED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The state of a node that outlives its connections.
#[derive(Debug, Default)]
pub(super) struct Admission {
    slots: usize,
    health: Health,
    /// The scheduler ordered the node to drain.
    draining: bool,
    /// The node itself was asked to stop.
    stopping: bool,
    fence_highest: Option<Fence>,
    running: HashMap<JobRef, AdmittedJob>,
    unconfirmed: VecDeque<(JobRef, OutboundMessage)>,
    unconfirmed_bytes: usize,
    stats: Stats,
}

#[derive(Debug)]
struct AdmittedJob {
    fence: Fence,
    cancel: watch::Sender<CancelReason>,
}

/// What the node does with an assignment.
#[derive(Debug)]
pub(super) enum AdmitResult {
    /// It has a slot; the receiver gets a message when the job is cancelled.
    Accepted(watch::Receiver<CancelReason>),
    /// It was accepted before and runs.
    AlreadyRunning,
    /// It was finished before; this is its result.
    AlreadyFinished(OutboundMessage),
    /// It is refused for this reason.
    Refused(&'static str),
}

impl Admission {
    pub(super) fn new(slots: u16, health: Health, stats: Stats) -> Self {
        Self { slots: usize::from(slots), health, stats, ..Self::default() }
    }

    /// Decides on an assignment and takes a slot for it.
    pub(super) fn admit(&mut self, job: JobRef, fence: Fence) -> AdmitResult {
        // Refusing an assignment that came twice would end the attempt that runs.
        if self.running.get(&job).is_some_and(|running| running.fence == fence) {
            return AdmitResult::AlreadyRunning;
        }
        if let Some((_, result)) = self.unconfirmed.iter().find(|(known, _)| *known == job) {
            return AdmitResult::AlreadyFinished(result.clone());
        }
        if self.fence_highest.is_some_and(|highest| fence <= highest) {
            return self.refuse(JobFail::STALE_FENCE);
        }
        self.fence_highest = Some(fence);
        let has_room = self.running.len() < self.slots && !self.running.contains_key(&job);
        if !has_room || self.draining || self.stopping {
            return self.refuse(JobFail::BUSY);
        }
        let (cancel, cancelled) = watch::channel(None);
        self.running.insert(job, AdmittedJob { fence, cancel });
        self.stats.set_running(self.running.len());
        AdmitResult::Accepted(cancelled)
    }

    fn refuse(&self, reason: &'static str) -> AdmitResult {
        self.stats.count_refused();
        AdmitResult::Refused(reason)
    }

    /// Starts a new epoch: the assignments of earlier ones are void, and so are their fences. The
    /// scheduler remembers an order to drain and repeats it when it answers a heartbeat.
    pub(super) fn begin_epoch(&mut self) {
        self.fence_highest = None;
        self.draining = false;
    }

    /// Frees the slot; gives the fence of the job if it was running.
    pub(super) fn release(&mut self, job: JobRef) -> Option<Fence> {
        let running = self.running.remove(&job)?;
        self.stats.set_running(self.running.len());
        Some(running.fence)
    }

    /// Keeps a result until it is confirmed.
    pub(super) fn keep_result(&mut self, job: JobRef, result: OutboundMessage) {
        self.unconfirmed_bytes += result.bytes();
        self.unconfirmed.push_back((job, result));
        // The newest stays even if it alone is too big: it was within the bounds of a frame.
        while self.unconfirmed.len() > UNCONFIRMED_MAX
            || (self.unconfirmed_bytes > UNCONFIRMED_BYTES_MAX && self.unconfirmed.len() > 1)
        {
            let Some((job, oldest)) = self.unconfirmed.pop_front() else { break };
            self.unconfirmed_bytes -= oldest.bytes();
            tracing::warn!(job_id = %job.job_id, attempt_id = %job.attempt_id,
                "too many results wait for their confirmation; dropped the oldest");
        }
    }

    /// Forgets a result that has arrived.
    pub(super) fn confirm(&mut self, job: JobRef) {
        if let Some(at) = self.unconfirmed.iter().position(|(known, _)| *known == job)
            && let Some((_, result)) = self.unconfirmed.remove(at)
        {
            self.unconfirmed_bytes -= result.bytes();
        }
    }

    /// The results that are not confirmed, the oldest first.
    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = &OutboundMessage> {
        self.unconfirmed.iter().map(|(_, result)| result)
    }

    /// Tells the handler of a job that its result is not needed any more.
    pub(super) fn cancel(&self, job: JobRef, reason: &str) {
        if let Some(running) = self.running.get(&job) {
            running.cancel.send_replace(Some(Arc::from(reason)));
        }
    }

    pub(super) fn cancel_all(&self, reason: &str) {
        for &job in self.running.keys() {
            self.cancel(job, reason);
        }
    }

    /// The fence of a job that runs.
    pub(super) fn fence(&self, job: JobRef) -> Option<Fence> {
        self.running.get(&job).map(|running| running.fence)
    }

    /// The jobs that run, as a heartbeat lists them.
    pub(super) fn running(&self) -> Vec<JobRef> {
        self.running.keys().copied().take(RUNNING_MAX).collect()
    }

    /// Whether no job runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether no job runs and every result is confirmed.
    pub(super) fn is_drained(&self) -> bool {
        self.is_idle() && self.unconfirmed.is_empty()
    }

    /// Starts or ends draining; returns whether that is a change.
    pub(super) fn set_draining(&mut self, draining: bool) -> bool {
        std::mem::replace(&mut self.draining, draining) != draining
    }

    /// Accepts no more jobs from now on.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    /// The health that the node reports.
    pub(super) fn health(&self) -> Health {
        if self.draining || self.stopping { Health::Draining } else { self.health }
    }
}

#[cfg(test)]
mod tests;
