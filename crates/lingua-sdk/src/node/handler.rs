//! What the author of a node writes, and what a handler gets besides the job.
//!
//! Start at [`Handler`]. [`Context`] tells a handler that its job is cancelled and sends partial
//! texts.
//!
//! Invariant: a handler never waits for the connection; what cannot be sent now is dropped (partial
//! texts) or kept (results).

use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use lingua_wire::limits::TEXT_BYTES_MAX;
use lingua_wire::node::JobRef;
use tokio::sync::{mpsc, watch};

use super::job::{Failure, Job, Output};

/// What the node's author writes: how a job is done.
pub trait Handler: Send + Sync + 'static {
    /// Runs one job. It is called for up to `slots` jobs at the same time.
    ///
    /// When [`Context::cancelled`] resolves, the result is not needed; a handler that does not end
    /// within `cancel_grace` is dropped at its next await.
    fn handle(
        &self,
        job: Job,
        context: Context,
    ) -> impl Future<Output = Result<Output, Failure>> + Send;
}

impl<F, R> Handler for F
where
    F: Fn(Job, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Output, Failure>> + Send,
{
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        self(job, context).await
    }
}

/// Why a job was cancelled; `None` while it is not.
pub(super) type CancelReason = Option<Arc<str>>;

/// A text that is not final yet, and its job.
pub(super) type HandlerPartial = (JobRef, String);

/// Connects a handler to the scheduler for the time of one job.
#[derive(Debug, Clone)]
pub struct Context {
    pub(super) job: JobRef,
    pub(super) cancel: watch::Receiver<CancelReason>,
    pub(super) partials: mpsc::Sender<HandlerPartial>,
}

impl Context {
    /// Waits until the job is cancelled, and returns the reason.
    pub async fn cancelled(&self) -> Arc<str> {
        let mut cancel = self.cancel.clone();
        match cancel.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => Arc::from("the node has stopped"),
        }
    }

    /// Whether the job is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.borrow().is_some()
    }

    /// Sends a text that is not final. It replaces the one before. Texts are dropped if they come
    /// faster than the connection can send them, and cut at the bound of the contract.
    pub fn partial<'a>(&self, text: impl Into<Cow<'a, str>>) {
        let mut text = text.into().into_owned();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        if self.partials.try_send((self.job, text)).is_err() {
            tracing::debug!(job_id = %self.job.job_id, "dropped a partial text");
        }
    }
}
