//! Each segment is delivered once, in the order spoken.
//!
//! Start at [`Order::open`], [`Order::end`] and [`Order::deliver`]. Nodes finish in any order; what came of a segment
//! waits here until all before it were delivered. What was delivered is kept for a while, because a connection may
//! break with it on its way.
//!
//! Invariant: a client that says what it saw last sees every number after it once and in order, each as a result or
//! as missing; whoever waits behind a segment waits no longer than that segment's deadline.

use std::collections::VecDeque;

use super::segment::SegmentId;
use crate::planted::{self, Bug};

/// Most numbers that a client may have seen and that are not known here. More than that is no memory, but a mistake.
const SKIPPED_MAX: u64 = 1 << 20;

/// Something to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery<O> {
    /// Its number: the place of the segment in the session, from 1.
    pub seq: u64,
    /// Which segment.
    pub id: SegmentId,
    /// What came of it.
    pub outcome: O,
}

/// The segments of a session, in the order spoken.
#[derive(Debug, Clone)]
pub struct Order<O> {
    entries: VecDeque<Entry<O>>,
    /// The number of the first entry.
    first: u64,
    /// The number that is delivered next.
    next: u64,
    /// Most that are kept after they were delivered.
    kept_max: usize,
}

#[derive(Debug, Clone)]
struct Entry<O> {
    id: SegmentId,
    due_ms: Option<u64>,
    outcome: Option<O>,
}

impl<O: Clone> Order<O> {
    /// Nothing yet; the next segment gets this number. Keeps so many after they were delivered.
    pub fn new(first: u64, kept_max: usize) -> Self {
        Self { entries: VecDeque::new(), first, next: first, kept_max }
    }

    /// A segment begins; gives its number.
    pub fn open(&mut self, id: SegmentId) -> u64 {
        self.entries.push_back(Entry { id, due_ms: None, outcome: None });
        self.first + self.entries.len() as u64 - 1
    }

    /// Nothing may wait for this segment any longer than until then.
    pub fn set_due(&mut self, seq: u64, due_ms: u64) {
        if let Some(entry) = self.entry(seq) {
            entry.due_ms = Some(due_ms);
        }
    }

    /// What came of a segment; only the first word counts. Says whether it did.
    pub fn end(&mut self, seq: u64, outcome: O) -> bool {
        match self.entry(seq) {
            Some(entry) if entry.outcome.is_none() => {
                entry.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    /// Whether a part of the text may still be shown: not after the whole.
    pub fn is_open(&self, seq: u64) -> bool {
        let entry = seq.checked_sub(self.first).and_then(|at| self.entries.get(at as usize));
        entry.is_some_and(|entry| entry.outcome.is_none())
    }

    /// The earliest moment at which a segment is overdue.
    pub fn due_ms(&self) -> Option<u64> {
        let open = self.entries.iter().filter(|entry| entry.outcome.is_none());
        open.filter_map(|entry| entry.due_ms).min()
    }

    /// The numbers of the segments that are overdue.
    pub fn overdue(&self, now_ms: u64) -> Vec<u64> {
        let late = |entry: &Entry<O>| {
            entry.outcome.is_none() && entry.due_ms.is_some_and(|due_ms| due_ms <= now_ms)
        };
        (self.first..).zip(&self.entries).filter(|(_, e)| late(e)).map(|(seq, _)| seq).collect()
    }

    /// What is to be delivered next, if its turn has come. It counts as delivered.
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

    /// The client has seen everything up to this number, and nothing after it. What is kept no longer cannot come
    /// again; a number that was never given counts as the last.
    pub fn rewind(&mut self, last_seen: u64) {
        let end = self.first + self.entries.len() as u64;
        self.next = last_seen.saturating_add(1).clamp(self.first, end);
    }

    /// A client that has seen everything up to this number comes back; as [`rewind`](Self::rewind). If it has seen more than is
    /// known here, the numbers go on after what it saw: none is given twice. Says how many were skipped.
    pub fn come_back(&mut self, last_seen: u64) -> u64 {
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

    /// Changes what is kept of deliveries, but for the newest `recent` of them.
    pub fn shrink(&mut self, recent: u64, change: impl Fn(&mut O)) {
        let old = self.next.saturating_sub(self.first).saturating_sub(recent) as usize;
        self.entries
            .iter_mut()
            .take(old)
            .filter_map(|entry| entry.outcome.as_mut())
            .for_each(change);
    }

    /// How many segments nothing has come of yet.
    pub fn open_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.outcome.is_none()).count()
    }

    /// How many segments have not been delivered.
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
    fn the_first_word_counts_and_others_wait_for_it() {
        let mut order = Order::new(1, 8);
        let [one, two] = [1, 2].map(|n| order.open(segment(n)));
        assert_eq!((one, two), (1, 2));
        assert!(order.end(two, "second"));
        assert_eq!(order.deliver(), None, "the first is not there yet");
        assert!(order.is_open(one) && !order.is_open(two));
        assert!(order.end(one, "first") && !order.end(one, "again"));
        let said: Vec<_> =
            std::iter::from_fn(|| order.deliver()).map(|d| (d.seq, d.outcome)).collect();
        assert_eq!(said, [(1, "first"), (2, "second")]);
        assert!(!order.is_open(3) && !order.end(3, "nobody"));
    }

    #[test]
    fn no_number_is_given_twice_to_a_client_that_has_seen_more_than_is_known() {
        let mut order = Order::new(1, 8);
        let one = order.open(segment(1));
        order.open(segment(2));
        order.end(one, "first");
        assert_eq!(order.come_back(1), 0);
        assert!(order.is_open(2), "what is known goes on");
        assert_eq!(order.come_back(5), 3);
        assert_eq!((order.undelivered(), order.deliver()), (0, None));
        let next = order.open(segment(9));
        assert!(next == 6 && order.end(next, "sixth") && !order.end(2, "late"));
        assert_eq!(order.deliver().map(|d| (d.seq, d.outcome)), Some((6, "sixth")));
        assert_eq!((order.come_back(u64::MAX), order.open(segment(10))), (0, 7), "a mistake");
    }

    #[test]
    fn nobody_waits_beyond_a_deadline() {
        let mut order = Order::new(1, 8);
        let one = order.open(segment(1));
        order.open(segment(2));
        order.set_due(one, 500);
        assert_eq!((order.due_ms(), order.overdue(499)), (Some(500), vec![]));
        assert_eq!(order.overdue(500), [1]);
        order.end(one, "late");
        assert_eq!((order.due_ms(), order.overdue(9_999)), (None, vec![]));
    }

    #[test]
    fn what_was_delivered_is_kept_within_bounds() {
        let mut order = Order::new(1, 3);
        for n in 1..=10 {
            let seq = order.open(segment(n));
            order.end(seq, n);
            order.deliver();
        }
        order.shrink(1, |kept| *kept = 0);
        order.rewind(0);
        let again: Vec<_> =
            std::iter::from_fn(|| order.deliver()).map(|d| (d.seq, d.outcome)).collect();
        assert_eq!(again, [(8, 0), (9, 0), (10, 10)], "the last three, the newest untouched");
        order.rewind(u64::MAX);
        assert_eq!((order.deliver(), order.undelivered()), (None, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Speak,
        /// One of the open segments ends, well or badly.
        Finish(prop::sample::Index, bool),
        Pass(u64),
        /// The client reads so many.
        Read(usize),
        /// The connection breaks with so many unread on their way, and the client comes back.
        Break(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Speak),
            4 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(i, ok)| Step::Finish(i, ok)),
            1 => (0..400_u64).prop_map(Step::Pass),
            3 => (0..5_usize).prop_map(Step::Read),
            1 => (0..5_usize).prop_map(Step::Break),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Random finish orders, failures, deadlines and reconnects: the client sees each segment once and in
        /// order, and none blocks those behind it beyond its deadline.
        #[test]
        fn the_client_sees_each_segment_once_and_in_order(steps in steps()) {
            const DEADLINE_MS: u64 = 1_000;
            let mut order: Order<&str> = Order::new(1, 64);
            let mut now_ms = 0;
            let mut spoken: Vec<u64> = vec![];
            let mut seen: Vec<u64> = vec![];
            for step in steps {
                match step {
                    Step::Speak => {
                        let seq = order.open(segment(spoken.len() as u64 + 1));
                        order.set_due(seq, now_ms + DEADLINE_MS);
                        spoken.push(now_ms);
                        prop_assert_eq!(seq, spoken.len() as u64);
                    }
                    Step::Finish(which, ok) if !spoken.is_empty() => {
                        let seq = which.index(spoken.len()) as u64 + 1;
                        let counted = order.is_open(seq);
                        prop_assert_eq!(order.end(seq, if ok { "ok" } else { "failed" }), counted);
                    }
                    Step::Finish(..) => {}
                    Step::Pass(ms) => {
                        now_ms += ms;
                        for seq in order.overdue(now_ms) {
                            order.end(seq, "late");
                        }
                    }
                    Step::Read(count) => {
                        for _ in 0..count {
                            let Some(delivery) = order.deliver() else { break };
                            prop_assert_eq!(delivery.seq, seen.len() as u64 + 1);
                            prop_assert_eq!(delivery.id, segment(delivery.seq));
                            prop_assert!(!order.is_open(delivery.seq), "no partial after the whole");
                            seen.push(delivery.seq);
                        }
                    }
                    Step::Break(lost) => {
                        for _ in 0..lost {
                            order.deliver();
                        }
                        order.rewind(seen.len() as u64);
                    }
                }
                let oldest = spoken.get(seen.len());
                if oldest.is_some_and(|at| at + DEADLINE_MS <= now_ms) {
                    prop_assert!(!order.is_open(seen.len() as u64 + 1), "nobody waits for it");
                }
            }
            now_ms += DEADLINE_MS;
            for seq in order.overdue(now_ms) {
                order.end(seq, "late");
            }
            order.rewind(seen.len() as u64);
            seen.extend(std::iter::from_fn(|| order.deliver()).map(|delivery| delivery.seq));
            prop_assert_eq!(seen, (1..=spoken.len() as u64).collect::<Vec<_>>(), "none skipped, none twice");
        }
    }
}
