//! What tenants have used, and erasing what is kept of their jobs.

use std::collections::BTreeMap;
use std::future::Future;

use axum::Extension;
use axum::extract::{Path, Query};
use jiff::civil::Date;
use jiff::{Span, ToSpan};
use lingua_core::{JobId, Tenant};
use lingua_engine::Timer;
use lingua_engine::request::JobQuery;
use lingua_store::Store;
use lingua_store::contract::{DAY_MS, EraseReply, USAGE_DAYS, UsageCounts, UsageRecord};
use lingua_wire::view::{DayUsage, EraseResponse, JobCounts, TenantUsage, UsageTotals, UsageView};
use lingua_wire::{ErrorCode, RequestError};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::app::{App, Shared};
use crate::auth::{Role, Sender};
use crate::metrics::Refused;
use crate::reply::{ApiError, HttpReply, json};
use crate::routes::jobs::{check_sees, no_such_job, parse_id};

/// Most jobs that one request erases.
const ERASED_MAX: usize = 1000;

/// Which counts to show.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Range {
    /// Only this tenant.
    tenant: Option<String>,
    /// The first day, such as `2026-11-01`, in UTC; the first that is kept by default.
    since: Option<String>,
    /// The last day; today by default.
    until: Option<String>,
    /// Whether to show each day as well.
    days: Option<bool>,
}

const EPOCH: Date = Date::constant(1970, 1, 1);

fn day_of(field: &str, text: Option<&str>, otherwise: u64) -> Result<u64, RequestError> {
    let Some(text) = text else { return Ok(otherwise) };
    let what = "give a day such as 2026-11-18";
    let day: Date = text.parse().map_err(|_| RequestError::invalid(field, what))?;
    let days = day.since(EPOCH).map_or(0, |since: Span| i64::from(since.get_days()));
    u64::try_from(days).map_err(|_| RequestError::invalid(field, what))
}

fn shown(day: u64) -> String {
    let days = i64::try_from(day).unwrap_or(0).days();
    EPOCH.checked_add(days).unwrap_or(Date::MAX).to_string()
}

/// The tenant that a caller asks for, if it may see that one.
fn tenant_of(sender: &Sender, asked: Option<&str>) -> Result<Option<Tenant>, ApiError> {
    let asked = asked.map(Tenant::new).transpose();
    let asked = asked.map_err(|why| RequestError::invalid("tenant", &why.to_string()))?;
    match (sender.scope(), asked) {
        (Some(own), Some(asked)) if own != asked => {
            let detail = format!("this token is of tenant {own}; leave `tenant` out");
            Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::TenantOnly))
        }
        (scope, asked) => Ok(scope.or(asked)),
    }
}

/// `GET /v1/usage`
pub(crate) async fn usage<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Query(range): Query<Range>,
) -> HttpReply {
    let today = app.engine.now_ms() / DAY_MS;
    let since = day_of("since", range.since.as_deref(), (today + 1).saturating_sub(USAGE_DAYS))?;
    let until = day_of("until", range.until.as_deref(), today)?;
    let records = app.engine.usage(tenant_of(&sender, range.tenant.as_deref())?).await?;
    let mut tenants: BTreeMap<Tenant, (UsageCounts, Vec<DayUsage>)> = BTreeMap::new();
    for UsageRecord { day, tenant, counts } in records {
        if (since..=until).contains(&day) {
            let (total, days) = tenants.entry(tenant).or_default();
            total.add(counts);
            if range.days == Some(true) {
                days.push(DayUsage { day: shown(day), total: totals(counts) });
            }
        }
    }
    let tenants = tenants.into_iter().map(|(tenant, (total, days))| TenantUsage {
        tenant: tenant.to_string(),
        total: totals(total),
        days,
    });
    let (since, until) = (shown(since), shown(until));
    Ok(json(&UsageView { since, until, tenants: tenants.collect() }))
}

fn totals(counts: UsageCounts) -> UsageTotals {
    let UsageCounts { done, failed, cancelled, .. } = counts;
    UsageTotals {
        jobs: JobCounts { done, failed, cancelled },
        audio_in_seconds: counts.audio_in_ms as f64 / 1000.0,
        audio_out_seconds: counts.audio_out_ms as f64 / 1000.0,
        chars_source: counts.chars_source,
        chars_translated: counts.chars_translated,
    }
}

/// Records an erasure, whoever asks for it, or its refusal, once. Who only looks may not erase.
async fn recorded<S: Store, T: Timer, A>(
    app: &App<S, T>,
    sender: &Sender,
    object: &str,
    act: impl Future<Output = Result<A, ApiError>>,
) -> Result<A, ApiError> {
    let done = match sender.holder.role {
        Role::Viewer => {
            let detail = "a viewer may not erase jobs; use a token of the role client or admin";
            Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::WrongRole))
        }
        _ => act.await,
    };
    let error = match done {
        Err(error) if error.refused().is_some() => {
            app.record_refusal(sender, "erase", object, &error);
            return Err(error.recorded());
        }
        Err(ref error) => Some(error.code().as_str()),
        Ok(_) => None,
    };
    app.options.audit.act(sender, "erase", object, error);
    done
}

/// `DELETE /v1/jobs/{id}`: erases everything that is kept of a job.
pub(crate) async fn erase<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(id): Path<String>,
) -> HttpReply {
    let id: JobId = parse_id(&id)?;
    recorded(&app, &sender, &id.to_string(), async {
        check_sees(&app, &sender, id).await?;
        match app.engine.erase(id).await? {
            EraseReply::Erased => Ok(()),
            EraseReply::NotFound => Err(no_such_job(id)),
            EraseReply::Open => {
                let detail = "the job was cancelled but has not ended yet; send the request again";
                Err(ApiError::new(ErrorCode::DeadlineExceeded, detail).with_job(id))
            }
        }
    })
    .await?;
    Ok(json(&EraseResponse { ok: true, erased: 1, more: false }))
}

/// Whose jobs to erase.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Erase {
    /// The jobs of this session.
    session: Option<String>,
    /// The jobs of this tenant.
    tenant: Option<String>,
}

/// `DELETE /v1/jobs`: erases the jobs of a session or of a tenant.
pub(crate) async fn erase_many<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Query(whose): Query<Erase>,
) -> HttpReply {
    let Erase { session, tenant } = whose;
    let object = match (&session, &tenant) {
        (None, None) => {
            let what = "give `session`, `tenant` or both: without them nothing is erased";
            return Err(RequestError::invalid("session", what).into());
        }
        (Some(session), None) => format!("session {session}"),
        (None, Some(tenant)) => format!("tenant {tenant}"),
        (Some(session), Some(tenant)) => format!("session {session} of tenant {tenant}"),
    };
    let done = recorded(&app, &sender, &object, async {
        let tenant = tenant_of(&sender, tenant.as_deref())?;
        let session = session.map(Into::into);
        let query = JobQuery { tenant, session, limit: ERASED_MAX, ..JobQuery::default() };
        Ok(app.engine.erase_jobs(&query).await?)
    })
    .await?;
    Ok(json(&EraseResponse { ok: true, erased: done.erased, more: done.more }))
}
