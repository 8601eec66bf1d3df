//! Handlers at work: started, ended, and what comes of them.
//!
//! Start at [`Worker::start`].
//!
//! Invariant: whatever a handler does (return, panic, ignore its cancellation), its slot comes back
//! and exactly one result is kept for its job.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lingua_wire::node::JobRef;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::sleep;

use super::error::Trouble;
use super::handler::{CancelReason, Context, Handler, Partial};
use super::job::{Failure, Job, Output};
use super::link::Link;
use super::report;
use super::worker::Worker;

/// What a handler's task ends with.
pub(super) struct Finished {
    job: JobRef,
    outcome: Result<Output, Failure>,
}

impl<H: Handler> Worker<H> {
    /// Starts the handler of a job that has a slot.
    pub(super) fn start(&mut self, job: Job, cancelled: watch::Receiver<CancelReason>) {
        let job_ref = job.job_ref();
        let context = Context::new(job_ref, cancelled, self.partials_in.clone());
        let handler = Arc::clone(&self.handler);
        let overdue = overdue(context.clone(), self.options.cancel_grace);
        self.tasks.spawn(async move {
            let working = async { handler.handle(job, context).await };
            let outcome = tokio::select! {
                outcome = AssertUnwindSafe(working).catch_unwind() => {
                    outcome.unwrap_or_else(|_| Err(Failure::retryable(Failure::PANICKED)))
                }
                () = overdue => Err(Failure::permanent(Failure::CANCELLED)),
            };
            Finished { job: job_ref, outcome }
        });
    }

    /// Takes what a handler's task ended with.
    pub(super) fn on_ended(
        &mut self,
        ended: Result<Finished, JoinError>,
        link: Option<&Link>,
    ) -> Result<(), Trouble> {
        let Finished { job, outcome } = match ended {
            Ok(finished) => finished,
            // Panics are caught inside; only a runtime that shuts down ends a task otherwise.
            Err(error) => {
                tracing::error!(%error, "a handler's task was ended");
                return Ok(());
            }
        };
        // What the handler said before it ended goes before its result.
        while let (Some(link), Ok(partial)) = (link, self.partials.try_recv()) {
            self.on_partial(&partial, link)?;
        }
        self.hand_in(job, outcome, link)
    }

    /// Gives the slot back, keeps what came of the job, and sends it.
    pub(super) fn hand_in(
        &mut self,
        job: JobRef,
        outcome: Result<Output, Failure>,
        link: Option<&Link>,
    ) -> Result<(), Trouble> {
        let Some(fence) = self.desk.release(job) else { return Ok(()) };
        let (result, is_success) = report::finished(job, fence, outcome);
        if is_success {
            self.stats.count_done()
        } else {
            self.stats.count_failed()
        }
        self.desk.keep(job, result.clone());
        link.map_or(Ok(()), |link| link.send(result))
    }

    pub(super) fn on_partial(&self, partial: &Partial, link: &Link) -> Result<(), Trouble> {
        match self.desk.fence(partial.job) {
            Some(fence) => link.send_if_idle(report::partial(partial.job, fence, &partial.text)),
            None => Ok(()),
        }
    }
}

/// Waits until a handler that was told to stop has had time enough.
async fn overdue(context: Context, grace: Duration) {
    context.cancelled().await;
    sleep(grace).await;
}
