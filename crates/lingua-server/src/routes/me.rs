//! The route that tells callers who they are.

use axum::Extension;
use lingua_engine::Timer;
use lingua_engine::usage_limit::Usage;
use lingua_store::Store;
use lingua_wire::view::{LeftView, LimitsView, MeView};

use crate::app::{App, Shared};
use crate::auth::Sender;
use crate::limit::RateState;
use crate::reply::{ApiError, HttpReply, json};

/// `GET /v1/me`
pub(crate) async fn me<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    rate: Option<Extension<RateState>>,
) -> HttpReply {
    let holder = &sender.holder;
    let (limiter, token) = (app.engine.usage_limiter(), sender.limited_token());
    let limits = limiter.limits_of(sender.tenant).lowered_by(holder.limits);
    let left = |kind| count(limiter.left(sender.tenant, token.as_ref(), kind));
    let nodes = nodes_of(&app, &sender).await?;
    let role = if sender.grant.is_some() { "grant" } else { holder.role.as_str() };
    Ok(json(&MeView {
        name: holder.name.to_string(),
        role: role.to_owned(),
        tenant: sender.tenant.to_string(),
        expires_ms: holder.expires_ms,
        limits: LimitsView {
            requests_per_second: limits.requests_per_second,
            open_jobs: count(limits.open_jobs),
            open_bytes: count(limits.open_bytes),
            sessions: count(limits.sessions),
            event_streams: count(limits.event_streams),
            priority_max: limits.priority_max,
            nodes_max: nodes.map(|(limit, _)| limit),
        },
        left: LeftView {
            requests: rate.map(|Extension(rate)| rate.remaining),
            open_jobs: left(Usage::OpenJobs),
            open_bytes: left(Usage::OpenBytes),
            sessions: left(Usage::Sessions),
            event_streams: left(Usage::EventStreams),
            nodes: nodes.map(|(_, left)| left),
        },
    }))
}

/// The lower limit of node ids, of the token and of its tenant, and how many are left of both.
async fn nodes_of<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
) -> Result<Option<(u64, u64)>, ApiError> {
    let tenant = sender.tenant;
    let of_token = sender.holder.nodes_max.zip(sender.token_name());
    let of_tenant = app.engine.usage_limiter().nodes_max_of(tenant);
    if of_token.is_none() && of_tenant.is_none() {
        return Ok(None);
    }
    let counts = app.engine.node_counts().await?;
    let limits = [
        of_token.map(|(limit, token)| (limit, counts.of_token(&token))),
        of_tenant.map(|limit| (limit, counts.of_tenant(tenant))),
    ];
    let limits = limits.into_iter().flatten();
    let limits = limits.map(|(limit, used)| (limit as u64, limit.saturating_sub(used) as u64));
    Ok(limits.reduce(|(limit, left), other| (limit.min(other.0), left.min(other.1))))
}

fn count(limit: Option<usize>) -> Option<u64> {
    limit.map(|limit| limit as u64)
}
