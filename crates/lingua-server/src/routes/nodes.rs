//! What nodes call over HTTP.

use std::sync::Arc;

use axum::extract::{Path, Query};
use lingua_core::{NodeId, Profile};
use lingua_engine::Timer;
use lingua_engine::handle::NodeHeartbeat;
use lingua_store::Store;
use lingua_store::contract::LeaseKey;
use lingua_wire::node::{
    Heartbeat, HeartbeatResponse, JobAck, JobDone, JobFail, JobPartial, JobRef, Offline,
    OkResponse, Register, RegisterResponse,
};
use lingua_wire::scheduler::NodeJobs;
use lingua_wire::{ErrorCode, RequestError, parse};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::app::{App, Shared};
use crate::convert;
use crate::reply::{ApiError, HttpReply, json};
use crate::request::BodyBytes;

/// How long a long poll waits if the node does not say.
const POLL_MS: u64 = 30_000;

/// `POST /v1/node/register`
pub(crate) async fn register<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let parts = parse::<Register>(&body)?.into_parts()?;
    tracing::info!(step = "register_start", "a node registers over HTTP");
    let node = parts.node.unwrap_or_else(new_node_id);
    log_steps(&node, &parts.profile);
    let (profile, health) = (Arc::new(parts.profile), parts.health);
    let version = parts.version.map(Into::into);
    let engine = &app.shared.engine;
    let registered = engine.register_polling(node.clone(), profile, health, version).await?;
    tracing::info!(step = "register_complete", node_id = %node, pairs = registered.pairs, "registered");
    Ok(json(&RegisterResponse {
        ok: true,
        node_id: node,
        epoch: registered.place.epoch,
        status: lingua_core::NodeState::of(health, false),
        pairs: registered.pairs as u64,
        heartbeat_interval_ms: registered.heartbeat_ms,
    }))
}

/// The steps of a registration, for whoever looks for the one that went wrong.
pub(crate) fn log_steps(node: &NodeId, profile: &Profile) {
    let caps = profile.capabilities();
    tracing::info!(step = "register_id_generated", node_id = %node, "node id settled");
    tracing::info!(
        step = "register_langs_validated",
        node_id = %node,
        asr = ?caps.asr().as_slice(),
        semantic = ?caps.semantic().as_slice(),
        tts = ?caps.tts().as_slice(),
        "languages are good"
    );
}

/// `node-` and eight hexadecimal digits.
pub(crate) fn new_node_id() -> NodeId {
    let number: u32 = rand::random();
    NodeId::new(&format!("node-{number:08X}")).expect("letters, digits and a hyphen")
}

/// `POST /v1/node/heartbeat`
pub(crate) async fn heartbeat<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let heartbeat: Heartbeat = parse(&body)?;
    let node = heartbeat.node()?.clone();
    let (cancel, drain) = take_beat(&app, &node, &heartbeat).await?;
    Ok(json(&HeartbeatResponse { ok: true, cancel, drain }))
}

/// Hands a heartbeat to the engine; gives what to cancel and whether to drain.
pub(crate) async fn take_beat<S: Store, T: Timer>(
    app: &App<S, T>,
    node: &NodeId,
    heartbeat: &Heartbeat,
) -> Result<(Vec<JobRef>, bool), ApiError> {
    let engine = &app.shared.engine;
    let current = engine.profile_of(node).await?;
    let profile = heartbeat.capability_update(&current)?.map(Arc::new);
    let running = heartbeat.running.iter().flatten();
    let running = running.map(|r| LeaseKey { job: r.job_id, attempt: r.attempt_id }).collect();
    let beat = NodeHeartbeat {
        node: node.clone(),
        epoch: heartbeat.epoch,
        health: heartbeat.health,
        load: heartbeat.load()?.unwrap_or_default(),
        running,
        profile,
    };
    let beaten = engine.heartbeat(beat).await?;
    let cancel = beaten.cancel.iter().map(|k| JobRef { job_id: k.job, attempt_id: k.attempt });
    Ok((cancel.collect(), beaten.drain))
}

/// `POST /v1/node/offline`
pub(crate) async fn offline<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let node = parse::<Offline>(&body)?.node_id;
    app.shared.engine.sign_off(&node).await?;
    Ok(json(&OkResponse::OK))
}

/// How long to wait for jobs.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Poll {
    /// Answer when there are jobs, or after this time; 30 s by default.
    wait_ms: Option<u64>,
}

/// `GET /v1/node/{id}/jobs`
pub(crate) async fn jobs<S: Store, T: Timer>(
    app: Shared<S, T>,
    Path(id): Path<String>,
    Query(poll): Query<Poll>,
) -> HttpReply {
    let node = NodeId::new(&id).map_err(|error| RequestError::invalid("id", &error.to_string()))?;
    let wait_ms = poll.wait_ms.unwrap_or(POLL_MS).min(app.shared.options.poll_ms_max);
    let assignments = app.shared.engine.poll(&node, wait_ms).await?;
    let now_ms = app.shared.engine.now_ms();
    let jobs = assignments.iter().map(|a| convert::assign(a, now_ms, true)).collect();
    Ok(json(&NodeJobs { jobs }))
}

/// `POST /v1/job/ack`
pub(crate) async fn ack<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let ack: JobAck = parse(&body)?;
    let node = known(&app, ack.node()?).await?;
    app.shared.engine.acked(ack.job_id, ack.report(node), true).await?;
    Ok(json(&OkResponse::OK))
}

/// `POST /v1/job/partial`
pub(crate) async fn partial<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let partial: JobPartial<'_> = parse(&body)?;
    let node = known(&app, partial.node()?).await?;
    match app.shared.engine.partial(partial.job_id, partial.report(node), &partial.text) {
        true => Ok(json(&OkResponse::OK)),
        false => {
            let detail = "the job is over, or hears too much at once; go on without it";
            Err(ApiError::new(ErrorCode::StaleAttempt, detail))
        }
    }
}

/// `POST /v1/job/done`
pub(crate) async fn done<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let done: JobDone<'_> = parse(&body)?;
    let node = known(&app, done.node()?).await?;
    let report = done.report(node);
    if done.result()?.and_then(|result| result.frame_bytes()).is_some() {
        let what = "over HTTP there is no next frame; send the audio as base64 in 'data'";
        return Err(RequestError::invalid("result.tts_audio.bytes", what).into());
    }
    let result = convert::result(done.result);
    app.shared.engine.done(done.job_id, report, result, true).await?;
    Ok(json(&OkResponse::OK))
}

/// `POST /v1/job/fail`
pub(crate) async fn fail<S: Store, T: Timer>(
    app: Shared<S, T>,
    BodyBytes(body): BodyBytes,
) -> HttpReply {
    let fail: JobFail<'_> = parse(&body)?;
    let node = known(&app, fail.node()?).await?;
    let (report, retryable) = (fail.report(node), fail.is_retryable());
    let reason = fail.reason.into_owned();
    app.shared.engine.failed(fail.job_id, report, reason, retryable, true).await?;
    Ok(json(&OkResponse::OK))
}

/// A node that is registered, here or elsewhere.
async fn known<S: Store, T: Timer>(app: &App<S, T>, node: &NodeId) -> Result<NodeId, ApiError> {
    match app.shared.engine.is_registered(node).await? {
        true => Ok(node.clone()),
        false => Err(lingua_engine::NodeError::NotRegistered.into()),
    }
}
