//! The front door: what every request passes on its way in, and every answer on its way out.
//!
//! Start at [`Front::call`](hyper::service::Service::call). It gives a request its id and asks the router for the rest. The
//! busiest route by far does not come here as long as it is asked for in the plain way: see `express.rs`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::response::Response;
use hyper::body::{Frame, Incoming, SizeHint};
use lingua_core::id::hex;
use lingua_engine::Timer;
use lingua_store::Store;
use tower::ServiceExt;

use crate::app::App;
use crate::express::Express;
use crate::listen::Peer;
use crate::patience::{Answering, Patience};
use crate::routes::jobs::new_number;

const REQUEST_ID: &str = "x-request-id";

/// Longest request id that is taken from a client.
pub(crate) const REQUEST_ID_BYTES_MAX: usize = 64;

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
        let answering = Patience::begin(Arc::clone(&front.patience));
        let id = front.request_id(request.headers());
        Box::pin(async move {
            let answer = front.route(request.map(Body::new)).await;
            let answer = answer.map(|body| Body::new(Guarded { body, _answering: answering }));
            Ok(named(answer, id))
        })
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
    pub(crate) fn at(&self, peer: Option<Peer>) -> Self {
        let (app, router) = (self.0.app.clone(), self.0.router.clone());
        Self(Arc::new(Inner { app, router, peer, patience: Arc::default() }))
    }

    /// How long its connection may keep silent.
    pub(crate) fn patience(&self) -> &Arc<Patience> {
        &self.0.patience
    }

    /// The express lane of its connection.
    pub(crate) fn express<'a, I>(&'a self, io: I, stop: &'a AtomicBool) -> Express<'a, I, S, T> {
        let Inner { app, peer, patience, .. } = &*self.0;
        Express { io, app, peer: *peer, patience, stop }
    }
}

impl<S: Store, T: Timer> Inner<S, T> {
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
    _answering: Answering<Arc<Patience>>,
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
