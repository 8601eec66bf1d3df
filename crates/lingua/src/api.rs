//! Asks a scheduler over HTTP, for the commands that people type.
//!
//! Start at [`Api`]. Answers are kept as bytes, so that `--json` prints what the server said.

use std::error::Error as _;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lingua_wire::ErrorBody;
use lingua_wire::message::{Inbound, parse};

use crate::screen::say;

/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long any answer may take; longer than the longest wait that the server allows itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(90);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Which scheduler, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Where the scheduler is.
    #[arg(long, global = true, env = "LINGUA_URL", default_value = "http://127.0.0.1:7410")]
    pub(crate) url: String,
    /// Token to show it, if it wants one.
    #[arg(long, global = true, env = "LINGUA_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Print the scheduler's JSON as it is.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Target {
    /// The scheduler to ask; nothing is connected yet.
    pub(crate) fn api(&self) -> Result<Api, ApiError> {
        Api::new(&self.url, self.token.as_deref())
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the address {url:?} is not usable: {why}; give one like http://127.0.0.1:7410")]
    BadUrl { url: String, why: String },
    #[error("the token has characters that cannot be sent; use printable ASCII")]
    BadToken,
    #[error(
        "cannot reach a scheduler at {url} ({why}); start one with 'lingua serve', or say where \
         it is with --url or LINGUA_URL"
    )]
    Unreachable { url: String, why: String },
    #[error("{code}: {detail}{}", advice(.code))]
    Refused { code: String, detail: String },
    #[error("{url} answered with status {status} and no reason; is it a Lingua scheduler?")]
    Strange { url: String, status: u16 },
}

impl ApiError {
    /// One word for statistics.
    pub(crate) fn code(&self) -> &str {
        match self {
            Self::BadUrl { .. } | Self::BadToken => "INVALID_REQUEST",
            Self::Unreachable { .. } => "UNREACHABLE",
            Self::Refused { code, .. } => code,
            Self::Strange { .. } => "BAD_ANSWER",
        }
    }
}

/// What the server's own words leave out: how to do it with this program.
fn advice(code: &str) -> &'static str {
    match code {
        "UNAUTHORIZED" | "FORBIDDEN" => "; give a token with --token or LINGUA_TOKEN",
        _ => "",
    }
}

/// A scheduler. Cheap to clone; clones share connections, which are kept open.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    http: Client<HttpConnector, Full<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
}

impl Api {
    /// Checks the address and the token.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, ApiError> {
        let bad = |why: &str| ApiError::BadUrl { url: url.to_owned(), why: why.to_owned() };
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| bad("it is no address"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(bad("https is not built in, end TLS in front of it")),
            _ => return Err(bad("it does not start with http://")),
        }
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
        let token = token.transpose().map_err(|_| ApiError::BadToken)?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let http =
            Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { http, base, token })
    }

    /// Asks.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Orders.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        self.call(Method::POST, path, body).await
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        let calling = self.call_untimed(method, path, body);
        match tokio::time::timeout(ANSWER_TIMEOUT, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(self.unreachable("it does not answer".to_owned())),
        }
    }

    async fn call_untimed(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ApiError> {
        let url = format!("{}{path}", self.base);
        let mut request = Request::builder().method(method).uri(&url);
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| ApiError::BadUrl { url, why: error.to_string() })?;
        let answer = self.http.request(request).await.map_err(|error| {
            self.unreachable(error.source().map_or_else(|| error.to_string(), deepest))
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| self.unreachable(format!("the answer broke off: {error}")))?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        Err(match parse::<ErrorBody>(&body) {
            Ok(said) => ApiError::Refused { code: said.error, detail: said.detail },
            Err(_) => ApiError::Strange { url: self.base.clone(), status: status.as_u16() },
        })
    }

    fn unreachable(&self, why: String) -> ApiError {
        ApiError::Unreachable { url: self.base.clone(), why }
    }
}

/// Reads an answer.
pub(crate) fn read<'a, M: Inbound<'a>>(answer: &'a [u8]) -> anyhow::Result<M> {
    parse(answer).context("the scheduler's answer is not understood; is it of another version?")
}

/// Prints an answer as it came.
pub(crate) fn print_raw(answer: &[u8]) {
    say(String::from_utf8_lossy(answer).trim_end());
}

/// What an error comes from in the end: "connection refused" instead of "client error".
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_addresses_are_taken() {
        assert!(Api::new("http://127.0.0.1:7410/", None).is_ok());
        for url in ["https://example.org", "ws://127.0.0.1:7410", "127.0.0.1:7410", "http://a b"] {
            let error = Api::new(url, None).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7410"), "{error}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_refused() {
        let error = Api::new("http://127.0.0.1:7410", Some("a\nb")).unwrap_err();
        assert!(matches!(error, ApiError::BadToken));
    }

    #[test]
    fn a_missing_token_is_explained_in_terms_of_flags() {
        let refused = |code: &str| ApiError::Refused { code: code.into(), detail: "no".into() };
        assert!(refused("UNAUTHORIZED").to_string().contains("--token"));
        assert_eq!(refused("JOB_NOT_FOUND").to_string(), "JOB_NOT_FOUND: no");
    }
}
