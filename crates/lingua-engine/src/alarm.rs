//! One timer for all that a job waits for.
//!
//! A job's limits follow each other: for a slot, for the node's confirmation, for its result. Nearly always
//! what it waits for comes first, so a timer for each would be set only to be taken back.
//!
//! Start at [`Alarm::at`]. Invariant: it never rings early, and a timer that is set is left alone while it
//! rings no later than it should.

use std::pin::Pin;

use parking_lot::Mutex;

use crate::clock::Timer;

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Alarm {
    /// The timer that is set, and when it rings. Never locked: it only makes the alarm `Sync`, as whoever
    /// has it has to be.
    set: Mutex<Option<(u64, Sleep)>>,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        Self { set: Mutex::new(None) }
    }

    /// Waits until then.
    pub(crate) async fn at<T: Timer>(&mut self, timer: &T, due_ms: u64) {
        let set = self.set.get_mut();
        loop {
            let now_ms = timer.now_ms();
            if now_ms >= due_ms {
                return;
            }
            let rings_too_late = set.as_ref().is_none_or(|(rings_ms, _)| *rings_ms > due_ms);
            if rings_too_late {
                let (timer, left_ms) = (timer.clone(), due_ms - now_ms);
                let sleep = Box::pin(async move { timer.sleep(left_ms).await });
                *set = Some((due_ms, sleep));
            }
            if let Some((_, sleep)) = set {
                sleep.await;
            }
            *set = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use lingua_store::Clock;

    use super::*;
    use crate::clock::TokioTimer;

    #[tokio::test(start_paused = true)]
    async fn it_rings_when_it_should_whatever_was_set_before() {
        let timer = TokioTimer::starting_at(0);
        let mut alarm = Alarm::new();
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
}
