//! The front door: what every request passes on its way in, and every answer on its way out.
//!
//! Start at [`Front::call`](hyper::service::Service::call). It gives a request its id and asks the router for the rest. The
//! busiest route by far, `POST /v1/translate`, is answered here: walking through the router's layers
//! would cost it about as much as scheduling does.
//!
//! Invariant: what the router guards is guarded here, too ([`admit`]), and so are bodies
//! ([`Sent`](crate::sent::Sent)).

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Method, Request};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use lingua_core::JobId;
use lingua_core::id::hex;
use lingua_engine::Timer;
use lingua_store::Store;
use lingua_wire::ErrorCode;
use tower::ServiceExt;

use crate::app::{App, admit};
use crate::auth::Role;
use crate::listen::Peer;
use crate::patience::{Answering, Patience};
use crate::reply::Failed;
use crate::routes::jobs::{TRANSLATE, job_id, new_number, translate};

const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is taken from a client.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// What a connection asks for its answers.
#[derive(Debug)]
pub(crate) struct Front<S, T>(Arc<Inner<S, T>>);

#[derive(Debug)]
struct Inner<S, T> {
    app: App<S, T>,
    router: Router,
    /// Who is at the other end, if anybody wants to know.
    peer: Option<Peer>,
    /// Of the connection.
    patience: Arc<Patience>,
}

type Answered = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl<S: Store, T: Timer> hyper::service::Service<Request<Incoming>> for Front<S, T> {
    type Response = Response;
    type Error = Infallible;
    type Future = Answered;

    fn call(&self, request: Request<Incoming>) -> Answered {
        let front = Arc::clone(&self.0);
        let answering = front.patience.begin();
        let id = front.request_id(request.headers());
        match *request.method() == Method::POST && request.uri().path() == TRANSLATE {
            true => {
                // Whatever needs no waiting is done here: what waits is kept, and copied, with what it needs.
                let admitted = front.admit(request.headers());
                let body = request.into_body();
                Box::pin(async move {
                    let answer = front.translate(admitted, body).await;
                    drop(answering);
                    Ok(named(answer.unwrap_or_else(IntoResponse::into_response), id))
                })
            }
            false => Box::pin(async move {
                let answer = front.route(request.map(Body::new)).await;
                let answer = answer.map(|body| Body::new(Guarded { body, _answering: answering }));
                Ok(named(answer, id))
            }),
        }
    }
}

/// Every answer names its request, so that people can find it in the logs.
fn named(mut answer: Response, id: HeaderValue) -> Response {
    answer.headers_mut().insert(REQUEST_ID, id);
    answer
}

impl<S: Store, T: Timer> Front<S, T> {
    pub(crate) fn new(app: App<S, T>, router: Router) -> Self {
        Self(Arc::new(Inner { app, router, peer: None, patience: Arc::default() }))
    }

    /// As one connection sees it.
    pub(crate) fn at(&self, peer: Option<Peer>, patience: Arc<Patience>) -> Self {
        let (app, router) = (self.0.app.clone(), self.0.router.clone());
        Self(Arc::new(Inner { app, router, peer, patience }))
    }
}

impl<S: Store, T: Timer> Inner<S, T> {
    /// Whether the request may come in, and the job that it is about.
    fn admit(&self, headers: &HeaderMap) -> Result<JobId, Failed> {
        admit(&self.app, Role::Client, headers, self.peer)?;
        job_id(&self.app, headers)
    }

    async fn translate(
        &self,
        admitted: Result<JobId, Failed>,
        body: Incoming,
    ) -> Result<Response, Failed> {
        let id = admitted?;
        let options = &self.app.shared.options;
        let limit = Duration::from_millis(options.body_ms);
        let body = read(body, options.body_bytes_max, limit).await?;
        let answer = translate(&self.app, id, body).await;
        // Others that are ready go first: answers that leave together wake the clients' machine once.
        tokio::task::yield_now().await;
        answer
    }

    fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(REQUEST_ID).filter(|id| id.len() <= REQUEST_ID_BYTES_MAX);
        given.cloned().unwrap_or_else(|| {
            let id = hex(new_number(self.app.shared.engine.now_ms()));
            HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("none"))
        })
    }

    async fn route(&self, mut request: Request<Body>) -> Response {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        let answered = self.router.clone().oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// A body that is being sent: until it is, its request is not answered.
struct Guarded {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
