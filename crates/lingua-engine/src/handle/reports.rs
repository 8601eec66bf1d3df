//! Calls for nodes: reports about jobs.
//!
//! Reports about jobs of other instances go on in `bus/reports.rs`.

use lingua_core::JobId;
use lingua_core::job::AttemptReport;
use lingua_store::Store;
use lingua_store::contract::LeaseKey;
use tokio::sync::oneshot;

use crate::bus::not_live;
use crate::live_jobs::{
    InboxError, JobMessage, LiveJob, NodeReport, PartialText, ReportKind, VerdictTo,
};
use crate::request::JobOutput;
use crate::{Engine, NodeError, Timer};

/// Pause until a job whose inbox is full may have room.
const FULL_PAUSE_MS: u64 = 5;

/// Longest partial text that is kept and shown, in bytes.
pub const PARTIAL_BYTES_MAX: usize = 16 * 1024;

impl<S: Store, T: Timer> Engine<S, T> {
    /// The node has started the job. With `wait`, says whether that counted.
    pub async fn acked(
        &self,
        job: JobId,
        report: AttemptReport,
        wait: bool,
    ) -> Result<(), NodeError> {
        self.report(job, NodeReport { report, kind: ReportKind::Acked }, wait).await
    }

    /// The node has a result.
    pub async fn done(
        &self,
        job: JobId,
        report: AttemptReport,
        output: impl Into<JobOutput>,
        wait: bool,
    ) -> Result<(), NodeError> {
        let kind = ReportKind::Done { output: output.into() };
        self.report(job, NodeReport { report, kind }, wait).await
    }

    /// The node gave the job up. `BUSY` and `STALE_FENCE` are refusals: neither the node's fault
    /// nor the job's.
    pub async fn failed(
        &self,
        job: JobId,
        report: AttemptReport,
        reason: String,
        retryable: bool,
        wait: bool,
    ) -> Result<(), NodeError> {
        let kind = match reason.as_str() {
            "BUSY" => ReportKind::Refused,
            "STALE_FENCE" => ReportKind::Overtaken,
            _ => ReportKind::Failed { reason, retryable },
        };
        self.report(job, NodeReport { report, kind }, wait).await
    }

    /// The node has a partial text. It is only shown, so it is dropped if the job's inbox is full.
    /// Says whether it was taken; the attempt may still turn out to be over.
    pub fn partial(&self, job: JobId, report: AttemptReport, text: &str) -> bool {
        let text = text[..text.floor_char_boundary(PARTIAL_BYTES_MAX)].into();
        let partial = PartialText { report, text };
        let rejected = match self.live.get(job) {
            None if self.partial_elsewhere(job, &partial) => return true,
            None => "job_over",
            Some(live) => match live.send(JobMessage::Partial(Box::new(partial))) {
                Ok(()) => return true,
                Err(_) => "partial_dropped",
            },
        };
        self.metrics.node_rejected.count(rejected);
        false
    }

    async fn report(&self, job: JobId, report: NodeReport, wait: bool) -> Result<(), NodeError> {
        if let Some(node) = self.nodes.get(&report.report.node) {
            let key = LeaseKey { job, attempt: report.report.attempt };
            match report.is_last() {
                true => node.running.over(key),
                false => node.running.acked(key),
            }
        }
        let Some(live) = self.live.get(job) else {
            return Box::pin(self.report_elsewhere(job, report, wait)).await;
        };
        let (answer, counted) = wait.then(oneshot::channel).unzip();
        let message = JobMessage::Report(report, answer.map(VerdictTo::Caller));
        if self.send_to_job(&live, message).await {
            let Some(counted) = counted else { return Ok(()) };
            if let Ok(counted) = counted.await {
                return Ok(counted?);
            }
        }
        Err(not_live(self.store.job(job).await?))
    }

    /// Sends a message to a job; says whether its runner still runs. Waits while the job's inbox is
    /// full, so that a node which floods a job slows down itself.
    pub(super) async fn send_to_job(&self, live: &LiveJob, mut message: JobMessage) -> bool {
        loop {
            message = match live.send(message) {
                Ok(()) => return true,
                Err(InboxError::Closed) => return false,
                Err(InboxError::Full(message)) => message,
            };
            self.timer.sleep(FULL_PAUSE_MS).await;
        }
    }
}
