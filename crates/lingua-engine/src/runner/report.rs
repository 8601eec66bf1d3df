//! The reports of nodes about the job.
//!
//! Start at [`Runner::on_report`]. Invariant: a report that is refused changes nothing.

use std::sync::Arc;

use lingua_core::NodeId;
use lingua_core::job::{JobEvent, JobState, Refusal, Stage};
use lingua_store::Store;
use lingua_store::contract::LeaseKey;

use super::Runner;
use crate::bus::message::Head;
use crate::clock::Timer;
use crate::events::EngineEvent;
use crate::live_jobs::{NodeReport, PartialText, ReportKind, ReportVerdict, VerdictTo};
use crate::node::{LocalNode, ToNode};

impl<S: Store, T: Timer> Runner<S, T> {
    pub(super) async fn on_report(&mut self, report: NodeReport, verdict_to: Option<VerdictTo>) {
        let event = event_of(&report);
        let verdict = self.machine.check(&event);
        if verdict.is_ok() {
            self.accept_report(&report);
            self.apply(event).await;
            if self.is_abandoned {
                // Not confirmed: the node keeps its result for the job's new owner.
                return;
            }
            if self.machine.stage().state == JobState::Acked {
                self.publish();
            }
        }
        self.send_verdict(&report, verdict, verdict_to);
    }

    fn accept_report(&mut self, report: &NodeReport) {
        self.pending_takeover = None;
        let now_ms = self.engine.now_ms();
        let took_ms = now_ms - self.sent_ms;
        let node = self.connection_of(&report.report.node);
        let reason = match &report.kind {
            ReportKind::Acked => {
                self.engine.metrics.stage("ack", took_ms);
                return self.live.edit_attempts(|attempts| {
                    if let Some(last) = attempts.last_mut() {
                        last.acked_ms = Some(now_ms);
                    }
                });
            }
            ReportKind::Done { output } => {
                self.end.result = Some(output.kept.clone());
                self.end.had_more = output.full.is_some();
                self.full_result.clone_from(&output.full);
                self.engine.metrics.stage("run", took_ms);
                // The time of speaking is not the node's.
                let since_ms = match self.stream.is_on {
                    true => self.stream.complete_ms.map(|ms| ms.max(self.sent_ms)),
                    false => Some(self.sent_ms),
                };
                if let (Some(node), Some(since_ms)) = (node, since_ms) {
                    self.engine.learn(&node, self.served, since_ms, self.used);
                }
                None
            }
            ReportKind::Failed { reason, retryable } => {
                if let Some(node) = node {
                    node.cost.lock().failed();
                }
                if !retryable {
                    self.end.detail = Some(reason.clone());
                }
                Some(reason.clone())
            }
            ReportKind::Refused => Some("refused".to_owned()),
            ReportKind::Overtaken => Some("overtaken".to_owned()),
        };
        self.live.edit_attempts(|attempts| {
            if let Some(last) = attempts.last_mut() {
                last.reason = reason;
            }
        });
    }

    /// Refuses a report about an attempt that is not the current one.
    pub(super) fn refuse_report(&self, report: &NodeReport, verdict_to: Option<VerdictTo>) {
        let refusal = Refusal::StaleAttempt { current: self.machine.stage() };
        self.send_verdict(report, Err(refusal), verdict_to);
    }

    /// Sends the verdict to the caller, or to the node on its connection.
    fn send_verdict(&self, report: &NodeReport, verdict: ReportVerdict, to: Option<VerdictTo>) {
        let attempt = report.report.attempt;
        if let Err(refusal) = &verdict {
            let (attempt_id, node_id) = (attempt.0, report.report.node.as_str());
            tracing::debug!(attempt_id, node_id, reason = %refusal, "refused a node's report");
            self.engine.metrics.node_rejected.count("stale_attempt");
        }
        match to {
            // A caller that has gone away does not need it.
            Some(VerdictTo::Caller(caller)) => drop(caller.send(verdict)),
            // If this message is lost, the report comes again.
            Some(VerdictTo::Peer { to, id }) => {
                self.engine.send(&to, Head::Verdict { id, verdict: verdict.into() });
            }
            None => {
                let key = LeaseKey { job: self.id(), attempt };
                let message = match verdict {
                    verdict if report.is_last() => {
                        ToNode::Confirmed { key, accepted: verdict.is_ok() }
                    }
                    Err(why) => ToNode::AckRefused { key, why },
                    Ok(()) => return,
                };
                if let Some(node) = self.connection_of(&report.report.node) {
                    node.outbox.try_send(message).ok();
                }
            }
        }
    }

    /// The connection that a node has now: usually the one that the job was sent on.
    pub(super) fn connection_of(&self, node: &NodeId) -> Option<Arc<LocalNode>> {
        let known = self.connection.as_ref();
        let known = known.filter(|known| known.node == *node && !known.is_closed());
        known.cloned().or_else(|| self.engine.nodes.get(node))
    }

    /// Publishes the text that the node has so far. Only the latest text of the current attempt is
    /// kept.
    pub(super) fn on_partial(&self, partial: PartialText) {
        let PartialText { report, text } = partial;
        if self.machine.would_accept(&report).is_err() {
            return self.count_stale_partial();
        }
        let Stage { state, attempt } = self.machine.stage();
        let (job, tenant) = (self.id(), self.spec.tenant);
        self.engine.publish_job(|| {
            let (node, text) = (Some(report.node.clone()), Some(Arc::clone(&text)));
            EngineEvent::Job { job, tenant, attempt, state, node, text }
        });
        self.live.set_progress(|progress| progress.partial = Some(text));
    }

    pub(super) fn count_stale_partial(&self) {
        self.engine.metrics.node_rejected.count("stale_partial");
    }

    /// The text of a failed attempt says nothing about the next.
    pub(super) fn clear_partial(&self) {
        self.live.set_progress(|progress| progress.partial = None);
    }
}

fn event_of(report: &NodeReport) -> JobEvent {
    let about = report.report.clone();
    match &report.kind {
        ReportKind::Acked => JobEvent::Acked(about),
        ReportKind::Done { .. } => JobEvent::Done(about),
        ReportKind::Refused => JobEvent::Refused(about),
        ReportKind::Overtaken => JobEvent::Overtaken(about),
        ReportKind::Failed { retryable, .. } => {
            JobEvent::NodeFailed { report: about, retryable: *retryable }
        }
    }
}
