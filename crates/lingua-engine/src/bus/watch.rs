//! Waiting for jobs that run at another instance, calling them off, and watching what happens there.
//!
//! Start at [`Handle::progress_elsewhere`]. The record in the store says how a job ended; the owner says when to look, and how far the job is until then.
//! Events go to those instances only where somebody watches.

use std::sync::Arc;

use lingua_core::{InstanceId, JobId};
use lingua_store::Store;

use super::message::{Happened, Head, Id, Seen};
use super::{Answered, Posted};
use crate::clock::Timer;
use crate::events::EngineEvent;
use crate::handle::Handle;
use crate::live_jobs::Milestone;
use crate::state::EngineState;

/// Longest wait that is asked for at once: if the owner dies, its heir is asked after that.
const WATCH_MS: u64 = 5_000;

/// How much later than promised the owner may answer.
const LATE_MS: u64 = 500;

/// Instances that are told what happens here.
const WATCHERS_MAX: usize = 64;

/// For how long others are told what happens without asking again.
const INTEREST_MS: u64 = 9_000;

impl<S: Store, T: Timer> Handle<S, T> {
    /// Asks a job's owner how far it is, and waits there until it has got so far. Nothing if nobody answers.
    pub(crate) async fn progress_elsewhere(
        &self,
        owner: &InstanceId,
        id: JobId,
        until: Milestone,
        wait_ms: u64,
    ) -> Option<Option<Seen>> {
        let wait_ms = wait_ms.min(WATCH_MS);
        let (job, ended) = (Id(id), until == Milestone::Ended);
        let question = |id| Head::Watch { id, job, ended, wait_ms }.into();
        match self.shared.ask(owner, wait_ms + LATE_MS, question).await? {
            Answered::Seen(seen) => Some(seen),
            _ => None,
        }
    }

    /// Another instance wants to know how far a job is.
    pub(super) fn show_job(&self, to: &InstanceId, id: u64, job: JobId, ended: bool, wait_ms: u64) {
        let shared = Arc::clone(&self.shared);
        let Some(live) = shared.live.get(job) else {
            shared.send(to, Head::Seen { id, seen: None });
            return;
        };
        let until = if ended { Milestone::Ended } else { Milestone::Sent };
        let to = to.clone();
        self.shared.spawn_background(async move {
            tokio::select! {
                biased;
                _ = live.wait_reached(until) => {}
                () = shared.timer.sleep(wait_ms) => {}
            }
            let seen = Some(Seen::of(&live.progress()));
            shared.send(&to, Head::Seen { id, seen });
        });
    }

    /// Tells a job's owner that nobody wants it; says whether it was reached.
    pub(crate) async fn cancel_job_elsewhere(&self, owner: &InstanceId, id: JobId) -> bool {
        self.shared.deliver(owner, Head::CallOff { job: Id(id) }).await == Posted::Sent
    }

    /// If somebody watches here, asks the others to say what happens there.
    pub(crate) fn show_interest(&self) {
        let shared = &self.shared;
        if shared.events.receiver_count() == 0 {
            return;
        }
        let others = shared.alive.lock().clone();
        for other in others.iter().filter(|other| **other != shared.options.instance) {
            shared.send(other, Head::Interest { for_ms: INTEREST_MS });
        }
    }
}

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Another instance wants to be told what happens.
    pub(super) fn is_watched_by(&self, who: &InstanceId, for_ms: u64) {
        let until_ms = self.now_ms().saturating_add(for_ms.min(INTEREST_MS));
        let now_ms = self.now_ms();
        let mut watchers = self.bus.watchers.lock();
        watchers.retain(|(other, until_ms)| other != who && *until_ms > now_ms);
        if watchers.len() < WATCHERS_MAX {
            watchers.push((who.clone(), until_ms));
        }
        let is_any = !watchers.is_empty();
        drop(watchers);
        self.bus.is_watched.store(is_any, std::sync::atomic::Ordering::Relaxed);
    }

    /// Tells whoever watches, here and elsewhere; an event that nobody watches is not even made.
    pub(crate) fn publish_job(self: &Arc<Self>, event: impl Fn() -> EngineEvent) {
        if self.bus.is_watched.load(std::sync::atomic::Ordering::Relaxed) {
            self.tell_others(&event());
        }
        self.publish(event);
    }

    fn tell_others(self: &Arc<Self>, event: &EngineEvent) {
        let now_ms = self.now_ms();
        let mut watchers = self.bus.watchers.lock();
        watchers.retain(|(_, until_ms)| *until_ms > now_ms);
        self.bus.is_watched.store(!watchers.is_empty(), std::sync::atomic::Ordering::Relaxed);
        let to: Vec<InstanceId> = watchers.iter().map(|(who, _)| who.clone()).collect();
        drop(watchers);
        for who in to {
            if let Some(happened) = Happened::of(event) {
                self.send(&who, Head::Happened(happened));
            }
        }
    }
}
