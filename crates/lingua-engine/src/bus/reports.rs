//! Reports of nodes here about jobs of other instances.
//!
//! Start at [`Engine::report_elsewhere`]. A final report (a result, a failure) is forwarded until
//! the job's owner has answered: the owner may be late, or die, and the instance that takes the job
//! over needs the report too. Only then is it confirmed to the node.

use lingua_core::job::{Refusal, Stage};
use lingua_core::{Attempt, InstanceId, JobId, NodeId};
use lingua_store::Store;
use lingua_store::contract::{JobRecord, LeaseKey};

use super::message::{Head, PeerVerdict, ReportSource, Text};
use super::remote_jobs::RemoteJob;
use crate::live_jobs::{InboxError, JobMessage, NodeReport, PartialText, ReportKind, VerdictTo};
use crate::node::ToNode;
use crate::{Engine, NodeError, Timer};

/// How long a report is forwarded: longer than it takes to take over the jobs of a dead instance.
const FORWARD_MS: u64 = 30_000;

/// How long the owner may take to answer.
const VERDICT_MS: u64 = 2_000;

/// Pause while no instance runs the job.
const PAUSE_MS: u64 = 300;

impl PeerVerdict {
    /// The verdict as the node gets it, or the instance that has the job.
    fn into_result(self) -> Result<Result<(), NodeError>, InstanceId> {
        let refusal = match self {
            Self::Counted => return Ok(Ok(())),
            Self::NoSuchJob => return Ok(Err(NodeError::NoSuchJob)),
            Self::Elsewhere { owner } => return Err(owner.0),
            Self::Stale { state, attempt } => {
                let current = Stage { state: state.0, attempt: Attempt(attempt) };
                Refusal::StaleAttempt { current }
            }
            Self::Ended { state } => Refusal::Ended { state: state.0 },
            Self::OutOfPlace { state } => Refusal::OutOfPlace { state: state.0 },
        };
        Ok(Err(refusal.into()))
    }
}

/// Why a report about a job without a runner does not count.
pub(crate) fn not_live(record: Option<JobRecord>) -> NodeError {
    match record {
        None => NodeError::NoSuchJob,
        Some(record) if record.stage.state.is_terminal() => {
            Refusal::Ended { state: record.stage.state }.into()
        }
        Some(record) => Refusal::StaleAttempt { current: record.stage }.into(),
    }
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Handles a node's report about a job that does not run here.
    pub(crate) async fn report_elsewhere(
        &self,
        job: JobId,
        report: NodeReport,
        wait: bool,
    ) -> Result<(), NodeError> {
        let key = LeaseKey { job, attempt: report.report.attempt };
        let is_final = !matches!(report.kind, ReportKind::Acked);
        let remote = self.bus.remote_jobs.lock().get(key);
        let owner = match &remote {
            Some(remote) if !is_final && !wait && self.is_expected(&report.report.node, key) => {
                // If this message is lost, the ACK timer rings and the job is assigned again.
                self.send(&remote.owner, report_head(0, job, &report));
                return Ok(());
            }
            Some(remote) => remote.owner.clone(),
            None => {
                let record = self.store.job(job).await?;
                let is_open = |record: &&JobRecord| !record.stage.state.is_terminal();
                let owner = record.as_ref().filter(is_open).map(|record| record.owner.clone());
                let Some(owner) = owner.filter(|owner| *owner != self.options.instance) else {
                    self.metrics.node_rejected.count("job_over");
                    return Err(not_live(record));
                };
                owner
            }
        };
        if wait {
            return self.forward(job, &report, owner, remote).await;
        }
        let (engine, node) = (self.handle(), report.report.node.clone());
        let is_forwarded = self.spawn_background(async move {
            let counted = engine.forward(job, &report, owner, remote).await;
            // A report without a verdict is not confirmed: the node keeps it.
            let Some(local) = engine.nodes.get(&node) else { return };
            let message = match counted {
                Err(NodeError::Store(_)) => return,
                counted if is_final => ToNode::Confirmed { key, accepted: counted.is_ok() },
                Err(NodeError::Refused(why)) => ToNode::AckRefused { key, why },
                _ => return,
            };
            local.outbox.try_send(message).ok();
        });
        let (what, limit) = ("reports on their way to other instances", super::BACKGROUND_MAX);
        match is_forwarded {
            true => Ok(()),
            false => Err(lingua_store::StoreError::LimitReached { what, limit }.into()),
        }
    }

    /// Whether a node here has this attempt and was not told to stop it.
    fn is_expected(&self, node: &NodeId, key: LeaseKey) -> bool {
        self.nodes.get(node).is_some_and(|node| node.running.has(key))
    }

    /// Forwards a report to the job's owner until an instance has answered.
    async fn forward(
        &self,
        job: JobId,
        report: &NodeReport,
        first: InstanceId,
        remote: Option<RemoteJob>,
    ) -> Result<(), NodeError> {
        let give_up_ms = self.now_ms().saturating_add(FORWARD_MS);
        let mut owner = Some(first);
        loop {
            let to = match owner.take() {
                Some(owner) => Some(owner),
                None => match self.store.job(job).await {
                    Ok(Some(record)) if !record.stage.state.is_terminal() => Some(record.owner),
                    Ok(record) => return Err(not_live(record)),
                    Err(_) => None,
                },
            };
            if let Some(to) = to {
                let verdict = match to == self.options.instance {
                    true => self.report_here(job, report).await,
                    false => self.report_to(&to, job, report).await,
                };
                match verdict.map(PeerVerdict::into_result) {
                    Some(Ok(counted)) => {
                        if counted.is_ok() {
                            self.learn_from(report, remote);
                        }
                        return counted;
                    }
                    Some(Err(current)) => owner = Some(current).filter(|current| *current != to),
                    None => {}
                }
            }
            if self.now_ms() >= give_up_ms {
                return Err(lingua_store::StoreError::TimedOut { waited_ms: FORWARD_MS }.into());
            }
            if owner.is_none() {
                self.timer.sleep(PAUSE_MS).await;
            }
        }
    }

    async fn report_to(
        &self,
        to: &InstanceId,
        job: JobId,
        report: &NodeReport,
    ) -> Option<PeerVerdict> {
        let request = |id| report_head(id, job, report).into();
        match self.request(to, VERDICT_MS, request).await? {
            (Head::Verdict { verdict, .. }, _) => Some(verdict),
            _ => None,
        }
    }

    /// This instance took the job over while the report was on its way.
    async fn report_here(&self, job: JobId, report: &NodeReport) -> Option<PeerVerdict> {
        let live = self.live.get(job)?;
        let (answer, counted) = tokio::sync::oneshot::channel();
        live.send(JobMessage::Report(report.clone(), Some(VerdictTo::Caller(answer)))).ok()?;
        counted.await.ok().map(PeerVerdict::from)
    }

    /// Learns from a report that counted what the job's runner would have learned about the node.
    fn learn_from(&self, report: &NodeReport, remote: Option<RemoteJob>) {
        let Some(local) = self.nodes.get(&report.report.node) else { return };
        match (&report.kind, remote) {
            (
                ReportKind::Done { .. },
                Some(RemoteJob { pair, used, complete_ms: Some(since_ms), .. }),
            ) => self.learn(&local, pair, since_ms, used),
            (ReportKind::Failed { .. }, _) => local.cost.lock().failed(),
            _ => {}
        }
        if !matches!(report.kind, ReportKind::Acked) {
            self.queue.wake_node(&local.node, &local.profile());
        }
    }

    /// Forwards a partial text to the owner of its job; says whether there is one.
    pub(crate) fn partial_elsewhere(&self, job: JobId, partial: &PartialText) -> bool {
        let PartialText { report, text } = partial;
        let key = LeaseKey { job, attempt: report.attempt };
        let Some(remote) = self.bus.remote_jobs.lock().get(key) else { return false };
        let source = ReportSource::new(job, report);
        self.send(&remote.owner, Head::Partial { source, text: text.to_string() })
    }

    /// Handles the report of another instance's node about a job here.
    pub(super) fn on_report(
        &self,
        from: &InstanceId,
        id: u64,
        source: ReportSource,
        kind: ReportKind,
    ) {
        let (job, report) = source.into_report();
        let answer = (id != 0).then(|| VerdictTo::Peer { to: from.clone(), id });
        let delivered = match self.live.get(job) {
            Some(live) => live.send(JobMessage::Report(NodeReport { report, kind }, answer)),
            None => Err(InboxError::Closed),
        };
        // If the job's inbox is full, the other instance sends the report again.
        if let Err(InboxError::Closed) = delivered
            && id != 0
        {
            let (engine, from) = (self.handle(), from.clone());
            self.spawn_background(async move { engine.answer_without_job(job, id, &from).await });
        }
    }

    /// Answers a report about a job that does not run here.
    async fn answer_without_job(&self, job: JobId, id: u64, from: &InstanceId) {
        let verdict = match self.store.job(job).await {
            // The other instance will ask again.
            Err(_) => return,
            Ok(None) => PeerVerdict::NoSuchJob,
            Ok(Some(record)) if record.stage.state.is_terminal() => {
                Err(Refusal::Ended { state: record.stage.state }).into()
            }
            // This instance is about to take it over.
            Ok(Some(record)) if record.owner == self.options.instance => return,
            Ok(Some(record)) => PeerVerdict::Elsewhere { owner: Text(record.owner) },
        };
        self.send(from, Head::Verdict { id, verdict });
    }
}

fn report_head(id: u64, job: JobId, report: &NodeReport) -> Head {
    let source = ReportSource::new(job, &report.report);
    Head::Report { id, source, kind: report.kind.clone() }
}
