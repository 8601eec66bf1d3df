//! Every HTTP route of the scheduler as a typed call.
//!
//! Start at [`Client::dispatch`]. `client/transport.rs` moves the bytes, `client/error.rs` has the
//! errors.
//!
//! Invariant: nothing is sent twice. To repeat a request, ask [`ClientError::is_safe_to_retry`]
//! first, or give it a key ([`Client::dispatch_once`]).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::{Method, Response, StatusCode};
use lingua_core::job::JobState;
use lingua_core::{JobId, LangPair, NodeId};
use lingua_wire::client::{CancelResponse, Dispatch, DispatchResponse};
use lingua_wire::view::{
    ClusterView, ExplainResponse, JobList, JobView, NodeList, NodeView, PoolList, PoolView,
};
use lingua_wire::{ErrorBody, Message, parse, to_json};
use serde::de::DeserializeOwned;

mod error;
mod transport;

pub use error::ClientError;

use crate::tls;
use transport::{HttpRequest, Transport, header_value};

/// How long a request may take, besides the time that it asks the scheduler to wait.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long the scheduler works on a translation that names no deadline.
const TRANSLATE_MS_DEFAULT: u64 = 30_000;

/// How long the scheduler may wait before it answers a raw request.
const RAW_WAIT_MS: u64 = 60_000;

/// How much of an unreadable response an error repeats, in characters.
const SHOWN_CHARS_MAX: usize = 200;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A client of one scheduler. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Transport,
}

impl Client {
    /// A client of the scheduler at this address, such as `http://127.0.0.1:7410`. For `https://`,
    /// the certificates of this machine are trusted. Nothing is connected yet.
    pub fn new(base_url: &str) -> Result<Self, ClientError> {
        Ok(Self { transport: Transport::new(base_url)? })
    }

    /// Shows this token with every request.
    pub fn with_token(mut self, token: &str) -> Result<Self, ClientError> {
        let mut value = header_value("token", &format!("Bearer {token}"))?;
        value.set_sensitive(true);
        self.transport.token = Some(value);
        Ok(self)
    }

    /// Trusts the certificates in this PEM file instead of those of this machine.
    pub fn with_ca(mut self, path: &Path) -> Result<Self, ClientError> {
        let trust = tls::trust_file(path).map_err(|detail| ClientError::BadCa { detail })?;
        self.transport.set_trust(&trust);
        Ok(self)
    }

    /// Sends a job to a node and returns once it was sent.
    pub async fn dispatch(&self, job: &Dispatch<'_>) -> Result<DispatchResponse, ClientError> {
        self.fetch(dispatch_request(job)).await
    }

    /// Sends a job like [`dispatch`](Self::dispatch). Calls with the same key make one job.
    pub async fn dispatch_once(
        &self,
        job: &Dispatch<'_>,
        key: &str,
    ) -> Result<DispatchResponse, ClientError> {
        let header = Some((IDEMPOTENCY_KEY, header_value("idempotency key", key)?));
        self.fetch(HttpRequest { header, ..dispatch_request(job) }).await
    }

    /// Sends a job and waits for its result.
    pub async fn translate(&self, job: &Dispatch<'_>) -> Result<JobView, ClientError> {
        let deadline_ms = job.options.as_ref().and_then(|options| options.deadline_ms);
        let request = post("/v1/translate", Some(to_json(job)));
        self.fetch(request.waiting(deadline_ms.unwrap_or(TRANSLATE_MS_DEFAULT))).await
    }

    /// A job; waits up to `wait_ms` for its end.
    pub async fn job(&self, id: JobId, wait_ms: u64) -> Result<JobView, ClientError> {
        self.fetch(get(format!("/v1/jobs/{id}?wait_ms={wait_ms}")).waiting(wait_ms)).await
    }

    /// Jobs, the newest first; of one state or of any.
    pub async fn jobs(
        &self,
        state: Option<JobState>,
        limit: Option<u32>,
    ) -> Result<JobList, ClientError> {
        let state = state.map(|state| format!("state={state}"));
        let limit = limit.map(|limit| format!("limit={limit}"));
        let query: Vec<String> = state.into_iter().chain(limit).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        self.fetch(get(format!("/v1/jobs{mark}{}", query.join("&")))).await
    }

    /// Cancels a job; the response says how it ended.
    pub async fn cancel(&self, id: JobId) -> Result<CancelResponse, ClientError> {
        self.fetch(post(format!("/v1/jobs/{id}/cancel"), None)).await
    }

    /// The nodes that the token may see, with state, load and slots.
    pub async fn nodes(&self) -> Result<NodeList, ClientError> {
        self.fetch(get("/v1/nodes")).await
    }

    /// One node with its state, load and slots.
    pub async fn node(&self, id: &NodeId) -> Result<NodeView, ClientError> {
        self.fetch(get(format!("/v1/nodes/{id}"))).await
    }

    /// Lets a node finish its jobs and accept no more.
    pub async fn drain(&self, id: &NodeId) -> Result<(), ClientError> {
        self.send(post(format!("/v1/nodes/{id}/drain"), None)).await.map(drop)
    }

    /// Lets a drained node accept jobs again.
    pub async fn resume(&self, id: &NodeId) -> Result<(), ClientError> {
        self.send(post(format!("/v1/nodes/{id}/resume"), None)).await.map(drop)
    }

    /// The pools of the fleet with their numbers of nodes and slots.
    pub async fn pools(&self) -> Result<PoolList, ClientError> {
        self.fetch(get("/v1/pools")).await
    }

    /// The pool of a direction, with its nodes.
    pub async fn pool(&self, pair: &LangPair) -> Result<PoolView, ClientError> {
        self.fetch(get(format!("/v1/pools/{pair}"))).await
    }

    /// The scheduler processes, the leader and the store.
    pub async fn cluster(&self) -> Result<ClusterView, ClientError> {
        self.fetch(get("/v1/cluster")).await
    }

    /// Why each node would or would not get such a job now.
    pub async fn explain(&self, job: &Dispatch<'_>) -> Result<ExplainResponse, ClientError> {
        self.fetch(post("/v1/explain", Some(to_json(job)))).await
    }

    /// The metrics in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        let response = self.send(get("/metrics")).await?;
        let text = std::str::from_utf8(response.body());
        text.map(str::to_owned).map_err(|error| self.bad_response(&response, &error.to_string()))
    }

    /// The body of a route's response, for tools that pass it on.
    pub async fn get_raw(&self, path: &str) -> Result<Bytes, ClientError> {
        Ok(self.send(get(path).waiting(RAW_WAIT_MS)).await?.into_body())
    }

    /// The body of the response to a posted body, for tools that pass it on.
    pub async fn post_raw(&self, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let body = Some(body).filter(|body| !body.is_empty());
        let request = request(Method::POST, path.to_owned(), body);
        Ok(self.send(request.waiting(RAW_WAIT_MS)).await?.into_body())
    }

    /// Whether the instance is alive.
    pub async fn healthz(&self) -> Result<bool, ClientError> {
        self.is_up("/healthz").await
    }

    /// Whether the instance is ready: it is not while its store is unreachable.
    pub async fn readyz(&self) -> Result<bool, ClientError> {
        self.is_up("/readyz").await
    }

    async fn is_up(&self, path: &str) -> Result<bool, ClientError> {
        let response = self.transport.send(get(path)).await?;
        match response.status() {
            status if status.is_success() => Ok(true),
            StatusCode::SERVICE_UNAVAILABLE => Ok(false),
            _ => Err(self.refused(&response)),
        }
    }

    async fn fetch<M: Message + DeserializeOwned>(
        &self,
        request: HttpRequest,
    ) -> Result<M, ClientError> {
        let response = self.send(request).await?;
        parse(response.body()).map_err(|error| self.bad_response(&response, &error.detail))
    }

    /// The response of a request that succeeded.
    async fn send(&self, request: HttpRequest) -> Result<Response<Bytes>, ClientError> {
        let response = self.transport.send(request).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refused(&response)),
        }
    }

    fn refused(&self, response: &Response<Bytes>) -> ClientError {
        let status = response.status().as_u16();
        match parse::<ErrorBody>(response.body()) {
            Ok(body) => ClientError::Refused { body: Box::new(body), status },
            Err(_) => {
                let text = String::from_utf8_lossy(response.body());
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                self.bad_response(response, &format!("{shown:?}"))
            }
        }
    }

    fn bad_response(&self, response: &Response<Bytes>, detail: &str) -> ClientError {
        let (url, status) = (self.transport.base_url.clone(), response.status().as_u16());
        ClientError::BadResponse { url, status, detail: detail.to_owned() }
    }
}

impl HttpRequest {
    /// Adds the time that the scheduler may wait before it answers.
    fn waiting(mut self, wait_ms: u64) -> Self {
        self.time_limit += Duration::from_millis(wait_ms);
        self
    }
}

fn dispatch_request(job: &Dispatch<'_>) -> HttpRequest {
    let wait_ms = job.options.as_ref().and_then(|options| options.wait_ms);
    post("/v1/dispatch/f2f", Some(to_json(job))).waiting(wait_ms.unwrap_or_default())
}

fn get(path: impl Into<String>) -> HttpRequest {
    request(Method::GET, path.into(), None)
}

fn post(path: impl Into<String>, body: Option<String>) -> HttpRequest {
    request(Method::POST, path.into(), body.map(Bytes::from))
}

fn request(method: Method, path: String, body: Option<Bytes>) -> HttpRequest {
    HttpRequest { method, path, body, header: None, time_limit: TIME_LIMIT }
}
