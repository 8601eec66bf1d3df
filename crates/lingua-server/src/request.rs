//! What every request passes, and what routes read from a request.
//!
//! Start at [`request_scope`]. It gives the request an id, runs it in a span that carries the id,
//! refuses a body that is announced as too long, and logs the outcome.
//!
//! Invariants: every response names its request in `X-Request-Id`; every error response is JSON;
//! a body is bounded in size and in time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{ConnectInfo, FromRequest, MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::StreamExt;
use lingua_core::id::hex;
use lingua_engine::Timer;
use lingua_engine::byte_budget::HeldBytes;
use lingua_store::Store;
use lingua_wire::ErrorCode;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use crate::app::App;
use crate::auth::{Access, Sender};
use crate::cors::Cors;
use crate::guard::{check_host, guard, guard_open, remote_of};
use crate::limit::RateState;
use crate::metrics::Refused;
use crate::reply::{ApiError, RequestRefusal, SharedBody};
use crate::routes::jobs::new_number;

const REQUEST_ID: &str = "x-request-id";

/// Browsers must not take a response for a page or a script.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// Longest request id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// Longest text of an error of axum itself.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// The id of a request: the client's `X-Request-Id` if it is well-formed, else a new one.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    fn of(headers: &HeaderMap, now_ms: u64) -> Self {
        let given = headers.get(REQUEST_ID).map(HeaderValue::as_bytes).filter(|id| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
        });
        let made = hex(new_number(now_ms));
        let id = std::str::from_utf8(given.unwrap_or(&made)).expect("checked to be ASCII");
        Self(id.into())
    }

    /// The span of the request; if it brings a job, that adds its ids.
    fn span(&self, method: &Method, route: &str) -> Span {
        let (trace_id, job_id) = (field::Empty, field::Empty);
        tracing::info_span!("request", request_id = &*self.0, %method, route, trace_id, job_id)
    }

    /// The trace id for a job whose body has none: that of a W3C `traceparent` header, else the
    /// request id.
    pub(crate) fn trace<'a>(&'a self, headers: &'a HeaderMap) -> &'a str {
        headers.get("traceparent").and_then(trace_of).unwrap_or(&self.0)
    }
}

/// Runs a request in its span and completes its response. Most routes are guarded.
pub(crate) async fn request_scope<S: Store, T: Timer>(
    app: App<S, T>,
    access: Option<Access>,
    mut request: Request,
    next: Next,
) -> Response {
    let cors = Cors::of(request.headers(), &app.options.allowed_origins);
    if let Some(mut permission) = cors.permission(&request) {
        cors.mark(permission.headers_mut());
        return permission;
    }
    // From here on the caller's address is that of the connection.
    if let Some(&ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() {
        let caller = app.options.trusted_proxies.caller(peer, request.headers());
        request.extensions_mut().insert(ConnectInfo(caller));
    }
    let (started, id) = (Instant::now(), RequestId::of(request.headers(), app.engine.now_ms()));
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map(MatchedPath::as_str);
    let route = path.unwrap_or("none");
    let method = request.method().clone();
    let span = id.span(&method, route);
    let bytes_max = app.options.body_bytes_max;
    request.extensions_mut().insert(id.clone());
    async move {
        let admitted = match announced_bytes(request.headers()) {
            Some(bytes) if bytes > bytes_max as u64 => Err(too_large(bytes_max)),
            _ => check_host(&app, &request).and_then(|()| match access {
                Some(access) => guard(&app, access, &mut request).map(Some),
                None => guard_open(&app, &request).map(|()| None),
            }),
        };
        let remote = remote_of(&request);
        let caller = request.extensions().get::<Sender>().cloned();
        let rate = request.extensions().get::<RateState>().copied();
        let object = request.uri().path().to_owned();
        let mut response = match admitted {
            Ok(sender) => {
                let answered = async {
                    let response = as_json_error(next.run(request).await).await;
                    held(&app, response).await
                };
                match sender {
                    Some(sender) => while_allowed(&app, &sender, answered).await,
                    None => answered.await,
                }
            }
            Err(error) => error.into_response(),
        };
        let name = HeaderValue::from_str(&id.0).expect("checked to be ASCII");
        response.headers_mut().insert(REQUEST_ID, name);
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        cors.mark(response.headers_mut());
        if let Some(rate) = rate {
            tell_rate(rate, response.headers_mut());
        }
        let elapsed_ms = started.elapsed().as_millis() as u64;
        tracing::debug!(status = response.status().as_u16(), elapsed_ms, "request done");
        app.metrics.count_request(path, &method, response.status());
        log_refused_job(&app, &method, route, &response);
        if let Some((refused, outcome)) = unrecorded_refusal(&response) {
            app.metrics.count_refused(refused);
            let action = format!("{method} {route}");
            app.options.audit.refusal(caller.as_ref(), remote, &action, &object, outcome);
        }
        response
    }
    .instrument(span)
    .await
}

/// Waits for a response as long as the caller has access: a long poll ends with it.
async fn while_allowed<S: Store, T: Timer>(
    app: &App<S, T>,
    sender: &Sender,
    answered: impl Future<Output = Response>,
) -> Response {
    let watch = app.options.tokens.watch(sender);
    tokio::select! {
        biased;
        response = answered => response,
        error = watch.ended() => ApiError::from(error).into_response(),
    }
}

/// Tells a caller that has a limit what is left of it.
fn tell_rate(rate: RateState, headers: &mut HeaderMap) {
    headers.insert("ratelimit-limit", rate.limit.into());
    headers.insert("ratelimit-remaining", rate.remaining.into());
    headers.insert("ratelimit-reset", rate.reset_ms.div_ceil(1_000).into());
}

/// The right that was missing, and the outcome for the audit log.
fn unrecorded_refusal(response: &Response) -> Option<(Refused, &'static str)> {
    response.extensions().get::<RequestRefusal>()?.unrecorded
}

/// Logs why a job was not accepted. A job that was accepted and failed has a line of its own.
fn log_refused_job<S: Store, T: Timer>(
    app: &App<S, T>,
    method: &Method,
    route: &str,
    response: &Response,
) {
    const JOB_ROUTES: [&str; 2] = ["/v1/dispatch/f2f", "/v1/translate"];
    let Some(refusal) = response.extensions().get::<RequestRefusal>() else { return };
    if method != Method::POST || !JOB_ROUTES.contains(&route) || refusal.has_job {
        return;
    }
    let RequestRefusal { reason, detail, .. } = refusal;
    if let Some(left_out) = app.refused_log.admit(reason, app.engine.now_ms()) {
        tracing::info!(reason, %detail, left_out, "the job was refused");
    }
}

fn announced_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(bytes_max: usize) -> ApiError {
    let detail = format!("the body is longer than {bytes_max} bytes; send less at once");
    ApiError::new(ErrorCode::PayloadTooLarge, detail)
}

/// Turns an error of axum itself, which is plain text, into ours.
async fn as_json_error(response: Response) -> Response {
    let status = response.status();
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    let is_ours = response.headers().get(header::CONTENT_TYPE).is_some_and(is_json);
    if is_ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let code = match status {
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::PayloadTooLarge,
        status if status.is_server_error() => ErrorCode::Internal,
        _ => ErrorCode::InvalidRequest,
    };
    let text = to_bytes(response.into_body(), ERROR_BYTES_MAX).await.unwrap_or_default();
    let detail = in_our_words(&String::from_utf8_lossy(&text));
    ApiError::new(code, detail).with_status(status).into_response()
}

/// What axum says about a request, for people who do not know axum.
fn in_our_words(text: &str) -> String {
    if let Some(query) = text.strip_prefix("Failed to deserialize query string: ") {
        let value = query.replace("invalid digit found in string", "not a whole number");
        return format!("the query cannot be read: {value}");
    }
    if text.starts_with("Invalid URL") {
        return "the path is not UTF-8 after its percent signs are decoded".to_owned();
    }
    if text.contains(" header did not include ") || text.contains("upgrade") {
        return "this route is a WebSocket; open it with ws:// or wss://".to_owned();
    }
    text.to_owned()
}

/// Counts a long response against its budget until its client has read it.
async fn held<S: Store, T: Timer>(app: &App<S, T>, response: Response) -> Response {
    let is_long = |bytes: &u64| *bytes > SMALL_BYTES as u64;
    let bytes = response.body().size_hint().exact().filter(is_long);
    let is_shared = response.extensions().get::<SharedBody>().is_some();
    let Some(bytes) = bytes.filter(|_| !is_shared) else { return response };
    let held = match app.engine.hold_response(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        Ok(held) => held,
        Err(full) => return ApiError::from(full).into_response(),
    };
    let (parts, body) = response.into_parts();
    // The length is known: the body is in memory, and comes in one part.
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    Response::from_parts(parts, Body::from(Bytes::from_owner(HeldResponse { bytes, _held: held })))
}

/// A response in memory; dropped when the connection has written it.
struct HeldResponse {
    bytes: Bytes,
    _held: HeldBytes,
}

impl AsRef<[u8]> for HeldResponse {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The trace id within `version-traceid-parentid-flags`.
fn trace_of(traceparent: &HeaderValue) -> Option<&str> {
    let mut parts = traceparent.to_str().ok()?.split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let well_formed = version.len() == 2 && trace.len() == 32 && parent.len() == 16;
    let all_hex = is_hex(version) && is_hex(trace) && is_hex(parent);
    let is_set = |text: &str| text.bytes().any(|byte| byte != b'0');
    (well_formed && all_hex && version != "ff" && is_set(trace) && is_set(parent)).then_some(trace)
}

/// A body, or a response, up to this length is not counted against the budgets: a connection holds
/// as much in its buffers anyway.
const SMALL_BYTES: usize = 16 << 10;

/// The whole body of a request.
pub(crate) struct BodyBytes(pub(crate) Bytes);

impl BodyBytes {
    /// Reads a body. Its parts are copied together as they come: each part that is kept keeps the
    /// buffer that it was read into, however small the part is.
    async fn read<S: Store, T: Timer>(body: Body, app: &App<S, T>) -> Result<Self, ApiError> {
        let (mut parts, bytes_max) = (body.into_data_stream(), app.options.body_bytes_max);
        let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
        let mut held: Option<HeldBytes> = None;
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| {
                let detail = format!("cannot read the body: {error}");
                ApiError::new(ErrorCode::InvalidRequest, detail)
            })?;
            let bytes = first.len() + whole.len() + part.len();
            if bytes > bytes_max {
                return Err(too_large(bytes_max));
            }
            if first.is_empty() && whole.is_empty() {
                first = part;
                continue;
            }
            whole.extend_from_slice(&std::mem::take(&mut first));
            if bytes > SMALL_BYTES {
                let more = app.engine.hold_request(part.len())?;
                match &mut held {
                    Some(held) => held.absorb(more),
                    None => held = Some(more),
                }
            }
            whole.extend_from_slice(&part);
        }
        drop(held);
        Ok(Self(if whole.is_empty() { first } else { whole.freeze() }))
    }
}

impl<S: Store, T: Timer> FromRequest<App<S, T>> for BodyBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App<S, T>) -> Result<Self, ApiError> {
        let options = &app.options;
        let limit = Duration::from_millis(options.body_ms);
        let read = Self::read(request.into_body(), app);
        tokio::time::timeout(limit, read).await.unwrap_or_else(|_| {
            let ms = options.body_ms;
            let detail = format!("the body did not arrive within {ms} ms; send it again");
            let late = ApiError::new(ErrorCode::InvalidRequest, detail);
            Err(late.with_status(StatusCode::REQUEST_TIMEOUT))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_taken_from_the_client_only_if_it_is_well_formed() {
        let of = |id: &[u8]| {
            let id = HeaderValue::from_bytes(id).unwrap();
            RequestId::of(&HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), id)]), 1)
        };
        assert_eq!(&*of(b"order-7").0, "order-7");
        for bad in [&b""[..], b"two words", b"\xff", &[b'x'; REQUEST_ID_BYTES_MAX + 1]] {
            let made = of(bad).0;
            assert_eq!((made.len(), made.as_bytes() == bad), (32, false));
        }
        assert_eq!(RequestId::of(&HeaderMap::new(), 1).0.len(), 32);
    }

    #[test]
    fn a_trace_id_is_read_from_a_valid_traceparent_only() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let of = |text: &str| trace_of(&HeaderValue::from_str(text).unwrap()).map(str::to_owned);
        let read = of(&format!("00-{trace}-b7ad6b7169203331-01"));
        assert_eq!(read.as_deref(), Some(trace));
        for bad in [
            "",
            "00",
            &format!("ff-{trace}-b7ad6b7169203331-01"),
            &format!("00-{trace}-0000000000000000-01"),
            &format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            &format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            &format!("00-{}-b7ad6b7169203331-01", &trace[1..]),
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
