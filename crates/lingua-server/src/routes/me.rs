//! The route that tells callers who they are.

use axum::Extension;
use axum::response::Response;
use lingua_engine::Timer;
use lingua_engine::usage_limit::Usage;
use lingua_store::Store;
use lingua_wire::view::{LeftView, LimitsView, MeView};

use crate::app::Shared;
use crate::auth::Sender;
use crate::limit::RateState;
use crate::reply::json;

/// `GET /v1/me`
pub(crate) async fn me<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    rate: Option<Extension<RateState>>,
) -> Response {
    let holder = &sender.holder;
    let (limiter, token) = (app.engine.usage_limiter(), sender.limited_token());
    let limits = limiter.limits_of(sender.tenant).lowered_by(holder.limits);
    let left = |kind| count(limiter.left(sender.tenant, token.as_ref(), kind));
    let role = if sender.grant.is_some() { "grant" } else { holder.role.as_str() };
    json(&MeView {
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
        },
        left: LeftView {
            requests: rate.map(|Extension(rate)| rate.remaining),
            open_jobs: left(Usage::OpenJobs),
            open_bytes: left(Usage::OpenBytes),
            sessions: left(Usage::Sessions),
            event_streams: left(Usage::EventStreams),
        },
    })
}

fn count(limit: Option<usize>) -> Option<u64> {
    limit.map(|limit| limit as u64)
}
