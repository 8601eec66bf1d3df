//! What clients call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequest, Path, Query, Request};
use axum::http::HeaderValue;
use lingua_core::job::Payload;
use lingua_core::{JobId, NodeId};
use lingua_engine::Timer;
use lingua_engine::handle::Waited;
use lingua_engine::request::{IdempotencyKey, JobEnd, JobQuery, JobRequest, JobStatus};
use lingua_store::Store;
use lingua_wire::client::{CancelResponse, DispatchResponse};
use lingua_wire::message::check_label;
use lingua_wire::view::JobList;
use lingua_wire::{ErrorCode, RequestError};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tracing::{Span, record_all};

use crate::app::{App, Shared, administered};
use crate::auth::Sender;
use crate::convert;
use crate::metrics::Refused;
use crate::reply::{ApiError, HttpReply, json};
use crate::request::{BodyBytes, RequestId};

/// Most jobs in one listing.
const LIST_MAX: usize = 1000;

/// Jobs in a listing whose length is not said.
const LIST_DEFAULT: usize = 100;

/// Longest wait for the end of a job.
const WAIT_MS_MAX: u64 = 60_000;

/// How long after its deadline the end of a job is waited for.
const END_MS: u64 = 5_000;

/// How often a job whose client has hung up is cancelled before it is left to its deadline.
const CANCELS_MAX: u32 = 5;

/// How long between two such tries.
const CANCEL_PAUSE: Duration = Duration::from_millis(500);

const KEY_HEADER: &str = "idempotency-key";

/// `POST /v1/dispatch/f2f`: accepts a job and answers once it was sent to a node.
pub(crate) async fn dispatch<S: Store, T: Timer>(
    app: Shared<S, T>,
    IncomingJob(job): IncomingJob,
) -> HttpReply {
    let wait_ms = job.spec.wait_ms.unwrap_or(0).saturating_add(app.options.translate_ms);
    let id = app.engine.submit(job).await?.id;
    let waited = app.engine.wait_sent(id, wait_ms).await?;
    let progress = reached(id, waited, "the job was not sent in time")?.progress;
    let last = progress.attempts().last().map(|last| last.node.clone());
    let Some(node_id) = progress.node.or(last) else {
        let detail = "the job was cancelled before it was sent";
        return Err(ApiError::new(ErrorCode::StaleAttempt, detail).with_job(id));
    };
    Ok(json(&DispatchResponse { job_id: id, node_id, attempt_id: progress.attempt }))
}

/// `POST /v1/translate`: accepts a job and answers with what came of it.
pub(crate) async fn translate<S: Store, T: Timer>(
    app: Shared<S, T>,
    IncomingJob(mut job): IncomingJob,
) -> HttpReply {
    let spec = Arc::make_mut(&mut job.spec);
    let deadline_ms = *spec.deadline_ms.get_or_insert(app.options.translate_ms);
    let is_keyed = job.key.is_some();
    let mut hang_up = HangUp { app: (!is_keyed).then(|| app.0.clone()), id: job.id };
    let translated = app.engine.translate(job, deadline_ms.saturating_add(END_MS)).await;
    hang_up.app = None;
    let (id, waited) = translated?;
    let late = format!("the job has not ended within {deadline_ms} ms");
    let ended = app.engine.with_full_result(reached(id, waited, late)?).await;
    Ok(json(&convert::job_view(&ended, true)))
}

/// Cancels a job when its client hangs up: nobody could ask for its result.
struct HangUp<S: Store, T: Timer> {
    /// Absent if the job is not to be cancelled (any longer).
    app: Option<App<S, T>>,
    id: JobId,
}

impl<S: Store, T: Timer> Drop for HangUp<S, T> {
    fn drop(&mut self) {
        let (Some(app), id) = (self.app.take(), self.id) else { return };
        tokio::spawn(async move {
            // The job may still be on its way to the store.
            for _ in 0..CANCELS_MAX {
                match app.engine.cancel(id).await {
                    Ok(Some(_)) => return,
                    Ok(None) | Err(_) => tokio::time::sleep(CANCEL_PAUSE).await,
                }
            }
        });
    }
}

/// The job that a request brings. The body is dropped before the job runs.
pub(crate) struct IncomingJob(JobRequest);

impl<S: Store, T: Timer> FromRequest<App<S, T>> for IncomingJob {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App<S, T>) -> Result<Self, ApiError> {
        let (extensions, headers) = (request.extensions(), request.headers().clone());
        let name = extensions.get::<RequestId>().cloned().expect("every request gets an id");
        let sender = extensions.get::<Sender>().cloned().expect("the guard has let it pass");
        let BodyBytes(body) = BodyBytes::from_request(request, app).await?;
        let id = JobId::new(new_number(app.engine.now_ms()));
        let trace = name.trace(&headers);
        let job = convert::job_request(id, &body, app.job_defaults(&sender), trace);
        // Lines about the request name the job, so that both can be found together.
        let span = Span::current();
        let mut job = job.inspect_err(|_| {
            span.record("trace_id", trace);
        })?;
        record_all!(span, trace_id = &*job.spec.trace, job_id = %id);
        if let Payload::AudioRef(audio_ref) = &job.spec.payload {
            let checked = app.options.audio_refs.check(audio_ref);
            checked.map_err(|what| RequestError::invalid("audio_ref", &what))?;
        }
        let spec = Arc::make_mut(&mut job.spec);
        // A client that asks for more than it may have gets what it may have.
        let limits = app.engine.usage_limiter().limits_of(sender.tenant);
        let priority_max = limits.lowered_by(sender.holder.limits).priority_max;
        spec.priority = spec.priority.min(priority_max.unwrap_or(i32::MAX));
        job.token = sender.limited_token().map(Arc::new);
        if let Some(key) = headers.get(KEY_HEADER) {
            job.key = Some(Box::new(idempotency_key(&sender, key, &body)?));
        }
        Ok(Self(job))
    }
}

/// The job, unless it failed or is not yet as far as its client wants it.
fn reached(id: JobId, waited: Waited, late: impl fmt::Display) -> Result<JobStatus, ApiError> {
    let job = match waited {
        Waited::Reached(job) => job,
        Waited::NotYet(_) => {
            let detail = format!("{late}; it is still open, ask for it by its id");
            return Err(ApiError::new(ErrorCode::DeadlineExceeded, detail).with_job(id));
        }
        Waited::NoSuchJob => return Err(no_such_job(id)),
    };
    match job.progress.ended.as_deref() {
        Some(JobEnd { error: Some(code), detail, .. }) => {
            Err(ApiError::named(code, detail.clone().unwrap_or_default()).with_job(id))
        }
        _ => Ok(job),
    }
}

/// A header of requests that submit a job; only for the description, [`idempotency_key`] reads it.
#[derive(Debug, JsonSchema)]
pub(crate) struct Key {
    /// Makes it safe to repeat the request for an hour: the same key and body answer with the same
    /// job, unless that ended for want of a node, a slot, the store or an instance.
    #[schemars(rename = "Idempotency-Key")]
    _key: Option<String>,
}

/// The key of a request. It belongs to the sender's tenant, and only hashes of it are kept.
fn idempotency_key(
    sender: &Sender,
    key: &HeaderValue,
    body: &[u8],
) -> Result<IdempotencyKey, RequestError> {
    let not_ascii = || RequestError::invalid("Idempotency-Key", "it is not ASCII");
    let key = key.to_str().map_err(|_| not_ascii())?;
    check_label("Idempotency-Key", key)?;
    // A tenant's name has no line feed.
    let owned = Sha256::new().chain_update(sender.tenant.as_str()).chain_update("\n");
    let key = owned.chain_update(key).finalize().into();
    Ok(IdempotencyKey { key, body: Sha256::digest(body).into() })
}

/// The time and the count of the last number that was made.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A unique number that is larger than those made here before: a UUID of version 7 with a count
/// within the millisecond. The random part comes from the thread's own generator, without a
/// system call.
pub(crate) fn new_number(now_ms: u64) -> u128 {
    let next = |last: u64| (last + 1).max(now_ms << 12);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    let tick = next(last.unwrap_or_else(|last| last));
    let mut random: [u8; 10] = rand::random();
    random[0] = (tick >> 8) as u8 & 0x0F;
    random[1] = tick as u8;
    uuid::Builder::from_unix_timestamp_millis(tick >> 12, &random).as_uuid().as_u128()
}

pub(super) fn no_such_job(id: JobId) -> ApiError {
    ApiError::new(ErrorCode::JobNotFound, format!("there is no job {id}, or it ended long ago"))
}

pub(super) fn parse_id(text: &str) -> Result<JobId, ApiError> {
    text.parse().map_err(|error| ApiError::new(ErrorCode::JobNotFound, format!("{error}")))
}

/// How long to wait for the end of a job.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Wait {
    /// Answer when the job has ended, or after this time, at most 60 s; at once by default.
    wait_ms: Option<u64>,
}

/// Fails as for an unknown job if it belongs to another tenant; that is recorded.
pub(super) async fn check_sees<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    id: JobId,
) -> Result<(), ApiError> {
    if sender.scope().is_none() {
        return Ok(());
    }
    match app.engine.job(id).await? {
        Some(job) if sender.sees_job(&job) => Ok(()),
        Some(_) => Err(other_tenants_job(id)),
        None => Err(no_such_job(id)),
    }
}

/// The caller learns nothing; the operator does.
fn other_tenants_job(id: JobId) -> ApiError {
    no_such_job(id).because(Refused::OtherTenant)
}

/// `GET /v1/jobs/{id}`
pub(crate) async fn show<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(id): Path<String>,
    Query(wait): Query<Wait>,
) -> HttpReply {
    let id = parse_id(&id)?;
    let wait_ms = wait.wait_ms.unwrap_or(0).min(WAIT_MS_MAX);
    if wait_ms > 0 {
        check_sees(&app, &sender, id).await?;
    }
    match app.engine.wait_ended(id, wait_ms).await? {
        Waited::Reached(view) | Waited::NotYet(view) if sender.sees_job(&view) => {
            let view = match sender.sees_texts() {
                true => app.engine.with_full_result(view).await,
                false => view,
            };
            Ok(json(&convert::job_view(&view, sender.sees_texts())))
        }
        Waited::Reached(_) | Waited::NotYet(_) => Err(other_tenants_job(id)),
        Waited::NoSuchJob => Err(no_such_job(id)),
    }
}

/// `POST /v1/jobs/{id}/cancel`
pub(crate) async fn cancel<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Path(id): Path<String>,
) -> HttpReply {
    let id = parse_id(&id)?;
    check_sees(&app, &sender, id).await?;
    let cancelled = administered(&app, &sender, ("cancel", &id.to_string()), async {
        app.engine.cancel(id).await?.ok_or_else(|| no_such_job(id))
    })
    .await?;
    Ok(json(&CancelResponse { ok: true, state: cancelled.progress.state }))
}

/// Which jobs are listed.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct List {
    /// Only jobs in this state.
    state: Option<String>,
    /// Only jobs of this session.
    session: Option<String>,
    /// Only jobs whose last attempt is or was on this node.
    node: Option<String>,
    /// At most this many; 100 by default, 1000 at most.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

impl List {
    fn into_query(self) -> Result<JobQuery, RequestError> {
        let invalid = |field| move |what: String| RequestError::invalid(field, &what);
        let state = self.state.map(|name| name.to_ascii_uppercase().parse());
        let node = self.node.map(|node| NodeId::new(&node));
        let after = self.cursor.map(|cursor| cursor.parse::<JobId>());
        let bad_cursor = |_| invalid("cursor")("use the `next` of a page, unchanged".to_owned());
        Ok(JobQuery {
            tenant: None,
            state: state.transpose().map_err(invalid("state"))?,
            session: self.session.map(Into::into),
            node: node.transpose().map_err(|error| invalid("node")(error.to_string()))?,
            after: after.transpose().map_err(bad_cursor)?,
            limit: match self.limit {
                Some(0) => return Err(invalid("limit")("give at least 1".to_owned())),
                limit => limit.unwrap_or(LIST_DEFAULT).min(LIST_MAX),
            },
        })
    }
}

/// `GET /v1/jobs`
pub(crate) async fn list<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    Query(list): Query<List>,
) -> HttpReply {
    let query = JobQuery { tenant: sender.scope(), ..list.into_query()? };
    let page = app.engine.jobs(&query).await?;
    let view = |job| convert::job_view(job, sender.sees_texts());
    let jobs = page.jobs.iter().map(view).collect();
    Ok(json(&JobList { jobs, next: page.next }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_numbers_are_larger_even_within_a_millisecond() {
        let numbers: Vec<u128> = (0..10_000).map(|_| new_number(1_700_000_000_000)).collect();
        assert!(numbers.is_sorted() && numbers[0] < numbers[9_999]);
    }
}
