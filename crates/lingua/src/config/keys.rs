//! Every key of the configuration: which values it accepts and what it means.
//!
//! Start at [`KEYS`]. `config check`, `config dump` and docs/configuration.md are made from this
//! table.
//!
//! Invariant: a key is in this table exactly if [`Config`](super::Config) has it.

use toml::Value;

use Accepts::{Flag, Fraction, Level, Number, OneOf, Text};

/// A day; no setting of a time is longer.
const DAY_MS: u64 = 86_400_000;

/// Most of what is counted: jobs, sessions, pools, segments.
const COUNT_MAX: u64 = 100_000_000;

/// Longest body or frame.
const BYTES_MAX: u64 = 1 << 30;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A key of the configuration.
#[derive(Debug)]
pub(crate) struct ConfigKey {
    /// Section and name: `server.listen`.
    pub(crate) path: &'static str,
    /// The values that it accepts.
    pub(crate) accepts: Accepts,
    /// What it means, in a sentence.
    pub(crate) meaning: &'static str,
}

/// The values that a key accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Accepts {
    /// A whole number in this range.
    Number(u64, u64),
    /// A number above 0 and up to 1.
    Fraction,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A level, or a level for each module.
    Level,
    /// A text of this form; what is made of it checks the form.
    Text(&'static str),
}

/// Times in milliseconds, counts and sizes, each from a least value.
const fn ms(min: u64) -> Accepts {
    Number(min, DAY_MS)
}

const fn count(min: u64) -> Accepts {
    Number(min, COUNT_MAX)
}

const fn bytes(min: u64) -> Accepts {
    Number(min, BYTES_MAX)
}

macro_rules! keys {
    ($($path:literal, $accepts:expr, $meaning:literal;)*) => {
        /// All keys, section by section.
        pub(crate) const KEYS: &[ConfigKey] =
            &[$(ConfigKey { path: $path, accepts: $accepts, meaning: $meaning },)*];
    };
}

keys! {
    "server.listen", Text("host:port"),
        "Address to listen on. Beyond this machine it needs tokens.";
    "server.threads", Number(0, 1024), "Threads of the program. One is fastest on most machines.";
    "server.allowed_origins", Text("list of origins"),
        "Origins of web pages that may call, besides the server's own.";
    "server.allowed_hosts", Text("list of names"),
        "Names under which the server is called without tokens, besides `localhost`, `127.0.0.1` \
         and `[::1]`. With tokens any name will do.";
    "server.trusted_proxies", Text("list of networks"),
        "Proxies that are believed when they say for whom they call (`X-Forwarded-For`), such as \
         `10.0.0.0/8`.";
    "server.proxy_protocol", Flag,
        "Whether connections of these proxies begin with a header of the PROXY protocol (version \
         1 or 2).";
    "server.audio_ref_schemes", Text("list of schemes"),
        "Schemes of `audio_ref` that are passed on to nodes.";
    "server.audio_ref_hosts", Text("list of names"),
        "Hosts of `audio_ref` that are passed on, `*.example.com` for all below one. If empty: \
         all but `localhost`, loopback and link-local addresses.";
    "server.body_bytes_max", bytes(1024), "Longest body of a request, in bytes.";
    "server.body_ms", ms(1), "How long a whole body may take to arrive.";
    "server.first_message_ms", ms(1),
        "Longest TLS handshake, wait for the head of a request, and wait for the first message \
         on a WebSocket.";
    "server.write_ms", ms(1),
        "A peer that leaves bytes unread for this long, on any connection, is disconnected.";
    "server.connections_max", count(0),
        "Most connections, WebSockets included; beyond that the oldest on which no request came \
         is closed, or the new one. 0 is as many as the limit of open files allows, less 256.";
    "server.request_bytes_max", bytes(1024),
        "Most bytes of request bodies that are being received.";
    "server.response_bytes_max", bytes(1024),
        "Most bytes of long responses that their clients have not read.";
    "server.tls_cert", Text("PEM file"), "Certificate of the server; needs `tls_key`.";
    "server.tls_key", Text("PEM file"), "Private key of the certificate.";
    "store.url", Text("URL"),
        "`embedded:`, `redis://host:port/db`, `rediss://…`, `redis+sentinel://h1:p,h2:p/master` \
         or `redis+cluster://h1:p,h2:p`.";
    "store.data_dir", Text("directory"),
        "Where the embedded store keeps jobs and epochs. Without it they are lost at a restart.";
    "store.key_prefix", Text("text"),
        "Prefix of all keys in Redis; fleets with different prefixes do not see each other.";
    "store.timeout_ms", ms(1), "How long to wait for a reply of Redis.";
    "store.connect_timeout_ms", ms(1), "How long to wait for a connection to Redis.";
    "store.reconnect_max_ms", ms(1), "Longest pause between two attempts to connect to Redis.";
    "store.ended_jobs_max", count(1),
        "Most ended jobs to keep; they are deleted after an hour in any case.";
    "store.ended_bytes_max", bytes(1), "Most bytes of ended jobs to keep.";
    "store.tls_ca_file", Text("PEM file"),
        "Certificates of the authorities to trust instead of the system's, for `rediss:`.";
    "instance.id", Text("letters, digits, `-`, `_`, `.`"),
        "Name of this instance, unique among the instances of a store. A random one if absent.";
    "scheduler.max_retry", count(0), "Most attempts of a job after the first.";
    "scheduler.wait_ms", ms(0),
        "How long a job waits for a slot if its client does not say; 0 refuses at once.";
    "scheduler.heartbeat_interval_ms", ms(10),
        "How often nodes send a heartbeat. They are told a longer interval in a large fleet.";
    "scheduler.heartbeat_stale_ms", ms(11),
        "A node without a sign of life for this long gets no jobs. Above `heartbeat_interval_ms`.";
    "scheduler.node_record_ms", ms(12),
        "A node without a sign of life for this long is forgotten. Above `heartbeat_stale_ms`.";
    "scheduler.reservation_ttl_ms", ms(10), "How long a node has to confirm a job.";
    "scheduler.run_lease_ms", ms(10),
        "How long a running job keeps its slot without a sign of life of its node. Above \
         `heartbeat_interval_ms`.";
    "scheduler.run_timeout_ms", ms(10), "How long a node may work on a job.";
    "scheduler.drain_ms", ms(0), "How long a stop waits for running jobs.";
    "scheduler.leader_lease_ms", ms(100),
        "How long a leader, or an instance, counts as alive after its last renewal; renewed \
         after a third of it.";
    "scheduler.open_jobs_max", count(1), "Most jobs that run or wait at this instance.";
    "scheduler.open_bytes_max", bytes(1), "Most bytes of jobs that run or wait at this instance.";
    "scheduler.waiting_bytes_max", bytes(1), "Most bytes of jobs that wait for a slot.";
    "scheduler.audio_bytes_max", bytes(1), "Most bytes of audio of sessions and jobs in memory.";
    "scheduler.speech_bytes_max", bytes(1),
        "Most bytes of speech in results that were not delivered yet.";
    "selection.policy", OneOf(&["balanced", "sample", "least_loaded", "random"]),
        "How a node is chosen among those that can do a job.";
    "selection.sample_k", Number(1, 100), "Nodes that the policy `sample` looks at.";
    "selection.keep_last", OneOf(&["always", "waiting"]),
        "From which jobs the policy `balanced` keeps the last slots of nodes that serve rarer \
         pairs: from those that can wait, or from all. `always` suits fleets without a queue.";
    "selection.cpu_threshold", Fraction,
        "A node whose processor is in use to this share gets no jobs.";
    "selection.gpu_threshold", Fraction, "The same for the graphics processor.";
    "selection.memory_threshold", Fraction, "The same for the memory.";
    "pools.semantic_rule", OneOf(&["declared", "source", "both"]),
        "Which languages semantic repair must cover: any, the source, or source and target.";
    "pools.generate", Flag,
        "Whether the table has pools. Without them it only counts nodes and slots; jobs are \
         served all the same.";
    "pools.mixed", Flag,
        "Whether the table has the mixed pools (`*:en`). Jobs with `src = auto` are served all \
         the same.";
    "pools.min_nodes_per_pool", count(1),
        "Exact pools with fewer nodes are left out of the table. Their jobs are served all the \
         same.";
    "pools.max_pools", count(1),
        "Most exact pools in the table, the largest first. Jobs of the others are served all the \
         same.";
    "log.format", OneOf(&["text", "json"]), "Form of the log lines, which go to stderr.";
    "log.level", Level,
        "Least important lines to write; or for each module: `info,lingua_engine=debug`.";
    "auth.allow_insecure", Flag, "Lets the server listen beyond this machine without tokens.";
    "auth.tokens_file", Text("TOML file"),
        "File with `[[auth.tokens]]`, `[[auth.tenants]]` and `[[auth.keys]]`, added to those of \
         the configuration. It is read again when it changes and on SIGHUP.";
    "auth.tokens", Text("tables"),
        "`[[auth.tokens]]` with `name`, `role` (`node`, `client`, `viewer`, `admin`), `sha256` \
         (one or a list), and optionally `tenant`, `expires`, `limits`, `nodes`, `nodes_max`; \
         `lingua token new` makes one.";
    "auth.tenants", Text("tables"),
        "`[[auth.tenants]]` with `name`, and optionally `weight`, `limits`, `keep_text`, \
         `retention_ms`, `public`.";
    "auth.keys", Text("tables"),
        "`[[auth.keys]]` with `id`, `tenant`, and `secret_file` (HS256) or `public_key_file` \
         (EdDSA): keys that sign grants.";
    "audit.file", Text("file"),
        "Records refusals and administrative acts as lines of JSON; opened again on SIGHUP.";
    "limits.requests_per_second", count(0),
        "Most requests of one caller (a token, else an address) in a second; 0 is no limit.";
    "limits.burst", count(0), "Requests of one caller at once; 0 is as many as in a second.";
    "limits.open_requests_per_second", count(1),
        "Most requests of one address in a second for what needs no token (`/`, `/docs`, \
         `/openapi.json`, `/readyz`; not `/healthz`); twice as many at once.";
    "limits.event_streams_max", count(1), "Most streams of `/v1/events` of this instance.";
    "limits.event_streams_per_caller", count(1),
        "Most of them of one caller (a token, else an address).";
    "limits.node_messages_per_second", count(1),
        "Most messages that are read from one node in a second; the others wait.";
    "session.pause_ms", ms(1), "A segment ends after this time without audio.";
    "session.segment_max_ms", ms(1), "Longest segment; the turn goes on with the next one.";
    "session.vad", Flag,
        "Detect voices: a segment ends after `silence_ms` without a voice. Only for raw audio.";
    "session.silence_ms", ms(1), "How long a silence ends a segment, with `vad`.";
    "session.deadline_ms", ms(1),
        "A segment without a result this long after its end counts as missing.";
    "session.resume_ms", ms(0), "How long a session can be resumed after its connection is lost.";
    "session.idle_ms", ms(1), "A session without any message for this long is closed.";
    "session.rate_max", count(1), "How many times faster than real time audio may arrive.";
    "session.rate_window_ms", ms(1), "Period over which `rate_max` is measured.";
    "session.frame_bytes_max", bytes(1), "Longest frame of audio, in bytes.";
    "session.open_segments_max", count(1), "Most undelivered segments of one session.";
    "session.per_token_max", count(0), "Most sessions of one token; 0 refuses all.";
    "session.sessions_max", count(0), "Most sessions of this instance; 0 refuses all.";
    "session.write_ms", ms(1), "A client that does not read for this long is disconnected.";
    "session.messages_per_second", count(1),
        "Most messages and frames that are read from one client in a second; the others wait.";
}

impl ConfigKey {
    /// The key of this path.
    pub(crate) fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }

    pub(crate) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The value of this key; `None` if it is not set.
    pub(crate) fn value<'a>(&self, config: &'a toml::Table) -> Option<&'a Value> {
        config.get(self.section())?.get(self.name())
    }

    /// What is wrong with this value.
    pub(crate) fn refuse(&self, value: &Value) -> Option<String> {
        let is_right = match (self.accepts, value) {
            (Number(min, max), Value::Integer(n)) => {
                u64::try_from(*n).is_ok_and(|n| (min..=max).contains(&n))
            }
            (Fraction, Value::Float(x)) => *x > 0.0 && *x <= 1.0,
            (Fraction, Value::Integer(n)) => *n == 1,
            (OneOf(words), Value::String(word)) => words.contains(&word.as_str()),
            (Level, Value::String(text)) => is_level(text),
            // Their types hold already; what is made of a text checks it.
            (Flag, Value::Boolean(_)) | (Text(_), _) => true,
            _ => false,
        };
        (!is_right).then(|| format!("{} is {value}; use {}", self.path, self.accepts))
    }
}

/// Whether a text is a level, or a list of levels for modules.
fn is_level(text: &str) -> bool {
    text.split(',').all(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    })
}

impl std::fmt::Display for Accepts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(min, max) => write!(f, "{min} to {max}"),
            Self::Fraction => write!(f, "a number above 0, up to 1"),
            Self::Flag => write!(f, "true or false"),
            Self::OneOf(words) => write!(f, "{}", words.join(", ")),
            Self::Level => write!(f, "{}", LEVELS.join(", ")),
            Self::Text(form) => write!(f, "{form}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::Config;
    use super::*;

    #[test]
    fn the_table_and_the_configuration_have_the_same_keys() {
        let mut config = toml::Table::try_from(Config::default()).unwrap();
        for (section, keys) in &config {
            for name in keys.as_table().unwrap().keys() {
                assert!(
                    ConfigKey::find(&format!("{section}.{name}")).is_some(),
                    "{section}.{name}"
                );
            }
        }
        // Keys without a default: the types refuse those that they do not have.
        let defaults = config.clone();
        for key in KEYS.iter().filter(|key| key.value(&defaults).is_none()) {
            let value = match key.accepts {
                Number(min, _) => Value::Integer(min as i64),
                _ => Value::String("x".to_owned()),
            };
            let section = config.get_mut(key.section()).and_then(Value::as_table_mut).unwrap();
            section.insert(key.name().to_owned(), value);
        }
        Config::deserialize(config).unwrap();
    }

    #[test]
    fn every_default_is_accepted() {
        let defaults = toml::Table::try_from(Config::default()).unwrap();
        let refused = KEYS.iter().filter_map(|key| key.refuse(key.value(&defaults)?));
        assert_eq!(refused.collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[test]
    fn levels_are_words_and_modules() {
        assert!(["info", "WARN", "info,lingua_engine=debug"].into_iter().all(is_level));
        assert!(!["", "infoo", "info,", "lingua_engine=loud"].into_iter().any(is_level));
    }
}
