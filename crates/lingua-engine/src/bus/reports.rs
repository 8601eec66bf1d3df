//! Words of nodes here about jobs of other instances.
//!
//! Start at [`Handle::say_elsewhere`]. A last word (a result, a failure) is carried until its owner has answered: the owner may be late,
//! or die, and its heir wants to hear it too. Only then is it confirmed to the node.

use std::sync::Arc;

use lingua_core::job::{AttemptReport, Refusal, Stage};
use lingua_core::{Attempt, Fence, InstanceId, JobId};
use lingua_store::Store;
use lingua_store::contract::{Bytes, LeaseKey};
use serde_json::value::RawValue;

use super::message::{BusMessage, Head, Heard, Spoken, Word};
use super::{Answered, Posted, Remote};
use crate::clock::Timer;
use crate::error::NodeError;
use crate::handle::Handle;
use crate::live_jobs::{InboxError, JobMessage, NodeReport, PartialText, ReportKind, VerdictTo};
use crate::node::ToNode;
use crate::request::ResultJson;
use crate::state::EngineState;

/// How long a word is carried around: longer than a dead instance's jobs take to be taken over.
const CARRY_MS: u64 = 30_000;

/// How long an answer may take.
const ANSWER_MS: u64 = 2_000;

/// How long to wait when nobody wants the word at present.
const PAUSE_MS: u64 = 300;

fn written(id: u64, job: JobId, word: &NodeReport) -> BusMessage {
    let NodeReport { report, kind } = word;
    let mut blobs: Vec<Bytes> = vec![];
    let said = match kind {
        ReportKind::Acked => Spoken::Acked,
        ReportKind::Done { result } => {
            blobs.push(Bytes::copy_from_slice(result.as_str().as_bytes()));
            Spoken::Done
        }
        ReportKind::Refused => Spoken::Refused,
        ReportKind::Overtaken => Spoken::Overtaken,
        ReportKind::Failed { reason, retryable } => {
            Spoken::Failed { reason: reason.clone(), retryable: *retryable }
        }
    };
    let (node, fence) = (report.node.to_string(), report.fence.map(|fence| fence.0));
    let key = LeaseKey { job, attempt: report.attempt }.into();
    BusMessage { head: Head::Word(Word { id, key, node, fence, said }), blobs }
}

fn read(word: Word, blobs: &[Bytes]) -> Option<NodeReport> {
    let LeaseKey { attempt, .. } = word.key.lease();
    let kind = match word.said {
        Spoken::Acked => ReportKind::Acked,
        Spoken::Done => {
            let json = std::str::from_utf8(blobs.first()?).ok()?.to_owned();
            ReportKind::Done {
                result: ResultJson::from(Arc::from(RawValue::from_string(json).ok()?)),
            }
        }
        Spoken::Refused => ReportKind::Refused,
        Spoken::Overtaken => ReportKind::Overtaken,
        Spoken::Failed { reason, retryable } => ReportKind::Failed { reason, retryable },
    };
    let report =
        AttemptReport { attempt, node: word.node.parse().ok()?, fence: word.fence.map(Fence) };
    Some(NodeReport { report, kind })
}

/// What a word came to, as a node is told; or who has the job.
fn told(heard: Heard) -> Result<Result<(), NodeError>, Option<InstanceId>> {
    Ok(match heard {
        Heard::Counted => Ok(()),
        Heard::Stale { state, attempt } => {
            let current = Stage { state: state.0, attempt: Attempt(attempt) };
            Err(Refusal::StaleAttempt { current }.into())
        }
        Heard::Ended { state } => Err(Refusal::Ended { state: state.0 }.into()),
        Heard::OutOfPlace { state } => Err(Refusal::OutOfPlace { state: state.0 }.into()),
        Heard::NoSuchJob => Err(NodeError::NoSuchJob),
        Heard::Elsewhere { owner } => return Err(owner.parse().ok()),
    })
}

impl<S: Store, T: Timer> Handle<S, T> {
    /// A node here speaks about a job that does not run here.
    pub(crate) async fn say_elsewhere(
        &self,
        job: JobId,
        word: NodeReport,
        wait: bool,
    ) -> Result<(), NodeError> {
        let shared = &self.shared;
        let key = LeaseKey { job, attempt: word.report.attempt };
        let remote = shared.bus.remote(key);
        if matches!(word.kind, ReportKind::Acked)
            && !wait
            && let Some(remote) = &remote
        {
            // If it is lost, the order is given again.
            shared.send(&remote.owner, written(0, job, &word));
            return Ok(());
        }
        let owner = match &remote {
            Some(remote) => remote.owner.clone(),
            None => {
                let record = shared.store.job(job).await?;
                let is_elsewhere = |owner: &InstanceId| *owner != shared.options.instance;
                let open = record.as_ref().filter(|record| !record.stage.state.is_terminal());
                match open.map(|record| record.owner.clone()).filter(is_elsewhere) {
                    Some(owner) => owner,
                    None => {
                        shared.metrics.node_rejected.count("job_over");
                        return Err(why_not(record));
                    }
                }
            }
        };
        if wait {
            return self.carry(job, &word, owner, remote).await;
        }
        let handle = self.clone();
        let node = word.report.node.clone();
        let is_last_word = !matches!(word.kind, ReportKind::Acked);
        let is_carried = shared.spawn_background(async move {
            let heard = handle.carry(job, &word, owner, remote).await;
            // What nobody could judge is not confirmed: the node keeps it.
            if is_last_word
                && !matches!(heard, Err(NodeError::Store(_)))
                && let Some(local) = handle.shared.nodes.get(&node)
            {
                local.outbox.try_send(ToNode::Confirmed { key, accepted: heard.is_ok() }).ok();
            }
        });
        let (what, limit) = ("words on their way to other instances", super::ERRANDS_MAX);
        match is_carried {
            true => Ok(()),
            false => Err(NodeError::Store(lingua_store::StoreError::LimitReached { what, limit })),
        }
    }

    /// Carries a word to whoever has its job, until somebody has answered.
    async fn carry(
        &self,
        job: JobId,
        word: &NodeReport,
        first: InstanceId,
        remote: Option<Remote>,
    ) -> Result<(), NodeError> {
        let shared = &self.shared;
        let give_up_ms = shared.now_ms().saturating_add(CARRY_MS);
        let mut owner = Some(first);
        loop {
            let to = match owner.take() {
                Some(owner) => Some(owner),
                None => match shared.store.job(job).await {
                    Ok(Some(record)) if !record.stage.state.is_terminal() => Some(record.owner),
                    Ok(record) => return Err(why_not(record)),
                    Err(_) => None,
                },
            };
            if let Some(to) = to {
                let heard = match to == shared.options.instance {
                    true => self.say_here(job, word).await,
                    false => self.say_there(job, word, &to).await,
                };
                match heard.map(told) {
                    Some(Ok(heard)) => {
                        if heard.is_ok() {
                            self.has_counted(word, remote);
                        }
                        return heard;
                    }
                    Some(Err(known)) => owner = known.filter(|known| *known != to),
                    None => {}
                }
            }
            if shared.now_ms() >= give_up_ms {
                return Err(lingua_store::StoreError::TimedOut { waited_ms: CARRY_MS }.into());
            }
            if owner.is_none() {
                shared.timer.sleep(PAUSE_MS).await;
            }
        }
    }

    async fn say_there(&self, job: JobId, word: &NodeReport, to: &InstanceId) -> Option<Heard> {
        match self.shared.ask(to, ANSWER_MS, |id| written(id, job, word)).await? {
            Answered::Heard(heard) => Some(heard),
            _ => None,
        }
    }

    /// The job has come here while its word was on its way.
    async fn say_here(&self, job: JobId, word: &NodeReport) -> Option<Heard> {
        let live = self.shared.live.get(job)?;
        let (answer, heard) = tokio::sync::oneshot::channel();
        let word = NodeReport { report: word.report.clone(), kind: word.kind.clone() };
        live.send(JobMessage::Report(word, Some(VerdictTo::Caller(answer)))).ok()?;
        heard.await.ok().map(Heard::of)
    }

    /// A node here has done a job of another instance: what the job's runner would have learned of it is learned here.
    fn has_counted(&self, word: &NodeReport, remote: Option<Remote>) {
        let shared = &self.shared;
        let Some(local) = shared.nodes.get(&word.report.node) else { return };
        match (&word.kind, remote) {
            (ReportKind::Done { .. }, Some(remote)) => {
                local.learn(shared.now_ms().saturating_sub(remote.sent_ms), remote.used);
            }
            (ReportKind::Failed { .. }, _) => local.failed(),
            _ => {}
        }
        if !matches!(word.kind, ReportKind::Acked) {
            shared.queue.wake_for(&local.profile());
        }
    }

    /// A node here has a part of the text of a job that does not run here; says whether it was passed on.
    pub(crate) fn partial_elsewhere(&self, job: JobId, partial: &PartialText) -> bool {
        let PartialText { report, text } = partial;
        let key = LeaseKey { job, attempt: report.attempt };
        let Some(remote) = self.shared.bus.remote(key) else { return false };
        let (node, fence) = (report.node.to_string(), report.fence.map(|fence| fence.0));
        let head = Head::Partial { key: key.into(), node, fence, text: text.to_string() };
        self.shared.send(&remote.owner, head)
    }

    /// Another instance has a word for a job here.
    pub(super) fn hear_word(&self, from: &InstanceId, word: Word, blobs: &[Bytes]) {
        let shared = &self.shared;
        let (id, job) = (word.id, word.key.lease().job);
        let Some(word) = read(word, blobs) else {
            tracing::warn!(job_id = %job, %from, "a word cannot be read");
            return;
        };
        let answer = (id != 0).then(|| VerdictTo::Peer { to: from.clone(), id });
        let unheard = match shared.live.get(job) {
            Some(live) => live.send(JobMessage::Report(word, answer)),
            None => Err(InboxError::Closed),
        };
        // A job that hears too much is told again: whoever wants an answer comes back.
        if let Err(InboxError::Closed) = unheard
            && id != 0
        {
            let (handle, from) = (self.clone(), from.clone());
            shared.spawn_background(async move { handle.answer_for(job, id, &from).await });
        }
    }

    /// Answers for a job that does not run here.
    async fn answer_for(&self, job: JobId, id: u64, from: &InstanceId) {
        let shared = &self.shared;
        let heard = match shared.store.job(job).await {
            // Nobody knows: it will be asked again.
            Err(_) => return,
            Ok(None) => Heard::NoSuchJob,
            Ok(Some(record)) if record.stage.state.is_terminal() => {
                Heard::of(Err(Refusal::Ended { state: record.stage.state }))
            }
            // It is being taken up.
            Ok(Some(record)) if record.owner == shared.options.instance => return,
            Ok(Some(record)) => Heard::Elsewhere { owner: record.owner.to_string() },
        };
        shared.send(from, Head::Heard { id, heard });
    }
}

/// Why a word about a job that nobody runs does not count.
fn why_not(record: Option<lingua_store::contract::JobRecord>) -> NodeError {
    match record {
        None => NodeError::NoSuchJob,
        Some(record) if record.stage.state.is_terminal() => {
            Refusal::Ended { state: record.stage.state }.into()
        }
        Some(record) => Refusal::StaleAttempt { current: record.stage }.into(),
    }
}

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Tells another instance whether its node's word counted.
    pub(crate) fn reply_to_peer(
        self: &Arc<Self>,
        to: &InstanceId,
        id: u64,
        heard: Result<(), Refusal>,
    ) {
        // If it is lost, the word comes again.
        self.send(to, Head::Heard { id, heard: Heard::of(heard) });
    }

    /// Says a word that needs no answer; whether it could be delivered.
    pub(super) async fn tell_owner(self: &Arc<Self>, to: &InstanceId, head: Head) -> bool {
        self.deliver(to, head).await == Posted::Sent
    }
}
