//! Configuration: defaults < file < environment < flags.
//!
//! Start at [`Config::load`]. Unknown keys are errors, so that a typing mistake is not a silent
//! default. `LINGUA_SERVER__LISTEN=…` sets `server.listen`.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use lingua_core::{Policy, Rules, SemanticRule, Thresholds};
use lingua_server::auth::{Role, TokenHash, Tokens};
use lingua_server::limit::RateLimit;
use lingua_server::tls::Tls;
use serde::{Deserialize, Serialize};

use crate::backing;

mod environment;
mod session;

pub(crate) use environment::strays_here;
pub(crate) use session::Session;

/// Something in the configuration is wrong.
#[derive(Debug, thiserror::Error)]
#[error("bad configuration: {0}")]
pub(crate) struct BadConfig(String);

impl BadConfig {
    pub(crate) fn new(detail: String) -> Self {
        Self(detail)
    }
}

/// Everything that can be set in a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) store: Store,
    pub(crate) instance: Instance,
    pub(crate) scheduler: Scheduler,
    pub(crate) selection: Selection,
    pub(crate) pools: Pools,
    pub(crate) log: Log,
    pub(crate) auth: Auth,
    pub(crate) limits: Limits,
    pub(crate) session: Session,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    pub(crate) listen: String,
    pub(crate) threads: usize,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_ms: u64,
    pub(crate) first_message_ms: u64,
    /// PEM files; both or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Store {
    pub(crate) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) key_prefix: String,
    /// How long to wait for a reply of a shared store.
    pub(crate) timeout_ms: u64,
    /// How long to wait for a connection to it.
    pub(crate) connect_timeout_ms: u64,
    /// Between two attempts to connect, at most.
    pub(crate) reconnect_max_ms: u64,
    /// Ended jobs that are remembered at most, besides the hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_jobs_max: Option<usize>,
    /// Certificates of the authorities to trust (PEM); the system's if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Instance {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scheduler {
    pub(crate) max_retry: u32,
    pub(crate) wait_ms: u64,
    pub(crate) heartbeat_interval_ms: u64,
    pub(crate) heartbeat_stale_ms: u64,
    pub(crate) reservation_ttl_ms: u64,
    pub(crate) run_lease_ms: u64,
    pub(crate) run_timeout_ms: u64,
    pub(crate) drain_ms: u64,
    /// How long a leader, or an instance, is believed to live without a word.
    pub(crate) leader_lease_ms: u64,
    pub(crate) open_jobs_max: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Selection {
    pub(crate) policy: String,
    pub(crate) sample_k: u8,
    pub(crate) cpu_threshold: f64,
    pub(crate) gpu_threshold: f64,
    pub(crate) memory_threshold: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pools {
    pub(crate) semantic_rule: String,
    pub(crate) min_nodes_per_pool: usize,
    pub(crate) max_pools: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) format: String,
    pub(crate) level: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Auth {
    pub(crate) allow_insecure: bool,
    pub(crate) tokens: Vec<Token>,
}

/// How often one caller (a token, else an address) may ask; `requests_per_second = 0` means without
/// limit.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    pub(crate) requests_per_second: u32,
    /// How many at once; 0 means as many as in a second.
    pub(crate) burst: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) role: String,
    pub(crate) sha256: String,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7410".to_owned(),
            // One busy thread beats two that wake each other.
            threads: 1,
            allowed_origins: vec![],
            body_bytes_max: 4 << 20,
            body_ms: 30_000,
            first_message_ms: 10_000,
            tls_cert: None,
            tls_key: None,
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        let key_prefix = "lingua:v1:".to_owned();
        Self {
            url: "embedded:".to_owned(),
            data_dir: None,
            key_prefix,
            timeout_ms: 1_000,
            connect_timeout_ms: 2_000,
            reconnect_max_ms: 2_000,
            ended_jobs_max: None,
            tls_ca_file: None,
        }
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            max_retry: 2,
            wait_ms: 2_000,
            heartbeat_interval_ms: 5_000,
            heartbeat_stale_ms: 15_000,
            reservation_ttl_ms: 5_000,
            run_lease_ms: 15_000,
            run_timeout_ms: 60_000,
            drain_ms: 10_000,
            leader_lease_ms: 9_000,
            open_jobs_max: 50_000,
        }
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            policy: "balanced".to_owned(),
            sample_k: Policy::SAMPLE_K,
            cpu_threshold: 0.9,
            gpu_threshold: 0.9,
            memory_threshold: 0.9,
        }
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self { semantic_rule: "source".to_owned(), min_nodes_per_pool: 1, max_pools: 50 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: "text".to_owned(), level: "info".to_owned() }
    }
}

/// A setting in milliseconds; none is 0, which would mean never.
pub(crate) fn ms(setting: u64) -> Duration {
    Duration::from_millis(setting.max(1))
}

impl Config {
    /// Reads defaults, then the file, then the environment; checks everything.
    pub(crate) fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let mut builder = config::Config::builder();
        if let Some(file) = file {
            let source = config::File::from(file).format(config::FileFormat::Toml);
            builder = builder.add_source(source);
        }
        // Only names with a section: LINGUA_URL and the like are for other commands.
        let sectioned = std::env::vars().filter(|(name, _)| name.contains("__")).collect();
        let environment = config::Environment::with_prefix("LINGUA")
            .prefix_separator("_")
            .separator("__")
            .source(Some(sectioned))
            .try_parsing(true);
        let loaded = builder
            .add_source(environment)
            .build()
            .and_then(config::Config::try_deserialize::<Self>)
            .map_err(|error| {
                BadConfig(format!("{error}; see 'lingua config dump' for all keys"))
            })?;
        loaded.rules()?;
        loaded.policy()?;
        loaded.tokens()?;
        if loaded.store.url != "embedded:" {
            backing::redis_options(&loaded)?;
        }
        loaded.tls()?;
        loaded.session.settings()?;
        Ok(loaded)
    }

    pub(crate) fn rules(&self) -> Result<Rules, BadConfig> {
        let semantic = match self.pools.semantic_rule.as_str() {
            "declared" => SemanticRule::Declared,
            "source" => SemanticRule::Source,
            "both" => SemanticRule::Both,
            other => {
                let known = "use declared, source or both";
                return Err(BadConfig(format!("pools.semantic_rule is {other:?}; {known}")));
            }
        };
        let s = &self.selection;
        let thresholds = Thresholds::new(s.cpu_threshold, s.gpu_threshold, s.memory_threshold)
            .map_err(|error| BadConfig(format!("selection thresholds: {error}")))?;
        Ok(Rules { semantic, thresholds })
    }

    pub(crate) fn policy(&self) -> Result<Policy, BadConfig> {
        match self.selection.policy.parse() {
            Ok(Policy::Sample { .. }) => Ok(Policy::Sample { k: self.selection.sample_k }),
            Ok(policy) => Ok(policy),
            Err(error) => Err(BadConfig(format!("selection.policy: {error}"))),
        }
    }

    pub(crate) fn tls(&self) -> Result<Option<Tls>, BadConfig> {
        match (&self.server.tls_cert, &self.server.tls_key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => {
                Tls::from_files(cert, key).map(Some).map_err(|error| BadConfig(error.to_string()))
            }
            _ => {
                let what = "server.tls_cert and server.tls_key belong together; give both or none";
                Err(BadConfig(what.to_owned()))
            }
        }
    }

    pub(crate) fn rate_limit(&self) -> Option<RateLimit> {
        let per_second = NonZeroU32::new(self.limits.requests_per_second)?;
        let burst = NonZeroU32::new(self.limits.burst).unwrap_or(per_second);
        Some(RateLimit { per_second, burst })
    }

    pub(crate) fn tokens(&self) -> Result<Tokens, BadConfig> {
        let mut tokens = vec![];
        for token in &self.auth.tokens {
            let name = &token.name;
            let role = Role::from_name(&token.role).ok_or_else(|| {
                let role = &token.role;
                BadConfig(format!("token {name:?} has role {role:?}; use node, client or admin"))
            })?;
            let hash = TokenHash::from_hex(&token.sha256).ok_or_else(|| {
                BadConfig(format!("token {name:?}: sha256 is not 64 hexadecimal digits"))
            })?;
            tokens.push((hash, role));
        }
        Ok(Tokens::new(tokens))
    }
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say whether it is good.
    Check {
        /// The file to check.
        #[arg(long)]
        config: Option<PathBuf>,
    },
    /// Print what is in force: defaults, file and environment.
    Dump {
        /// The file to read.
        #[arg(long)]
        config: Option<PathBuf>,
    },
}

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<()> {
    for stray in strays_here() {
        eprintln!("lingua: {stray}");
    }
    match command {
        ConfigCommand::Check { config } => {
            Config::load(config.as_deref())?;
            println!("ok");
        }
        ConfigCommand::Dump { config } => {
            let loaded = Config::load(config.as_deref())?;
            print!(
                "{}",
                toml::to_string_pretty(&loaded).context("cannot write the configuration")?
            );
        }
    }
    Ok(())
}
