//! The server, the state that all routes share, and the router.
//!
//! Start at [`Server::serve`], then [`router`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use lingua_core::JobId;
use lingua_engine::log_limit::LogLimit;
use lingua_engine::session::{JobIdSource, SessionOptions, Sessions};
use lingua_engine::{Handle, Timer};
use lingua_store::Store;
use lingua_wire::ErrorCode;
use prometheus_client::registry::Registry;
use swagger_ui_dist::{ApiDefinition, OpenApiSource};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::audit::Audit;
use crate::auth::{Access, AccessError, Role, Sender};
use crate::caller_address::TrustedProxies;
use crate::connections::Connections;
use crate::convert::JobDefaults;
use crate::event_streams::EventStreams;
use crate::limit::{Limiter, OwnRates};
use crate::listen::{self, ConnLimits};
use crate::metrics::ServerMetrics;
use crate::options::{InsecureListen, ServerOptions};
use crate::process;
use crate::reply::{ApiError, SharedBody};
use crate::request::request_scope;
use crate::route_table::{self, ROUTES};
use crate::routes::jobs::new_number;
use crate::tls::Tls;

/// The HTTP and WebSocket edge of an instance.
#[derive(Debug)]
pub struct Server<S, T> {
    app: App<S, T>,
}

/// The state that all routes share.
pub(crate) type App<S, T> = Arc<AppState<S, T>>;

#[derive(Debug)]
pub(crate) struct AppState<S, T> {
    pub(crate) engine: Handle<S, T>,
    pub(crate) options: ServerOptions,
    pub(crate) registry: Registry,
    /// The metrics of the process, whose names have no prefix.
    pub(crate) process: Registry,
    /// Limits the lines about refused requests.
    pub(crate) refused_log: LogLimit,
    pub(crate) metrics: ServerMetrics,
    pub(crate) sessions: Sessions<S, T>,
    pub(crate) limiter: Option<Limiter>,
    /// The rate of pages and documents that need no token, for each address.
    pub(crate) open_limiter: Limiter,
    pub(crate) event_streams: Arc<EventStreams>,
    pub(crate) own_rates: OwnRates,
    /// Tells the sockets that the server stops.
    pub(crate) stop: watch::Sender<bool>,
}

impl<S, T> AppState<S, T> {
    /// Records that a caller has lost its access; counts and gives the error.
    pub(crate) fn access_ended(&self, sender: &Sender, what: &str, error: AccessError) -> ApiError {
        let error = ApiError::from(error);
        self.record_refusal(sender, what, "", &error);
        error
    }

    /// Counts and records an error, if it was for want of rights.
    pub(crate) fn record_refusal(
        &self,
        sender: &Sender,
        what: &str,
        object: &str,
        error: &ApiError,
    ) {
        if let Some(refused) = error.refused() {
            self.metrics.count_refused(refused);
            let (audit, outcome) = (&self.options.audit, error.outcome());
            audit.refusal(Some(sender), sender.remote, what, object, outcome);
        }
    }
}

/// Does something that is recorded if an administrator does it.
pub(crate) async fn administered<S, T, A>(
    app: &App<S, T>,
    sender: &Sender,
    (action, object): (&str, &str),
    act: impl Future<Output = Result<A, ApiError>>,
) -> Result<A, ApiError> {
    let done = act.await;
    if sender.holder.role == Role::Admin {
        let error = done.as_ref().err().map(|error| error.code().as_str());
        app.options.audit.act(sender, action, object, error);
    }
    done
}

/// Most lines about refused requests in a second, for each reason.
const REFUSED_LINES_MAX: u32 = 10;

/// The argument through which a route gets the app.
pub(crate) type Shared<S, T> = State<App<S, T>>;

impl<S: Store, T: Timer> AppState<S, T> {
    /// What holds for the jobs of a caller.
    pub(crate) fn job_defaults(&self, sender: &Sender) -> JobDefaults {
        let (tenant, wait_ms) = (sender.tenant, self.options.default_wait_ms);
        JobDefaults { tenant, wait_ms, public: self.engine.options().tenants.rules(tenant).public }
    }
}

impl<S: Store, T: Timer> Server<S, T> {
    /// Makes a server over an engine. `registry` holds all metrics that `/metrics` shows, those of
    /// the engine included.
    pub fn new(engine: Handle<S, T>, options: ServerOptions, mut registry: Registry) -> Self {
        let metrics = ServerMetrics::new(&mut registry);
        let limiter = options.rate_limit.map(Limiter::new);
        let open_limiter = Limiter::new(options.open_rate_limit);
        let event_streams =
            EventStreams::new(options.event_streams_max, options.event_streams_per_caller);
        let clock = engine.clone();
        let job_ids = JobIdSource::new(move || JobId::new(new_number(clock.now_ms())));
        let rules = SessionOptions { wait_ms: options.default_wait_ms, ..options.session.rules };
        let sessions = Sessions::new(engine.clone(), rules, job_ids, metrics.sessions.clone());
        let stop = watch::Sender::new(false);
        let process = process::registry();
        let refused_log = LogLimit::new(REFUSED_LINES_MAX, 1_000);
        let state = AppState {
            engine,
            options,
            registry,
            process,
            refused_log,
            metrics,
            sessions,
            limiter,
            open_limiter,
            event_streams,
            own_rates: OwnRates::default(),
            stop,
        };
        Self { app: Arc::new(state) }
    }

    /// Serves connections until `shutdown`, then waits for open requests for `stop_ms`.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), InsecureListen> {
        let options = &self.app.options;
        if let Ok(address) = listener.local_addr() {
            options.check_listen(address)?;
        }
        let limits = ConnLimits {
            head: Duration::from_millis(options.first_message_ms),
            stop: Duration::from_millis(options.stop_ms),
            write: Duration::from_millis(options.write_ms),
            proxies: match options.proxy_protocol {
                true => options.trusted_proxies.clone(),
                false => TrustedProxies::default(),
            },
            tls: options.tls.as_ref().map(Tls::acceptor),
        };
        let refused = self.app.metrics.connections_refused.clone();
        let connections = Connections::new(options.connections_max, refused);
        let (app, stop) = (Arc::clone(&self.app), limits.stop);
        let open = app.metrics.clients.clone();
        let served = listen::serve(listener, router(self.app), limits, connections, open, shutdown);
        tokio::select! {
            () = served => {}
            never = flush_audit(&app.options.audit) => match never {},
        }
        // Not before the open requests have ended: their nodes are on these sockets. Every socket
        // holds a receiver until its close frame is sent.
        app.stop.send_replace(true);
        tokio::time::timeout(stop, app.stop.closed()).await.ok();
        Ok(())
    }
}

/// Writes the numbers of repeated refusals as their time is over.
async fn flush_audit(audit: &Audit) -> Infallible {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        audit.flush();
    }
}

/// All routes, each behind its guard.
fn router<S: Store, T: Timer>(app: App<S, T>) -> Router {
    // One layer for all that a request passes: each costs a boxed service and a boxed future.
    let scoped = |access: Option<Access>, routes: Router<App<S, T>>| {
        let app = app.clone();
        let scope = middleware::from_fn(move |request: Request, next: Next| {
            request_scope(app.clone(), access, request, next)
        });
        routes.method_not_allowed_fallback(wrong_method).layer(scope)
    };
    let open = route_table::open().merge(docs_page().with_state(())).fallback(no_such_route);
    scoped(None, open)
        .merge(scoped(Some(Access::Node), route_table::node()))
        .merge(scoped(Some(Access::Client), route_table::client()))
        .merge(scoped(Some(Access::Any), route_table::any()))
        .merge(scoped(Some(Access::Session), route_table::session()))
        .merge(scoped(Some(Access::Read), route_table::read()))
        .merge(scoped(Some(Access::Fleet), route_table::fleet()))
        .merge(scoped(Some(Access::Admin), route_table::admin()))
        .with_state(app)
}

/// The API reference may load only what this server sends.
const DOCS_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
                           script-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                           base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /docs`: Swagger UI, whose script and style are part of the program.
fn docs_page() -> Router {
    let pages = swagger_ui_dist::generate_routes(ApiDefinition {
        uri_prefix: "/docs",
        api_definition: OpenApiSource::Uri("/openapi.json"),
        title: Some("Lingua API"),
    });
    pages
        // The page repeats the URI of the request: what the caller adds to it is kept out.
        .layer(middleware::map_request(|mut request: Request| async {
            *request.uri_mut() = Uri::from_static("/docs");
            request
        }))
        .layer(middleware::map_response(|response: Response| async {
            let policy = (header::CONTENT_SECURITY_POLICY, DOCS_POLICY);
            let cached = (header::CACHE_CONTROL, "public, max-age=3600");
            ([policy, cached], Extension(SharedBody), response)
        }))
}

async fn no_such_route() -> ApiError {
    let detail = "there is no such route; GET /openapi.json lists all of them";
    ApiError::new(ErrorCode::InvalidRequest, detail).with_status(StatusCode::NOT_FOUND)
}

async fn wrong_method(path: MatchedPath) -> ApiError {
    let accepted = ROUTES.iter().filter(|route| route.path == path.as_str());
    let accepted: Vec<String> = accepted.map(|route| route.method.to_uppercase()).collect();
    // Only the pages of the API reference are not in the table.
    let accepted = if accepted.is_empty() { "GET".to_owned() } else { accepted.join(", ") };
    let detail = format!("method not allowed; this route accepts {accepted}");
    ApiError::new(ErrorCode::InvalidRequest, detail).with_status(StatusCode::METHOD_NOT_ALLOWED)
}
