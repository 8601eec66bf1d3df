//! Those who do the jobs' work.
//!
//! Start at [`Crew::take_on`]. A job's life is polled here, not by the connection of whoever waits for it: a connection is
//! large, a job meets several events, and all that became ready in one turn of the loop is done in one go.
//!
//! Invariant: a life that was woken is polled again, and none is polled twice at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;

use crate::alarm::Alarms;
use crate::clock::{Timer, Turn};
use crate::runner::Life;

/// Lives polled before others have their turn.
const TURN: usize = 64;

/// Does the work of some of the jobs.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    ready: Mutex<Ready>,
    /// The alarms of its jobs.
    pub(crate) alarms: Arc<Alarms>,
}

#[derive(Debug, Default)]
struct Ready {
    hands: VecDeque<Arc<Hand>>,
    /// Wakes the crew, while it has nothing to do.
    chief: Option<Waker>,
}

/// A life, and whether it is to be polled.
struct Hand {
    crew: Arc<Crew>,
    is_ready: AtomicBool,
    life: Mutex<Option<Life>>,
}

impl std::fmt::Debug for Hand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hand(ready: {})", self.is_ready.load(Ordering::Relaxed))
    }
}

impl Crew {
    /// One for each thread.
    pub(crate) fn for_this_runtime() -> Vec<Arc<Self>> {
        let threads = Runtime::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
        (0..threads.max(1)).map(|_| Arc::default()).collect()
    }

    /// Sees a life through.
    pub(crate) fn take_on(self: &Arc<Self>, life: Life) {
        self.hand(life).wake();
    }

    /// The same, and it begins now, as far as it goes.
    pub(crate) fn begin(self: &Arc<Self>, life: Life) {
        self.hand(life).go_on();
    }

    fn hand(self: &Arc<Self>, life: Life) -> Arc<Hand> {
        let (crew, life) = (Arc::clone(self), Mutex::new(Some(life)));
        Arc::new(Hand { crew, is_ready: AtomicBool::new(false), life })
    }

    /// Rings the alarms of its jobs, for ever.
    pub(crate) async fn ring(self: Arc<Self>, timer: impl Timer) {
        self.alarms.ring(&timer).await;
    }

    /// Works for ever.
    pub(crate) async fn work(self: Arc<Self>) {
        // The turns are short, so nobody has to be made to yield within one.
        tokio::task::unconstrained(poll_fn(|context| self.turn(context))).await;
    }

    fn turn(&self, context: &Context<'_>) -> Poll<()> {
        for _ in 0..TURN {
            let mut ready = self.ready.lock();
            let Some(hand) = ready.hands.pop_front() else {
                ready.chief = Some(context.waker().clone());
                return Poll::Pending;
            };
            drop(ready);
            hand.go_on();
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Hand {
    fn go_on(self: Arc<Self>) {
        // Before it is polled: what wakes it from now on may not have been seen.
        self.is_ready.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        let mut life = self.life.lock();
        let Some(living) = life.as_mut() else { return };
        let turn = Turn::begin();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            living.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        drop(turn);
        // A life that panicked is over, and only that one.
        if !matches!(polled, Ok(Poll::Pending)) {
            *life = None;
        }
    }
}

impl Wake for Hand {
    fn wake(self: Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::SeqCst) {
            let crew = Arc::clone(&self.crew);
            let mut ready = crew.ready.lock();
            ready.hands.push_back(self);
            let chief = ready.chief.take();
            drop(ready);
            if let Some(chief) = chief {
                chief.wake();
            }
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_ready.load(Ordering::SeqCst) {
            Arc::clone(self).wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn lives_are_seen_through_and_one_that_panics_ends_alone() {
        let crew: Arc<Crew> = Arc::default();
        let working = tokio::spawn(Arc::clone(&crew).work());
        let (bell, over) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let begun = Arc::new(AtomicUsize::new(0));
        for n in 0..1_000 {
            let (bell, over, begun) = (Arc::clone(&bell), Arc::clone(&over), Arc::clone(&begun));
            let life = Box::pin(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                bell.notified().await;
                // Wakes itself, more than once.
                tokio::task::yield_now().await;
                assert!(n != 7, "this one has bad luck");
                over.fetch_add(1, Ordering::SeqCst);
            });
            match n % 2 {
                0 => crew.begin(life),
                _ => crew.take_on(life),
            }
        }
        assert_eq!(begun.load(Ordering::SeqCst), 500, "half of them began at once");
        while begun.load(Ordering::SeqCst) < 1_000 {
            tokio::task::yield_now().await;
        }
        bell.notify_waiters();
        while over.load(Ordering::SeqCst) < 999 {
            tokio::task::yield_now().await;
        }
        assert!(!working.is_finished());
        assert_eq!(Arc::strong_count(&over), 1, "nothing is left of them");
        working.abort();
    }
}
