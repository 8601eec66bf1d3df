//! The tasks in which handlers run.
//!
//! Start at [`Worker::start`].
//!
//! Invariant: whatever a handler does (return, panic, ignore its cancellation), its slot becomes
//! free and exactly one result is kept for its job.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use lingua_wire::node::JobRef;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::sleep;

use super::connection::NodeOutbox;
use super::error::Disconnect;
use super::handler::{CancelReason, Context, Handler, HandlerPartial};
use super::job::{Failure, Job, Output};
use super::report;
use super::worker::Worker;

/// What the task of a handler ends with.
pub(super) type HandlerResult = (JobRef, Result<Output, Failure>);

impl<H: Handler> Worker<H> {
    /// Starts the handler of a job that has a slot.
    pub(super) fn start(&mut self, job: Job, cancel: watch::Receiver<CancelReason>) {
        let job_ref = job.job_ref();
        let context = Context { job: job_ref, cancel, partials: self.partials_in.clone() };
        let handler = Arc::clone(&self.handler);
        let (grace, cancelled) = (self.options.cancel_grace, context.clone());
        self.tasks.spawn(async move {
            let running = async { handler.handle(job, context).await };
            let overdue = async {
                cancelled.cancelled().await;
                sleep(grace).await;
            };
            let outcome = tokio::select! {
                outcome = AssertUnwindSafe(running).catch_unwind() => {
                    outcome.unwrap_or_else(|_| Err(Failure::retryable(Failure::PANICKED)))
                }
                () = overdue => Err(Failure::permanent(Failure::CANCELLED)),
            };
            (job_ref, outcome)
        });
    }

    pub(super) fn on_task_ended(
        &mut self,
        ended: Result<HandlerResult, JoinError>,
    ) -> Result<(), Disconnect> {
        let (job, outcome) = match ended {
            Ok(result) => result,
            // Panics are caught inside; only a runtime that shuts down ends a task otherwise.
            Err(error) => {
                tracing::error!(%error, "the task of a handler was aborted");
                return Ok(());
            }
        };
        // Partial texts go before the result.
        while let Ok(partial) = self.partials.try_recv() {
            self.on_partial(partial)?;
        }
        self.finish(job, outcome)
    }

    /// Frees the slot, keeps the result of the job, and sends it.
    pub(super) fn finish(
        &mut self,
        job: JobRef,
        outcome: Result<Output, Failure>,
    ) -> Result<(), Disconnect> {
        let Some(fence) = self.admission.release(job) else { return Ok(()) };
        let (result, is_success) = report::finished(job, fence, outcome);
        self.stats.count_ended(is_success);
        self.admission.keep_result(job, result.clone());
        self.send(result)
    }

    pub(super) fn on_partial(&self, (job, text): HandlerPartial) -> Result<(), Disconnect> {
        match self.admission.fence(job) {
            Some(fence) if self.outbox.as_ref().is_some_and(NodeOutbox::has_room) => {
                self.send(report::partial(job, fence, &text))
            }
            _ => Ok(()),
        }
    }
}
