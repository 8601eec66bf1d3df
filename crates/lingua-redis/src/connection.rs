//! A connection that reconnects by itself.
//!
//! Start at [`Connection::run`]. One connection carries the calls of all callers, pipelined. When
//! it breaks, the next caller opens a new one. While that fails, callers get an error at once, and
//! the pauses between attempts grow, with a random part so that instances do not all reconnect at
//! once.
//!
//! Invariant: a call whose outcome is unknown is repeated only if it is idempotent, and once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lingua_store::{Result, StoreError};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connect::{Purpose, RawConnection};
use crate::error::{FailureKind, unavailable};
use crate::format;
use crate::identity::{self, Servers};
use crate::keys::Keys;
use crate::options::RedisOptions;
use crate::script::Script;

/// Most idle connections for blocking reads.
const IDLE_MAX: usize = 4;

/// After this many failures the pause between two attempts has reached its maximum.
const DOUBLINGS_MAX: u32 = 16;

/// A connection to the store that is replaced when it breaks.
pub(crate) struct Connection {
    options: Arc<RedisOptions>,
    keys: Arc<Keys>,
    state: Mutex<State>,
    /// Held by the caller that is connecting.
    connecting: tokio::sync::Mutex<()>,
    /// Idle connections for blocking reads.
    idle: Mutex<Vec<RawConnection>>,
    pub(crate) servers: watch::Sender<Servers>,
}

#[derive(Default)]
struct State {
    link: Option<RawConnection>,
    /// Rises with each new connection: an error of an earlier one does not discard it.
    generation: u64,
    failures: u32,
    /// No attempt before this time, and the error of the last one.
    refused: Option<(Instant, StoreError)>,
}

/// Whether a call may be repeated when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It is idempotent.
    Idempotent,
    /// It would be carried out twice.
    Never,
}

impl Connection {
    pub(crate) fn new(options: Arc<RedisOptions>, keys: Arc<Keys>) -> Self {
        Self {
            options,
            keys,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
            servers: watch::Sender::default(),
        }
    }

    /// Sends a command, or calls a script with it.
    pub(crate) async fn run(
        &self,
        script: Option<&Script>,
        command: &Cmd,
        repeat: Repeat,
    ) -> Result<Value> {
        let mut is_first = true;
        loop {
            let (generation, mut link) = self.link().await?;
            let started = Instant::now();
            let mut sent = link.send(command).await;
            if let (Err(error), Some(script)) = (&sent, script)
                && FailureKind::of(error) == FailureKind::NoScript
            {
                sent = link.send(&script.command_in_full(command)).await;
            }
            let error = match sent {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let kind = FailureKind::of(&error);
            if matches!(kind, FailureKind::Broken | FailureKind::Silent | FailureKind::NotMaster) {
                self.discard(generation);
            }
            let again = match kind {
                FailureKind::Broken => repeat == Repeat::Idempotent,
                FailureKind::NotMaster => true,
                // The caller has already waited for the whole timeout.
                _ => false,
            };
            if !(is_first && again) {
                tracing::debug!(%error, ?kind, "an operation on the store failed");
                return Err(kind.to_store_error(&error, started.elapsed()));
            }
            is_first = false;
        }
    }

    /// The present connection, or a new one.
    async fn link(&self) -> Result<(u64, RawConnection)> {
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let _connecting = self.connecting.lock().await;
        // Another caller may have connected, or failed to, in the meantime.
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let connected = async {
            let mut link = self.options.connect(Purpose::Calls).await?;
            // The server's identity must be known before its first command.
            identity::check(&self.servers, &mut link).await.map(|()| link)
        };
        let mut link = connected.await.map_err(|error| self.refuse(unavailable(&error)))?;
        let was_ours = self.state.lock().generation > 0;
        let checked = format::check(&mut link, &self.keys, was_ours).await;
        checked.map_err(|error| self.refuse(error))?;
        let mut state = self.state.lock();
        state.generation += 1;
        state.failures = 0;
        state.refused = None;
        state.link = Some(link.clone());
        Ok((state.generation, link))
    }

    fn present(&self) -> Result<Option<(u64, RawConnection)>> {
        let state = self.state.lock();
        if let Some(link) = &state.link {
            return Ok(Some((state.generation, link.clone())));
        }
        match &state.refused {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(None),
        }
    }

    fn refuse(&self, error: StoreError) -> StoreError {
        let mut state = self.state.lock();
        let doubled = 2u32.saturating_pow(state.failures.min(DOUBLINGS_MAX));
        let timeouts = &self.options.timeouts;
        let longest = timeouts.reconnect_min.saturating_mul(doubled).min(timeouts.reconnect_max);
        // Between half of the longest pause and all of it.
        let pause = longest.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        if state.failures == 0 {
            tracing::warn!(%error, "the store is unreachable");
        }
        state.failures = state.failures.saturating_add(1);
        state.refused = Some((Instant::now() + pause, error.clone()));
        error
    }

    fn discard(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.link = None;
        }
    }

    /// Checks the servers' identities. If one does not reply, the connection is discarded: a
    /// Cluster connection finds the successor of a dead master by itself, and the successor's
    /// identity must be known before its first reply.
    pub(crate) async fn check_identity(&self) {
        let Ok((generation, mut link)) = self.link().await else { return };
        if let Err(error) = identity::check(&self.servers, &mut link).await {
            tracing::debug!(%error, "a server did not reply with its identity");
            self.discard(generation);
        }
    }

    /// The reply of each master to `INFO section`.
    pub(crate) async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let (_, mut link) = self.link().await?;
        link.info(section).await.map_err(|error| unavailable(&error))
    }

    /// Blocks on the server until a stream has an entry after `after`, or until the timeout. Uses a
    /// connection of its own, because commands that are sent behind it wait as well.
    pub(crate) async fn wait_for(&self, stream: &str, after: u64) -> Result<()> {
        let mut command = redis::cmd("XREAD");
        command.arg(("COUNT", 1, "BLOCK", self.options.timeouts.block.as_millis() as u64));
        command.arg(("STREAMS", stream, format!("{after}-0")));
        loop {
            let idle = self.idle.lock().pop();
            let was_idle = idle.is_some();
            let mut link = match idle {
                Some(link) => link,
                None => self.connect_for_waiting().await?,
            };
            // If the caller is dropped here, the connection is dropped with it: a reply may follow.
            let Err(error) = link.send(&command).await else {
                let mut idle = self.idle.lock();
                if idle.len() < IDLE_MAX {
                    idle.push(link);
                }
                return Ok(());
            };
            match FailureKind::of(&error) {
                // It broke while it was idle; the server may be fine.
                _ if was_idle => {}
                FailureKind::Wrong => {
                    return Err(FailureKind::Wrong.to_store_error(&error, Duration::ZERO));
                }
                _ => return Err(unavailable(&error)),
            }
        }
    }

    async fn connect_for_waiting(&self) -> Result<RawConnection> {
        // If the store is down, only one caller at a time tries to connect.
        self.link().await?;
        self.options.connect(Purpose::Waiting).await.map_err(|error| unavailable(&error))
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("options", &self.options).finish_non_exhaustive()
    }
}
