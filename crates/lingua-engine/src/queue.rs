//! Jobs that wait for a slot.
//!
//! Start at [`Queue::park`]. First come, first served among jobs of one pair, the highest priority
//! first. Whoever frees a slot calls [`Queue::wake_for`], which wakes the one job that has waited
//! longest among those that the node can serve.
//!
//! Invariant: no wake is lost. A job parks first and looks once more afterwards, so a slot that came
//! free in between is seen; a wake that its job does not use (it gave up in the same moment) is
//! passed on, and so is room that it leaves ([`Ticket::leave_room`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use lingua_core::planted::{self, Bug};
use lingua_core::{LangPair, Needs, Profile, SemanticRule};
use parking_lot::Mutex;

/// What a waiting job needs of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) pair: LangPair,
    pub(crate) needs: Needs,
    pub(crate) public: bool,
}

/// Somebody who can be woken. A wake that comes while it is awake must not be lost on it.
pub(crate) trait Wake: Debug + Send + Sync {
    /// There may be room.
    fn wake(&self);
}

/// The order of service within a pair.
type Turn = (Reverse<i32>, u64);

#[derive(Debug)]
struct Waiter {
    want: Want,
    woken: bool,
    sleeper: Arc<dyn Wake>,
}

/// Those who wait for one pair.
#[derive(Debug, Default)]
struct Line {
    waiters: BTreeMap<Turn, Waiter>,
    /// How many of them were woken and have not looked yet.
    woken: usize,
}

impl Line {
    /// The first that sleeps and that this is for.
    fn asleep(&self, is_for: impl Fn(&Want) -> bool) -> Option<Turn> {
        self.asleep_before(None, is_for)
    }

    /// The same, if it comes before this turn. Whoever comes later is not even looked at.
    fn asleep_before(&self, limit: Option<Turn>, is_for: impl Fn(&Want) -> bool) -> Option<Turn> {
        let before =
            self.waiters.iter().take_while(|(turn, _)| limit.is_none_or(|limit| **turn < limit));
        let mut asleep = before.filter(|(_, waiter)| !waiter.woken);
        asleep.find(|(_, waiter)| is_for(&waiter.want)).map(|(turn, _)| *turn)
    }

    fn wake(&mut self, turn: Turn) {
        if let Some(waiter) = self.waiters.get_mut(&turn) {
            waiter.woken = true;
            self.woken += 1;
            waiter.sleeper.wake();
        }
    }
}

#[derive(Debug, Default)]
struct Lines {
    /// In order, so that equal histories wake in equal order.
    by_pair: BTreeMap<LangPair, Line>,
    waiting: usize,
    next: u64,
}

/// Everybody who waits at this instance.
#[derive(Debug)]
pub(crate) struct Queue {
    rule: SemanticRule,
    lines: Mutex<Lines>,
}

impl Queue {
    pub(crate) fn new(rule: SemanticRule) -> Arc<Self> {
        Arc::new(Self { rule, lines: Mutex::default() })
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lines.lock().waiting
    }

    /// Whether a job that comes now would overtake one of its pair.
    pub(crate) fn has_line(&self, pair: LangPair, priority: i32) -> bool {
        let lines = self.lines.lock();
        let first = lines.by_pair.get(&pair).and_then(|line| line.waiters.first_key_value());
        first.is_some_and(|(&(Reverse(ahead), _), _)| ahead >= priority)
    }

    /// Joins the line; says whether nobody of the pair is ahead.
    pub(crate) fn park(
        self: &Arc<Self>,
        want: Want,
        priority: i32,
        sleeper: Arc<dyn Wake>,
    ) -> (Ticket, bool) {
        let mut lines = self.lines.lock();
        lines.next += 1;
        lines.waiting += 1;
        let turn = (Reverse(priority), lines.next);
        let waiter = Waiter { want, woken: false, sleeper };
        let waiters = &mut lines.by_pair.entry(want.pair).or_default().waiters;
        waiters.insert(turn, waiter);
        let is_first = waiters.first_key_value().is_some_and(|(first, _)| *first == turn);
        drop(lines);
        let ticket = Ticket { queue: Arc::clone(self), pair: want.pair, turn, leaves_room: false };
        (ticket, is_first)
    }

    /// Tells the queue that this node has room for one more job.
    pub(crate) fn wake_for(&self, profile: &Profile) {
        let serves = |want: &Want| {
            let lack = profile.capabilities().missing(want.pair, want.needs, self.rule);
            lack.is_none() && (!want.public || profile.accepts_public())
        };
        self.wake_first(serves);
    }

    /// Tells the queue that some node of this pair has room for one more job.
    pub(crate) fn wake_pair(&self, pair: LangPair) {
        self.wake_first(|want| want.pair == pair);
    }

    /// Lets the first of each line look again, in case room was made where nobody told.
    pub(crate) fn wake_heads(&self) {
        let mut lines = self.lines.lock();
        for line in lines.by_pair.values_mut() {
            if let Some(turn) = line.asleep(|_| true) {
                line.wake(turn);
            }
        }
    }

    fn wake_first(&self, serves: impl Fn(&Want) -> bool) {
        if planted::is(Bug::LostWake) {
            return;
        }
        let mut lines = self.lines.lock();
        if lines.waiting == 0 {
            return;
        }
        let mut next: Option<(Turn, &mut Line)> = None;
        for line in lines.by_pair.values_mut() {
            let limit = next.as_ref().map(|(turn, _)| *turn);
            if let Some(turn) = line.asleep_before(limit, &serves) {
                next = Some((turn, line));
            }
        }
        if let Some((turn, line)) = next {
            line.wake(turn);
        }
    }
}

/// A place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    pair: LangPair,
    turn: Turn,
    leaves_room: bool,
}

impl Ticket {
    /// Takes the wake: whatever comes of it, it is used. One that comes later counts anew.
    pub(crate) fn take_wake(&self) {
        let mut lines = self.queue.lines.lock();
        let Some(line) = lines.by_pair.get_mut(&self.pair) else { return };
        if let Some(waiter) = line.waiters.get_mut(&self.turn) {
            line.woken -= usize::from(std::mem::take(&mut waiter.woken));
        }
    }

    /// Leaves the line because there was room, and maybe more: the next of the pair looks, too.
    pub(crate) fn leave_room(mut self) {
        self.leaves_room = true;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut lines = self.queue.lines.lock();
        let Some(line) = lines.by_pair.get_mut(&self.pair) else { return };
        let Some(left) = line.waiters.remove(&self.turn) else { return };
        line.woken -= usize::from(left.woken);
        // A wake that came to a job which is leaving belongs to the next one that wants the same. So does room that is
        // left, unless somebody was woken who looks anyway, and passes on what is left then.
        if (left.woken || self.leaves_room && line.woken == 0)
            && !planted::is(Bug::LostWake)
            && let Some(turn) = line.asleep(|_| true)
        {
            line.wake(turn);
        }
        if line.waiters.is_empty() {
            lines.by_pair.remove(&self.pair);
        }
        lines.waiting -= 1;
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
        Want { pair: pair.parse().unwrap(), needs: Needs::SPEECH_TO_TEXT, public: true }
    }

    #[derive(Debug)]
    struct Sleeper;

    impl Wake for Sleeper {
        fn wake(&self) {}
    }

    fn sleeper() -> Arc<dyn Wake> {
        Arc::new(Sleeper)
    }

    fn queue() -> Arc<Queue> {
        Queue::new(SemanticRule::Source)
    }

    fn is_woken(ticket: &Ticket) -> bool {
        let lines = ticket.queue.lines.lock();
        lines.by_pair[&ticket.pair].waiters[&ticket.turn].woken
    }

    #[test]
    fn the_oldest_that_the_node_can_serve_is_woken() {
        let queue = queue();
        let (french, _) = queue.park(want("fr:en"), 0, sleeper());
        let (first, _) = queue.park(want("zh:en"), 0, sleeper());
        let (second, _) = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&first) && !is_woken(&second) && !is_woken(&french));
        queue.wake_for(&node("zh en fr"));
        assert!(is_woken(&french), "it has waited longest");
        assert!(!is_woken(&second));
    }

    #[test]
    fn priority_goes_first_and_blocks_only_its_like() {
        let queue = queue();
        let (usual, usual_is_first) = queue.park(want("zh:en"), 0, sleeper());
        let (urgent, urgent_is_first) = queue.park(want("zh:en"), 5, sleeper());
        let (late, late_is_first) = queue.park(want("zh:en"), 5, sleeper());
        assert!(usual_is_first && urgent_is_first && !late_is_first);
        drop(late);
        assert!(queue.has_line(usual.pair, 5) && !queue.has_line(usual.pair, 6));
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&urgent) && !is_woken(&usual));
    }

    #[test]
    fn a_wake_that_is_not_used_is_passed_on() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, sleeper());
        let (second, _) = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        drop(first);
        assert!(is_woken(&second));
        drop(second);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_wake_that_was_used_is_not() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, sleeper());
        let (second, _) = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        first.take_wake();
        drop(first);
        assert!(!is_woken(&second));
    }

    #[test]
    fn room_that_is_left_is_passed_on_once() {
        let queue = queue();
        let (first, _) = queue.park(want("zh:en"), 0, sleeper());
        let (second, _) = queue.park(want("zh:en"), 0, sleeper());
        let (third, _) = queue.park(want("zh:en"), 0, sleeper());
        let (fourth, _) = queue.park(want("zh:en"), 0, sleeper());
        first.leave_room();
        assert!(is_woken(&second) && !is_woken(&third));
        fourth.leave_room();
        assert!(!is_woken(&third), "the second looks first");
        second.take_wake();
        second.leave_room();
        assert!(is_woken(&third));
    }
}
