//! A session's timers: pauses, deadlines, refreshing the record, idle and abandoned sessions.
//!
//! Start at [`LiveSession::run_timers`]. One task per session sleeps until something may be due; a
//! frame that moves the pause does not wake it.

use std::sync::Arc;

use lingua_store::Store;

use super::connection::CloseReason;
use super::live::LiveSession;
use super::options::SessionOptions;
use super::state::SessionState;
use crate::clock::Timer;

/// Longest sleep; nothing depends on it.
const SLEEP_MS_MAX: u64 = 3_600_000;

impl<S: Store, T: Timer> LiveSession<S, T> {
    /// Runs the timers until the session is closed.
    pub(super) async fn run_timers(self: Arc<Self>) {
        let timer = self.engine().timer.clone();
        loop {
            let now_ms = self.now_ms();
            self.run_due(now_ms);
            let sleep_ms = match self.next_sleep(now_ms) {
                Ok(sleep_ms) => sleep_ms,
                Err(CloseReason::Superseded) => return,
                Err(_) => return self.delete_record().await,
            };
            tokio::select! {
                biased;
                () = self.timer_wakeup.notified() => {}
                () = timer.sleep(sleep_ms) => {}
            }
        }
    }

    /// How long to sleep, or why the session is closed.
    fn next_sleep(&self, now_ms: u64) -> Result<u64, CloseReason> {
        let mut state = self.state.lock();
        if let Some(reason) = state.closed {
            return Err(reason);
        }
        let due_ms = state.due_ms(&self.registry.options);
        let sleep_ms = due_ms.saturating_sub(now_ms).clamp(1, SLEEP_MS_MAX);
        state.timer_at_ms = now_ms + sleep_ms;
        Ok(sleep_ms)
    }

    /// Wakes the timer task if it would wake up too late.
    pub(super) fn set_timer(&self, state: &SessionState) {
        if state.due_ms(&self.registry.options) < state.timer_at_ms {
            self.timer_wakeup.notify_one();
        }
    }

    fn run_due(self: &Arc<Self>, now_ms: u64) {
        let options = &self.registry.options;
        let mut state = self.state.lock();
        if state.segmenter.tick(now_ms).is_some() {
            self.close_segment(&mut state);
        }
        let overdue = state.queue.overdue(now_ms);
        let jobs: Vec<_> =
            overdue.iter().filter_map(|seq| state.jobs.get(seq)).map(|s| s.job).collect();
        let expired = state.expired(now_ms, options);
        let refresh = state.refresh_due_ms(options).is_some_and(|due_ms| now_ms >= due_ms);
        if refresh {
            state.saved_ms = now_ms;
        }
        drop(state);
        if refresh {
            // If the store fails, the next refresh comes before the record expires.
            self.spawn_save();
        }
        for seq in overdue {
            let detail = format!("no result within {} ms; say it again", options.deadline_ms);
            self.end_as_missing(seq, "DEADLINE_EXCEEDED", detail);
        }
        for job in jobs {
            let engine = self.engine().clone();
            // The session does not need the job any more, so the reply does not matter.
            tokio::spawn(async move { drop(engine.cancel(job).await) });
        }
        if let Some(reason) = expired {
            self.close(reason);
        }
    }
}

impl SessionState {
    /// When the timer task has something to do.
    fn due_ms(&self, options: &SessionOptions) -> u64 {
        let (expires_ms, _) = self.expires(options);
        let due = [self.segmenter.due_ms(), self.queue.due_ms(), self.refresh_due_ms(options)];
        due.into_iter().flatten().fold(expires_ms, u64::min)
    }

    /// When to write the record again, so that it does not expire while a client listens in
    /// silence.
    fn refresh_due_ms(&self, options: &SessionOptions) -> Option<u64> {
        let third_ms = options.idle_ms.saturating_add(options.resume_ms) / 3;
        self.disconnected_ms.is_none().then(|| self.saved_ms.saturating_add(third_ms.max(1)))
    }

    /// When the session expires without a client or its input, and why.
    fn expires(&self, options: &SessionOptions) -> (u64, CloseReason) {
        match self.disconnected_ms {
            Some(since_ms) => (since_ms.saturating_add(options.resume_ms), CloseReason::Abandoned),
            None => (self.last_input_ms.saturating_add(options.idle_ms), CloseReason::Idle),
        }
    }

    fn expired(&self, now_ms: u64, options: &SessionOptions) -> Option<CloseReason> {
        let (expires_ms, reason) = self.expires(options);
        let is_awaited = reason == CloseReason::Idle && self.queue.undelivered() > 0;
        (now_ms >= expires_ms && !is_awaited).then_some(reason)
    }
}
