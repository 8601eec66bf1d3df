//! `lingua serve`: wires store, engine and server together and minds the signals.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use lingua_core::InstanceId;
use lingua_engine::options::{EngineOptions, PoolOptions, Times};
use lingua_engine::{EngineService, TokioTimer};
use lingua_server::{Server, ServerOptions};
use lingua_store::Store;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::backing::{self, Backing};
use crate::config::Config;

/// Flags of `lingua serve`; they win over the file and the environment.
#[derive(Debug, Args, Default)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long)]
    config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:7410].
    #[arg(long)]
    listen: Option<String>,
    /// Where the state is [default: embedded:].
    #[arg(long)]
    store: Option<String>,
    /// This instance's name [default: made up].
    #[arg(long)]
    instance_id: Option<String>,
    /// Keep jobs and epochs of the embedded store in this directory.
    #[arg(long)]
    data_dir: Option<PathBuf>,
}

impl ServeArgs {
    fn load(self) -> anyhow::Result<Config> {
        let mut config = Config::load(self.config.as_deref())?;
        config.server.listen = self.listen.unwrap_or(config.server.listen);
        config.store.url = self.store.unwrap_or(config.store.url);
        config.store.data_dir = self.data_dir.or(config.store.data_dir);
        config.instance.id = self.instance_id.or(config.instance.id);
        Ok(config)
    }
}

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    let config = args.load()?;
    start_logging(&config);
    for stray in crate::config::strays_here() {
        tracing::warn!("{stray}");
    }
    runtime(config.server.threads)?.block_on(serve(config, stop_signal(), |address| {
        tracing::info!(%address, "listening");
    }))
}

/// What an instance runs on. One thread of its own is faster than several that wake each other:
/// what is ready in one turn of its loop leaves together.
pub(crate) fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = match threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.max(1)).enable_all().build().context("cannot start the runtime")
}

/// Logs as text from this level on, for commands that have no configuration.
pub(crate) fn start_logging_at(level: &str) {
    let mut config = Config::default();
    level.clone_into(&mut config.log.level);
    start_logging(&config);
}

fn start_logging(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.log.level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colours = std::io::stderr().is_terminal();
    // A second start in one process (a test, the demo) keeps the first.
    let started = match config.log.format.as_str() {
        "json" => log.json().try_init(),
        _ => log.with_ansi(colours).try_init(),
    };
    started.ok();
}

/// Runs an instance until `stop`; says where it listens.
pub(crate) async fn serve(
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(std::net::SocketAddr),
) -> anyhow::Result<()> {
    let timer = TokioTimer::starting_at(wall_ms());
    match Backing::open(&config, timer.clone()).await? {
        Backing::Embedded(store) => serve_on(store, timer, config, stop, listening).await,
        Backing::Redis(store) => serve_on(store, timer, config, stop, listening).await,
    }
}

async fn serve_on<S: Store>(
    store: S,
    timer: TokioTimer,
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(std::net::SocketAddr),
) -> anyhow::Result<()> {
    let listen = &config.server.listen;
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("cannot listen on {listen}: is another lingua running there? choose another with --listen")
    })?;
    let address = listener.local_addr().context("cannot tell where it listens")?;
    let mut registry = Registry::with_prefix("lingua");
    let options = engine_options(&config, address.to_string())?;
    let service = EngineService::new(options, store, timer, &mut registry);
    let server_options = server_options(&config)?;
    server_options.check_listen(address)?;
    if server_options.shows_tokens(address) {
        tracing::warn!(
            %address,
            "tokens go over the network in the clear: set server.tls_cert and server.tls_key"
        );
    }
    let server = Server::new(service.handle(), server_options, registry);

    // Jobs end first, then connections: a client that waits gets its answer.
    let (jobs_ended, ended) = oneshot::channel::<()>();
    let engine = tokio::spawn(async move {
        service.run(stop).await;
        drop(jobs_ended);
    });
    listening(address);
    server.serve(listener, async { drop(ended.await) }).await?;
    engine.await.context("the engine failed")?;
    tracing::info!("stopped");
    Ok(())
}

/// Asked to stop by the terminal or by whoever runs the process.
pub(crate) async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = signal(SignalKind::terminate());
    let Ok(mut terminate) = terminate else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the program tells the engine the wall time, and people how old things are"
)]
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn engine_options(config: &Config, address: String) -> anyhow::Result<EngineOptions> {
    let name = match &config.instance.id {
        Some(id) => id.clone(),
        None => format!("lingua-{:08x}", rand::random::<u32>()),
    };
    let instance =
        InstanceId::new(&name).with_context(|| format!("the instance id {name:?} is no name"))?;
    let scheduler = &config.scheduler;
    let mut options = EngineOptions::new(instance, rand::random());
    options.address = address;
    options.rules = config.rules()?;
    options.policy = config.policy()?;
    options.max_retry = scheduler.max_retry;
    options.bounds.live_jobs_max = scheduler.open_jobs_max;
    options.pools = PoolOptions {
        min_nodes_per_pool: config.pools.min_nodes_per_pool,
        max_pools: config.pools.max_pools,
    };
    options.times = Times {
        heartbeat_ms: scheduler.heartbeat_interval_ms,
        stale_ms: scheduler.heartbeat_stale_ms,
        ack_ms: scheduler.reservation_ttl_ms,
        run_lease_ms: scheduler.run_lease_ms,
        run_ms: scheduler.run_timeout_ms,
        drain_ms: scheduler.drain_ms,
        leader_lease_ms: scheduler.leader_lease_ms,
        leader_renew_ms: (scheduler.leader_lease_ms / 3).max(1),
        ..Times::default()
    };
    Ok(options)
}

fn server_options(config: &Config) -> anyhow::Result<ServerOptions> {
    Ok(ServerOptions {
        tokens: config.tokens()?,
        allow_insecure: config.auth.allow_insecure,
        allowed_origins: config.server.allowed_origins.clone(),
        default_wait_ms: config.scheduler.wait_ms,
        body_bytes_max: config.server.body_bytes_max,
        body_ms: config.server.body_ms,
        first_message_ms: config.server.first_message_ms,
        store_kind: backing::kind(&config.store.url).to_owned(),
        rate_limit: config.rate_limit(),
        tls: config.tls()?,
        session: config.session.settings()?,
        ..ServerOptions::default()
    })
}
