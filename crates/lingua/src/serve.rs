//! `lingua serve`: puts store, engine and server together, and handles signals.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::Args;
use lingua_core::InstanceId;
use lingua_engine::options::{Bounds, EngineOptions, PoolOptions, Times};
use lingua_engine::service::NameTaken;
use lingua_engine::tenants::TenantTable;
use lingua_engine::{EngineService, TokioTimer};
use lingua_server::audit::Audit;
use lingua_server::auth::SharedTokens;
use lingua_server::limit::RateLimit;
use lingua_server::{Server, ServerOptions};
use lingua_store::Store;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::clean::CleanLog;
use crate::config::{Config, Identities};
use crate::reload::Reload;
use crate::store;

pub(crate) use lingua_server::auth::wall_ms;

/// Connections that may wait to be accepted; the system may allow fewer. With the usual 128, a
/// burst of clients overflows the queue, and each client that is refused tries again a second
/// later.
const BACKLOG: u32 = 4096;

/// Open files that are not connections of clients and nodes: store, log, listener, connections to
/// Redis.
const FILES_OTHER: usize = 256;

/// The usual soft limit of open files.
const FILES_USUAL: u64 = 1024;

/// Flags of `lingua serve`; they win over the file and the environment.
#[derive(Debug, Args, Default)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:7410].
    #[arg(long)]
    listen: Option<String>,
    /// URL of the store [default: embedded:].
    #[arg(long)]
    store: Option<String>,
    /// Id of this instance [default: a random one].
    #[arg(long)]
    instance_id: Option<String>,
    /// Directory in which the embedded store keeps jobs and epochs.
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
        config.check()?;
        Ok(config)
    }
}

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    let config = args.load()?;
    start_logging(&config.log.level, &config.log.format);
    for warning in crate::config::ignored_variables().into_iter().chain(config.warnings()) {
        tracing::warn!("{warning}");
    }
    let is_tls = config.server.tls_cert.is_some();
    let listening = |address| {
        let scheme = if is_tls { "https" } else { "http" };
        tracing::info!(%address, url = %format!("{scheme}://{address}"), "listening");
    };
    let runtime = runtime(config.server.threads)?;
    runtime.block_on(async { serve(config, stop_signal(), listening).await })
}

/// The runtime of an instance. One thread is faster than several that wake each other: replies
/// that are ready at the same time are sent together.
pub(crate) fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = match threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.max(1)).enable_all().build().context("cannot start the runtime")
}

/// Whether a line may be written. Other libraries would log what passes through them: frames of
/// sockets with all that is said, headers with tokens.
fn is_harmless(about: &tracing::Metadata<'_>) -> bool {
    about.target().starts_with("lingua") || *about.level() <= tracing::Level::INFO
}

/// Logs to stderr; in a process that logs already, the first settings stay.
pub(crate) fn start_logging(level: &str, format: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::registry().with(filter).with(filter_fn(is_harmless));
    let lines = tracing_subscriber::fmt::layer().with_writer(|| CleanLog(std::io::stderr()));
    let started = match format {
        "json" => log.with(lines.json()).try_init(),
        _ => log.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
    };
    started.ok();
}

/// Runs an instance until `stop`; calls `listening` with its address.
pub(crate) async fn serve(
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(std::net::SocketAddr),
) -> anyhow::Result<()> {
    let timer = TokioTimer::starting_at(wall_ms());
    if config.store.url == store::EMBEDDED {
        let store = store::embedded(&config, timer.clone())?;
        return serve_on(store, timer, config, stop, listening).await;
    }
    let store = store::shared(&config).await?;
    serve_on(store, timer, config, stop, listening).await
}

async fn serve_on<S: Store>(
    store: S,
    timer: TokioTimer,
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    listening: impl FnOnce(std::net::SocketAddr),
) -> anyhow::Result<()> {
    let listen = &config.server.listen;
    let listener = bind(listen).await.with_context(|| {
        format!("cannot listen on {listen}: is another lingua running? give another --listen")
    })?;
    let address = listener.local_addr().context("the listener has no address")?;
    let mut registry = Registry::with_prefix("lingua");
    let audit = config.open_audit()?;
    let files = config.auth.read(None);
    let Identities { tokens, tenants } = config.auth.identities(&files)?;
    let (tokens, tenants) = (SharedTokens::from(tokens), TenantTable::new(tenants));
    let reload = Reload::new(&config, files, tokens.clone(), tenants.clone(), audit.clone());
    let options = engine_options(&config, address.to_string(), tenants)?;
    let service = EngineService::new(options, store, timer, &mut registry);
    let server_options = server_options(&config, tokens, audit)?;
    server_options.check_listen(address)?;
    if server_options.shows_tokens(address) {
        tracing::warn!(
            %address,
            "tokens are sent without encryption: set server.tls_cert and server.tls_key"
        );
    }
    service.claim_name().await?;
    let handle = service.handle();
    let server = Server::new(handle.clone(), server_options, registry);
    let name_taken = NameTaken { instance: handle.options().instance.clone() };
    let (lost, name_was_lost) = (Arc::new(AtomicBool::new(false)), handle);
    let is_lost = Arc::clone(&lost);
    let stop = async move {
        tokio::select! {
            () = stop => {}
            () = name_was_lost.name_lost() => is_lost.store(true, Ordering::Relaxed),
        }
    };

    // Jobs end first, then connections, so that clients get their replies.
    let (jobs_ended, ended) = oneshot::channel::<()>();
    let engine = tokio::spawn(async move {
        service.run(stop).await;
        drop(jobs_ended);
    });
    listening(address);
    let served = server.serve(listener, async { drop(ended.await) });
    tokio::select! {
        served = served => served?,
        never = reload.run() => match never {},
    }
    engine.await.context("the engine failed")?;
    if lost.load(Ordering::Relaxed) {
        return Err(name_taken.into());
    }
    tracing::info!("stopped");
    Ok(())
}

/// Binds to the first address that works.
async fn bind(listen: &str) -> std::io::Result<TcpListener> {
    let mut error = None;
    for address in lookup_host(listen).await? {
        let socket = match address.is_ipv4() {
            true => TcpSocket::new_v4()?,
            false => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(failed) => error = Some(failed),
        }
    }
    Err(error.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into()))
}

/// Waits for Ctrl-C or SIGTERM. From the call on, not only from the first poll on, these signals
/// no longer end the process.
pub(crate) fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [Ok(mut interrupt), Ok(mut terminate)] = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

fn engine_options(
    config: &Config,
    address: String,
    tenants: TenantTable,
) -> anyhow::Result<EngineOptions> {
    let random_name = || format!("lingua-{:08x}", rand::random::<u32>());
    let name = config.instance.id.clone().unwrap_or_else(random_name);
    let instance =
        InstanceId::new(&name).with_context(|| format!("{name:?} is not an instance id"))?;
    let scheduler = &config.scheduler;
    let mut options = EngineOptions::new(instance, rand::random());
    options.address = address;
    options.rules = config.rules()?;
    options.policy = config.policy()?;
    options.tenants = tenants;
    options.keep_last = config.keep_last()?;
    options.max_retry = scheduler.max_retry;
    options.bounds = Bounds {
        live_jobs_max: scheduler.open_jobs_max,
        open_bytes_max: scheduler.open_bytes_max,
        waiting_bytes_max: scheduler.waiting_bytes_max,
        audio_bytes_max: scheduler.audio_bytes_max,
        speech_bytes_max: scheduler.speech_bytes_max,
        request_bytes_max: config.server.request_bytes_max,
        response_bytes_max: config.server.response_bytes_max,
        ..options.bounds
    };
    options.pools = PoolOptions {
        generate: config.pools.generate,
        mixed: config.pools.mixed,
        min_nodes_per_pool: config.pools.min_nodes_per_pool,
        max_pools: config.pools.max_pools,
    };
    options.times = Times {
        heartbeat_ms: scheduler.heartbeat_interval_ms,
        stale_ms: scheduler.heartbeat_stale_ms,
        node_record_ms: scheduler.node_record_ms,
        ack_ms: scheduler.reservation_ttl_ms,
        run_lease_ms: scheduler.run_lease_ms,
        run_ms: scheduler.run_timeout_ms,
        drain_ms: scheduler.drain_ms,
        leader_lease_ms: scheduler.leader_lease_ms,
        speech_ms: config.session.resume_ms,
        leader_renew_ms: (scheduler.leader_lease_ms / 3).max(1),
        ..Times::default()
    };
    Ok(options)
}

/// Raises the soft limit of open files to the hard one, and says how many connections fit into it.
fn connections_max(configured: usize) -> usize {
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit of open files");
        rlimit::getrlimit(rlimit::Resource::NOFILE).map_or(FILES_USUAL, |(soft, _)| soft)
    });
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let fit = files - FILES_OTHER.min(files / 4);
    match configured {
        0 => fit,
        max if max > fit => {
            let hint = "raise the limit of open files of the service";
            tracing::warn!(max, fit, "server.connections_max is above what fits; {hint}");
            fit
        }
        max => max,
    }
}

fn server_options(
    config: &Config,
    tokens: SharedTokens,
    audit: Audit,
) -> anyhow::Result<ServerOptions> {
    let limits = &config.limits;
    let open_per_second = limits.open_requests_per_second;
    Ok(ServerOptions {
        connections_max: connections_max(config.server.connections_max),
        write_ms: config.server.write_ms,
        open_rate_limit: RateLimit::new(open_per_second, open_per_second.saturating_mul(2)),
        event_streams_max: limits.event_streams_max,
        event_streams_per_caller: limits.event_streams_per_caller,
        node_messages_per_second: limits.node_messages_per_second,
        tokens,
        audit,
        allow_insecure: config.auth.allow_insecure,
        allowed_origins: config.server.allowed_origins.clone(),
        allowed_hosts: config.server.allowed_hosts.clone(),
        trusted_proxies: config.trusted_proxies()?,
        proxy_protocol: config.server.proxy_protocol,
        audio_refs: config.audio_refs(),
        default_wait_ms: config.scheduler.wait_ms,
        body_bytes_max: config.server.body_bytes_max,
        body_ms: config.server.body_ms,
        first_message_ms: config.server.first_message_ms,
        store_kind: store::kind_name(&config.store.url).to_owned(),
        rate_limit: config.rate_limit(),
        tls: config.tls()?,
        session: config.session.settings(),
        ..ServerOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_burst_of_clients_can_connect_before_any_is_accepted() {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(30)).unwrap();
        let clients: Vec<TcpStream> = (0..300).map(connect).collect();
        assert_eq!(clients.len(), 300);
    }
}
