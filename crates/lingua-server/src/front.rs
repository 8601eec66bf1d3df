//! The front door: what every request passes on its way in, and every answer on its way out.
//!
//! Start at [`Front`]. It gives a request its id and asks the router for the rest. The
//! busiest route by far, `POST /v1/translate`, is answered here: walking through the router's layers
//! would cost it about as much as scheduling does.
//!
//! Invariant: what the router guards is guarded here, too ([`admit`]), and so are bodies
//! ([`Sent`](crate::sent::Sent)).

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
use crate::listen::Peer;
use crate::reply::Failed;
use crate::routes::jobs::{TRANSLATE, job_id, new_number, translate};

const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What a connection asks for its answers.
#[derive(Debug)]
pub(crate) struct Front<S, T> {
    app: App<S, T>,
    router: Router,
    /// Who is at the other end, if anybody wants to know.
    peer: Option<Peer>,
}

impl<S, T> Clone for Front<S, T> {
    fn clone(&self) -> Self {
        Self { app: self.app.clone(), router: self.router.clone(), peer: self.peer }
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
        Self { app, router, peer: None }
    }

    /// As one connection sees it.
    pub(crate) fn at(&self, peer: Option<Peer>) -> Self {
        Self { peer, ..self.clone() }
    }

    async fn answer(self, mut request: Request<Incoming>) -> Response {
        let id = self.request_id(request.headers());
        let is_busiest = *request.method() == Method::POST && request.uri().path() == TRANSLATE;
        let mut response = if is_busiest {
            self.translate(request).await.unwrap_or_else(IntoResponse::into_response)
        } else {
            if let Some(peer) = self.peer {
                request.extensions_mut().insert(peer);
            }
            // In a box, because it is large and not as frequent.
            Box::pin(self.route(request.map(Body::new))).await
        };
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }

    async fn translate(&self, request: Request<Incoming>) -> Result<Response, Failed> {
        admit(&self.app, Role::Client, request.headers(), self.peer)?;
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
        read(body, options.body_bytes_max, Duration::from_millis(options.body_ms)).await
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
        let detail = format!("the body has more than {bytes_max} bytes; send less at once");
        Failed::new(ErrorCode::PayloadTooLarge, detail)
    };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let whole = async {
        let mut first = Bytes::new();
        let mut rest: Vec<u8> = vec![];
        while let Some(frame) = body.frame().await {
            let broken = |error| {
                Failed::new(ErrorCode::InvalidRequest, format!("the body cannot be read: {error}"))
            };
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
        let ms = limit.as_millis();
        let detail = format!("the body did not arrive within {ms} ms; send it again");
        Err(Failed::new(ErrorCode::InvalidRequest, detail))
    })
}
