//! One alarm for all that a job waits for, and one timer for the alarms of many jobs.
//!
//! A job's limits follow each other: for a slot, for the node's confirmation, for its result. Nearly always
//! what it waits for comes first, so a timer for each would be set only to be taken back. The alarms of a crew's jobs
//! lie side by side, and one timer is set to the earliest that there was: it is looked for among the others when that timer
//! rings, which is every few seconds, however many jobs come and go.
//!
//! Start at [`Alarm::at`]. Invariant: it never rings early, and what is set is left alone while it rings no later than it
//! should.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Timer;

/// Alarms of which the earliest is known, so that all others can be passed over together.
const BLOCK: usize = 64;

/// The alarms of some jobs.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    set: Mutex<Set>,
    /// Rung when one is set that is due before all others.
    sooner: Notify,
}

#[derive(Debug)]
struct Set {
    /// When each rings, and whom it wakes. There are as many places as there were jobs that waited at a time.
    places: Vec<Option<(u64, Waker)>>,
    free: Vec<u32>,
    /// For each block of places: none in it is due before. The one that was may be gone.
    blocks_ms: Vec<u64>,
    /// None at all is due before.
    next_ms: u64,
}

impl Default for Set {
    fn default() -> Self {
        Self { places: vec![], free: vec![], blocks_ms: vec![], next_ms: u64::MAX }
    }
}

impl Set {
    fn new_place(&mut self) -> u32 {
        self.places.push(None);
        self.blocks_ms.resize(self.places.len().div_ceil(BLOCK), u64::MAX);
        self.places.len() as u32 - 1
    }
}

impl Alarms {
    /// Rings those that are due, for ever.
    pub(crate) async fn ring<T: Timer>(&self, timer: &T) {
        loop {
            let sooner = self.sooner.notified();
            let (now_ms, next_ms) = (timer.now_ms(), self.set.lock().next_ms);
            if now_ms >= next_ms {
                self.wake_due(now_ms);
                continue;
            }
            let due = async {
                match next_ms {
                    u64::MAX => std::future::pending().await,
                    _ => timer.sleep(next_ms - now_ms).await,
                }
            };
            tokio::select! {
                biased;
                () = sooner => {}
                () = due => {}
            }
        }
    }

    fn wake_due(&self, now_ms: u64) {
        let mut due = vec![];
        let mut set = self.set.lock();
        let Set { places, blocks_ms, next_ms, .. } = &mut *set;
        for (block_ms, places) in blocks_ms.iter_mut().zip(places.chunks_mut(BLOCK)) {
            if *block_ms <= now_ms {
                for place in places.iter_mut() {
                    due.extend(place.take_if(|(due_ms, _)| *due_ms <= now_ms));
                }
                let left = places.iter().flatten().map(|(due_ms, _)| *due_ms);
                *block_ms = left.min().unwrap_or(u64::MAX);
            }
        }
        *next_ms = blocks_ms.iter().copied().min().unwrap_or(u64::MAX);
        drop(set);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Sets an alarm that has this place, or none yet; says which it has.
    fn set(&self, place: Option<u32>, due_ms: u64, waker: &Waker) -> u32 {
        let mut set = self.set.lock();
        let place = place.or_else(|| set.free.pop()).unwrap_or_else(|| set.new_place());
        let at = place as usize;
        set.places[at] = Some((due_ms, waker.clone()));
        set.blocks_ms[at / BLOCK] = set.blocks_ms[at / BLOCK].min(due_ms);
        if due_ms < set.next_ms {
            set.next_ms = due_ms;
            drop(set);
            self.sooner.notify_one();
        }
        place
    }

    fn give_back(&self, place: u32) {
        let mut set = self.set.lock();
        let gone = set.places[place as usize].take();
        set.free.push(place);
        drop(set);
        drop(gone);
    }
}

/// The alarm of one job.
pub(crate) struct Alarm {
    alarms: Arc<Alarms>,
    set: Option<Ringing>,
}

/// An alarm that is set, or was.
struct Ringing {
    place: u32,
    due_ms: u64,
    waker: Waker,
}

impl Alarm {
    pub(crate) fn new(alarms: Arc<Alarms>) -> Self {
        Self { alarms, set: None }
    }

    /// Waits until then.
    pub(crate) async fn at<T: Timer>(&mut self, timer: &T, due_ms: u64) {
        poll_fn(|context| {
            let now_ms = timer.now_ms();
            if now_ms >= due_ms {
                return Poll::Ready(());
            }
            let rings_in_time = self.set.as_ref().is_some_and(|set| {
                // One that is past has rung already.
                let is_in_time = now_ms < set.due_ms && set.due_ms <= due_ms;
                is_in_time && set.waker.will_wake(context.waker())
            });
            if !rings_in_time && due_ms < u64::MAX {
                let place = self.set.as_ref().map(|set| set.place);
                let place = self.alarms.set(place, due_ms, context.waker());
                self.set = Some(Ringing { place, due_ms, waker: context.waker().clone() });
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(set) = &self.set {
            self.alarms.give_back(set.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use lingua_store::Clock;

    use super::*;
    use crate::clock::TokioTimer;

    /// Alarms that ring, and the time by which they do.
    fn ringing() -> (Arc<Alarms>, TokioTimer) {
        let (alarms, timer) = (Arc::<Alarms>::default(), TokioTimer::starting_at(0));
        let (theirs, their_timer) = (Arc::clone(&alarms), timer.clone());
        tokio::spawn(async move { theirs.ring(&their_timer).await });
        (alarms, timer)
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_should_whatever_was_set_before() {
        let (alarms, timer) = ringing();
        let mut alarm = Alarm::new(alarms);
        for (interrupted_at, due) in [(10, 50), (20, 200), (30, 40)] {
            tokio::select! {
                biased;
                () = alarm.at(&timer, due) => panic!("too early"),
                () = timer.sleep(interrupted_at - timer.now_ms()) => {}
            }
        }
        alarm.at(&timer, 70).await;
        assert_eq!(timer.now_ms(), 70, "neither at 40 nor at 200");
        alarm.at(&timer, 60).await;
        assert_eq!(timer.now_ms(), 70, "what is past rings at once");
    }

    #[tokio::test(start_paused = true)]
    async fn each_rings_at_its_own_time_and_leaves_its_place() {
        let (alarms, timer) = ringing();
        // More than a block of them.
        let due = |n: u64| [30, 10, 20, 10, 40, u64::MAX][n as usize % 6];
        let waiting: Vec<_> = (0..600)
            .map(|n| {
                let (mut alarm, timer) = (Alarm::new(Arc::clone(&alarms)), timer.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = alarm.at(&timer, due(n)) => {}
                        () = timer.sleep(35) => {}
                    }
                    timer.now_ms()
                })
            })
            .collect();
        for (n, one) in (0..).zip(waiting) {
            assert_eq!(one.await.unwrap(), due(n).min(35), "{n}");
        }
        let set = alarms.set.lock();
        assert_eq!((set.places.len(), set.free.len()), (500, 500), "one that never rings has none");
        assert!(set.places.iter().all(Option::is_none));
    }
}
