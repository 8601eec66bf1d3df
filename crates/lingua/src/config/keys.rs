//! Every key of the configuration: which values it accepts and what it means.
//!
//! Start at [`KEYS`]. `config check`, `config dump` and docs/configuration.md are made from this
//! table.
//!
//! Invariant: a key is in this table exactly if [`Config`](super::Config) has it.

use toml::Value;

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

const fn ms(path: &'static str, min: u64, meaning: &'static str) -> ConfigKey {
    ConfigKey { path, accepts: Accepts::Number(min, DAY_MS), meaning }
}

const fn count(path: &'static str, min: u64, meaning: &'static str) -> ConfigKey {
    ConfigKey { path, accepts: Accepts::Number(min, COUNT_MAX), meaning }
}

const fn bytes(path: &'static str, min: u64, meaning: &'static str) -> ConfigKey {
    ConfigKey { path, accepts: Accepts::Number(min, BYTES_MAX), meaning }
}

const fn key(path: &'static str, accepts: Accepts, meaning: &'static str) -> ConfigKey {
    ConfigKey { path, accepts, meaning }
}

/// All keys, section by section.
pub(crate) const KEYS: &[ConfigKey] = &[
    key(
        "server.listen",
        Accepts::Text("host:port"),
        "Address to listen on. Beyond this machine it needs tokens.",
    ),
    key(
        "server.threads",
        Accepts::Number(0, 1024),
        "Threads of the program. One is fastest on most machines.",
    ),
    key(
        "server.allowed_origins",
        Accepts::Text("list of origins"),
        "Origins of web pages that may call, besides the server's own.",
    ),
    bytes("server.body_bytes_max", 1024, "Longest body of a request, in bytes."),
    ms("server.body_ms", 1, "How long a whole body may take to arrive."),
    ms(
        "server.first_message_ms",
        1,
        "Longest TLS handshake, wait for the head of a request, and wait for the first \
         message on a WebSocket.",
    ),
    key(
        "server.tls_cert",
        Accepts::Text("PEM file"),
        "Certificate of the server; needs `tls_key`.",
    ),
    key("server.tls_key", Accepts::Text("PEM file"), "Private key of the certificate."),
    key(
        "store.url",
        Accepts::Text("URL"),
        "`embedded:`, `redis://host:port/db`, `rediss://…`, \
         `redis+sentinel://h1:p,h2:p/master` or `redis+cluster://h1:p,h2:p`.",
    ),
    key(
        "store.data_dir",
        Accepts::Text("directory"),
        "Where the embedded store keeps jobs and epochs. Without it they are lost at a \
         restart.",
    ),
    key(
        "store.key_prefix",
        Accepts::Text("text"),
        "Prefix of all keys in Redis; fleets with different prefixes do not see each other.",
    ),
    ms("store.timeout_ms", 1, "How long to wait for a reply of Redis."),
    ms("store.connect_timeout_ms", 1, "How long to wait for a connection to Redis."),
    ms("store.reconnect_max_ms", 1, "Longest pause between two attempts to connect to Redis."),
    count(
        "store.ended_jobs_max",
        1,
        "Most ended jobs to keep; they are deleted after an hour in any case.",
    ),
    bytes("store.ended_bytes_max", 1, "Most bytes of ended jobs to keep."),
    key(
        "store.tls_ca_file",
        Accepts::Text("PEM file"),
        "Certificates of the authorities to trust instead of the system's, for `rediss:`.",
    ),
    key(
        "instance.id",
        Accepts::Text("letters, digits, `-`, `_`, `.`"),
        "Name of this instance, unique among the instances of a store. A random one if \
         absent.",
    ),
    count("scheduler.max_retry", 0, "Most attempts of a job after the first."),
    ms(
        "scheduler.wait_ms",
        0,
        "How long a job waits for a slot if its client does not say; 0 refuses at once.",
    ),
    ms(
        "scheduler.heartbeat_interval_ms",
        10,
        "How often nodes send a heartbeat. They are told a longer interval in a large fleet.",
    ),
    ms(
        "scheduler.heartbeat_stale_ms",
        11,
        "A node without a sign of life for this long gets no jobs. Above \
         `heartbeat_interval_ms`.",
    ),
    ms("scheduler.reservation_ttl_ms", 10, "How long a node has to confirm a job."),
    ms(
        "scheduler.run_lease_ms",
        10,
        "How long a running job keeps its slot without a sign of life of its node. Above \
         `heartbeat_interval_ms`.",
    ),
    ms("scheduler.run_timeout_ms", 10, "How long a node may work on a job."),
    ms("scheduler.drain_ms", 0, "How long a stop waits for running jobs."),
    ms(
        "scheduler.leader_lease_ms",
        100,
        "How long a leader, or an instance, counts as alive after its last renewal; renewed \
         after a third of it.",
    ),
    count("scheduler.open_jobs_max", 1, "Most jobs that run or wait at this instance."),
    bytes("scheduler.open_bytes_max", 1, "Most bytes of jobs that run or wait at this instance."),
    bytes("scheduler.waiting_bytes_max", 1, "Most bytes of jobs that wait for a slot."),
    bytes("scheduler.audio_bytes_max", 1, "Most bytes of audio of sessions and jobs in memory."),
    bytes(
        "scheduler.speech_bytes_max",
        1,
        "Most bytes of speech in results that were not delivered yet.",
    ),
    key(
        "selection.policy",
        Accepts::OneOf(&["balanced", "sample", "least_loaded", "random"]),
        "How a node is chosen among those that can do a job.",
    ),
    key("selection.sample_k", Accepts::Number(1, 100), "Nodes that the policy `sample` looks at."),
    key(
        "selection.cpu_threshold",
        Accepts::Fraction,
        "A node whose processor is in use to this share gets no jobs.",
    ),
    key("selection.gpu_threshold", Accepts::Fraction, "The same for the graphics processor."),
    key("selection.memory_threshold", Accepts::Fraction, "The same for the memory."),
    key(
        "pools.semantic_rule",
        Accepts::OneOf(&["declared", "source", "both"]),
        "Which languages semantic repair must cover: any, the source, or source and target.",
    ),
    key(
        "pools.generate",
        Accepts::Flag,
        "Whether the table has pools. Without them it only counts nodes and slots; jobs are \
         served all the same.",
    ),
    key(
        "pools.mixed",
        Accepts::Flag,
        "Whether the table has the mixed pools (`*:en`). Jobs with `src = auto` are served \
         all the same.",
    ),
    count(
        "pools.min_nodes_per_pool",
        1,
        "Exact pools with fewer nodes are left out of the table. Their jobs are served all \
         the same.",
    ),
    count(
        "pools.max_pools",
        1,
        "Most exact pools in the table, the largest first. Jobs of the others are served all \
         the same.",
    ),
    key(
        "log.format",
        Accepts::OneOf(&["text", "json"]),
        "Form of the log lines, which go to stderr.",
    ),
    key(
        "log.level",
        Accepts::Level,
        "Least important lines to write; or for each module: `info,lingua_engine=debug`.",
    ),
    key(
        "auth.allow_insecure",
        Accepts::Flag,
        "Lets the server listen beyond this machine without tokens.",
    ),
    key(
        "auth.tokens",
        Accepts::Text("tables"),
        "`[[auth.tokens]]` with `name`, `role` (`node`, `client`, `admin`) and `sha256`; \
         `lingua token new` makes one.",
    ),
    count(
        "limits.requests_per_second",
        0,
        "Most requests of one caller (a token, else an address) in a second; 0 is no limit.",
    ),
    count("limits.burst", 0, "Requests of one caller at once; 0 is as many as in a second."),
    ms("session.pause_ms", 1, "A segment ends after this time without audio."),
    ms("session.segment_max_ms", 1, "Longest segment; the turn goes on with the next one."),
    key(
        "session.vad",
        Accepts::Flag,
        "Detect voices: a segment ends after `silence_ms` without a voice. Only for raw \
         audio.",
    ),
    ms("session.silence_ms", 1, "How long a silence ends a segment, with `vad`."),
    ms(
        "session.deadline_ms",
        1,
        "A segment without a result this long after its end counts as missing.",
    ),
    ms("session.resume_ms", 0, "How long a session can be resumed after its connection is lost."),
    ms("session.idle_ms", 1, "A session without any message for this long is closed."),
    count("session.rate_max", 1, "How many times faster than real time audio may arrive."),
    ms("session.rate_window_ms", 1, "Period over which `rate_max` is measured."),
    bytes("session.frame_bytes_max", 1, "Longest frame of audio, in bytes."),
    count("session.open_segments_max", 1, "Most undelivered segments of one session."),
    count("session.per_token_max", 0, "Most sessions of one token; 0 refuses all."),
    count("session.sessions_max", 0, "Most sessions of this instance; 0 refuses all."),
    ms("session.write_ms", 1, "A client that does not read for this long is disconnected."),
];

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
            (Accepts::Number(min, max), Value::Integer(n)) => {
                u64::try_from(*n).is_ok_and(|n| (min..=max).contains(&n))
            }
            (Accepts::Fraction, Value::Float(x)) => *x > 0.0 && *x <= 1.0,
            (Accepts::Fraction, Value::Integer(n)) => *n == 1,
            (Accepts::OneOf(words), Value::String(word)) => words.contains(&word.as_str()),
            (Accepts::Level, Value::String(text)) => is_level(text),
            // Their types hold already; what is made of a text checks it.
            (Accepts::Flag, Value::Boolean(_)) | (Accepts::Text(_), _) => true,
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
                Accepts::Number(min, _) => Value::Integer(min as i64),
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
