//! Jobs that wait for a slot.
//!
//! Start at [`Queue::park`]. Among the jobs of one pair the highest priority goes first, then the
//! longest wait. Whoever frees a slot calls [`Queue::wake_for`], which wakes the one job that has
//! waited longest among those that the node can serve. Jobs that may go to one node only wait apart
//! from the others: they hold nobody up, and [`Queue::wake_only`] wakes them.
//!
//! Invariant: no wake is lost. A job parks first and searches once more afterwards, so it finds a
//! slot that came free in between. A wake that its job does not use (it gave up at the same time)
//! is passed on, and so are slots that it leaves free ([`Ticket::leave_with_slots_free`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use lingua_core::planted::{self, Bug};
use lingua_core::{LangPair, Needs, NodeId, Profile, SemanticRule, Tenant};
use parking_lot::Mutex;

use crate::live_jobs::LiveJob;

/// What a waiting job needs of a node.
#[derive(Debug, Clone)]
pub(crate) struct Want {
    pub(crate) pair: LangPair,
    pub(crate) needs: Needs,
    pub(crate) public: bool,
    pub(crate) tenant: Tenant,
    /// No other node will do.
    pub(crate) only: Option<NodeId>,
}

/// Jobs of one pair wait together, and those of one pair that may go to one node only.
type QueueKey = (LangPair, Option<NodeId>);

impl Want {
    fn key(&self) -> QueueKey {
        (self.pair, self.only.clone())
    }
}

/// The order of service within a pair: by priority, then by arrival.
type QueuePosition = (Reverse<i32>, u64);

#[derive(Debug)]
struct Waiter {
    want: Want,
    woken: bool,
    job: Arc<LiveJob>,
}

/// The jobs that wait for one pair.
#[derive(Debug, Default)]
struct PairQueue {
    waiters: BTreeMap<QueuePosition, Waiter>,
    /// How many of them were woken and have not searched yet.
    woken: usize,
}

impl PairQueue {
    /// The first job before this position that was not woken and that this is for.
    fn asleep(
        &self,
        limit: Option<QueuePosition>,
        is_for: impl Fn(&Want) -> bool,
    ) -> Option<QueuePosition> {
        let before = self
            .waiters
            .iter()
            .take_while(|(position, _)| limit.is_none_or(|limit| **position < limit));
        let mut asleep = before.filter(|(_, waiter)| !waiter.woken);
        asleep.find(|(_, waiter)| is_for(&waiter.want)).map(|(position, _)| *position)
    }

    fn wake(&mut self, position: QueuePosition) {
        if let Some(waiter) = self.waiters.get_mut(&position) {
            waiter.woken = true;
            self.woken += 1;
            waiter.job.wake();
        }
    }
}

#[derive(Debug, Default)]
struct PairQueues {
    /// In order, so that equal histories wake in equal order.
    by_pair: BTreeMap<QueueKey, PairQueue>,
    waiting: usize,
    next: u64,
}

/// All jobs that wait at this instance.
#[derive(Debug)]
pub(crate) struct Queue {
    rule: SemanticRule,
    queues: Mutex<PairQueues>,
}

impl Queue {
    pub(crate) fn new(rule: SemanticRule) -> Arc<Self> {
        Arc::new(Self { rule, queues: Mutex::default() })
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.queues.lock().waiting
    }

    /// When the job that has been here longest was accepted.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        let queues = self.queues.lock();
        let waiters = queues.by_pair.values().flat_map(|queue| queue.waiters.values());
        waiters.map(|waiter| waiter.job.accepted_ms).min()
    }

    /// Whether a new job would overtake a waiting one of the same pair.
    pub(crate) fn has_waiter_ahead(&self, want: &Want, priority: i32) -> bool {
        let queues = self.queues.lock();
        let queue = queues.by_pair.get(&want.key());
        let first = queue.and_then(|queue| queue.waiters.first_key_value());
        first.is_some_and(|(&(Reverse(ahead), _), _)| ahead >= priority)
    }

    /// Joins the queue; says whether no job of the pair is ahead.
    pub(crate) fn park(
        self: &Arc<Self>,
        want: Want,
        priority: i32,
        job: Arc<LiveJob>,
    ) -> (Ticket, bool) {
        let mut queues = self.queues.lock();
        queues.next += 1;
        queues.waiting += 1;
        let position = (Reverse(priority), queues.next);
        let key = want.key();
        let waiter = Waiter { want, woken: false, job };
        let waiters = &mut queues.by_pair.entry(key.clone()).or_default().waiters;
        waiters.insert(position, waiter);
        let is_first = waiters.first_key_value().is_some_and(|(first, _)| *first == position);
        drop(queues);
        let ticket = Ticket { queue: Arc::clone(self), key, position, leaves_slots: false };
        (ticket, is_first)
    }

    /// Tells the queue that a slot of this node came free.
    pub(crate) fn wake_for(&self, profile: &Profile) {
        let serves = |want: &Want| {
            let lack = profile.capabilities().missing(want.pair, want.needs, self.rule);
            lack.is_none() && profile.admits(want.public, want.tenant)
        };
        self.wake_first(serves);
    }

    /// Tells the queue that a slot of some node of this pair came free.
    pub(crate) fn wake_pair(&self, pair: LangPair) {
        self.wake_first(|want| want.pair == pair);
    }

    /// Tells the queue that a slot of this node came free, for jobs that may go there only.
    pub(crate) fn wake_only(&self, node: &NodeId) {
        let mut queues = self.queues.lock();
        for ((_, only), queue) in &mut queues.by_pair {
            if only.as_ref() == Some(node)
                && let Some(position) = queue.asleep(None, |_| true)
            {
                queue.wake(position);
            }
        }
    }

    /// Wakes the first job of each pair, in case a slot came free without a wake.
    pub(crate) fn wake_heads(&self) {
        let mut queues = self.queues.lock();
        for queue in queues.by_pair.values_mut() {
            if let Some(position) = queue.asleep(None, |_| true) {
                queue.wake(position);
            }
        }
    }

    fn wake_first(&self, serves: impl Fn(&Want) -> bool) {
        if planted::is(Bug::LostWake) {
            return;
        }
        let mut queues = self.queues.lock();
        if queues.waiting == 0 {
            return;
        }
        let mut next: Option<(QueuePosition, &mut PairQueue)> = None;
        let open = queues.by_pair.iter_mut().filter(|((_, only), _)| only.is_none());
        for (_, queue) in open {
            let limit = next.as_ref().map(|(position, _)| *position);
            if let Some(position) = queue.asleep(limit, &serves) {
                next = Some((position, queue));
            }
        }
        if let Some((position, queue)) = next {
            queue.wake(position);
        }
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    key: QueueKey,
    position: QueuePosition,
    leaves_slots: bool,
}

impl Ticket {
    /// Uses the wake, whatever the search then finds. A later wake counts anew.
    pub(crate) fn take_wake(&self) {
        let mut queues = self.queue.queues.lock();
        let Some(queue) = queues.by_pair.get_mut(&self.key) else { return };
        if let Some(waiter) = queue.waiters.get_mut(&self.position) {
            queue.woken -= usize::from(std::mem::take(&mut waiter.woken));
        }
    }

    /// Leaves the queue with a slot, while more are free: the next job of the pair searches, too.
    pub(crate) fn leave_with_slots_free(mut self) {
        self.leaves_slots = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queues = self.queue.queues.lock();
        let Some(queue) = queues.by_pair.get_mut(&self.key) else { return };
        let Some(left) = queue.waiters.remove(&self.position) else { return };
        queue.woken -= usize::from(left.woken);
        // An unused wake goes to the next job of the pair. So does a slot that is left free, unless
        // another job was woken: that one searches anyway, and passes on what is left then.
        if (left.woken || self.leaves_slots && queue.woken == 0)
            && !planted::is(Bug::LostWake)
            && let Some(position) = queue.asleep(None, |_| true)
        {
            queue.wake(position);
        }
        if queue.waiters.is_empty() {
            queues.by_pair.remove(&self.key);
        }
        queues.waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{Capabilities, Lang, LangSet, Nmt, ServiceSet};

    use super::*;

    fn node(langs: &str) -> Profile {
        let set = || langs.split(' ').map(|tag| Lang::new(tag).unwrap()).collect::<LangSet>();
        let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL).unwrap();
        Profile::new(caps, 1, true).unwrap()
    }

    fn want(pair: &str) -> Want {
        Want {
            pair: pair.parse().unwrap(),
            needs: Needs::SPEECH_TO_TEXT,
            public: true,
            tenant: Tenant::default(),
            only: None,
        }
    }

    fn job() -> Arc<LiveJob> {
        Arc::new(LiveJob::at_start(1))
    }

    fn queue() -> Arc<Queue> {
        Queue::new(SemanticRule::Source)
    }

    fn is_woken(ticket: &Ticket) -> bool {
        let queues = ticket.queue.queues.lock();
        queues.by_pair[&ticket.key].waiters[&ticket.position].woken
    }

    #[test]
    fn the_longest_waiting_job_that_the_node_can_serve_is_woken() {
        let queue = queue();
        let (french, _) = queue.park(want("fr:en"), 0, job());
        let (first, _) = queue.park(want("zh:en"), 0, job());
        let (second, _) = queue.park(want("zh:en"), 0, job());
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&first) && !is_woken(&second) && !is_woken(&french));
        queue.wake_for(&node("zh en fr"));
        assert!(is_woken(&french), "it has waited longest");
        assert!(!is_woken(&second));
    }

    #[test]
    fn a_job_that_waits_for_one_node_holds_nobody_up() {
        let queue = queue();
        let n1 = NodeId::new("n1").unwrap();
        let strict = Want { only: Some(n1.clone()), ..want("zh:en") };
        let (waits, _) = queue.park(strict.clone(), 9, job());
        assert!(!queue.has_waiter_ahead(&want("zh:en"), 0) && queue.has_waiter_ahead(&strict, 0));
        queue.wake_for(&node("zh en"));
        queue.wake_only(&NodeId::new("n2").unwrap());
        assert!(!is_woken(&waits));
        queue.wake_only(&n1);
        assert!(is_woken(&waits));
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let queue = queue();
        let (usual, usual_is_first) = queue.park(want("zh:en"), 0, job());
        let (urgent, urgent_is_first) = queue.park(want("zh:en"), 5, job());
        let (late, late_is_first) = queue.park(want("zh:en"), 5, job());
        assert!(usual_is_first && urgent_is_first && !late_is_first);
        drop(late);
        assert!(queue.has_waiter_ahead(&want("zh:en"), 5));
        assert!(!queue.has_waiter_ahead(&want("zh:en"), 6));
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&urgent) && !is_woken(&usual));
    }

    #[test]
    fn an_unused_wake_is_passed_on() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, job());
        let (second, _) = queue.park(want("zh:en"), 0, job());
        queue.wake_for(&node("zh en"));
        drop(first);
        assert!(is_woken(&second));
        drop(second);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_used_wake_is_not_passed_on() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, job());
        let (second, _) = queue.park(want("zh:en"), 0, job());
        queue.wake_for(&node("zh en"));
        first.take_wake();
        drop(first);
        assert!(!is_woken(&second));
    }

    #[test]
    fn slots_that_are_left_free_are_passed_on_once() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, job());
        let (second, _) = queue.park(want("zh:en"), 0, job());
        let (third, _) = queue.park(want("zh:en"), 0, job());
        let (fourth, _) = queue.park(want("zh:en"), 0, job());
        first.leave_with_slots_free();
        assert!(is_woken(&second) && !is_woken(&third));
        fourth.leave_with_slots_free();
        assert!(!is_woken(&third), "the second searches first");
        second.take_wake();
        second.leave_with_slots_free();
        assert!(is_woken(&third));
    }
}
