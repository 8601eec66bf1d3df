//! Waits for jobs of other instances, cancels them, and watches their events.
//!
//! Start at [`Engine::progress_elsewhere`]. The record in the store says how a job ended; its owner
//! says how far it is until then. Events go only to instances where a client watches.

use std::sync::atomic::Ordering;

use lingua_core::{InstanceId, JobId};
use lingua_store::Store;

use super::message::{Head, JobEventHead, RemoteProgress, Text};
use crate::events::EngineEvent;
use crate::live_jobs::Milestone;
use crate::request::ResultJson;
use crate::{Engine, Timer};

/// Longest wait of one request: if the owner dies, the next request goes to its successor.
const WATCH_MS: u64 = 5_000;

/// How much later than asked the owner may answer.
const LATE_MS: u64 = 500;

/// How long the owner may take to send a result.
const FETCH_MS: u64 = 2_000;

/// Most instances that get the events of this one.
const WATCHERS_MAX: usize = 64;

/// How often the subscriptions to the events of other instances are renewed.
const SUBSCRIBE_EVERY_MS: u64 = 1_000;

/// How long a subscription to events lasts.
const SUBSCRIPTION_MS: u64 = 9_000;

impl<S: Store, T: Timer> Engine<S, T> {
    /// Asks a job's owner for its progress, and waits there until it has got so far. `None` if
    /// there is no answer, `Some(None)` if the job does not run there.
    pub(crate) async fn progress_elsewhere(
        &self,
        owner: &InstanceId,
        job: JobId,
        until: Milestone,
        wait_ms: u64,
    ) -> Option<Option<RemoteProgress>> {
        let wait_ms = wait_ms.min(WATCH_MS);
        let ended = until == Milestone::Ended;
        let request = |id| Head::Watch { id, job: Text(job), ended, wait_ms }.into();
        match self.request(owner, wait_ms + LATE_MS, request).await? {
            (Head::Progress { progress, .. }, _) => Some(progress),
            _ => None,
        }
    }

    /// Answers another instance that asks for a job's progress.
    pub(super) fn on_watch(&self, to: &InstanceId, id: u64, job: JobId, ended: bool, wait_ms: u64) {
        let engine = self.handle();
        let Some(live) = self.live.get(job) else {
            self.send(to, Head::Progress { id, progress: None });
            return;
        };
        let until = if ended { Milestone::Ended } else { Milestone::Sent };
        let to = to.clone();
        self.spawn_background(async move {
            engine.timer.within(wait_ms, live.wait_reached(until)).await;
            let progress = Some(RemoteProgress::of(&live.progress()));
            engine.send(&to, Head::Progress { id, progress });
        });
    }

    /// Asks a job's owner for all that the node gave. It counts as delivered then.
    pub(crate) async fn full_result_elsewhere(
        &self,
        owner: &InstanceId,
        job: JobId,
    ) -> Option<ResultJson> {
        let request = |id| Head::FetchResult { id, job: Text(job) }.into();
        match self.request(owner, FETCH_MS, request).await? {
            (Head::FullResult { result, .. }, _) => result,
            _ => None,
        }
    }

    /// Tells a job's owner to cancel it; says whether the message is in the owner's inbox.
    pub(crate) async fn cancel_job_elsewhere(&self, owner: &InstanceId, job: JobId) -> bool {
        self.send_and_wait(owner, Head::CancelJob { job: Text(job) }).await
    }

    /// Subscribes to the events of the other instances while a client watches here, for ever.
    pub(crate) async fn subscribe_elsewhere(&self) {
        loop {
            if self.events.receiver_count() > 0 {
                let others = self.alive.lock().clone();
                for other in others.iter().filter(|other| **other != self.options.instance) {
                    self.send(other, Head::Subscribe { for_ms: SUBSCRIPTION_MS });
                }
            }
            self.timer.sleep(SUBSCRIBE_EVERY_MS).await;
        }
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Sends the full result of a job here to another instance.
    pub(super) fn on_fetch_result(&self, to: &InstanceId, id: u64, job: JobId) {
        let result = self.recent_results.deliver(job, self.now_ms());
        self.send(to, Head::FullResult { id, result });
    }

    /// Another instance wants the events of this one.
    pub(super) fn on_subscribe(&self, who: &InstanceId, for_ms: u64) {
        let until_ms = self.now_ms().saturating_add(for_ms.min(SUBSCRIPTION_MS));
        self.edit_watchers(|watchers| {
            watchers.retain(|(other, _)| other != who);
            if watchers.len() < WATCHERS_MAX {
                watchers.push((who.clone(), until_ms));
            }
        });
    }

    /// Publishes a job event here and to the instances that watch. Without watchers the
    /// event is not even made.
    pub(crate) fn publish_job(&self, event: impl Fn() -> EngineEvent) {
        if self.bus.is_watched.load(Ordering::Relaxed)
            && let Some(head) = JobEventHead::of(&event())
        {
            let watchers = self.edit_watchers(|watchers| watchers.clone());
            for (who, _) in watchers {
                self.send(&who, Head::Event(head.clone()));
            }
        }
        self.publish(event);
    }

    /// Removes the subscriptions that have run out, then calls `edit`.
    fn edit_watchers<R>(&self, edit: impl FnOnce(&mut Vec<(InstanceId, u64)>) -> R) -> R {
        let now_ms = self.now_ms();
        let mut watchers = self.bus.watchers.lock();
        watchers.retain(|(_, until_ms)| *until_ms > now_ms);
        let result = edit(&mut watchers);
        self.bus.is_watched.store(!watchers.is_empty(), Ordering::Relaxed);
        result
    }
}
