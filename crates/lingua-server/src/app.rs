//! What all routes share: the state and the guards.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lingua_engine::bus::Polls;
use lingua_engine::session::Sessions;
use lingua_engine::{Handle, Timer};
use lingua_store::Store;
use lingua_wire::ErrorCode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::auth::{Denied, Role};
use crate::front::Front;
use crate::limit::{Caller, Limiter};
use crate::listen::{self, Manners, Peer};
use crate::mailbox::Mailboxes;
use crate::metrics::Metrics;
use crate::options::{InsecureListen, ServerOptions};
use crate::reply::Failed;
use crate::session;
use crate::table;
use crate::tls::Tls;

/// Where a server is made from.
#[derive(Debug)]
pub struct Parts<S, T> {
    /// The instance.
    pub engine: Handle<S, T>,
    /// How the edge is set up.
    pub options: ServerOptions,
    /// All metrics, the engine's included.
    pub registry: Registry,
}

/// The edge of an instance.
#[derive(Debug)]
pub struct Server<S, T> {
    app: App<S, T>,
}

/// What all routes share.
#[derive(Debug)]
pub(crate) struct App<S, T> {
    pub(crate) shared: Arc<Inner<S, T>>,
}

impl<S, T> Clone for App<S, T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
pub(crate) struct Inner<S, T> {
    pub(crate) engine: Handle<S, T>,
    pub(crate) options: ServerOptions,
    pub(crate) registry: Registry,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sessions: Sessions<S, T>,
    limiter: Option<Limiter>,
}

impl<S: Store, T: Timer> Server<S, T> {
    /// Makes a server.
    pub fn new(parts: Parts<S, T>) -> Self {
        let Parts { engine, options, mut registry } = parts;
        let metrics = Arc::new(Metrics::new(&mut registry));
        let mailboxes = Mailboxes::default();
        let limiter = options.rate_limit.map(Limiter::new);
        let composer = session::composer(options.default_wait_ms);
        let gauge = metrics.sessions.clone();
        let sessions = Sessions::new(engine.clone(), options.session.rules, composer, gauge);
        let inner = Inner { engine, options, registry, mailboxes, metrics, sessions, limiter };
        let shared = Arc::new(inner);
        shared.engine.answer_polls(polls(&shared));
        Self { app: App { shared } }
    }

    /// Serves connections until `shutdown`, then lets open requests end.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), InsecureListen> {
        if let Ok(address) = listener.local_addr() {
            self.app.shared.options.check_listen(address)?;
        }
        let header_ms = self.app.shared.options.first_message_ms;
        let metrics = Arc::clone(&self.app.shared.metrics);
        let tell_peer = self.app.shared.limiter.is_some();
        let tls = self.app.shared.options.tls.as_ref().map(Tls::acceptor);
        let manners = Manners { header_ms, tell_peer, tls };
        let front = Front::new(self.app.clone(), router(self.app));
        listen::serve(listener, front, manners, &metrics, shutdown).await;
        Ok(())
    }
}

/// How other instances fetch the jobs of nodes that registered here over HTTP.
fn polls<S: Store, T: Timer>(shared: &Arc<Inner<S, T>>) -> Polls {
    // The engine outlives the server, and must not keep it.
    let shared = Arc::downgrade(shared);
    Polls::new(move |node, epoch, wait_ms| {
        let mailbox = shared.upgrade().and_then(|shared| shared.mailboxes.get(&node));
        let mailbox = mailbox.filter(|mailbox| mailbox.epoch == epoch);
        Box::pin(async move { Some(mailbox?.jobs(wait_ms).await) })
    })
}

/// The routes of the contract, behind their guards.
fn router<S: Store, T: Timer>(app: App<S, T>) -> Router {
    let body_bytes_max = app.shared.options.body_bytes_max;
    let guard = |role: Role| {
        let app = app.clone();
        axum::middleware::from_fn(move |request: Request, next: Next| {
            let app = app.clone();
            async move { guarded(&app, role, request, next).await }
        })
    };
    table::node()
        .layer(guard(Role::Node))
        .merge(table::client().layer(guard(Role::Client)))
        .merge(table::admin().layer(guard(Role::Admin)))
        .merge(table::open())
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(|| async { wrong_method() })
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(app)
}

fn not_found() -> Response {
    let mut answer =
        Failed::new(ErrorCode::InvalidRequest, "there is no such route").into_response();
    *answer.status_mut() = StatusCode::NOT_FOUND;
    answer
}

fn wrong_method() -> Response {
    let mut answer =
        Failed::new(ErrorCode::InvalidRequest, "this route has another method").into_response();
    *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    answer
}

async fn guarded<S: Store, T: Timer>(
    app: &App<S, T>,
    role: Role,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get().copied();
    match admit(app, role, &Guarded::from(request.headers()), peer) {
        Ok(()) => next.run(request).await,
        Err(failed) => failed.into_response(),
    }
}

/// What the guards look at.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Guarded<'a> {
    pub(crate) authorization: Option<&'a [u8]>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) host: Option<&'a [u8]>,
}

impl<'a> From<&'a HeaderMap> for Guarded<'a> {
    fn from(headers: &'a HeaderMap) -> Self {
        let get = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes);
        let (authorization, origin) = (get(header::AUTHORIZATION), get(header::ORIGIN));
        Self { authorization, origin, host: get(header::HOST) }
    }
}

/// The text of a header, if it can be shown.
pub(crate) fn visible(value: &[u8]) -> Option<&str> {
    let is_shown = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    value.iter().all(is_shown).then_some(value).and_then(|value| std::str::from_utf8(value).ok())
}

/// Turns away who may not call.
pub(crate) fn admit<S: Store, T: Timer>(
    app: &App<S, T>,
    role: Role,
    asked: &Guarded<'_>,
    peer: Option<Peer>,
) -> Result<(), Failed> {
    let authorization = asked.authorization.and_then(visible);
    if let Some(limiter) = &app.shared.limiter {
        // Before the token is looked at: guessing tokens is asking, too.
        let caller = match app.shared.options.tokens.holder(authorization) {
            Some((token, _)) => Caller::Token(token),
            None => Caller::at(peer.map(|Peer(address)| address)),
        };
        if let Err(wait_ms) = limiter.check(caller) {
            app.shared.metrics.rate_limited.inc();
            let detail = format!("too many requests; try again in {wait_ms} ms");
            let failed = Failed::new(ErrorCode::RateLimited, detail);
            return Err(failed.with_retry_after_ms(wait_ms));
        }
    }
    if let Err(denied) = app.shared.options.tokens.allow(authorization, role) {
        let code = match denied {
            Denied::Unknown => ErrorCode::Unauthorized,
            Denied::NotAllowed { .. } => ErrorCode::Forbidden,
        };
        return Err(Failed::new(code, denied.to_string()));
    }
    if let Some(origin) = foreign_origin(asked, &app.shared.options.allowed_origins) {
        let detail = format!("pages of {origin} may not call; add it to server.allowed_origins");
        return Err(Failed::new(ErrorCode::Forbidden, detail));
    }
    Ok(())
}

/// The origin of a page that is neither our own nor on the list.
fn foreign_origin<'a>(asked: &Guarded<'a>, allowed: &[String]) -> Option<&'a str> {
    let origin = visible(asked.origin?).unwrap_or("unreadable");
    let host = asked.host.and_then(visible).unwrap_or_default();
    let own = origin.split_once("://").is_some_and(|(_, rest)| rest == host);
    (!own && !allowed.iter().any(|known| known == origin)).then_some(origin)
}

/// Reads the app from a route's state.
pub(crate) type Shared<S, T> = State<App<S, T>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_origins_may_call() {
        let headers = |origin: &'static str| {
            let (host, origin) = (Some(&b"localhost:7410"[..]), Some(origin.as_bytes()));
            Guarded { origin, host, authorization: None }
        };
        let allowed = ["https://app.example".to_owned()];
        assert_eq!(foreign_origin(&headers("http://localhost:7410"), &allowed), None);
        assert_eq!(foreign_origin(&headers("https://app.example"), &allowed), None);
        let evil = headers("https://evil.example");
        assert_eq!(foreign_origin(&evil, &allowed), Some("https://evil.example"));
        assert_eq!(foreign_origin(&Guarded::default(), &allowed), None, "no browser, no origin");
    }
}
