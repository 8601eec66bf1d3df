//! Delivers each segment once, in the order spoken.
//!
//! Start at [`DeliveryQueue::open`], [`DeliveryQueue::end`] and [`DeliveryQueue::deliver`]. Nodes
//! finish in any order; the outcome of a segment waits here until all earlier segments are
//! delivered. Delivered outcomes are kept for a while, because a connection may break before they
//! arrive.
//!
//! Invariant: a client that says which number it saw last gets every later number once and in
//! order, each as a result or as missing; a segment delays later ones until its deadline at most.

use std::collections::VecDeque;

use super::segment::SegmentId;
use crate::planted::{self, Bug};

/// Most numbers that a resuming client may be ahead of the queue (after the store lost writes).
/// A client that claims more is mistaken.
const SKIPPED_MAX: u64 = 1 << 20;

/// The outcome of a segment, ready to be sent to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<O> {
    /// Counts the segments of the session from 1.
    pub seq: u64,
    /// The segment's turn and place in it.
    pub id: SegmentId,
    /// A result, or the reason why there is none.
    pub outcome: O,
}

/// The segments of a session, in the order spoken.
#[derive(Debug, Clone)]
pub struct DeliveryQueue<O> {
    entries: VecDeque<Entry<O>>,
    /// `seq` of the first entry.
    first: u64,
    /// `seq` of the next delivery.
    next: u64,
    /// Most entries to keep after their delivery.
    kept_max: usize,
}

#[derive(Debug, Clone)]
struct Entry<O> {
    id: SegmentId,
    due_ms: Option<u64>,
    outcome: Option<O>,
}

impl<O: Clone> DeliveryQueue<O> {
    /// An empty queue whose next segment gets number `first`; keeps `kept_max` delivered entries.
    pub fn new(first: u64, kept_max: usize) -> Self {
        Self { entries: VecDeque::new(), first, next: first, kept_max }
    }

    /// Adds a segment that begins; returns its number.
    pub fn open(&mut self, id: SegmentId) -> u64 {
        self.entries.push_back(Entry { id, due_ms: None, outcome: None });
        self.first + self.entries.len() as u64 - 1
    }

    /// Sets the segment's deadline: later segments wait for it no longer than that.
    pub fn set_due(&mut self, seq: u64, due_ms: u64) {
        if let Some(entry) = self.entry(seq) {
            entry.due_ms = Some(due_ms);
        }
    }

    /// Sets the outcome of a segment. Returns false if it has one already: the first one counts.
    pub fn end(&mut self, seq: u64, outcome: O) -> bool {
        match self.entry(seq) {
            Some(entry) if entry.outcome.is_none() => {
                entry.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    /// Whether the segment has no outcome yet, so that partial texts may still be sent.
    pub fn is_open(&self, seq: u64) -> bool {
        let entry = seq.checked_sub(self.first).and_then(|at| self.entries.get(at as usize));
        entry.is_some_and(|entry| entry.outcome.is_none())
    }

    /// The earliest deadline of an open segment.
    pub fn due_ms(&self) -> Option<u64> {
        let open = self.entries.iter().filter(|entry| entry.outcome.is_none());
        open.filter_map(|entry| entry.due_ms).min()
    }

    /// The numbers of the open segments whose deadline has passed.
    pub fn overdue(&self, now_ms: u64) -> Vec<u64> {
        let late = |entry: &Entry<O>| {
            entry.outcome.is_none() && entry.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
        };
        (self.first..).zip(&self.entries).filter(|(_, e)| late(e)).map(|(seq, _)| seq).collect()
    }

    /// Takes the next delivery, if its segment has an outcome.
    pub fn deliver(&mut self) -> Option<Delivery<O>> {
        let seq = self.next;
        if planted::is(Bug::DeliverAsItEnds) {
            let at = (seq - self.first) as usize;
            let ended = (at..self.entries.len()).find(|&i| self.entries[i].outcome.is_some())?;
            self.entries.swap(at, ended);
        }
        let entry = self.entry(seq)?;
        let delivery = Delivery { seq, id: entry.id, outcome: entry.outcome.clone()? };
        self.next += 1;
        while self.next - self.first > self.kept_max as u64 {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(delivery)
    }

    /// Delivers again everything after `last_seen`, as far as it is kept. A number that was never
    /// given counts as the last one.
    pub fn rewind(&mut self, last_seen: u64) {
        let end = self.first + self.entries.len() as u64;
        self.next = last_seen.saturating_add(1).clamp(self.first, end);
    }

    /// Like [`rewind`](Self::rewind), for a client that resumes. If the client has seen more than
    /// the queue knows, numbering continues after what it saw, so that no number is given twice.
    /// Returns how many numbers were skipped.
    pub fn resume(&mut self, last_seen: u64) -> u64 {
        let end = self.first + self.entries.len() as u64;
        let skipped = last_seen.saturating_add(1).saturating_sub(end);
        if skipped == 0 || skipped > SKIPPED_MAX {
            self.rewind(last_seen);
            return 0;
        }
        self.entries.clear();
        self.first = end + skipped;
        self.next = self.first;
        skipped
    }

    /// Changes the outcomes that are kept after delivery, except for the newest `recent`.
    pub fn shrink(&mut self, recent: u64, change: impl Fn(&mut O)) {
        let old = self.next.saturating_sub(self.first).saturating_sub(recent) as usize;
        self.entries
            .iter_mut()
            .take(old)
            .filter_map(|entry| entry.outcome.as_mut())
            .for_each(change);
    }

    /// Number of segments that have not been delivered.
    pub fn undelivered(&self) -> usize {
        (self.first + self.entries.len() as u64 - self.next) as usize
    }

    fn entry(&mut self, seq: u64) -> Option<&mut Entry<O>> {
        let at = seq.checked_sub(self.first)?;
        self.entries.get_mut(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(n: u64) -> SegmentId {
        SegmentId { turn: n as u32, segment: 1 }
    }

    #[test]
    fn the_first_outcome_counts_and_later_segments_wait_for_it() {
        let mut queue = DeliveryQueue::new(1, 8);
        let [one, two] = [1, 2].map(|n| queue.open(segment(n)));
        assert_eq!((one, two), (1, 2));
        assert!(queue.end(two, "second"));
        assert_eq!(queue.deliver(), None, "the first is not there yet");
        assert!(queue.is_open(one) && !queue.is_open(two));
        assert!(queue.end(one, "first") && !queue.end(one, "again"));
        let delivered: Vec<_> =
            std::iter::from_fn(|| queue.deliver()).map(|d| (d.seq, d.outcome)).collect();
        assert_eq!(delivered, [(1, "first"), (2, "second")]);
        assert!(!queue.is_open(3) && !queue.end(3, "unknown"));
    }

    #[test]
    fn numbering_continues_after_what_the_client_has_seen() {
        let mut queue = DeliveryQueue::new(1, 8);
        let one = queue.open(segment(1));
        queue.open(segment(2));
        queue.end(one, "first");
        assert_eq!(queue.resume(1), 0);
        assert!(queue.is_open(2), "open segments stay open");
        assert_eq!(queue.resume(5), 3);
        assert_eq!((queue.undelivered(), queue.deliver()), (0, None));
        let next = queue.open(segment(9));
        assert!(next == 6 && queue.end(next, "sixth") && !queue.end(2, "late"));
        assert_eq!(queue.deliver().map(|d| (d.seq, d.outcome)), Some((6, "sixth")));
        assert_eq!(
            (queue.resume(u64::MAX), queue.open(segment(10))),
            (0, 7),
            "an impossible number is ignored"
        );
    }

    #[test]
    fn a_segment_is_overdue_at_its_deadline_until_it_ends() {
        let mut queue = DeliveryQueue::new(1, 8);
        let one = queue.open(segment(1));
        queue.open(segment(2));
        queue.set_due(one, 500);
        assert_eq!((queue.due_ms(), queue.overdue(499)), (Some(500), vec![]));
        assert_eq!(queue.overdue(500), [1]);
        queue.end(one, "late");
        assert_eq!((queue.due_ms(), queue.overdue(9_999)), (None, vec![]));
    }

    #[test]
    fn a_bounded_number_of_deliveries_is_kept() {
        let mut queue = DeliveryQueue::new(1, 3);
        for n in 1..=10 {
            let seq = queue.open(segment(n));
            queue.end(seq, n);
            queue.deliver();
        }
        queue.shrink(1, |kept| *kept = 0);
        queue.rewind(0);
        let again: Vec<_> =
            std::iter::from_fn(|| queue.deliver()).map(|d| (d.seq, d.outcome)).collect();
        assert_eq!(again, [(8, 0), (9, 0), (10, 10)], "the last three, the newest unchanged");
        queue.rewind(u64::MAX);
        assert_eq!((queue.deliver(), queue.undelivered()), (None, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Speak,
        /// One of the segments ends, with a result or without.
        Finish(prop::sample::Index, bool),
        Pass(u64),
        /// The client reads this many.
        Read(usize),
        /// The connection breaks with this many deliveries unread, and the client resumes.
        Break(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Speak),
            4 => (any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(i, ok)| Step::Finish(i, ok)),
            1 => (0..400_u64).prop_map(Step::Pass),
            3 => (0..5_usize).prop_map(Step::Read),
            1 => (0..5_usize).prop_map(Step::Break),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// With random finish orders, failures, deadlines and reconnects the client sees each
        /// segment once and in order, and none delays later ones beyond its deadline.
        #[test]
        fn the_client_sees_each_segment_once_and_in_order(steps in steps()) {
            const DEADLINE_MS: u64 = 1_000;
            let mut queue: DeliveryQueue<&str> = DeliveryQueue::new(1, 64);
            let mut now_ms = 0;
            let mut spoken: Vec<u64> = vec![];
            let mut seen: Vec<u64> = vec![];
            for step in steps {
                match step {
                    Step::Speak => {
                        let seq = queue.open(segment(spoken.len() as u64 + 1));
                        queue.set_due(seq, now_ms + DEADLINE_MS);
                        spoken.push(now_ms);
                        prop_assert_eq!(seq, spoken.len() as u64);
                    }
                    Step::Finish(index, ok) if !spoken.is_empty() => {
                        let seq = index.index(spoken.len()) as u64 + 1;
                        let counted = queue.is_open(seq);
                        prop_assert_eq!(queue.end(seq, if ok { "ok" } else { "failed" }), counted);
                    }
                    Step::Finish(..) => {}
                    Step::Pass(ms) => {
                        now_ms += ms;
                        for seq in queue.overdue(now_ms) {
                            queue.end(seq, "late");
                        }
                    }
                    Step::Read(count) => {
                        for _ in 0..count {
                            let Some(delivery) = queue.deliver() else { break };
                            prop_assert_eq!(delivery.seq, seen.len() as u64 + 1);
                            prop_assert_eq!(delivery.id, segment(delivery.seq));
                            prop_assert!(!queue.is_open(delivery.seq), "it has ended");
                            seen.push(delivery.seq);
                        }
                    }
                    Step::Break(lost) => {
                        for _ in 0..lost {
                            queue.deliver();
                        }
                        queue.rewind(seen.len() as u64);
                    }
                }
                let oldest = spoken.get(seen.len());
                if oldest.is_some_and(|at| at + DEADLINE_MS <= now_ms) {
                    prop_assert!(!queue.is_open(seen.len() as u64 + 1), "its deadline ended it");
                }
            }
            now_ms += DEADLINE_MS;
            for seq in queue.overdue(now_ms) {
                queue.end(seq, "late");
            }
            queue.rewind(seen.len() as u64);
            seen.extend(std::iter::from_fn(|| queue.deliver()).map(|delivery| delivery.seq));
            let expected: Vec<u64> = (1..=spoken.len() as u64).collect();
            prop_assert_eq!(seen, expected, "none skipped, none twice");
        }
    }
}
