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
use tokio::time::Instant;

use crate::connect::{Connector, Purpose, RawConnection};
use crate::error::{FailureKind, unavailable};
use crate::identity::{IdentityWatch, text_of};
use crate::options::CallTimeouts;
use crate::script::Call;

/// Most idle connections for blocking reads.
const IDLE_MAX: usize = 4;

/// After this many failures the pause between two attempts has reached its maximum.
const DOUBLINGS_MAX: u32 = 16;

/// A connection to the store that is replaced when it breaks.
pub(crate) struct Connection {
    connector: Connector,
    timeouts: CallTimeouts,
    state: Mutex<State>,
    /// Held by the caller that is connecting.
    connecting: tokio::sync::Mutex<()>,
    /// Idle connections for blocking reads.
    idle: Mutex<Vec<RawConnection>>,
    pub(crate) identity: IdentityWatch,
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
    pub(crate) fn new(connector: Connector, timeouts: CallTimeouts) -> Arc<Self> {
        Arc::new(Self {
            connector,
            timeouts,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
            identity: IdentityWatch::default(),
        })
    }

    /// Calls a script.
    pub(crate) async fn run(&self, call: &Call) -> Result<Value> {
        self.run_as(call, Repeat::Idempotent).await
    }

    pub(crate) async fn run_as(&self, call: &Call, repeat: Repeat) -> Result<Value> {
        self.attempt(call.command(), Some(call), repeat).await
    }

    /// Sends a command that may be sent twice.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value> {
        self.attempt(command, None, Repeat::Idempotent).await
    }

    async fn attempt(&self, command: &Cmd, call: Option<&Call>, repeat: Repeat) -> Result<Value> {
        let mut first = true;
        loop {
            let (generation, mut link) = self.link().await?;
            let started = Instant::now();
            let mut sent = link.send(command).await;
            if let (Err(error), Some(call)) = (&sent, call)
                && FailureKind::of(error) == FailureKind::NoScript
            {
                sent = link.send(&call.in_full()).await;
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
            if !(first && again) {
                tracing::debug!(%error, ?kind, "an operation on the store failed");
                return Err(kind.to_store_error(&error, started.elapsed()));
            }
            first = false;
        }
    }

    /// The present connection, or a new one.
    async fn link(&self) -> Result<(u64, RawConnection)> {
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let _dialling = self.connecting.lock().await;
        // Another caller may have connected, or failed to, in the meantime.
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let mut link = match self.connector.connect(Purpose::Calls).await {
            Ok(link) => link,
            Err(error) => return Err(self.refuse(unavailable(&error))),
        };
        // The server's identity must be known before its first command.
        if let Err(error) = self.identity.check(&mut link).await {
            return Err(self.refuse(unavailable(&error)));
        }
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
        let longest = self.timeouts.reconnect_min.saturating_mul(doubled);
        let pause = jittered(longest.min(self.timeouts.reconnect_max));
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
        if let Err(error) = self.identity.check(&mut link).await {
            tracing::debug!(%error, "a server did not reply with its identity");
            self.discard(generation);
        }
    }

    /// The reply of each master to `INFO section`.
    pub(crate) async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let (_, mut link) = self.link().await?;
        let mut command = redis::cmd("INFO");
        command.arg(section);
        let replies = link.send_to_masters(command).await.map_err(|error| unavailable(&error))?;
        Ok(replies.iter().map(|(at, reply)| (at.clone(), text_of(reply))).collect())
    }

    /// Blocks on the server until a stream has an entry after `after`, or until the timeout. Uses a
    /// connection of its own, because commands that are sent behind it wait as well.
    pub(crate) async fn wait_for(&self, stream: &str, after: u64) -> Result<()> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(self.timeouts.block.as_millis() as u64);
        command.arg("STREAMS").arg(stream).arg(format!("{after}-0"));
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
        self.connector.connect(Purpose::Waiting).await.map_err(|error| unavailable(&error))
    }
}

/// A random duration between half of the longest and the longest.
fn jittered(longest: Duration) -> Duration {
    longest.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Connection")
            .field("connector", &self.connector)
            .field("connected", &state.link.is_some())
            .field("generation", &state.generation)
            .finish_non_exhaustive()
    }
}
