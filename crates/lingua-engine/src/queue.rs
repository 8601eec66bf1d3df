//! Jobs that wait for a slot.
//!
//! Start at [`Queue::park`]. First come, first served among jobs of one pair, the highest priority
//! first. Whoever frees a slot calls [`Queue::wake_for`], which wakes the one job that has waited
//! longest among those that the node can serve.
//!
//! Invariant: no wake is lost. A job parks first and looks once more afterwards, so a slot that came
//! free in between is seen; a wake that its job does not use (it gave up in the same moment) is
//! passed on.

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

#[derive(Debug, Default)]
struct Lines {
    /// In order, so that equal histories wake in equal order.
    by_pair: BTreeMap<LangPair, BTreeMap<Turn, Waiter>>,
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
        let first = lines.by_pair.get(&pair).and_then(|line| line.first_key_value());
        first.is_some_and(|(&(Reverse(ahead), _), _)| ahead >= priority)
    }

    /// Joins the line.
    pub(crate) fn park(
        self: &Arc<Self>,
        want: Want,
        priority: i32,
        sleeper: Arc<dyn Wake>,
    ) -> Ticket {
        let mut lines = self.lines.lock();
        lines.next += 1;
        lines.waiting += 1;
        let turn = (Reverse(priority), lines.next);
        let waiter = Waiter { want, woken: false, sleeper };
        lines.by_pair.entry(want.pair).or_default().insert(turn, waiter);
        drop(lines);
        Ticket { queue: Arc::clone(self), pair: want.pair, turn }
    }

    /// Tells the queue that this node has room for one more job.
    pub(crate) fn wake_for(&self, profile: &Profile) {
        let serves = |want: &Want| {
            let lack = profile.capabilities().lack(want.pair, want.needs, self.rule);
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
            if let Some(waiter) = line.values_mut().find(|waiter| !waiter.woken) {
                waiter.woken = true;
                waiter.sleeper.wake();
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
        let next_of = |line: &BTreeMap<Turn, Waiter>| {
            let mut asleep = line.iter().filter(|(_, waiter)| !waiter.woken);
            asleep.find(|(_, waiter)| serves(&waiter.want)).map(|(&turn, w)| (turn, w.want.pair))
        };
        let Some((turn, pair)) = lines.by_pair.values().filter_map(next_of).min_by_key(|n| n.0)
        else {
            return;
        };
        if let Some(waiter) = lines.by_pair.get_mut(&pair).and_then(|line| line.get_mut(&turn)) {
            waiter.woken = true;
            waiter.sleeper.wake();
        }
    }
}

/// A place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    pair: LangPair,
    turn: Turn,
}

impl Ticket {
    /// Whether nobody of the pair is ahead.
    pub(crate) fn is_first(&self) -> bool {
        let lines = self.queue.lines.lock();
        let line = lines.by_pair.get(&self.pair);
        line.and_then(|line| line.keys().next()) == Some(&self.turn)
    }

    /// Takes the wake: whatever comes of it, it is used. One that comes later counts anew.
    pub(crate) fn take_wake(&self) {
        let mut lines = self.queue.lines.lock();
        if let Some(waiter) = lines.by_pair.get_mut(&self.pair).and_then(|l| l.get_mut(&self.turn))
        {
            waiter.woken = false;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let left = {
            let mut lines = self.queue.lines.lock();
            let Some(line) = lines.by_pair.get_mut(&self.pair) else { return };
            let left = line.remove(&self.turn);
            if line.is_empty() {
                lines.by_pair.remove(&self.pair);
            }
            if left.is_some() {
                lines.waiting -= 1;
            }
            left
        };
        // A wake that came to a job which is leaving belongs to the next one that wants the same.
        if let Some(waiter) = left.filter(|waiter| waiter.woken) {
            let pair = waiter.want.pair;
            self.queue.wake_first(|want| want.pair == pair);
        }
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
        lines.by_pair[&ticket.pair][&ticket.turn].woken
    }

    #[test]
    fn the_oldest_that_the_node_can_serve_is_woken() {
        let queue = queue();
        let french = queue.park(want("fr:en"), 0, sleeper());
        let first = queue.park(want("zh:en"), 0, sleeper());
        let second = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&first) && !is_woken(&second) && !is_woken(&french));
        queue.wake_for(&node("zh en fr"));
        assert!(is_woken(&french), "it has waited longest");
        assert!(!is_woken(&second));
    }

    #[test]
    fn priority_goes_first_and_blocks_only_its_like() {
        let queue = queue();
        let usual = queue.park(want("zh:en"), 0, sleeper());
        let urgent = queue.park(want("zh:en"), 5, sleeper());
        assert!(urgent.is_first() && !usual.is_first());
        assert!(queue.has_line(usual.pair, 5) && !queue.has_line(usual.pair, 6));
        queue.wake_for(&node("zh en"));
        assert!(is_woken(&urgent) && !is_woken(&usual));
    }

    #[test]
    fn a_wake_that_is_not_used_is_passed_on() {
        let queue = queue();
        let first = queue.park(want("zh:en"), 0, sleeper());
        let second = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        drop(first);
        assert!(is_woken(&second));
        drop(second);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_wake_that_was_used_is_not() {
        let queue = queue();
        let first = queue.park(want("zh:en"), 0, sleeper());
        let second = queue.park(want("zh:en"), 0, sleeper());
        queue.wake_for(&node("zh en"));
        first.take_wake();
        drop(first);
        assert!(!is_woken(&second));
    }
}
