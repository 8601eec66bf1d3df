//! Lets web pages of the allowed origins call this server from a browser.
//!
//! Start at [`cors`]. Pages of other origins get no permission, so their browser refuses the call;
//! `guard` refuses it here as well.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lingua_engine::Timer;
use lingua_store::Store;

use crate::app::App;

/// What a page may send.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Idempotency-Key, X-Request-Id, traceparent",
);

/// What a page may read of a response, besides the usual.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("X-Request-Id, Retry-After, WWW-Authenticate");

/// How long a browser may remember the permission, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Answers a browser's question before a call, and marks the response of the call itself.
pub(crate) async fn cors<S: Store, T: Timer>(
    State(app): State<App<S, T>>,
    request: Request,
    next: Next,
) -> Response {
    let allowed = &app.options.allowed_origins;
    let origin = request.headers().get(header::ORIGIN);
    let origin = origin.filter(|origin| allowed.iter().any(|known| *known == **origin)).cloned();
    let asked = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let Some(origin) = origin else {
        let mut response = next.run(request).await;
        if !allowed.is_empty() {
            response.headers_mut().append(header::VARY, HeaderValue::from_static("Origin"));
        }
        return response;
    };
    let mut response = if asked && request.method() == Method::OPTIONS {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        response
    } else {
        let mut response = next.run(request).await;
        response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    response
}
