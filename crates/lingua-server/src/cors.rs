//! Lets web pages of the allowed origins call this server from a browser.
//!
//! Start at [`Cors`]. Pages of other origins get no permission, so their browser refuses the call;
//! `guard` refuses it here as well.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What a page may send.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Idempotency-Key, X-Request-Id, traceparent",
);

/// What a page may read of a response, besides the usual.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-Request-Id, Retry-After, WWW-Authenticate, RateLimit-Limit, RateLimit-Remaining, \
         RateLimit-Reset",
);

/// How long a browser may remember the permission, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The web page that calls, if it is one of an allowed origin.
pub(crate) struct Cors {
    origin: Option<HeaderValue>,
    /// Responses differ by origin: a cache must know.
    varies: bool,
}

impl Cors {
    pub(crate) fn of(headers: &HeaderMap, allowed: &[String]) -> Self {
        let is_allowed = |origin: &&HeaderValue| allowed.iter().any(|known| *known == **origin);
        let origin = headers.get(header::ORIGIN).filter(is_allowed).cloned();
        Self { origin, varies: !allowed.is_empty() }
    }

    /// The response to a browser that asks for permission before a call.
    pub(crate) fn permission(&self, request: &Request) -> Option<Response> {
        let asked = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        (self.origin.is_some() && asked && request.method() == Method::OPTIONS).then(|| {
            let permission = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
                (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
            ];
            (StatusCode::NO_CONTENT, permission).into_response()
        })
    }

    /// Tells the browser that the page may read the response.
    pub(crate) fn mark(self, headers: &mut HeaderMap) {
        if let Some(origin) = self.origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        if self.varies {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
    }
}
