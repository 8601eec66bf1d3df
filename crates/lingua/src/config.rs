//! Configuration: defaults < file < environment < flags.
//!
//! Start at [`Config::load`]. Unknown keys are errors, so that a typo does not silently leave a
//! default in force; so are values out of range (`keys.rs`). `LINGUA_SERVER__LISTEN=…` sets
//! `server.listen`.

use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Subcommand;
use lingua_core::{InstanceId, Policy, Rules, Thresholds};
use lingua_engine::options::KeepLast;
use lingua_server::audio_ref::AudioRefRules;
use lingua_server::audit::Audit;
use lingua_server::caller_address::{AddressRange, TrustedProxies};
use lingua_server::limit::RateLimit;
use lingua_server::tls::Tls;
use serde::{Deserialize, Serialize};

use crate::screen::print_text;
use crate::store;

mod auth;
mod grant_keys;
mod hints;
mod keys;
mod print;
mod session;
mod variables;

pub(crate) use auth::{AuthConfig, AuthFiles, Identities, expiry_ms};
pub(crate) use session::SessionConfig;
pub(crate) use variables::ignored_variables;

const DEFAULTS: &str = include_str!("config/defaults.toml");

#[derive(Debug, thiserror::Error)]
#[error("bad configuration: {0}")]
pub(crate) struct BadConfig(pub(crate) String);

/// All settings, with the defaults of `config/defaults.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: ServerConfig,
    pub(crate) store: StoreConfig,
    pub(crate) instance: InstanceConfig,
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) selection: SelectionConfig,
    pub(crate) pools: PoolsConfig,
    pub(crate) log: LogConfig,
    pub(crate) auth: AuthConfig,
    pub(crate) audit: AuditConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) session: SessionConfig,
}

/// Declares sections of the configuration. A key that a section does not have is refused.
macro_rules! sections {
    ($($(#[$doc:meta])* struct $Section:ident {
        $($(#[$meaning:meta])* $key:ident: $Type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $Section {
            $($(#[$meaning])* pub(crate) $key: $Type,)*
        }
    )*};
}

sections! {
    struct ServerConfig {
        listen: String,
        threads: usize,
        allowed_origins: Vec<String>,
        allowed_hosts: Vec<String>,
        trusted_proxies: Vec<String>,
        proxy_protocol: bool,
        audio_ref_schemes: Vec<String>,
        audio_ref_hosts: Vec<String>,
        body_bytes_max: usize,
        body_ms: u64,
        first_message_ms: u64,
        write_ms: u64,
        /// 0 means as many as the limit of open files allows.
        connections_max: usize,
        request_bytes_max: usize,
        response_bytes_max: usize,
        /// PEM files; both or none.
        tls_cert: Option<PathBuf>,
        tls_key: Option<PathBuf>,
    }

    struct StoreConfig {
        url: String,
        data_dir: Option<PathBuf>,
        key_prefix: String,
        /// How long to wait for a reply of a shared store.
        timeout_ms: u64,
        /// How long to wait for a connection to it.
        connect_timeout_ms: u64,
        /// Longest pause between two attempts to connect.
        reconnect_max_ms: u64,
        /// Most ended jobs to keep; they are deleted after an hour in any case.
        ended_jobs_max: Option<usize>,
        /// Most bytes of their requests and results.
        ended_bytes_max: Option<usize>,
        /// Certificates of the authorities to trust (PEM) instead of the system's.
        tls_ca_file: Option<PathBuf>,
    }

    struct InstanceConfig {
        /// A random id if absent.
        id: Option<String>,
    }

    struct SchedulerConfig {
        max_retry: u32,
        wait_ms: u64,
        heartbeat_interval_ms: u64,
        heartbeat_stale_ms: u64,
        node_record_ms: u64,
        reservation_ttl_ms: u64,
        run_lease_ms: u64,
        run_timeout_ms: u64,
        drain_ms: u64,
        /// How long a leader, or an instance, counts as alive after its last renewal.
        leader_lease_ms: u64,
        open_jobs_max: usize,
        /// Most bytes of open jobs, without their audio.
        open_bytes_max: usize,
        /// Most bytes of jobs that wait for a slot, with their audio.
        waiting_bytes_max: usize,
        /// Most bytes of clients' audio whose jobs have not ended.
        audio_bytes_max: usize,
        /// Most bytes of results with speech that wait for their clients; the oldest are dropped.
        speech_bytes_max: usize,
    }

    struct SelectionConfig {
        policy: String,
        sample_k: u8,
        keep_last: String,
        cpu_threshold: f64,
        gpu_threshold: f64,
        memory_threshold: f64,
    }

    struct PoolsConfig {
        semantic_rule: String,
        generate: bool,
        mixed: bool,
        min_nodes_per_pool: usize,
        max_pools: usize,
    }

    struct LogConfig {
        format: String,
        level: String,
    }

    struct AuditConfig {
        file: Option<PathBuf>,
    }

    /// Requests of one caller: a token, else an address.
    struct LimitsConfig {
        /// 0 means no limit.
        requests_per_second: u32,
        /// Requests at once; 0 means as many as in a second.
        burst: u32,
        /// Of one address, for what needs no token.
        open_requests_per_second: u32,
        event_streams_max: usize,
        event_streams_per_caller: usize,
        node_messages_per_second: u32,
    }
}

impl Default for Config {
    fn default() -> Self {
        toml::from_str(DEFAULTS).expect("the defaults are complete")
    }
}

impl Config {
    /// Reads the defaults, the file and the environment.
    pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let defaults = config::File::from_str(DEFAULTS, config::FileFormat::Toml);
        let file = file.map(|file| config::File::from(file).format(config::FileFormat::Toml));
        // Only names with a section: other commands read LINGUA_URL and the like.
        let sectioned = std::env::vars().filter(|(name, _)| name.contains("__")).collect();
        let environment = config::Environment::with_prefix("LINGUA")
            .prefix_separator("_")
            .separator("__")
            .source(Some(sectioned))
            .try_parsing(true);
        let bad = |error: config::ConfigError| {
            BadConfig(format!("{error}; 'lingua config dump' lists all keys"))
        };
        let merged = config::Config::builder()
            .add_source(defaults)
            .add_source(Vec::from_iter(file))
            .add_source(environment)
            .build()
            .map_err(|error| BadConfig(error.to_string()))?;
        let unknown = hints::unknown_keys(&merged.cache);
        if !unknown.is_empty() {
            let lines = unknown.join("\n  ");
            let all = "'lingua config dump' lists all keys";
            return Err(BadConfig(format!("unknown keys:\n  {lines}\n{all}")).into());
        }
        Ok(merged.try_deserialize::<Self>().map_err(bad)?)
    }

    /// Refuses settings with which the program would not work.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let table = print::table_of(self)?;
        let refused = keys::KEYS.iter().filter_map(|key| key.refuse(key.value(&table)?));
        let mut wrong: Vec<String> = refused.collect();
        let scheduler = &self.scheduler;
        let interval_ms = scheduler.heartbeat_interval_ms;
        for (name, ms) in [
            ("heartbeat_stale_ms", scheduler.heartbeat_stale_ms),
            ("run_lease_ms", scheduler.run_lease_ms),
        ] {
            if ms <= interval_ms {
                wrong.push(format!(
                    "scheduler.{name} is {ms}, which ends before the next heartbeat; give more \
                     than scheduler.heartbeat_interval_ms ({interval_ms})"
                ));
            }
        }
        let (stale_ms, record_ms) = (scheduler.heartbeat_stale_ms, scheduler.node_record_ms);
        if record_ms <= stale_ms {
            wrong.push(format!(
                "scheduler.node_record_ms is {record_ms}, so that nodes would be forgotten while \
                 they may get jobs; give more than scheduler.heartbeat_stale_ms ({stale_ms})"
            ));
        }
        let listen = &self.server.listen;
        if listen.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            wrong.push(format!("server.listen is {listen:?}; use host:port, as in 127.0.0.1:7410"));
        }
        if let Some(id) = self.instance.id.as_deref()
            && let Err(error) = InstanceId::new(id)
        {
            wrong.push(format!("instance.id is {id:?}: {error}"));
        }
        if !wrong.is_empty() {
            return Err(BadConfig(wrong.join("\n  ")).into());
        }
        self.rules()?;
        self.policy()?;
        self.keep_last()?;
        self.auth.identities(&self.auth.read(None))?;
        self.check_origins()?;
        self.trusted_proxies()?;
        if self.store.url != store::EMBEDDED {
            store::redis_options(self)?;
        }
        self.tls()?;
        Ok(())
    }

    pub(crate) fn rules(&self) -> Result<Rules, BadConfig> {
        let s = &self.selection;
        let thresholds = Thresholds::new(s.cpu_threshold, s.gpu_threshold, s.memory_threshold)
            .map_err(|error| BadConfig(format!("selection thresholds: {error}")))?;
        let semantic = parse("pools.semantic_rule", &self.pools.semantic_rule)?;
        Ok(Rules { semantic, thresholds, gone_ms: self.scheduler.heartbeat_stale_ms })
    }

    pub(crate) fn policy(&self) -> Result<Policy, BadConfig> {
        Ok(match parse("selection.policy", &self.selection.policy)? {
            Policy::Sample { .. } => Policy::Sample { k: self.selection.sample_k },
            policy => policy,
        })
    }

    pub(crate) fn keep_last(&self) -> Result<KeepLast, BadConfig> {
        parse("selection.keep_last", &self.selection.keep_last)
    }

    /// A browser sends scheme, host and port; anything else would never match.
    fn check_origins(&self) -> Result<(), BadConfig> {
        let is_origin = |origin: &String| {
            let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ', '@']))
        };
        match self.server.allowed_origins.iter().find(|origin| !is_origin(origin)) {
            None => Ok(()),
            Some(origin) => Err(BadConfig(format!(
                "server.allowed_origins has {origin:?}; write an origin as browsers send it, \
                 without a path, such as \"https://app.example\""
            ))),
        }
    }

    pub(crate) fn trusted_proxies(&self) -> Result<TrustedProxies, BadConfig> {
        let networks = self.server.trusted_proxies.iter().map(|text| text.parse::<AddressRange>());
        let proxies = networks.collect::<Result<Vec<AddressRange>, _>>().map(TrustedProxies::new);
        let proxies = proxies.map_err(|e| BadConfig(format!("server.trusted_proxies: {e}")))?;
        match self.server.proxy_protocol && proxies.is_empty() {
            false => Ok(proxies),
            true => {
                let detail = "server.proxy_protocol needs the proxies in server.trusted_proxies";
                Err(BadConfig(detail.to_owned()))
            }
        }
    }

    /// The rules for references to audio.
    pub(crate) fn audio_refs(&self) -> AudioRefRules {
        let schemes = self.server.audio_ref_schemes.iter();
        AudioRefRules {
            schemes: schemes.map(|scheme| scheme.to_ascii_lowercase()).collect(),
            hosts: self.server.audio_ref_hosts.clone(),
        }
    }

    /// What works, but should not stay as it is.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let key = self.server.tls_key.as_deref().filter(|key| is_open_to_others(key));
        let warning = |key: &Path| {
            let key = key.display();
            format!("other users can read server.tls_key {key}: run 'chmod 600 {key}'")
        };
        key.map(warning).into_iter().collect()
    }

    pub(crate) fn tls(&self) -> Result<Option<Tls>, BadConfig> {
        match (&self.server.tls_cert, &self.server.tls_key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => {
                Tls::from_files(cert, key).map(Some).map_err(|error| BadConfig(error.to_string()))
            }
            _ => Err(BadConfig("set both server.tls_cert and server.tls_key, or neither".into())),
        }
    }

    /// Opens the audit log.
    pub(crate) fn open_audit(&self) -> Result<Audit, BadConfig> {
        let Some(path) = &self.audit.file else { return Ok(Audit::default()) };
        let bad = |error| BadConfig(format!("cannot open audit.file {}: {error}", path.display()));
        Audit::open(path).map_err(bad)
    }

    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        let per_second = NonZeroU32::new(self.limits.requests_per_second)?;
        let burst = NonZeroU32::new(self.limits.burst).unwrap_or(per_second);
        Some(RateLimit { per_second, burst })
    }
}

fn parse<T: FromStr<Err: Display>>(key: &str, text: &str) -> Result<T, BadConfig> {
    text.parse().map_err(|error| BadConfig(format!("{key} is {text:?}; {error}")))
}

/// Whether users other than the owner and its group can read a file.
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o007 != 0)
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check it.
    Check {
        /// The file to check.
        #[arg(long)]
        config: Option<PathBuf>,
    },
    /// Print all settings that are in force: defaults, file and environment.
    Dump {
        /// The file to read.
        #[arg(long)]
        config: Option<PathBuf>,
    },
    /// Print the reference of all keys: default, values, meaning (Markdown).
    Docs,
}

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<()> {
    for warning in ignored_variables() {
        eprintln!("lingua: {warning}");
    }
    let (ConfigCommand::Check { config } | ConfigCommand::Dump { config }) = &command else {
        print_text(&print::docs()?);
        return Ok(());
    };
    let loaded = Config::load(config.as_deref())?;
    loaded.check()?;
    for warning in loaded.warnings() {
        eprintln!("lingua: {warning}");
    }
    match command {
        ConfigCommand::Dump { .. } => print_text(&print::dump(&loaded)?),
        _ => print_text("ok\n"),
    }
    Ok(())
}
