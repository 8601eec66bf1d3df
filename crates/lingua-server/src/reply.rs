//! Answers and errors.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lingua_core::JobId;
use lingua_engine::{NodeError, SubmitError};
use lingua_wire::{ErrorBody, ErrorCode, Message, RequestError, to_json, write_json};
use serde::Serialize;

/// How long a client should wait before it tries again what there was no room for.
const RETRY_AFTER_MS: u64 = 250;

/// An answer that says what is wrong.
#[derive(Debug)]
pub(crate) struct Failed {
    code: ErrorCode,
    body: Box<ErrorBody>,
}

pub(crate) type Answer = Result<Response, Failed>;

impl Failed {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let mut body = ErrorBody::new(code, detail);
        let busy = [ErrorCode::AllCandidatesFullOrFailed, ErrorCode::RateLimited];
        if busy.contains(&code) {
            body = body.with_retry_after_ms(RETRY_AFTER_MS);
        }
        Self { code, body: Box::new(body) }
    }

    /// From a code that travelled as a word.
    pub(crate) fn named(code: &str, detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::from_name(code).unwrap_or(ErrorCode::Internal), detail)
    }

    pub(crate) fn with_job(mut self, job: JobId) -> Self {
        *self.body = self.body.with_job(job);
        self
    }

    pub(crate) fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        *self.body = self.body.with_retry_after_ms(retry_after_ms);
        self
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.body.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        let status = StatusCode::from_u16(self.code.status());
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// In how many seconds it is worth trying again.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.body.retry_after_ms.map(|ms| ms.div_ceil(1000))
    }

    /// Writes what is wrong, as JSON.
    pub(crate) fn write_body(&self, out: &mut Vec<u8>) {
        write_json(&*self.body, out);
    }
}

impl From<RequestError> for Failed {
    fn from(error: RequestError) -> Self {
        let code = error.code;
        Self { code, body: Box::new(ErrorBody::from(error)) }
    }
}

impl From<SubmitError> for Failed {
    fn from(error: SubmitError) -> Self {
        Self::named(error.code(), error.to_string())
    }
}

impl From<NodeError> for Failed {
    fn from(error: NodeError) -> Self {
        Self::named(error.code(), error.to_string())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = json_with(self.status(), &*self.body);
        if let Some(seconds) = self.retry_after_s() {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A message as an answer.
pub(crate) fn json<M: Message + Serialize>(message: &M) -> Response {
    json_with(StatusCode::OK, message)
}

fn json_with<M: Message + Serialize>(status: StatusCode, message: &M) -> Response {
    text(status, "application/json", to_json(message))
}

/// Text as an answer.
pub(crate) fn text(status: StatusCode, kind: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
