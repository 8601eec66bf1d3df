//! The front door: what every request passes on its way in, and every answer on its way out.
//!
//! Start at [`Front`]. It gives a request its id, reads its body, and asks the router for the rest. The
//! busiest route by far, `POST /v1/translate`, is answered here: walking through the router's layers
//! would cost it about as much as scheduling does.
//!
//! Invariant: a body is within its limit and has arrived before anybody looks at the request.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use lingua_core::id::hex;
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;
use tower::ServiceExt;

use crate::app::{App, admit};
use crate::auth::Role;
use crate::reply::Failed;
use crate::routes::jobs::{TRANSLATE, job_id, new_number, translate};

const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// How much longer than headers a body may take to arrive.
const BODY_PATIENCE: u32 = 3;

/// What a connection asks for its answers.
#[derive(Debug)]
pub(crate) struct Front<S, T> {
    app: App<S, T>,
    router: Router,
}

impl<S, T> Clone for Front<S, T> {
    fn clone(&self) -> Self {
        Self { app: self.app.clone(), router: self.router.clone() }
    }
}

impl<S: Store, T: Timer> hyper::service::Service<Request<Incoming>> for Front<S, T> {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let front = self.clone();
        Box::pin(async move { Ok(front.answer(request).await) })
    }
}

impl<S: Store, T: Timer> Front<S, T> {
    pub(crate) fn new(app: App<S, T>, router: Router) -> Self {
        Self { app, router }
    }

    async fn answer(self, request: Request<Incoming>) -> Response {
        let id = self.request_id(request.headers());
        let is_post = *request.method() == Method::POST;
        let mut response = match is_post && request.uri().path() == TRANSLATE {
            true => self.translate(request).await.unwrap_or_else(IntoResponse::into_response),
            // In boxes, because they are large and not as frequent.
            false if is_post => Box::pin(self.post(request)).await,
            false => Box::pin(self.route(request.map(Body::new))).await,
        };
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }

    async fn post(self, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        match self.read(body).await {
            Ok(body) => self.route(Request::from_parts(parts, Body::from(body))).await,
            Err(failed) => failed.into_response(),
        }
    }

    async fn translate(&self, request: Request<Incoming>) -> Result<Response, Failed> {
        admit(&self.app, Role::Client, request.headers())?;
        let id = job_id(&self.app, request.headers())?;
        let body = self.read(request.into_body()).await?;
        let answer = translate(&self.app, id, &body).await;
        // Others that are ready go first: answers that leave together wake the clients' machine once.
        tokio::task::yield_now().await;
        answer
    }

    /// Reads a body that is not too large and not too slow.
    async fn read(&self, body: Incoming) -> Result<Bytes, Failed> {
        let options = &self.app.shared.options;
        let limit = Duration::from_millis(options.first_message_ms) * BODY_PATIENCE;
        read(body, options.body_bytes_max, limit).await
    }

    /// Every answer names its request, so that people can find it in the logs.
    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(REQUEST_ID).filter(|id| id.len() <= REQUEST_ID_BYTES_MAX);
        given.cloned().unwrap_or_else(|| {
            let id = hex(new_number(self.app.shared.engine.now_ms()));
            HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("none"))
        })
    }

    async fn route(self, request: Request<Body>) -> Response {
        let answered = self.router.oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// Reads a body that has at most this many bytes and arrives within the limit.
async fn read(mut body: Incoming, bytes_max: usize, limit: Duration) -> Result<Bytes, Failed> {
    let too_large = || {
        let detail = format!("the body is larger than {bytes_max} bytes; send less");
        Failed::new(ErrorCode::PayloadTooLarge, detail)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let whole = async {
        let mut first = Bytes::new();
        let mut rest: Vec<u8> = vec![];
        while let Some(frame) = body.frame().await {
            let broken = |_| Failed::new(ErrorCode::InvalidRequest, "the body broke off");
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            if first.len() + rest.len() + data.len() > bytes_max {
                return Err(too_large());
            }
            if first.is_empty() {
                first = data;
            } else {
                rest.extend_from_slice(&data);
            }
            if body.is_end_stream() {
                break;
            }
        }
        // Nearly always it came in one piece, which need not be copied.
        Ok(if rest.is_empty() { first } else { [&first, &rest[..]].concat().into() })
    };
    let mut whole = pin!(whole);
    // A body that came with its head is there when it is asked for the second time: no timer for it.
    let mut asked = 0;
    let soon = poll_fn(|context| {
        asked += 1;
        match whole.as_mut().poll(context) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending if asked == 1 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    });
    if let Some(read) = soon.await {
        return read;
    }
    tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {} ms", limit.as_millis());
        Err(Failed::new(ErrorCode::InvalidRequest, detail))
    })
}
