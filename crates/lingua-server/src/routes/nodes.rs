//! The routes that nodes call, and what the node WebSocket shares with them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query};
use lingua_core::{NodeId, NodeState};
use lingua_engine::Timer;
use lingua_engine::handle::{NodeHeartbeat, NodeRegistration};
use lingua_engine::node::{Outbox, RegisteredNode};
use lingua_store::Store;
use lingua_wire::node::{
    Heartbeat, HeartbeatResponse, JobAck, JobDone, JobFail, JobPartial, JobRef, Offline,
    OkResponse, Register, RegisterParts, RegisterResponse,
};
use lingua_wire::scheduler::NodeJobs;
use lingua_wire::{ErrorCode, RequestError, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::app::{App, Shared, administered};
use crate::auth::{KnownToken, Role, Sender};
use crate::convert;
use crate::metrics::Refused;
use crate::reply::{ApiError, HttpReply, json};
use crate::request::BodyBytes;
use crate::routes::operators::check_owns;

/// How long a long poll waits if the node does not say.
const POLL_MS: u64 = 30_000;

/// A registration on its way, for the log: one line when it is complete or refused, with the time
/// of each step; the steps themselves at DEBUG.
pub(crate) struct RegistrationLog {
    started: Instant,
    checked_ms: u64,
    node: Option<NodeId>,
}

impl RegistrationLog {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), checked_ms: 0, node: None }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Checks a `register` message.
    pub(crate) fn check<S: Store, T: Timer>(
        &mut self,
        app: &App<S, T>,
        register: Register,
        sender: &Sender,
        outbox: Outbox,
    ) -> Result<NodeRegistration, ApiError> {
        tracing::debug!(step = "register_start", "a node registers");
        self.node.clone_from(&register.node_id);
        let RegisterParts { node, profile, health, version, running } = register.into_parts()?;
        let is_named = node.is_some();
        let node = allowed_id(node, &sender.holder)?;
        tracing::debug!(step = "register_id_generated", node_id = %node, "node has its id");
        let caps = profile.capabilities();
        tracing::debug!(
            step = "register_langs_validated",
            node_id = %node,
            asr = ?caps.asr().as_slice(),
            semantic = ?caps.semantic().as_slice(),
            tts = ?caps.tts().as_slice(),
            "languages are valid"
        );
        tracing::debug!(step = "register_store_write", node_id = %node, "writing to the store");
        self.checked_ms = self.elapsed_ms();
        self.node = Some(node.clone());
        let profile = profile.owned_by(sender.tenant).registered_by(sender.token_name());
        let (profile, owned_max) = (Arc::new(profile), sender.holder.nodes_max);
        let tenant_max = app.engine.usage_limiter().nodes_max_of(sender.tenant);
        let version = version.map(Into::into);
        let running = running.into_iter().map(convert::lease_key).collect();
        Ok(NodeRegistration {
            node,
            is_named,
            profile,
            owned_max,
            tenant_max,
            health,
            version,
            running,
            outbox,
        })
    }

    /// The node is in the store and can be reached.
    pub(crate) fn complete(&self, node: &NodeId, registered: &RegisteredNode) {
        tracing::debug!(step = "register_store_success", node_id = %node, "written to the store");
        let step = "register_connection_registered";
        tracing::debug!(step, node_id = %node, "node is reachable");
        let (epoch, pairs) = (registered.place.epoch.0, registered.pairs);
        let (checked_ms, elapsed_ms) = (self.checked_ms, self.elapsed_ms());
        let stored_ms = elapsed_ms - checked_ms;
        let step = "register_complete";
        tracing::info!(
            step, node_id = %node, epoch, pairs, checked_ms, stored_ms, elapsed_ms, "registered"
        );
    }

    /// The node that registers, if it has said which.
    pub(crate) fn node_id(&self) -> &str {
        self.node.as_ref().map_or("", NodeId::as_str)
    }

    /// The registration was refused.
    pub(crate) fn refused<S: Store, T: Timer>(&self, app: &App<S, T>, error: &ApiError) {
        let reason = error.code().as_str();
        let Some(left_out) = app.refused_log.admit(reason, app.engine.now_ms()) else { return };
        let node_id = self.node.as_ref().map(NodeId::as_str);
        let (step, detail) = ("register_refused", error.detail());
        tracing::info!(step, reason, detail, node_id, left_out, "the registration was refused");
    }
}

/// The id of a node that registers: the one that it gives, or a new one, as its token allows.
fn allowed_id(given: Option<NodeId>, token: &KnownToken) -> Result<NodeId, ApiError> {
    let given = given.or_else(|| token.new_node_id());
    given.filter(|node| token.allows_node(node)).ok_or_else(|| {
        let patterns = token.node_ids.join(", ");
        let detail = format!("this token may register nodes with these ids only: {patterns}");
        ApiError::new(ErrorCode::Forbidden, detail).because(Refused::NodePattern)
    })
}

/// The node that a path names.
pub(crate) fn node_id(text: &str) -> Result<NodeId, ApiError> {
    Ok(NodeId::new(text).map_err(|error| RequestError::invalid("id", &error.to_string()))?)
}

/// `POST /v1/node/register`
pub(crate) async fn register<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let mut log = RegistrationLog::start();
    let registered = register_polling(&app, &sender, &body.0, &mut log).await;
    registered.inspect_err(|error| log.refused(&app, error)).map(|registered| json(&registered))
}

async fn register_polling<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    body: &[u8],
    log: &mut RegistrationLog,
) -> Result<RegisterResponse, ApiError> {
    // The engine makes an outbox of its own.
    let (outbox, _) = mpsc::channel(1);
    let registration = log.check(app, parse(body)?, sender, outbox)?;
    let (node, health) = (registration.node.clone(), registration.health);
    let registered = app.engine.register_polling(registration).await?;
    log.complete(&node, &registered);
    Ok(RegisterResponse {
        ok: true,
        node_id: node,
        epoch: registered.place.epoch,
        status: NodeState::of(health, false),
        pairs: registered.pairs as u64,
        heartbeat_interval_ms: registered.heartbeat_ms,
    })
}

/// `POST /v1/node/heartbeat`
pub(crate) async fn heartbeat<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let heartbeat: Heartbeat = parse(&body.0)?;
    let node = heartbeat.node()?.clone();
    let (cancel, drain) = pass_heartbeat(&app, &sender, &node, &heartbeat).await?;
    Ok(json(&HeartbeatResponse { ok: true, cancel, drain }))
}

/// Passes a heartbeat to the engine; returns the jobs to cancel and whether to drain.
pub(crate) async fn pass_heartbeat<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    node: &NodeId,
    heartbeat: &Heartbeat,
) -> Result<(Vec<JobRef>, bool), ApiError> {
    let (profile, load) = app.engine.profile_of(node, sender.token_name().as_ref()).await?;
    let running = |running: &Vec<JobRef>| running.iter().copied().map(convert::lease_key).collect();
    let is_offline = heartbeat.health == Some(NodeState::Offline);
    let heartbeat = NodeHeartbeat {
        node: node.clone(),
        epoch: heartbeat.epoch,
        health: heartbeat.health.and_then(NodeState::health),
        load: heartbeat.load(load)?,
        running: heartbeat.running.as_ref().map(running),
        profile: heartbeat.capability_update(&profile)?.map(Arc::new),
    };
    let ack = app.engine.heartbeat(heartbeat).await?;
    if is_offline {
        app.engine.sign_off(node).await?;
    }
    Ok((ack.cancel.into_iter().map(convert::job_ref).collect(), ack.drain))
}

/// `POST /v1/node/offline`
pub(crate) async fn offline<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let node = parse::<Offline>(&body.0)?.node_id;
    match sender.holder.role {
        Role::Admin => check_owns(&app, &sender, &node).await?,
        _ => app.engine.check_caller(&node, sender.token_name().as_ref()).await?,
    }
    administered(&app, &sender, ("offline", node.as_str()), async {
        Ok(app.engine.sign_off(&node).await?)
    })
    .await?;
    Ok(json(&OkResponse::OK))
}

/// The query of `GET /v1/node/{id}/jobs`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PollQuery {
    /// The longest wait for a job; 30 s by default.
    wait_ms: Option<u64>,
}

/// `GET /v1/node/{id}/jobs`
pub(crate) async fn jobs<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(id): Path<String>,
    Query(query): Query<PollQuery>,
) -> HttpReply {
    let node = node_id(&id)?;
    app.engine.check_caller(&node, sender.token_name().as_ref()).await?;
    let wait_ms = query.wait_ms.unwrap_or(POLL_MS).min(app.options.poll_ms_max);
    let assignments = app.engine.poll(&node, wait_ms).await?;
    let now_ms = app.engine.now_ms();
    let jobs = assignments.iter().map(|a| convert::assign(a, now_ms, true)).collect();
    Ok(json(&NodeJobs { jobs }))
}

/// `POST /v1/job/ack`
pub(crate) async fn ack<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let ack: JobAck = parse(&body.0)?;
    let node = registered_node(&app, &sender, ack.node()?).await?;
    app.engine.acked(ack.job_id, ack.report(node), true).await?;
    Ok(json(&OkResponse::OK))
}

/// `POST /v1/job/partial`
pub(crate) async fn partial<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let partial: JobPartial<'_> = parse(&body.0)?;
    let node = registered_node(&app, &sender, partial.node()?).await?;
    match app.engine.partial(partial.job_id, partial.report(node), &partial.text) {
        true => Ok(json(&OkResponse::OK)),
        false => {
            let detail = "the job has ended, or its queue is full; the partial text was dropped";
            Err(ApiError::new(ErrorCode::StaleAttempt, detail))
        }
    }
}

/// `POST /v1/job/done`
pub(crate) async fn done<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let done: JobDone<'_> = parse(&body.0)?;
    let node = registered_node(&app, &sender, done.node()?).await?;
    let report = done.report(node);
    if done.result()?.and_then(|result| result.frame_bytes()).is_some() {
        let what = "HTTP has no binary frames; send the audio as base64 in 'data'";
        return Err(RequestError::invalid("result.tts_audio.bytes", what).into());
    }
    app.engine.done(done.job_id, report, convert::output(done.result)?, true).await?;
    Ok(json(&OkResponse::OK))
}

/// `POST /v1/job/fail`
pub(crate) async fn fail<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let fail: JobFail<'_> = parse(&body.0)?;
    let node = registered_node(&app, &sender, fail.node()?).await?;
    let (report, retryable) = (fail.report(node), fail.is_retryable());
    app.engine.failed(fail.job_id, report, fail.reason.into_owned(), retryable, true).await?;
    Ok(json(&OkResponse::OK))
}

/// Fails unless the node is registered, at this instance or another, and the sender's. Its call is
/// a sign of life.
async fn registered_node<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    node: &NodeId,
) -> Result<NodeId, ApiError> {
    app.engine.seen(node, sender.token_name().as_ref()).await?;
    Ok(node.clone())
}
