//! Responses and errors.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lingua_core::JobId;
use lingua_engine::byte_budget::OverBudget;
use lingua_engine::session::SessionRefusal;
use lingua_engine::{NodeError, SubmitError};
use lingua_wire::{ErrorBody, ErrorCode, Message, RequestError, to_json};
use serde::Serialize;

use crate::auth::AccessError;
use crate::metrics::Refused;

/// How long a client should wait before it repeats a request that found no room.
const RETRY_AFTER_MS: u64 = 250;

/// What every route returns.
pub(crate) type HttpReply = Result<Response, ApiError>;

/// An error response, or an error message on a socket.
#[derive(Debug)]
pub(crate) struct ApiError {
    code: ErrorCode,
    status: StatusCode,
    body: Box<ErrorBody>,
    /// The right that was missing, if it was refused for want of one.
    refused: Option<Refused>,
    /// Whether that is counted and on the audit log.
    is_recorded: bool,
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let error = Self::with_body(code, ErrorBody::new(code, detail));
        match code {
            ErrorCode::AllCandidatesFullOrFailed | ErrorCode::RateLimited => {
                error.with_retry_after_ms(RETRY_AFTER_MS)
            }
            _ => error,
        }
    }

    fn with_body(code: ErrorCode, body: ErrorBody) -> Self {
        let status = StatusCode::from_u16(code.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { code, status, body: Box::new(body), refused: None, is_recorded: false }
    }

    /// From the name of a code.
    pub(crate) fn named(code: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::from_name(code).unwrap_or(ErrorCode::Internal), detail)
    }

    /// With another status than the code's own.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn with_job(mut self, job: JobId) -> Self {
        self.body.job_id = Some(job);
        self
    }

    pub(crate) fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.body.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// For want of a right.
    pub(crate) fn because(mut self, refused: Refused) -> Self {
        self.refused = Some(refused);
        self
    }

    /// It is counted and on the audit log already.
    pub(crate) fn recorded(mut self) -> Self {
        self.is_recorded = true;
        self
    }

    /// The right that was missing, if it was refused for want of one.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused
    }

    /// What the audit log calls it: callers are not told that something is another tenant's.
    pub(crate) fn outcome(&self) -> &'static str {
        match self.refused {
            Some(refused @ Refused::OtherTenant) => refused.as_str(),
            _ => self.code.as_str(),
        }
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.body.detail
    }
}

/// Why a request was refused, for the log.
#[derive(Debug, Clone)]
pub(crate) struct RequestRefusal {
    pub(crate) reason: &'static str,
    pub(crate) detail: Arc<str>,
    /// Whether a job was accepted first.
    pub(crate) has_job: bool,
    /// The right that was missing and the outcome for the audit log, unless that is recorded.
    pub(crate) unrecorded: Option<(Refused, &'static str)>,
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        Self::with_body(error.code, error.into())
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        Self::named(error.code(), error.to_string())
    }
}

impl From<OverBudget> for ApiError {
    fn from(error: OverBudget) -> Self {
        Self::named(error.code(), error.to_string())
    }
}

impl From<NodeError> for ApiError {
    fn from(error: NodeError) -> Self {
        let refused = match &error {
            NodeError::Taken => Some(Refused::OtherOwner),
            NodeError::TooMany { .. } | NodeError::TooManyOfTenant { .. } => {
                Some(Refused::NodesMax)
            }
            _ => None,
        };
        Self { refused, ..Self::named(error.code(), error.to_string()) }
    }
}

impl From<SessionRefusal> for ApiError {
    fn from(refusal: SessionRefusal) -> Self {
        let is_foreign = refusal == SessionRefusal::OtherTenant;
        let refused = is_foreign.then_some(Refused::OtherTenant);
        Self { refused, ..Self::named(refusal.code(), refusal.to_string()) }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let code = match error {
            AccessError::WrongRole { .. } | AccessError::GrantOnly => ErrorCode::Forbidden,
            _ => ErrorCode::Unauthorized,
        };
        Self::new(code, error.to_string()).because(error.reason())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = text(self.status, "application/json", line(&*self.body));
        if self.code == ErrorCode::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        let refusal = RequestRefusal {
            reason: self.code.as_str(),
            detail: self.body.detail.as_str().into(),
            has_job: self.body.job_id.is_some(),
            unrecorded: self
                .refused
                .filter(|_| !self.is_recorded)
                .map(|refused| (refused, self.outcome())),
        };
        response.extensions_mut().insert(refusal);
        if let Some(ms) = self.body.retry_after_ms {
            response.headers_mut().insert(header::RETRY_AFTER, ms.div_ceil(1000).into());
        }
        response
    }
}

/// A message as a response.
pub(crate) fn json<M: Message + Serialize>(message: &M) -> Response {
    text(StatusCode::OK, "application/json", line(message))
}

/// A message as a line of text: people read responses in a terminal.
fn line<M: Message + Serialize>(message: &M) -> String {
    let mut json = to_json(message);
    json.push('\n');
    json
}

/// Marks a response whose body is in memory anyway, once for all clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedBody;

/// Text as a response.
pub(crate) fn text(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
