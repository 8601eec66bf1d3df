//! Jobs that wait for a slot.
//!
//! Start at [`Queue::park`]. The next free slot goes to the waiting tenant that holds the fewest
//! slots for its weight ([`fair_share`]), among the jobs of one tenant to the highest priority,
//! then to the longest wait. Code that frees a slot calls [`Queue::wake_node`], which wakes the one
//! job that comes first by this order among those of all pairs that the node can serve. Jobs that
//! may go to one node only wait apart from the others of their tenant, and do not delay them.
//!
//! Invariant: no wake is lost. A job parks first and searches once more afterwards, so it finds a
//! slot that came free in between. A wake that its job does not use (it gave up at the same time,
//! or it excludes that node) is passed on, and so are slots that it leaves free
//! ([`Ticket::leave_with_slot`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use lingua_core::fair_share::{self, Shares};
use lingua_core::planted::{self, Bug};
use lingua_core::{LangPair, Needs, NodeId, Profile, SemanticRule, Tenant};
use parking_lot::Mutex;

use crate::live_jobs::LiveJob;
use crate::tenants::TenantTable;

/// What a waiting job needs of a node.
#[derive(Debug, Clone)]
pub(crate) struct SlotRequest {
    pub(crate) pair: LangPair,
    /// No other node will do.
    pub(crate) only: Option<NodeId>,
    pub(crate) class: JobClass,
}

/// Jobs of one pair and one class wait together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobClass {
    pub(crate) needs: Needs,
    pub(crate) public: bool,
    /// It cannot use every node that has what it needs.
    pub(crate) is_restricted: bool,
    pub(crate) tenant: Tenant,
}

impl JobClass {
    /// Whether a node that served this serves the other, too.
    fn covers(&self, other: &Self) -> bool {
        let is_admitted =
            self.public == other.public && (self.public || self.tenant == other.tenant);
        is_admitted && self.needs.covers(other.needs)
    }

    /// Whether the same nodes serve both, so that only the tenants' shares decide who goes first.
    /// Private jobs of different tenants go to different nodes.
    fn competes_with(&self, other: &Self) -> bool {
        let is_alike = *self == Self { tenant: self.tenant, ..*other };
        let is_private = !self.public && !planted::is(Bug::PrivateJobsCompete);
        is_alike && (!is_private || self.tenant == other.tenant)
    }
}

/// Jobs of one pair wait together, and those of one pair that may go to one node only.
type QueueKey = (LangPair, Option<NodeId>);

impl SlotRequest {
    fn key(&self) -> QueueKey {
        (self.pair, self.only.clone())
    }
}

/// The order of service within a tenant and a pair: by priority, then by arrival.
type QueuePosition = (Reverse<i32>, u64);

#[derive(Debug)]
struct Waiter {
    woken: bool,
    /// It was woken or searches, and so counts among the jobs that hold a slot: slots that come
    /// free at the same time are shared out fairly, too.
    is_counted: bool,
    job: Arc<LiveJob>,
}

/// The jobs that wait for one pair.
#[derive(Debug, Default)]
struct PairQueue {
    by_class: BTreeMap<JobClass, BTreeMap<QueuePosition, Waiter>>,
    /// How many of them were woken and have not searched yet.
    woken: usize,
}

/// Where a job waits.
#[derive(Debug, Clone)]
struct QueuePlace {
    position: QueuePosition,
    class: JobClass,
    key: QueueKey,
}

#[derive(Debug, Default)]
struct PairQueues {
    /// In order, so that equal histories wake in equal order.
    by_pair: BTreeMap<QueueKey, PairQueue>,
    shares: Shares<Tenant>,
    waiting: usize,
    next: u64,
}

impl PairQueues {
    fn waiter(&mut self, place: &QueuePlace) -> Option<&mut Waiter> {
        self.by_pair.get_mut(&place.key)?.by_class.get_mut(&place.class)?.get_mut(&place.position)
    }

    /// The first job of each tenant that was not woken and that this is for.
    fn first_unwoken<'a>(
        queues: impl Iterator<Item = (&'a QueueKey, &'a PairQueue)>,
        is_for: impl Fn(&QueueKey, &JobClass) -> bool,
    ) -> BTreeMap<Tenant, QueuePlace> {
        let mut first: BTreeMap<Tenant, QueuePlace> = BTreeMap::new();
        for (key, queue) in queues {
            for (class, jobs) in queue.by_class.iter().filter(|(class, _)| is_for(key, class)) {
                let unwoken = jobs.iter().find(|(_, waiter)| !waiter.woken);
                let Some((&position, _)) = unwoken else { continue };
                if first.get(&class.tenant).is_none_or(|known| position < known.position) {
                    first.insert(
                        class.tenant,
                        QueuePlace { position, class: *class, key: key.clone() },
                    );
                }
            }
        }
        first
    }

    /// Of the first jobs of some tenants the one that comes first.
    fn choose(
        &self,
        first: BTreeMap<Tenant, QueuePlace>,
        rules: &TenantTable,
    ) -> Option<QueuePlace> {
        let mut first: Vec<QueuePlace> = first.into_values().collect();
        if first.len() > 1 {
            first.sort_by_key(|place| place.position);
            let standings: Vec<_> = first
                .iter()
                .map(|QueuePlace { class, .. }| {
                    self.shares.standing(class.tenant, rules.rules(class.tenant).weight)
                })
                .collect();
            return fair_share::next(standings.into_iter()).map(|at| first.swap_remove(at));
        }
        first.pop()
    }

    /// Whether a new job may search at once: it would not overtake a job of its own tenant, nor one
    /// of a tenant that comes before its own and that could use the same slot. A job that cannot
    /// wait has no priority, and may overtake those of its own tenant.
    fn may_search(
        &self,
        request: &SlotRequest,
        priority: Option<i32>,
        rules: &TenantTable,
    ) -> bool {
        let JobClass { tenant, needs, public, .. } = request.class;
        if let (Some(queue), Some(priority)) = (self.by_pair.get(&request.key()), priority) {
            let mut own = queue.by_class.iter().filter(|(class, _)| class.tenant == tenant);
            let is_ahead = |(&(Reverse(ahead), _), _): (&QueuePosition, _)| ahead >= priority;
            if own.any(|(_, jobs)| jobs.first_key_value().is_some_and(is_ahead)) {
                return false;
            }
        }
        // A private job goes to nodes of its own tenant: other tenants cannot use them.
        let open = self.by_pair.get(&(request.pair, None)).filter(|_| public);
        let Some(open) = open else { return true };
        let standing = |tenant| self.shares.standing(tenant, rules.rules(tenant).weight);
        let is_rival = |class: &&JobClass| {
            class.tenant != tenant && class.public && !class.is_restricted && class.needs == needs
        };
        let mut rivals = open.by_class.keys().filter(is_rival).peekable();
        if rivals.peek().is_none() {
            return true;
        }
        let others: Vec<_> = rivals.map(|class| standing(class.tenant)).collect();
        let count = others.len();
        fair_share::next(others.into_iter().chain([standing(tenant)])) == Some(count)
    }

    /// Wakes a job, and counts it as one that holds a slot until its search has ended.
    fn wake(&mut self, place: &QueuePlace) {
        let Some(waiter) = self.waiter(place) else { return };
        waiter.woken = true;
        let was_counted = std::mem::replace(&mut waiter.is_counted, true);
        waiter.job.wake();
        if let Some(queue) = self.by_pair.get_mut(&place.key) {
            queue.woken += 1;
        }
        if !was_counted {
            self.shares.started(place.class.tenant);
        }
    }

    /// Gives a slot, or a wake that its job did not use, to the next job of the pair.
    fn wake_next(
        &mut self,
        key: &QueueKey,
        rules: &TenantTable,
        is_for: impl Fn(&JobClass) -> bool,
    ) {
        if planted::is(Bug::LostWake) {
            return;
        }
        let queue = self.by_pair.get_key_value(key);
        let first = Self::first_unwoken(queue.into_iter(), |_, class| is_for(class));
        if let Some(place) = self.choose(first, rules) {
            self.wake(&place);
            self.shares.chosen(place.class.tenant, rules.rules(place.class.tenant).weight);
        }
    }
}

/// All jobs that wait at this instance, and how many jobs of each tenant hold a slot.
#[derive(Debug)]
pub(crate) struct Queue {
    rule: SemanticRule,
    rules: TenantTable,
    queues: Mutex<PairQueues>,
}

impl Queue {
    pub(crate) fn new(rule: SemanticRule, rules: TenantTable) -> Arc<Self> {
        Arc::new(Self { rule, rules, queues: Mutex::default() })
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.queues.lock().waiting
    }

    /// When the job that has been here longest was accepted.
    pub(crate) fn oldest_ms(&self) -> Option<u64> {
        let queues = self.queues.lock();
        let by_class = queues.by_pair.values().flat_map(|queue| queue.by_class.values());
        by_class.flat_map(BTreeMap::values).map(|waiter| waiter.job.accepted_ms).min()
    }

    /// Counts a job of this tenant as one that holds a slot.
    pub(crate) fn count(self: &Arc<Self>, tenant: Tenant) -> SlotCount {
        self.queues.lock().shares.started(tenant);
        SlotCount { queue: Arc::clone(self), tenant }
    }

    /// Lets a new job search before it waits, unless it would overtake a waiting one; it counts as
    /// one that holds a slot from then on. A job that cannot wait has no priority.
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: &SlotRequest,
        priority: Option<i32>,
    ) -> Option<SlotCount> {
        let mut queues = self.queues.lock();
        if queues.waiting > 0 && !queues.may_search(request, priority, &self.rules) {
            return None;
        }
        queues.shares.started(request.class.tenant);
        drop(queues);
        Some(SlotCount { queue: Arc::clone(self), tenant: request.class.tenant })
    }

    /// Joins the queue; says whether no job of the pair is ahead.
    pub(crate) fn park(
        self: &Arc<Self>,
        request: SlotRequest,
        priority: i32,
        job: Arc<LiveJob>,
    ) -> (Ticket, bool) {
        let mut queues = self.queues.lock();
        let is_first = queues.may_search(&request, Some(priority), &self.rules);
        queues.next += 1;
        queues.waiting += 1;
        let position = (Reverse(priority), queues.next);
        let place = QueuePlace { position, class: request.class, key: request.key() };
        let waiter = Waiter { woken: false, is_counted: is_first, job };
        let queue = queues.by_pair.entry(place.key.clone()).or_default();
        queue.by_class.entry(request.class).or_default().insert(position, waiter);
        queues.shares.joined(request.class.tenant);
        if is_first {
            queues.shares.started(request.class.tenant);
        }
        drop(queues);
        (Ticket { queue: Arc::clone(self), place, leaves_slots: false, has_slot: false }, is_first)
    }

    /// Tells the queue that a slot of this node came free.
    pub(crate) fn wake_node(&self, node: &NodeId, profile: &Profile) {
        self.wake_first(Some(node), |pair, class| self.serves(profile, pair, class));
    }

    /// Tells the queue that a slot of some node with this profile came free.
    pub(crate) fn wake_for(&self, profile: &Profile) {
        self.wake_first(None, |pair, class| self.serves(profile, pair, class));
    }

    /// Tells the queue that a job of this class gave back a slot of a node of which nothing else is
    /// known here. The slot goes to a job that needs no more; if none waits, one of each kind of
    /// the pair may try.
    pub(crate) fn wake_like(&self, node: &NodeId, pair: LangPair, held: &JobClass) {
        let is_served = |known: LangPair| known.lookups().any(|served| served == pair);
        let is_woken =
            self.wake_first(Some(node), |known, class| is_served(known) && held.covers(class));
        if !is_woken {
            self.wake_each(|(known, only)| only.is_none() && is_served(*known));
        }
    }

    /// Wakes the first job of each class, in case a slot came free without a wake.
    pub(crate) fn wake_heads(&self) {
        self.wake_each(|_| true);
    }

    fn wake_each(&self, is_for: impl Fn(&QueueKey) -> bool) {
        if planted::is(Bug::LostWake) {
            return;
        }
        let mut queues = self.queues.lock();
        if queues.waiting == 0 {
            return;
        }
        let mut heads = vec![];
        for (key, queue) in queues.by_pair.iter().filter(|(key, _)| is_for(key)) {
            let mut classes: Vec<JobClass> = queue.by_class.keys().copied().collect();
            classes.dedup_by(|a, b| a.competes_with(b));
            for head in classes {
                let is_for = |_: &_, class: &JobClass| class.competes_with(&head);
                let first = PairQueues::first_unwoken([(key, queue)].into_iter(), is_for);
                heads.extend(queues.choose(first, &self.rules));
            }
        }
        heads.iter().for_each(|place| queues.wake(place));
    }

    fn serves(&self, profile: &Profile, pair: LangPair, class: &JobClass) -> bool {
        let lack = |pair| profile.capabilities().missing(pair, class.needs, self.rule);
        let is_capable = pair.lookups().any(|pair| lack(pair).is_none());
        is_capable && profile.admits(class.public, class.tenant)
    }

    /// Chooses the tenant that gets the slot; wakes its first job that the node serves, and its
    /// first of each pair that may go to this node only. Says whether any job was woken.
    fn wake_first(
        &self,
        node: Option<&NodeId>,
        serves: impl Fn(LangPair, &JobClass) -> bool,
    ) -> bool {
        if planted::is(Bug::LostWake) {
            return false;
        }
        let mut queues = self.queues.lock();
        if queues.waiting == 0 {
            return false;
        }
        let is_for = |(pair, only): &QueueKey, class: &JobClass| match only {
            None => serves(*pair, class),
            Some(only) => Some(only) == node,
        };
        let first = PairQueues::first_unwoken(queues.by_pair.iter(), is_for);
        let Some(chosen) = queues.choose(first, &self.rules) else { return false };
        let tenant = chosen.class.tenant;
        let is_its =
            |key: &QueueKey, class: &JobClass| class.tenant == tenant && is_for(key, class);
        let strict =
            queues.by_pair.iter().filter(|((_, only), _)| only.is_some() && only.as_ref() == node);
        let mut places: Vec<QueuePlace> = strict
            .flat_map(|queue| PairQueues::first_unwoken([queue].into_iter(), is_its).into_values())
            .collect();
        let open = queues.by_pair.iter().filter(|((_, only), _)| only.is_none());
        places.extend(PairQueues::first_unwoken(open, is_its).into_values());
        places.iter().for_each(|place| queues.wake(place));
        queues.shares.chosen(tenant, self.rules.rules(tenant).weight);
        true
    }
}

/// Counts a job among those of its tenant that hold a slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct SlotCount {
    queue: Arc<Queue>,
    tenant: Tenant,
}

impl Drop for SlotCount {
    fn drop(&mut self) {
        self.queue.queues.lock().shares.ended(self.tenant);
    }
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    place: QueuePlace,
    leaves_slots: bool,
    has_slot: bool,
}

impl Ticket {
    /// Uses the wake, whatever the search then finds. A later wake counts anew.
    pub(crate) fn take_wake(&self) {
        let mut queues = self.queue.queues.lock();
        let Some(waiter) = queues.waiter(&self.place) else { return };
        if std::mem::take(&mut waiter.woken)
            && let Some(queue) = queues.by_pair.get_mut(&self.place.key)
        {
            queue.woken -= 1;
        }
    }

    /// The search found no slot. What woke a restricted job may be a slot that others can use.
    pub(crate) fn found_none(&self, was_woken: bool) {
        let mut queues = self.queue.queues.lock();
        let Some(waiter) = queues.waiter(&self.place) else { return };
        // A wake that came during the search counts on.
        let is_counted = std::mem::replace(&mut waiter.is_counted, waiter.woken);
        if is_counted && !waiter.woken {
            queues.shares.ended(self.place.class.tenant);
        }
        if was_woken && self.place.class.is_restricted {
            queues.wake_next(&self.place.key, &self.queue.rules, |class| !class.is_restricted);
        }
    }

    /// Leaves the queue with a slot. While more are free, the next job of the pair searches, too.
    pub(crate) fn leave_with_slot(mut self, more_are_free: bool) -> SlotCount {
        self.leaves_slots = more_are_free;
        self.has_slot = true;
        SlotCount { queue: Arc::clone(&self.queue), tenant: self.place.class.tenant }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let QueuePlace { position, class, key } = &self.place;
        let mut queues = self.queue.queues.lock();
        let Some(queue) = queues.by_pair.get_mut(key) else { return };
        let Some(jobs) = queue.by_class.get_mut(class) else { return };
        let Some(left) = jobs.remove(position) else { return };
        if jobs.is_empty() {
            queue.by_class.remove(class);
        }
        queue.woken -= usize::from(left.woken);
        let woken = queue.woken;
        if queue.by_class.is_empty() {
            queues.by_pair.remove(key);
        }
        queues.waiting -= 1;
        match (left.is_counted, self.has_slot) {
            (true, false) => queues.shares.ended(class.tenant),
            (false, true) => queues.shares.started(class.tenant),
            _ => {}
        }
        queues.shares.left(class.tenant);
        // An unused wake goes to the next job of the pair. So does a slot that is left free, unless
        // another job was woken: that one searches anyway, and passes on what is left then.
        if left.woken || self.leaves_slots && woken == 0 {
            queues.wake_next(key, &self.queue.rules, |_| true);
        }
    }
}

// The path holds for `lingua-threads`, too, which includes this file.
#[cfg(test)]
#[path = "queue/tests.rs"]
mod tests;
