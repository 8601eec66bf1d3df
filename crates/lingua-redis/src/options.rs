//! Where the store is, and how patient to be with it.

use std::time::Duration;

use lingua_core::Rules;
use lingua_store::{ManualClock, StoreLimits};

use crate::url::StoreUrl;

/// How a [`RedisStore`](crate::RedisStore) is opened.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Which servers.
    pub url: StoreUrl,
    /// What the name of every key begins with: several fleets can share a server.
    pub key_prefix: String,
    /// The rules of the fleet.
    pub rules: Rules,
    /// How much is kept. Numbers of jobs are shared out over the shards.
    pub limits: StoreLimits,
    /// How long to wait for what.
    pub timeouts: CallTimeouts,
    /// Certificates of the authorities to trust, as PEM; the system's if there are none.
    pub tls_ca: Option<Vec<u8>>,
    /// A clock instead of the servers' own, for tests and simulations.
    pub clock: Option<ManualClock>,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimeouts {
    /// For a connection, login included.
    pub connect: Duration,
    /// For a reply. After that, nobody knows whether the operation was carried out.
    pub reply: Duration,
    /// Between two attempts to connect, at first; it doubles with each, and chance takes up to half of it away.
    pub reconnect_min: Duration,
    /// Between two attempts to connect, at most.
    pub reconnect_max: Duration,
    /// For news, before looking whether the connection is still good.
    pub block: Duration,
    /// Between two looks at who the servers are.
    pub identity: Duration,
}

impl Default for CallTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            reply: Duration::from_secs(1),
            reconnect_min: Duration::from_millis(50),
            reconnect_max: Duration::from_secs(2),
            block: Duration::from_secs(2),
            identity: Duration::from_secs(1),
        }
    }
}

impl RedisOptions {
    /// What every key begins with unless told otherwise.
    pub const KEY_PREFIX: &'static str = "lingua:v1:";

    /// Jobs of all instances, open or remembered, unless told otherwise: about 1.4 GB of either.
    pub const JOBS_MAX: usize = 1_000_000;

    /// The store at this URL, with defaults for everything else.
    pub fn new(url: StoreUrl, rules: Rules) -> Self {
        Self {
            url,
            key_prefix: Self::KEY_PREFIX.to_owned(),
            rules,
            limits: StoreLimits {
                open_jobs_max: Self::JOBS_MAX,
                ended_jobs_max: Self::JOBS_MAX,
                ..StoreLimits::default()
            },
            timeouts: CallTimeouts::default(),
            tls_ca: None,
            clock: None,
        }
    }
}
