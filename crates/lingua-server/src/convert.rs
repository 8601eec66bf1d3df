//! Between the wire's words and the engine's.
//!
//! Invariant: what is kept of a job ([`JobRequest::spec`]) is a dispatch body that [`decode`] can read
//! back, without inline audio: that lives in memory only.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use lingua_core::id::hex;
use lingua_core::{JobId, Lang, Service, Source};
use lingua_engine::node::Assignment;
use lingua_engine::request::{Extras, Input, JobRequest, JobResult, JobView, Try};
use lingua_store::contract as store;
use lingua_wire::audio::Audio;
use lingua_wire::client::{Ask, Dispatch, Payload};
use lingua_wire::node::{LanguageLists, ServiceFlags};
use lingua_wire::scheduler::{AssignOptions, Bind, JobAssign};
use lingua_wire::view::{self, AttemptView, Timings};
use lingua_wire::{RawJson, RequestError, parse, to_json};

/// Session of a job whose client did not name one.
static NO_SESSION: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("none"));

/// Reads a dispatch body.
pub(crate) fn request(id: JobId, body: &[u8], wait_ms: u64) -> Result<JobRequest, RequestError> {
    let dispatch: Dispatch<'_> = parse(body)?;
    let spec = spec_of(&dispatch, body);
    let order = dispatch.into_order()?;
    let input = match order.payload {
        Payload::AudioRef(at) => Input::AudioRef(at.into()),
        Payload::Text(text) => Input::Text(text.into()),
        Payload::Audio { format, sample_rate, bytes } => Input::Audio {
            format: format.into(),
            sample_rate: sample_rate.unwrap_or(0),
            data: bytes.into(),
        },
    };
    let session = match order.session_id {
        Some(session) => session.into(),
        None => Arc::clone(&NO_SESSION),
    };
    let trace = match order.trace_id {
        Some(trace) => trace.into(),
        None => std::str::from_utf8(&hex(id.number())).unwrap_or_default().into(),
    };
    let mut request = from_ask(id, order.ask, input, session, trace, spec, wait_ms);
    with_context(&mut request, order.context);
    Ok(request)
}

fn with_context(request: &mut JobRequest, context: Vec<String>) {
    if !context.is_empty() {
        let context = context.into_iter().map(Into::into).collect();
        let two_way = request.is_two_way();
        request.extras = Some(Arc::new(Extras { two_way, context }));
    }
}

/// A segment of a session as a job.
pub(crate) fn segment(
    id: JobId,
    mut dispatch: Dispatch<'_>,
    input: Input,
) -> Result<JobRequest, RequestError> {
    let spec: store::Bytes = to_json(&dispatch).into_bytes().into();
    let session = dispatch.session_id.as_deref().unwrap_or_default().into();
    let trace = std::str::from_utf8(&hex(id.number())).unwrap_or_default().into();
    let context = dispatch.context.take().unwrap_or_default();
    let mut request = from_ask(id, dispatch.into_ask()?, input, session, trace, spec, 0);
    with_context(&mut request, context);
    Ok(request)
}

/// Reads a question about a job: nothing has to be said in it.
pub(crate) fn question(body: &[u8], wait_ms: u64) -> Result<JobRequest, RequestError> {
    let dispatch: Dispatch<'_> = parse(body)?;
    let ask = dispatch.into_ask()?;
    let input = Input::Text(Arc::from(""));
    let nothing: Arc<str> = Arc::from("");
    let (id, spec) = (JobId::new(0), Arc::from(&b""[..]));
    Ok(from_ask(id, ask, input, Arc::clone(&nothing), nothing, spec, wait_ms))
}

fn from_ask(
    id: JobId,
    ask: Ask,
    input: Input,
    session: Arc<str>,
    trace: Arc<str>,
    spec: store::Bytes,
    wait_ms: u64,
) -> JobRequest {
    let options = ask.options;
    let extras = ask.two_way.then(|| Arc::new(Extras { two_way: true, context: vec![] }));
    JobRequest {
        id,
        session,
        trace,
        pair: ask.pair,
        needs: ask.needs,
        input,
        public: true,
        preferred: options.preferred,
        strict: options.strict,
        exclude: options.exclude,
        bind_key: options.bind_key.map(Into::into),
        wait_ms: options.wait_ms.unwrap_or(wait_ms),
        deadline_ms: options.deadline_ms,
        priority: options.priority,
        extras,
        spec,
    }
}

fn spec_of(dispatch: &Dispatch<'_>, body: &[u8]) -> store::Bytes {
    match dispatch.audio {
        None => Arc::from(body),
        Some(_) => to_json(&Dispatch { audio: None, ..dispatch.clone() }).into_bytes().into(),
    }
}

/// Reads back what [`JobRequest::spec`] keeps.
pub fn decode(id: JobId, spec: &[u8]) -> Option<JobRequest> {
    // What has no payload was audio: it is gone with the instance that had it.
    let with_payload = request(id, spec, 0).ok();
    with_payload.or_else(|| {
        let request = question(spec, 0).ok()?;
        let data: store::Bytes = Arc::from(&b""[..]);
        let input = Input::Audio { format: Arc::from(""), sample_rate: 0, data };
        Some(JobRequest { id, input, spec: Arc::from(spec), ..request })
    })
}

/// A job for a node; the audio goes along, or in the next frame.
pub(crate) fn assign<'a>(a: &'a Assignment, now_ms: u64, inline: bool) -> JobAssign<'a> {
    let request = &*a.request;
    let (mut audio_ref, mut audio, mut text) = (None, None, None);
    match &request.input {
        Input::AudioRef(at) => audio_ref = Some(Cow::Borrowed(&**at)),
        Input::Text(said) => text = Some(Cow::Borrowed(&**said)),
        Input::Audio { format, sample_rate, data } => {
            let rate = Some(*sample_rate).filter(|rate| *rate > 0);
            audio = Some(match inline {
                true => Audio::inline(format, rate, data),
                false => Audio::in_next_frame(format, rate, data.len()),
            });
        }
        Input::Speech(speech) => {
            let rate = Some(speech.sample_rate).filter(|rate| *rate > 0);
            audio = Some(match (a.stream, inline) {
                (true, _) => Audio::streamed(&speech.format, rate),
                (false, true) => Audio::inline(&speech.format, rate, &speech.since(0).0),
                (false, false) => Audio::in_next_frame(&speech.format, rate, speech.bytes()),
            });
        }
    }
    JobAssign {
        job_id: a.job,
        attempt_id: a.attempt,
        fence: a.fence,
        session_id: Cow::Borrowed(&request.session),
        src_lang: source_of(request),
        tgt_lang: request.pair.tgt,
        audio_ref,
        audio,
        text,
        two_way: two_way_of(request),
        context: context_of(request),
        options: AssignOptions {
            require_tts: request.needs.tts,
            services: request.needs.extra,
            priority: request.priority,
        },
        deadline_ms: Some(a.deadline_ms.saturating_sub(now_ms)),
        bind: request
            .bind_key
            .as_deref()
            .map(|key| Bind { bind_key: Cow::Borrowed(key), moved: a.moved }),
        trace_id: Cow::Borrowed(&request.trace),
    }
}

/// What is spoken, as far as anybody knows.
fn source_of(request: &JobRequest) -> Source {
    match request.is_two_way() {
        true => Source::Auto,
        false => request.pair.src,
    }
}

fn two_way_of(request: &JobRequest) -> Option<Vec<Lang>> {
    match request.pair.src {
        Source::Known(src) if request.is_two_way() => Some(vec![src, request.pair.tgt]),
        _ => None,
    }
}

fn context_of(request: &JobRequest) -> Vec<Cow<'_, str>> {
    let texts = request.extras.iter().flat_map(|extras| &extras.context);
    texts.map(|text| Cow::Borrowed(&**text)).collect()
}

/// A node's result, as the engine passes it on.
pub(crate) fn result(result: Option<RawJson>) -> JobResult {
    match result {
        Some(result) => result.into_raw().into(),
        None => "{}".to_owned().into(),
    }
}

/// A job as people see it.
pub(crate) fn job_view(job: &JobView) -> view::JobView {
    let asked = job.request.clone().or_else(|| decode(job.id, &job.spec).map(Arc::new));
    let progress = &job.progress;
    let ended = progress.ended.as_deref();
    let deadline = asked.as_ref().and_then(|asked| asked.deadline_ms);
    let pair = asked.as_ref().map(|asked| asked.pair);
    let tries = progress.tries();
    let tries: Vec<AttemptView> =
        tries.iter().enumerate().map(|(i, t)| attempt_view(t, i + 1 == tries.len(), job)).collect();
    view::JobView {
        job_id: job.id,
        state: progress.state,
        session_id: asked.as_ref().map(|asked| asked.session.to_string()),
        src_lang: asked.as_deref().map_or(Source::Auto, source_of),
        tgt_lang: pair.map_or_else(unknown_language, |pair| pair.tgt),
        node_id: progress.node.clone().or_else(|| tries.last().and_then(|t| t.node_id.clone())),
        attempt_id: progress.attempt,
        instance_id: Some(job.owner.clone()),
        trace_id: asked.as_ref().map(|asked| asked.trace.to_string()),
        timings: timings(job),
        attempts: tries,
        partial: progress.partial.as_deref().map(str::to_owned),
        result: ended.and_then(|e| e.result.as_ref()).map(|result| result.raw().into()),
        error: ended.and_then(|e| e.error.clone()),
        detail: ended.and_then(|e| e.detail.clone()),
        created_ms: job.accepted_ms,
        updated_ms: ended.map_or(job.updated_ms, |e| e.ended_ms),
        deadline_at_ms: deadline.map(|ms| job.accepted_ms.saturating_add(ms)),
    }
}

/// A spec that cannot be read is not invented; `und` says so.
pub(crate) fn unknown_language() -> Lang {
    "und".parse().expect("und is a tag")
}

fn attempt_view(t: &Try, is_last: bool, job: &JobView) -> AttemptView {
    use lingua_core::job::JobState;
    let state = match (is_last, t.ended_ms) {
        (true, _) => job.progress.state,
        (false, _) => JobState::Failed,
    };
    AttemptView {
        attempt_id: lingua_core::Attempt(t.attempt),
        node_id: Some(t.node.clone()),
        state,
        reason: t.reason.clone(),
        reserved_ms: Some(t.reserved_ms),
        dispatched_ms: Some(t.reserved_ms),
        acked_ms: t.acked_ms,
        ended_ms: t.ended_ms,
    }
}

pub(crate) fn timings(job: &JobView) -> Timings {
    let ended = job.progress.ended.as_deref();
    let last = job.progress.tries().last();
    Timings {
        queue_ms: ended.map(|e| e.waited_ms),
        dispatch_ms: last.map(|t| t.reserved_ms.saturating_sub(job.accepted_ms)),
        ack_ms: last.and_then(|t| Some(t.acked_ms?.saturating_sub(t.reserved_ms))),
        run_ms: last.and_then(|t| Some(t.ended_ms?.saturating_sub(t.reserved_ms))),
        total_ms: ended.map(|e| e.ended_ms.saturating_sub(e.accepted_ms)),
    }
}

/// A node as people see it.
pub(crate) fn node_view(
    n: &store::NodeView,
    now_ms: u64,
    rule: lingua_core::SemanticRule,
) -> view::NodeView {
    let caps = n.profile.capabilities();
    view::NodeView {
        node_id: n.node.clone(),
        state: n.state,
        fresh: now_ms <= n.fresh_until_ms,
        used: n.used.into(),
        max: n.profile.slots_max().into(),
        epoch: n.place.epoch,
        cell: n.place.cell.index() as u32,
        slot: n.place.slot.index() as u32,
        load: n.load.into(),
        cost_ms: n.cost_ms,
        languages: LanguageLists::from(caps),
        services: ServiceFlags::from(caps.services()),
        streaming: caps.services().contains(Service::Streaming),
        pairs: caps.pair_count(rule) as u64,
        accept_public_jobs: n.profile.accepts_public(),
        drain_ordered: n.drain_ordered,
        version: n.version.as_deref().map(str::to_owned),
        last_heartbeat_ms: n.heartbeat_ms,
    }
}
