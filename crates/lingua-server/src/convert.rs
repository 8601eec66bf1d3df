//! Conversions between wire messages and the engine's values.
//!
//! Start at [`job_request`] for what clients send, [`assign`] for what nodes get, and
//! [`job_view`] for what people see.

use std::borrow::Cow;

use lingua_core::job::{JobSpec, JobState, Payload};
use lingua_core::{
    Attempt, JobId, Lang, LangPair, NodeState, SemanticRule, Service, Source, Tenant,
};
use lingua_engine::node::Assignment;
use lingua_engine::request::{AttemptRecord, JobOutput, JobRequest, JobStatus, ResultJson};
use lingua_store::contract as store;
use lingua_wire::audio::Audio;
use lingua_wire::client::Dispatch;
use lingua_wire::node::{JobRef, LanguageLists, ServiceFlags, kept_result};
use lingua_wire::scheduler::{AssignOptions, Bind, JobAssign};
use lingua_wire::view::{self, AttemptView, Timings};
use lingua_wire::{RawJson, RequestError, parse};

/// Whose a job is, and what holds if its client does not say.
#[derive(Clone, Copy)]
pub(crate) struct JobDefaults {
    pub(crate) tenant: Tenant,
    /// Whether nodes of others may run it.
    pub(crate) public: bool,
    /// How long it waits for a slot.
    pub(crate) wait_ms: u64,
}

impl JobDefaults {
    fn apply(self, dispatch: &mut Dispatch<'_>) {
        dispatch.options.get_or_insert_default().public.get_or_insert(self.public);
    }

    fn complete(self, spec: &mut JobSpec) {
        spec.tenant = self.tenant;
        spec.wait_ms.get_or_insert(self.wait_ms);
    }
}

/// Reads a dispatch body.
pub(crate) fn job_request(
    id: JobId,
    body: &[u8],
    defaults: JobDefaults,
    trace: &str,
) -> Result<JobRequest, RequestError> {
    let mut dispatch = parse::<Dispatch<'_>>(body)?;
    dispatch.trace_id.get_or_insert(Cow::Borrowed(trace));
    defaults.apply(&mut dispatch);
    let mut spec = dispatch.into_spec(id)?;
    defaults.complete(&mut spec);
    Ok(JobRequest::new(id, spec))
}

/// Reads a dispatch body whose choice of a node is to be explained.
pub(crate) fn explain_spec(body: &[u8], defaults: JobDefaults) -> Result<JobSpec, RequestError> {
    let mut dispatch = parse::<Dispatch<'_>>(body)?;
    defaults.apply(&mut dispatch);
    let mut spec = dispatch.into_explain_spec()?;
    defaults.complete(&mut spec);
    Ok(spec)
}

/// A job for a node. Its audio is inline, or follows in binary frames.
pub(crate) fn assign<'a>(a: &'a Assignment, now_ms: u64, inline: bool) -> JobAssign<'a> {
    let spec = &*a.request.spec;
    let (mut audio_ref, mut audio, mut text) = (None, None, None);
    match &spec.payload {
        Payload::AudioRef(at) => audio_ref = Some(Cow::Borrowed(&**at)),
        Payload::Text(said) => text = Some(Cow::Borrowed(&**said)),
        Payload::Audio { format, sample_rate, data } => {
            audio = Some(match inline {
                true => Audio::inline(format, *sample_rate, data),
                false => Audio::in_next_frame(format, *sample_rate, data.len()),
            });
        }
        Payload::Absent => {}
    }
    if let Some(speech) = &a.request.speech {
        let rate = Some(speech.sample_rate).filter(|rate| *rate > 0);
        audio = Some(match (a.stream, inline) {
            (true, _) => Audio::streamed(&speech.format, rate),
            (false, true) => Audio::inline(&speech.format, rate, &speech.to_bytes()),
            (false, false) => Audio::in_next_frame(&speech.format, rate, speech.len()),
        });
    }
    let bind_key = spec.bind_key.as_deref();
    JobAssign {
        job_id: a.job,
        attempt_id: a.attempt,
        fence: a.fence,
        session_id: Cow::Borrowed(&spec.session),
        src_lang: if spec.two_way { Source::Auto } else { a.pair().src },
        tgt_lang: a.pair().tgt,
        audio_ref,
        audio,
        text,
        two_way: two_way_of(a),
        context: spec.context.iter().map(|text| Cow::Borrowed(&**text)).collect(),
        options: AssignOptions {
            require_tts: spec.needs.tts,
            services: spec.needs.extra,
            priority: spec.priority,
            labels: spec.needs.labels.iter().collect(),
        },
        deadline_ms: Some(a.deadline_ms.saturating_sub(now_ms)),
        bind: bind_key.map(|key| Bind { bind_key: Cow::Borrowed(key), moved: a.moved }),
        trace_id: Cow::Borrowed(&spec.trace),
    }
}

fn two_way_of(a: &Assignment) -> Option<Vec<Lang>> {
    match a.pair().src {
        Source::Known(src) if a.request.spec.two_way => Some(vec![src, a.pair().tgt]),
        _ => None,
    }
}

/// The attempt that a message names.
pub(crate) fn lease_key(job: JobRef) -> store::LeaseKey {
    store::LeaseKey { job: job.job_id, attempt: job.attempt_id }
}

pub(crate) fn job_ref(key: store::LeaseKey) -> JobRef {
    JobRef { job_id: key.job, attempt_id: key.attempt }
}

/// A node's result, as the engine passes it on.
pub(crate) fn output(result: Option<RawJson>) -> Result<JobOutput, RequestError> {
    let Some(result) = result else { return Ok("{}".to_owned().into()) };
    let kept = kept_result(&result)?.map(|kept| ResultJson::from(kept.into_raw()));
    let full = ResultJson::from(result.into_raw());
    Ok(match kept {
        Some(kept) => JobOutput { kept, full: Some(full) },
        None => full.into(),
    })
}

/// A job as people see it, with what was said if they may know it.
pub(crate) fn job_view(job: &JobStatus, with_texts: bool) -> view::JobView {
    let progress = &job.progress;
    let (spec, ended) = (job.spec.as_deref(), progress.ended.as_deref());
    let deadline_ms = spec.and_then(|spec| spec.deadline_ms);
    let attempts = progress.attempts();
    let last = attempts.len();
    let served_as = served_as(job);
    let attempts: Vec<AttemptView> =
        (1..).zip(attempts).map(|(i, a)| attempt_view(a, i == last, progress.state)).collect();
    view::JobView {
        job_id: job.id,
        state: progress.state,
        session_id: spec.map(|spec| spec.session.to_string()),
        src_lang: spec.map_or(Source::Auto, JobSpec::source),
        tgt_lang: spec.map_or_else(unknown_language, |spec| spec.pair.tgt),
        served_as,
        node_id: progress.node.clone().or_else(|| attempts.last().and_then(|a| a.node_id.clone())),
        attempt_id: progress.attempt,
        instance_id: Some(job.owner.clone()),
        trace_id: spec.map(|spec| spec.trace.to_string()),
        timings: timings(job),
        attempts,
        partial: progress.partial.as_deref().filter(|_| with_texts).map(str::to_owned),
        result: ended
            .and_then(|e| e.result.as_ref())
            .filter(|_| with_texts)
            .map(|result| result.raw().into()),
        error: ended.and_then(|e| e.error.clone()),
        detail: ended.and_then(|e| e.detail.clone()),
        created_ms: job.accepted_ms,
        updated_ms: ended.map_or(job.updated_ms, |e| e.ended_ms),
        deadline_at_ms: deadline_ms.map(|ms| job.accepted_ms.saturating_add(ms)),
    }
}

/// The direction in the tags that the node of the last attempt registered, if those are not the
/// job's.
pub(crate) fn served_as(job: &JobStatus) -> Option<LangPair> {
    job.progress.attempts().last().and_then(|last| last.served_as)
}

/// Shown in place of the languages of a job whose spec cannot be read.
pub(crate) fn unknown_language() -> Lang {
    "und".parse().expect("und is a tag")
}

fn attempt_view(attempt: &AttemptRecord, is_last: bool, state: JobState) -> AttemptView {
    AttemptView {
        attempt_id: Attempt(attempt.attempt),
        node_id: Some(attempt.node.clone()),
        state: if is_last { state } else { JobState::Failed },
        reason: attempt.reason.clone(),
        reserved_ms: Some(attempt.reserved_ms),
        dispatched_ms: Some(attempt.reserved_ms),
        acked_ms: attempt.acked_ms,
        ended_ms: attempt.ended_ms,
    }
}

pub(crate) fn timings(job: &JobStatus) -> Timings {
    let ended = job.progress.ended.as_deref();
    let last = job.progress.attempts().last();
    Timings {
        queue_ms: ended.map(|e| e.waited_ms),
        dispatch_ms: last.map(|a| a.reserved_ms.saturating_sub(job.accepted_ms)),
        ack_ms: last.and_then(|a| Some(a.acked_ms?.saturating_sub(a.reserved_ms))),
        run_ms: last.and_then(|a| Some(a.ended_ms?.saturating_sub(a.reserved_ms))),
        total_ms: ended.map(|e| e.ended_ms.saturating_sub(e.accepted_ms)),
    }
}

/// A node as people see it.
pub(crate) fn node_view(n: &store::NodeRecord, now_ms: u64, rule: SemanticRule) -> view::NodeView {
    let caps = n.profile.capabilities();
    let fresh = now_ms <= n.fresh_until_ms;
    view::NodeView {
        node_id: n.node.clone(),
        state: n.state,
        fresh,
        used: n.used.into(),
        max: n.profile.slots_max().into(),
        epoch: n.place.epoch,
        cell: n.place.cell.index() as u32,
        slot: n.place.slot.index() as u32,
        load: n.load.into(),
        cost_ms: n.speed.cost_ms,
        languages: LanguageLists::from(caps),
        services: ServiceFlags::from(caps.services()),
        streaming: caps.services().contains(Service::Streaming),
        pairs: caps.pair_count(rule) as u64,
        accept_public_jobs: n.profile.accepts_public(),
        labels: caps.labels().as_slice().to_vec(),
        drain_ordered: n.drain_ordered,
        version: n.version.as_deref().map(str::to_owned),
        last_heartbeat_ms: n.heartbeat_ms,
        silent_ms: (!fresh || n.state == NodeState::Offline)
            .then(|| now_ms.saturating_sub(n.heartbeat_ms)),
        pools: None,
        stale: false,
        as_of_ms: None,
    }
}

/// The pools of a node: those of a known source language, then the mixed ones.
pub(crate) fn pools_of(n: &store::NodeRecord, rule: SemanticRule) -> Vec<LangPair> {
    let pairs = n.profile.capabilities().pairs(rule);
    let mut pools: Vec<LangPair> = pairs.take(view::NODE_POOLS_MAX).collect();
    let mut targets: Vec<Lang> = pools.iter().map(|pair| pair.tgt).collect();
    targets.sort_unstable();
    targets.dedup();
    pools.extend(targets.into_iter().map(LangPair::auto));
    pools.truncate(view::NODE_POOLS_MAX);
    pools
}
