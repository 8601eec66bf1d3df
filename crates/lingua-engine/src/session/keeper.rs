//! A session's timers: pauses, deadlines, silence, being away.
//!
//! Start at [`Talk::keep`]. One task for each session, which sleeps until something may be due; a frame that comes meanwhile
//! moves the pause and wakes nobody.

use std::sync::Arc;

use lingua_store::Store;

use super::attached::Over;
use super::options::SessionOptions;
use super::talk::{State, Talk};
use crate::clock::Timer;

/// Longest sleep: nothing depends on it.
const SLEEP_MS_MAX: u64 = 3_600_000;

impl<S: Store, T: Timer> Talk<S, T> {
    /// Minds the timers until the session is over.
    pub(super) async fn keep(self: Arc<Self>) {
        let timer = self.hub.engine.shared.timer.clone();
        loop {
            let now_ms = self.now_ms();
            self.tick(now_ms);
            let sleep_ms = match self.next_look(now_ms) {
                Ok(sleep_ms) => sleep_ms,
                Err(Over::Superseded) => return,
                Err(_) => return self.unsave().await,
            };
            tokio::select! {
                biased;
                () = self.for_keeper.notified() => {}
                () = timer.sleep(sleep_ms) => {}
            }
        }
    }

    /// How long to sleep; why not, if the session is over.
    fn next_look(&self, now_ms: u64) -> Result<u64, Over> {
        let mut state = self.state.lock();
        if let Some(over) = state.over {
            return Err(over);
        }
        let due_ms = state.due_ms(&self.hub.options);
        let sleep_ms = due_ms.saturating_sub(now_ms).clamp(1, SLEEP_MS_MAX);
        state.wakes_ms = now_ms + sleep_ms;
        Ok(sleep_ms)
    }

    /// Does what is due.
    fn tick(self: &Arc<Self>, now_ms: u64) {
        let options = &self.hub.options;
        let mut state = self.state.lock();
        if state.segmenter.tick(now_ms).is_some() {
            self.close(&mut state);
        }
        let late: Vec<_> = state.order.overdue(now_ms);
        let jobs: Vec<_> =
            late.iter().filter_map(|seq| state.jobs.get(seq)).map(|s| s.job).collect();
        let over = state.is_over(now_ms, options);
        let is_fading = state.fades_ms(options).is_some_and(|fades_ms| now_ms >= fades_ms);
        if is_fading {
            state.saved_ms = now_ms;
        }
        drop(state);
        if is_fading {
            let talk = Arc::clone(self);
            // If the store does not answer, it is tried again in time.
            tokio::spawn(async move { talk.save().await.ok() });
        }
        for seq in late {
            let detail =
                format!("nothing came of it within {} ms; say it again", options.deadline_ms);
            self.miss(seq, "DEADLINE_EXCEEDED", detail);
        }
        for job in jobs {
            let engine = self.hub.engine.clone();
            // Nobody waits for it any more; whether it could be told so does not matter.
            tokio::spawn(async move { drop(engine.cancel(job).await) });
        }
        if let Some(over) = over {
            self.finish(over);
        }
    }
}

impl State {
    /// When something may have to be done.
    pub(super) fn due_ms(&self, options: &SessionOptions) -> u64 {
        let leaves_ms = match self.away_since_ms {
            Some(since_ms) => since_ms.saturating_add(options.resume_ms),
            None => self.heard_ms.saturating_add(options.idle_ms),
        };
        let fades_ms = self.fades_ms(options);
        let due = [self.segmenter.due_ms(), self.order.due_ms(), fades_ms, Some(leaves_ms)];
        due.into_iter().flatten().min().unwrap_or(leaves_ms)
    }

    /// When its record has to be written again, so that it does not run out while somebody listens in silence.
    fn fades_ms(&self, options: &SessionOptions) -> Option<u64> {
        let third_ms = options.idle_ms.saturating_add(options.resume_ms) / 3;
        self.away_since_ms.is_none().then(|| self.saved_ms.saturating_add(third_ms.max(1)))
    }

    fn is_over(&self, now_ms: u64, options: &SessionOptions) -> Option<Over> {
        match self.away_since_ms {
            Some(since_ms) if now_ms >= since_ms.saturating_add(options.resume_ms) => {
                Some(Over::Away)
            }
            None if self.order.undelivered() == 0
                && now_ms >= self.heard_ms.saturating_add(options.idle_ms) =>
            {
                Some(Over::Idle)
            }
            _ => None,
        }
    }
}
