//! Where the store is, and how long to wait for it.

use std::time::Duration;

use lingua_core::{Rules, with_defaults};
use lingua_store::{ManualClock, StoreLimits};

use crate::url::StoreUrl;

/// How a [`RedisStore`](crate::RedisStore) is opened.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Addresses, user, password and database, from one URL.
    pub url: StoreUrl,
    /// The prefix of every key, so that several fleets can share a server.
    pub key_prefix: String,
    /// The rules of the fleet.
    pub rules: Rules,
    /// How much is kept. The limits on jobs are divided by the number of shards.
    pub limits: StoreLimits,
    /// Timeouts and pauses.
    pub timeouts: CallTimeouts,
    /// Certificates of trusted authorities, as PEM; the system's if absent.
    pub tls_ca: Option<Vec<u8>>,
    /// A clock instead of the servers' own, for tests and simulations.
    pub clock: Option<ManualClock>,
}

with_defaults! {
    /// Timeouts and pauses of the connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CallTimeouts {
        /// For opening a connection, login included.
        pub connect: Duration = Duration::from_secs(2),
        /// For a reply. After that the outcome of the operation is unknown.
        pub reply: Duration = Duration::from_secs(1),
        /// The first pause between two attempts to connect. It doubles with each attempt, and each
        /// pause is shortened by a random part of up to one half.
        pub reconnect_min: Duration = Duration::from_millis(50),
        /// The longest pause between two attempts to connect.
        pub reconnect_max: Duration = Duration::from_secs(2),
        /// How long a read blocks on the server before it is sent again.
        pub block: Duration = Duration::from_secs(2),
        /// The pause between two checks of the servers' identities.
        pub identity: Duration = Duration::from_secs(1),
    }
}

impl RedisOptions {
    /// The default prefix of every key.
    pub const KEY_PREFIX: &'static str = "lingua:v1:";

    /// The default limit on open jobs and on ended jobs of all instances.
    pub const JOBS_MAX: usize = 1_000_000;

    /// The default limit on the bytes of ended jobs; Redis needs about twice as many.
    pub const ENDED_BYTES_MAX: usize = 1 << 30;

    /// The store at this URL, with defaults for everything else.
    pub fn new(url: StoreUrl, rules: Rules) -> Self {
        Self {
            url,
            key_prefix: Self::KEY_PREFIX.to_owned(),
            rules,
            limits: StoreLimits {
                open_jobs_max: Self::JOBS_MAX,
                ended_jobs_max: Self::JOBS_MAX,
                ended_bytes_max: Self::ENDED_BYTES_MAX,
                ..StoreLimits::default()
            },
            timeouts: CallTimeouts::default(),
            tls_ca: None,
            clock: None,
        }
    }
}
