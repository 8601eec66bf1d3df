//! HTTP requests and responses as bytes, over connections that are kept open.
//!
//! Start at [`Transport::send`]. Invariant: every request has a time limit and every response a
//! size limit.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::error::ClientError;
use crate::tls;

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an unused connection is kept; shorter than servers usually keep theirs.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Most unused connections that are kept: a busy client has as many as it has requests at once.
const IDLE_MAX: usize = 1024;

/// Longest response, in bytes: a list of all nodes that there can be.
const RESPONSE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A request.
#[derive(Debug)]
pub(super) struct HttpRequest {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) body: Option<Bytes>,
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    pub(super) time_limit: Duration,
}

/// Connections to one scheduler. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at the end.
    pub(super) base_url: String,
    pub(super) token: Option<HeaderValue>,
}

impl Transport {
    /// Checks the address; nothing is connected yet.
    pub(super) fn new(base_url: &str) -> Result<Self, ClientError> {
        let bad =
            |detail: &str| ClientError::BadUrl { url: base_url.to_owned(), detail: detail.into() };
        let uri: Uri = base_url.parse().map_err(|_| bad("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => tls::trust_nobody(),
            Some("https") => tls::trust_system(),
            _ => return Err(bad("it does not start with http:// or https://")),
        };
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let base_url = base_url.trim_end_matches('/').to_owned();
        Ok(Self { http: http_client(&tls), base_url, token: None })
    }

    pub(super) fn set_trust(&mut self, tls: &ClientConfig) {
        self.http = http_client(tls);
    }

    /// Sends a request and waits for the whole response, of any status.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<Response<Bytes>, ClientError> {
        let waited_ms = request.time_limit.as_millis() as u64;
        let timed_out = |_| ClientError::TimedOut { url: self.base_url.clone(), waited_ms };
        timeout(request.time_limit, self.send_untimed(request)).await.map_err(timed_out)?
    }

    async fn send_untimed(&self, call: HttpRequest) -> Result<Response<Bytes>, ClientError> {
        let url = format!("{}{}", self.base_url, call.path);
        let mut request = Request::builder().method(call.method).uri(&url);
        let token = self.token.clone().map(|token| (AUTHORIZATION, token));
        let json = HeaderValue::from_static("application/json");
        let content_type = call.body.is_some().then_some((CONTENT_TYPE, json));
        for (name, value) in token.into_iter().chain(call.header).chain(content_type) {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(call.body.unwrap_or_default()))
            .map_err(|error| ClientError::BadUrl { url, detail: error.to_string() })?;
        let response =
            self.http.request(request).await.map_err(|error| match tls::distrust(&error) {
                Some(detail) => ClientError::Untrusted { url: self.base_url.clone(), detail },
                None => match tls::mix_up(&error, self.base_url.starts_with("https:")) {
                    Some(advice) => self.unreachable(advice.to_owned()),
                    None => self.unreachable(innermost(&error)),
                },
            })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => ClientError::BadResponse {
                url: self.base_url.clone(),
                status: parts.status.as_u16(),
                detail: format!("it is longer than {RESPONSE_BYTES_MAX} bytes"),
            },
            None => self.unreachable(format!("the response broke off: {error}")),
        })?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    fn unreachable(&self, detail: String) -> ClientError {
        ClientError::Unreachable { url: self.base_url.clone(), detail }
    }
}

fn http_client(tls: &ClientConfig) -> Http<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls.clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Http::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_MAX)
        .build(connector)
}

pub(super) fn header_value(what: &'static str, text: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(text).map_err(|_| ClientError::BadHeader { what })
}

/// The innermost cause of an error: "connection refused" instead of "client error".
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
