//! What a node has on its desk: jobs that run, results that nobody has confirmed, and the rules for
//! taking another job.
//!
//! Start at [`Desk::admit`]. Nothing here waits or knows of connections.
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
use super::report::Outgoing;
use super::stats::Stats;

/// Most results that wait for their confirmation.
pub(super) const KEPT_MAX: usize = 256;

/// Most bytes of results that wait for their confirmation.
pub(super) const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The state of a node that outlives its connections.
#[derive(Debug)]
pub(super) struct Desk {
    slots: usize,
    health: Health,
    /// The scheduler wants no more jobs here.
    drain_ordered: bool,
    /// The node itself is about to leave.
    leaving: bool,
    fence_highest: Option<Fence>,
    running: HashMap<JobRef, Running>,
    kept: VecDeque<(JobRef, Outgoing)>,
    kept_bytes: usize,
    stats: Stats,
}

#[derive(Debug)]
struct Running {
    fence: Fence,
    cancel: watch::Sender<CancelReason>,
}

/// What becomes of an order.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It has a slot; the receiver hears of its cancellation.
    Taken(watch::Receiver<CancelReason>),
    /// It was taken before and runs.
    Repeated,
    /// It was done before; this is what came of it.
    Finished(Outgoing),
    /// It is not taken, for this reason.
    Refused(&'static str),
}

impl Desk {
    pub(super) fn new(slots: u16, health: Health, stats: Stats) -> Self {
        Self {
            slots: usize::from(slots),
            health,
            drain_ordered: false,
            leaving: false,
            fence_highest: None,
            running: HashMap::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            stats,
        }
    }

    /// Decides on an order and takes a slot for it.
    pub(super) fn admit(&mut self, job: JobRef, fence: Fence) -> Verdict {
        // To refuse an order that came twice would end the attempt that runs.
        if self.running.get(&job).is_some_and(|running| running.fence == fence) {
            return Verdict::Repeated;
        }
        if let Some((_, result)) = self.kept.iter().find(|(kept, _)| *kept == job) {
            return Verdict::Finished(result.clone());
        }
        if self.fence_highest.is_some_and(|highest| fence <= highest) {
            return self.refuse(JobFail::STALE_FENCE);
        }
        self.fence_highest = Some(fence);
        let has_room = self.running.len() < self.slots && !self.running.contains_key(&job);
        if !has_room || self.drain_ordered || self.leaving {
            return self.refuse(JobFail::BUSY);
        }
        let (cancel, cancelled) = watch::channel(None);
        self.running.insert(job, Running { fence, cancel });
        self.stats.set_running(self.running.len());
        Verdict::Taken(cancelled)
    }

    fn refuse(&self, reason: &'static str) -> Verdict {
        self.stats.count_refused();
        Verdict::Refused(reason)
    }

    /// Begins anew with a scheduler that has killed all orders before. It remembers an order to
    /// drain by itself and repeats it when the node says that it is alive.
    pub(super) fn begin_epoch(&mut self) {
        self.fence_highest = None;
        self.drain_ordered = false;
    }

    /// Gives the slot back; the fence that the job came with, if it was running.
    pub(super) fn release(&mut self, job: JobRef) -> Option<Fence> {
        let running = self.running.remove(&job)?;
        self.stats.set_running(self.running.len());
        Some(running.fence)
    }

    /// Keeps a result until it is confirmed.
    pub(super) fn keep(&mut self, job: JobRef, result: Outgoing) {
        self.kept_bytes += result.bytes();
        self.kept.push_back((job, result));
        // The newest stays even if it alone is too big: it was within the bounds of a frame.
        while self.kept.len() > KEPT_MAX
            || (self.kept_bytes > KEPT_BYTES_MAX && self.kept.len() > 1)
        {
            let Some((job, oldest)) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.bytes();
            tracing::warn!(job_id = %job.job_id, attempt_id = %job.attempt_id,
                "too many results wait for their confirmation; the oldest is dropped");
        }
    }

    /// Forgets a result that has arrived.
    pub(super) fn confirm(&mut self, job: JobRef) {
        if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == job)
            && let Some((_, result)) = self.kept.remove(at)
        {
            self.kept_bytes -= result.bytes();
        }
    }

    /// The results that nobody has confirmed, the oldest first.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Outgoing> {
        self.kept.iter().map(|(_, result)| result)
    }

    /// Tells the handler that nobody waits.
    pub(super) fn cancel(&self, job: JobRef, reason: &str) {
        if let Some(running) = self.running.get(&job) {
            running.cancel.send_replace(Some(Arc::from(reason)));
        }
    }

    /// Tells all handlers that nobody waits.
    pub(super) fn cancel_all(&self, reason: &str) {
        for &job in self.running.keys() {
            self.cancel(job, reason);
        }
    }

    /// The fence of a job that runs.
    pub(super) fn fence(&self, job: JobRef) -> Option<Fence> {
        self.running.get(&job).map(|running| running.fence)
    }

    /// What runs, as a heartbeat lists it.
    pub(super) fn running(&self) -> Vec<JobRef> {
        self.running.keys().copied().take(RUNNING_MAX).collect()
    }

    /// Whether nothing runs.
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether nothing runs and every result has arrived.
    pub(super) fn is_clear(&self) -> bool {
        self.is_quiet() && self.kept.is_empty()
    }

    /// Takes an order to drain, or its end; whether that is news.
    pub(super) fn set_drain(&mut self, ordered: bool) -> bool {
        std::mem::replace(&mut self.drain_ordered, ordered) != ordered
    }

    /// Takes no more jobs from now on.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// What the node says of itself.
    pub(super) fn health(&self) -> Health {
        if self.drain_ordered || self.leaving { Health::Draining } else { self.health }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lingua_core::{Attempt, JobId};

    fn job(number: u128) -> JobRef {
        JobRef { job_id: JobId::new(number), attempt_id: Attempt::FIRST }
    }

    fn desk(slots: u16) -> Desk {
        Desk::new(slots, Health::Ready, Stats::default())
    }

    fn result(bytes: usize) -> Outgoing {
        Outgoing { text: "x".repeat(bytes).into(), audio: None }
    }

    fn reason(verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Refused(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_refused_order_still_raises_the_fence() {
        let mut desk = desk(1);
        assert!(matches!(desk.admit(job(1), Fence(10)), Verdict::Taken(_)));
        assert_eq!(reason(desk.admit(job(2), Fence(20))), JobFail::BUSY);
        assert_eq!(desk.release(job(1)), Some(Fence(10)));
        assert_eq!(reason(desk.admit(job(3), Fence(20))), JobFail::STALE_FENCE);
        assert_eq!(reason(desk.admit(job(3), Fence(15))), JobFail::STALE_FENCE);
        desk.begin_epoch();
        assert!(matches!(desk.admit(job(3), Fence(5)), Verdict::Taken(_)));
    }

    #[test]
    fn an_order_that_comes_twice_is_not_refused() {
        let mut desk = desk(1);
        assert!(matches!(desk.admit(job(1), Fence(1)), Verdict::Taken(_)));
        assert!(matches!(desk.admit(job(1), Fence(1)), Verdict::Repeated));
        desk.release(job(1));
        desk.keep(job(1), result(3));
        assert!(matches!(desk.admit(job(1), Fence(1)), Verdict::Finished(_)));
        desk.confirm(job(1));
        assert_eq!(reason(desk.admit(job(1), Fence(1))), JobFail::STALE_FENCE);
    }

    #[test]
    fn results_are_bounded_by_number_and_by_size() {
        let mut desk = desk(1);
        for number in 0..KEPT_MAX as u128 + 10 {
            desk.keep(job(number), result(1));
        }
        assert_eq!((desk.kept.len(), desk.kept_bytes), (KEPT_MAX, KEPT_MAX));
        assert_eq!(desk.kept.front().map(|kept| kept.0), Some(job(10)));
        for number in 0..3 {
            desk.keep(job(1000 + number), result(KEPT_BYTES_MAX / 2));
        }
        assert_eq!((desk.kept.len(), desk.kept_bytes), (2, KEPT_BYTES_MAX));
    }

    #[test]
    fn a_drain_order_ends_when_the_scheduler_says_so() {
        let mut desk = desk(1);
        assert!(desk.set_drain(true) && !desk.set_drain(true));
        assert_eq!(reason(desk.admit(job(1), Fence(1))), JobFail::BUSY);
        assert_eq!(desk.health(), Health::Draining);
        assert!(desk.set_drain(false));
        assert_eq!(desk.health(), Health::Ready);
        assert!(matches!(desk.admit(job(1), Fence(2)), Verdict::Taken(_)));
    }
}
