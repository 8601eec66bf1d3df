//! The routes that operators and their tools call.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use lingua_core::{InstanceId, LangPair, Needs, NodeId, NodeState, Term};
use lingua_engine::events::EngineEvent;
use lingua_engine::handle::Known;
use lingua_engine::table::Pool;
use lingua_engine::usage_limit::Usage;
use lingua_engine::{SubmitError, Timer};
use lingua_store::Store;
use lingua_store::contract::NodeRecord;
use lingua_wire::ErrorCode;
use lingua_wire::view::{
    ClusterView, ExplainResponse, ExplainedNode, InstanceView, NodeList, NodeView, PoolCell,
    PoolList, PoolView, StoreView,
};
use prometheus_client::encoding::text::{encode_eof, encode_registry};

use crate::app::{App, Shared, administered};
use crate::auth::Sender;
use crate::limit::RateLimitKey;
use crate::metrics::{ConnectionCount, Refused};
use crate::reply::{ApiError, HttpReply, SharedBody, json, text};
use crate::request::BodyBytes;
use crate::routes::nodes::node_id;
use crate::{convert, openapi};

const PLAIN: &str = "text/plain; charset=utf-8";

fn no_such_node(node: &NodeId) -> ApiError {
    let detail = format!("there is no node {node}; GET /v1/nodes lists all");
    ApiError::new(ErrorCode::NodeNotFound, detail)
}

fn free_slots(node: &NodeRecord) -> u64 {
    node.profile.slots_max().saturating_sub(node.used).into()
}

/// `GET /v1/nodes`
pub(crate) async fn nodes<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
) -> HttpReply {
    let Known { stale_since_ms: as_of_ms, value: seen } = app.engine.known_nodes().await?;
    let rule = app.engine.options().rules.semantic;
    let view = |node| convert::node_view(node, seen.as_of_ms, rule);
    let owned = seen.nodes.iter().filter(|node| sender.owns_node(&node.profile));
    let nodes = owned.map(view).collect();
    Ok(json(&NodeList { nodes, stale: as_of_ms.is_some(), as_of_ms }))
}

/// `GET /v1/nodes/{id}`
pub(crate) async fn node<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(id): Path<String>,
) -> HttpReply {
    let id = node_id(&id)?;
    let rule = app.engine.options().rules.semantic;
    let Known { stale_since_ms: as_of_ms, value } = app.engine.node(&id).await?;
    let (now_ms, node) = value.ok_or_else(|| no_such_node(&id))?;
    check_owned(&sender, &node)?;
    Ok(json(&NodeView {
        pools: Some(convert::pools_of(&node, rule)),
        stale: as_of_ms.is_some(),
        as_of_ms,
        ..convert::node_view(&node, now_ms, rule)
    }))
}

/// `POST /v1/nodes/{id}/drain`
pub(crate) async fn drain<S: Store, T: Timer>(
    app: Shared<S, T>,
    sender: Extension<Sender>,
    path: Path<String>,
) -> HttpReply {
    set_drain(app, sender, path, true).await
}

/// `POST /v1/nodes/{id}/resume`
pub(crate) async fn resume<S: Store, T: Timer>(
    app: Shared<S, T>,
    sender: Extension<Sender>,
    path: Path<String>,
) -> HttpReply {
    set_drain(app, sender, path, false).await
}

async fn set_drain<S: Store, T: Timer>(
    app: Shared<S, T>,
    sender: Extension<Sender>,
    Path(id): Path<String>,
    drain: bool,
) -> HttpReply {
    let id = node_id(&id)?;
    check_owns(&app, &sender, &id).await?;
    let action = if drain { "drain" } else { "resume" };
    administered(&app, &sender, (action, id.as_str()), async {
        app.engine.set_drain(&id, drain).await?.ok_or_else(|| no_such_node(&id))
    })
    .await?;
    node(app, sender, Path(id.to_string())).await
}

/// Fails as for an unknown node if it belongs to another tenant than the caller's.
pub(crate) async fn check_owns<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    id: &NodeId,
) -> Result<(), ApiError> {
    if sender.scope().is_none() {
        return Ok(());
    }
    let (_, node) = app.engine.node(id).await?.value.ok_or_else(|| no_such_node(id))?;
    check_owned(sender, &node)
}

fn check_owned(sender: &Sender, node: &NodeRecord) -> Result<(), ApiError> {
    match sender.owns_node(&node.profile) {
        true => Ok(()),
        false => Err(no_such_node(&node.node).because(Refused::OtherTenant)),
    }
}

fn pool_view(pool: &Pool) -> Option<PoolView> {
    let pair: LangPair = pool.pair.parse().ok()?;
    let (nodes, ready) = (pool.nodes.into(), pool.ready.into());
    let (free, slots, speech) = (pool.free.into(), pool.slots.into(), pool.speech.into());
    Some(PoolView { nodes, speech, ready, free, slots, ..PoolView::new(pair) })
}

/// `GET /v1/pools`
pub(crate) async fn pools<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
) -> HttpReply {
    let table = app.engine.pools().unwrap_or_default();
    let as_of_ms = app.engine.store_away_since_ms();
    let (pools, left_out) = match sender.scope() {
        None => (Cow::Borrowed(&table.pools), table.left_out),
        // How many are left out would tell of private nodes.
        Some(tenant) => (Cow::Owned(table.pools_for(tenant)), 0),
    };
    // Names of instances are for those who may see the cluster.
    let generated_by = InstanceId::new(&table.generated_by).ok();
    Ok(json(&PoolList {
        table_version: table.version,
        generated_by: generated_by.filter(|_| sender.scope().is_none()),
        generated_ms: Some(table.generated_ms).filter(|&ms| ms > 0),
        pools: pools.iter().filter_map(pool_view).collect(),
        left_out: left_out.into(),
        stale: as_of_ms.is_some(),
        as_of_ms,
    }))
}

/// The nodes of a pool in one cell, or in all of them.
fn count(cell: u32, nodes: &[&NodeRecord]) -> PoolCell {
    let ready = nodes.iter().filter(|node| node.state == NodeState::Ready);
    PoolCell {
        cell,
        nodes: nodes.len() as u64,
        ready: ready.clone().count() as u64,
        free: ready.clone().map(|node| free_slots(node)).sum(),
        slots: ready.map(|node| u64::from(node.profile.slots_max())).sum(),
    }
}

/// `GET /v1/pools/{src}:{tgt}`: counts the pool now, also if the pool table omits it.
pub(crate) async fn pool<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(pair): Path<String>,
) -> HttpReply {
    let asked = lingua_wire::lang::pool("pair", &pair)?;
    let Known { stale_since_ms: as_of_ms, value: seen } = app.engine.known_nodes().await?;
    let rule = app.engine.options().rules.semantic;
    let can = |node: &NodeRecord, pair, needs| {
        node.profile.capabilities().missing(pair, needs, rule).is_none()
    };
    let serves = |node: &NodeRecord, pair| {
        let is_fresh = seen.as_of_ms <= node.fresh_until_ms;
        let present = is_fresh && node.state != NodeState::Offline;
        present && sender.sees_node(&node.profile) && can(node, pair, Needs::SPEECH_TO_TEXT)
    };
    // The pool that a job of the pair finds first.
    let is_served = |pair: &LangPair| seen.nodes.iter().any(|node| serves(node, *pair));
    let no_node = || ApiError::new(ErrorCode::PoolNotFound, format!("no node serves {asked}"));
    let pair = asked.lookups().find(is_served).ok_or_else(no_node)?;
    let mut nodes: Vec<&NodeRecord> = seen.nodes.iter().filter(|node| serves(node, pair)).collect();
    let speaks = |node: &&&NodeRecord| can(node, pair, Needs::SPEECH_TO_SPEECH);
    let speech = nodes.iter().filter(speaks).count() as u64;
    let PoolCell { nodes: all, ready, free, slots, .. } = count(0, &nodes);
    let node_ids = Some(nodes.iter().map(|node| node.node.clone()).collect());
    let cell_of = |node: &NodeRecord| node.place.cell.index() as u32;
    nodes.sort_by_key(|node| cell_of(node));
    let by_cell = nodes.chunk_by(|a, b| cell_of(a) == cell_of(b));
    let cells = Some(by_cell.map(|nodes| count(cell_of(nodes[0]), nodes)).collect());
    Ok(json(&PoolView {
        nodes: all,
        speech,
        ready,
        free,
        slots,
        node_ids,
        cells,
        stale: as_of_ms.is_some(),
        as_of_ms,
        ..PoolView::new(pair)
    }))
}

/// As the pool table counts it.
fn shown_state(node: &NodeRecord, now_ms: u64) -> &'static str {
    if node.fresh_until_ms < now_ms { "stale" } else { node.state.as_str() }
}

/// `GET /v1/cluster`
pub(crate) async fn cluster<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
) -> HttpReply {
    let Known { stale_since_ms: as_of_ms, value: cluster } = app.engine.cluster().await;
    let leader = cluster.leader.as_deref().and_then(|name| InstanceId::new(name).ok());
    let table = app.engine.pools();
    let instances = cluster.instances.into_iter().map(|i| InstanceView {
        leader: leader.as_ref() == Some(&i.instance),
        instance_id: i.instance,
        address: i.address,
        alive: i.alive,
        until_ms: i.until_ms,
    });
    let instances = instances.collect();
    let nodes = match sender.scope() {
        None => {
            let nodes = table.iter().flat_map(|table| &table.nodes);
            nodes.map(|(state, count)| (state.clone(), u64::from(*count))).collect()
        }
        Some(_) => {
            let seen = app.engine.known_nodes().await?.value;
            let mut nodes = BTreeMap::new();
            for node in seen.nodes.iter().filter(|node| sender.owns_node(&node.profile)) {
                *nodes.entry(shown_state(node, seen.as_of_ms).to_owned()).or_default() += 1;
            }
            nodes
        }
    };
    let (table_version, term) = cluster.table.unwrap_or((0, Term(0)));
    Ok(json(&ClusterView {
        instance_id: cluster.instance,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instances,
        leader,
        term,
        table_version,
        table_published_ms: table.map(|table| table.generated_ms),
        nodes,
        store: StoreView { kind: app.options.store_kind.clone(), up: as_of_ms.is_none() },
        stale: as_of_ms.is_some(),
        as_of_ms,
    }))
}

/// `POST /v1/explain`
pub(crate) async fn explain<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    body: BodyBytes,
) -> HttpReply {
    let spec = convert::explain_spec(&body.0, app.job_defaults(&sender))?;
    let explained = app.engine.explain(&spec).await?;
    let seen = explained.nodes.iter().filter(|v| sender.sees_node(&v.node.profile));
    let nodes = seen.map(|v| {
        ExplainedNode::new(v.node.node.clone(), v.node.place.cell.index() as u32, v.verdict)
    });
    Ok(json(&ExplainResponse {
        pool: spec.pair,
        served_as: explained.served_as.filter(|served| *served != spec.pair),
        policy: app.engine.options().policy.to_string(),
        chosen: explained.chosen,
        capable: explained.capable.into(),
        free: explained.free.into(),
        error: explained.error.map(str::to_owned),
        nodes: nodes.collect(),
    }))
}

/// `GET /v1/events`: changes as server-sent events; `gap` means that some were lost.
pub(crate) async fn events<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Extension(caller): Extension<RateLimitKey>,
) -> HttpReply {
    let (limited, one) = (sender.limited_token(), [(Usage::EventStreams, 1)]);
    let usage = app.engine.usage_limiter().take(sender.tenant, limited.as_ref(), &one);
    let held =
        (usage.map_err(SubmitError::from)?, ConnectionCount::new(&app.metrics.event_streams));
    let (streams, engine) = (Arc::clone(&app.event_streams), app.engine.clone());
    let access = app.options.tokens.watch(&sender);
    let (seen_by, watcher) = (sender.clone(), sender);
    let ended = async move {
        let error = access.ended().await;
        app.access_ended(&watcher, "event stream", error);
    };
    let sees = move |event: &EngineEvent| seen_by.sees_event(event);
    streams.open(caller, held, || engine.events(), ended, sees)
}

/// `GET /metrics`
pub(crate) async fn metrics<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
) -> HttpReply {
    if sender.scope().is_some() {
        let detail = "metrics count all tenants together; use a token without a tenant";
        return Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::TenantOnly));
    }
    let mut out = String::new();
    encode_registry(&mut out, &app.registry)
        .and_then(|()| encode_registry(&mut out, &app.process))
        .and_then(|()| encode_eof(&mut out))
        .map_err(|_| ApiError::new(ErrorCode::Internal, "cannot encode the metrics"))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(text(StatusCode::OK, kind, out))
}

/// `GET /openapi.json`; the document is made once with tokens, and once without.
pub(crate) async fn openapi<S: Store, T: Timer>(app: Shared<S, T>) -> Response {
    static CLOSED: LazyLock<Bytes> =
        LazyLock::new(|| format!("{}\n", openapi::document(false)).into());
    static OPEN: LazyLock<Bytes> =
        LazyLock::new(|| format!("{}\n", openapi::document(true)).into());
    let document = if app.options.tokens.current().is_open() { &OPEN } else { &CLOSED };
    let mut response = text(StatusCode::OK, "application/json", Bytes::clone(document));
    response.extensions_mut().insert(SharedBody);
    response
}

/// The front page loads nothing, and no other page may show it in a frame.
const FRONT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// `GET /`: where to go from here.
pub(crate) async fn front_page() -> Response {
    let page = include_str!("front_page.html");
    let mut response = text(StatusCode::OK, "text/html; charset=utf-8", page);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, FRONT_POLICY);
    response
}

/// `GET /healthz`
pub(crate) async fn healthz() -> Response {
    text(StatusCode::OK, PLAIN, "ok\n")
}

/// `GET /readyz`
pub(crate) async fn readyz<S: Store, T: Timer>(app: Shared<S, T>) -> HttpReply {
    match app.engine.is_ready().await {
        true => Ok(text(StatusCode::OK, PLAIN, "ready\n")),
        false => {
            let detail = "the store does not respond, or this instance is stopping; try again";
            Err(ApiError::new(ErrorCode::SchedulerDependencyDown, detail))
        }
    }
}
