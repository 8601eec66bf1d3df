//! HTTP requests and responses as bytes, over connections that are kept open.
//!
//! Start at [`Transport::send`]. Invariant: every request has a time limit and every response a
//! size limit.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::timeout;

use super::error::ClientError;
use crate::tls::{self, Trust};

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

/// A response of any status.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Connections to one scheduler. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: Http<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at the end.
    base: String,
    token: Option<HeaderValue>,
}

impl Transport {
    /// Checks the address; nothing is connected yet.
    pub(super) fn new(base: &str) -> Result<Self, ClientError> {
        let bad =
            |detail: &str| ClientError::BadUrl { url: base.to_owned(), detail: detail.into() };
        let uri: Uri = base.parse().map_err(|_| bad("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => tls::unused(),
            Some("https") => Trust::System.config(),
            _ => return Err(bad("it does not start with http:// or https://")),
        };
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let http = http_client(&tls);
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), token: None })
    }

    pub(super) fn set_trust(&mut self, trust: &Trust) {
        self.http = http_client(&trust.config());
    }

    pub(super) fn set_token(&mut self, token: &str) -> Result<(), ClientError> {
        let mut value = header_value("token", &format!("Bearer {token}"))?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(())
    }

    /// The address that requests go to.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request and waits for the whole response.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ClientError> {
        let waited_ms = request.time_limit.as_millis() as u64;
        let timed_out = |_| ClientError::TimedOut { url: self.base.clone(), waited_ms };
        timeout(request.time_limit, self.send_untimed(request)).await.map_err(timed_out)?
    }

    async fn send_untimed(&self, call: HttpRequest) -> Result<HttpResponse, ClientError> {
        let url = format!("{}{}", self.base, call.path);
        let mut request = Request::builder().method(call.method).uri(&url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some((name, value)) = call.header {
            request = request.header(name, value);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(call.body.unwrap_or_default());
        let request = request
            .body(body)
            .map_err(|error| ClientError::BadUrl { url, detail: error.to_string() })?;
        let response = self.http.request(request).await.map_err(|error| {
            if let Some(detail) = tls::distrust(&error) {
                return ClientError::Untrusted { url: self.base.clone(), detail };
            }
            let cause = error.source().map_or_else(|| error.to_string(), innermost);
            self.unreachable(cause)
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => ClientError::BadResponse {
                url: self.base.clone(),
                status,
                detail: format!("it is longer than {RESPONSE_BYTES_MAX} bytes"),
            },
            None => self.unreachable(format!("the response broke off: {error}")),
        })?;
        Ok(HttpResponse { status, body: body.to_bytes() })
    }

    fn unreachable(&self, detail: String) -> ClientError {
        ClientError::Unreachable { url: self.base.clone(), detail }
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
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
