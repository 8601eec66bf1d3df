//! The server, the state that all routes share, and the router.
//!
//! Start at [`Server::serve`], then [`router`].

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use lingua_core::JobId;
use lingua_engine::session::{JobIdSource, SessionOptions, Sessions};
use lingua_engine::{Handle, Timer};
use lingua_store::Store;
use lingua_wire::ErrorCode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::auth::Role;
use crate::guard::guarded;
use crate::limit::Limiter;
use crate::listen::{self, ConnLimits};
use crate::metrics::ServerMetrics;
use crate::options::{InsecureListen, ServerOptions};
use crate::reply::ApiError;
use crate::request::request_scope;
use crate::routes::jobs::new_number;
use crate::table::{self, ROUTES};
use crate::tls::Tls;

/// The HTTP and WebSocket edge of an instance.
#[derive(Debug)]
pub struct Server<S, T> {
    app: App<S, T>,
}

/// The state that all routes share; cheap to clone.
#[derive(Debug)]
pub(crate) struct App<S, T> {
    pub(crate) shared: Arc<AppState<S, T>>,
}

impl<S, T> Clone for App<S, T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
pub(crate) struct AppState<S, T> {
    pub(crate) engine: Handle<S, T>,
    pub(crate) options: ServerOptions,
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) sessions: Sessions<S, T>,
    pub(crate) limiter: Option<Limiter>,
}

/// The argument through which a route gets the app.
pub(crate) type Shared<S, T> = State<App<S, T>>;

impl<S: Store, T: Timer> Server<S, T> {
    /// Makes a server over an engine. `registry` holds all metrics that `/metrics` shows, those of
    /// the engine included.
    pub fn new(engine: Handle<S, T>, options: ServerOptions, mut registry: Registry) -> Self {
        let metrics = Arc::new(ServerMetrics::new(&mut registry));
        let limiter = options.rate_limit.map(Limiter::new);
        let clock = engine.clone();
        let job_ids = JobIdSource::new(move || JobId::new(new_number(clock.now_ms())));
        let rules = SessionOptions { wait_ms: options.default_wait_ms, ..options.session.rules };
        let sessions = Sessions::new(engine.clone(), rules, job_ids, metrics.sessions.clone());
        let state = AppState { engine, options, registry, metrics, sessions, limiter };
        Self { app: App { shared: Arc::new(state) } }
    }

    /// Serves connections until `shutdown`, then waits for open requests for `stop_ms`.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), InsecureListen> {
        let options = &self.app.shared.options;
        if let Ok(address) = listener.local_addr() {
            options.check_listen(address)?;
        }
        let limits = ConnLimits {
            head: Duration::from_millis(options.first_message_ms),
            stop: Duration::from_millis(options.stop_ms),
            tls: options.tls.as_ref().map(Tls::acceptor),
        };
        let metrics = Arc::clone(&self.app.shared.metrics);
        listen::serve(listener, router(self.app), limits, &metrics, shutdown).await;
        Ok(())
    }
}

/// All routes, each behind the guard of its role.
fn router<S: Store, T: Timer>(app: App<S, T>) -> Router {
    let body_bytes_max = app.shared.options.body_bytes_max;
    let guard = |role: Role| {
        let app = app.clone();
        middleware::from_fn(move |request: Request, next: Next| {
            guarded(app.clone(), role, request, next)
        })
    };
    table::node()
        .layer(guard(Role::Node))
        .merge(table::client().layer(guard(Role::Client)))
        .merge(table::admin().layer(guard(Role::Admin)))
        .merge(table::open())
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn_with_state(app.clone(), request_scope))
        .with_state(app)
}

async fn no_such_route() -> ApiError {
    let detail = "there is no such route; GET /openapi.json lists all of them";
    ApiError::new(ErrorCode::InvalidRequest, detail).with_status(StatusCode::NOT_FOUND)
}

async fn wrong_method(path: MatchedPath) -> ApiError {
    let accepted = ROUTES.iter().filter(|route| route.path == path.as_str());
    let accepted: Vec<String> = accepted.map(|route| route.method.to_uppercase()).collect();
    let detail = format!("method not allowed; this route accepts {}", accepted.join(", "));
    ApiError::new(ErrorCode::InvalidRequest, detail).with_status(StatusCode::METHOD_NOT_ALLOWED)
}
