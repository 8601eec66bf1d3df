//! A connection that comes back by itself.
//!
//! Start at [`Connection::run`]. One connection carries everybody's calls, pipelined. When it breaks, the
//! next caller opens a new one; while that fails, callers are refused at once and attempts become
//! rarer, with some chance in it so that instances do not come all at the same moment.
//!
//! Invariant: a call whose outcome is unknown is repeated only if that does no harm, and once.

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

/// Connections that are kept for the next reader.
const IDLE_MAX: usize = 4;

/// After this many failures the wait between two attempts has long reached its maximum.
const DOUBLINGS_MAX: u32 = 16;

/// A connection to the store, and the way to a new one.
pub(crate) struct Connection {
    connector: Connector,
    timeouts: CallTimeouts,
    state: Mutex<State>,
    /// Held by the one caller that is connecting.
    connecting: tokio::sync::Mutex<()>,
    /// Connections for waiting that nobody uses at present.
    idle: Mutex<Vec<RawConnection>>,
    pub(crate) identity: IdentityWatch,
}

#[derive(Default)]
struct State {
    link: Option<RawConnection>,
    /// Which connection this is: an error of an earlier one says nothing about it.
    generation: u64,
    failures: u32,
    /// No attempt before this, and what the last one said.
    refused: Option<(Instant, StoreError)>,
}

/// Whether a call may be made again when nobody knows whether it was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It is recognised the second time.
    Harmless,
    /// It would be done twice.
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
        self.run_as(call, Repeat::Harmless).await
    }

    pub(crate) async fn run_as(&self, call: &Call, repeat: Repeat) -> Result<Value> {
        self.attempt(call.command(), Some(call), repeat).await
    }

    /// Sends a command that may be sent twice.
    pub(crate) async fn send(&self, command: &Cmd) -> Result<Value> {
        self.attempt(command, None, Repeat::Harmless).await
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
                FailureKind::Broken => repeat == Repeat::Harmless,
                FailureKind::NotMaster => true,
                // Whoever waited that long has waited enough.
                _ => false,
            };
            if !(first && again) {
                tracing::debug!(%error, ?kind, "the store did not carry out an operation");
                return Err(kind.tell(&error, started.elapsed()));
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
        // Somebody else may have got one in the meantime, or found that there is none to get.
        if let Some(present) = self.present()? {
            return Ok(present);
        }
        let mut link = match self.connector.connect(Purpose::Calls).await {
            Ok(link) => link,
            Err(error) => return Err(self.refuse(unavailable(&error))),
        };
        // Who it is must be known before anything is asked of it.
        if let Err(error) = self.identity.look(&mut link).await {
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

    /// Looks at who the servers are, on the present connection. If one of them does not say, the connection is given
    /// up: a Cluster's finds the successor of a dead master by itself, and who that is must be known before it answers.
    pub(crate) async fn check_identity(&self) {
        let Ok((generation, mut link)) = self.link().await else { return };
        if let Err(error) = self.identity.look(&mut link).await {
            tracing::debug!(%error, "a server does not say who it is");
            self.discard(generation);
        }
    }

    /// What each master says of itself.
    pub(crate) async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let (_, mut link) = self.link().await?;
        let mut question = redis::cmd("INFO");
        question.arg(section);
        let answers = link.send_to_masters(question).await.map_err(|error| unavailable(&error))?;
        Ok(answers.iter().map(|(at, answer)| (at.clone(), text_of(answer))).collect())
    }

    /// Waits on the server until something comes into a stream behind `after`, or for a while. It has a
    /// connection of its own, because whatever is sent behind it waits too.
    pub(crate) async fn wait_for(&self, stream: &str, after: u64) -> Result<()> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(self.timeouts.block.as_millis() as u64);
        command.arg("STREAMS").arg(stream).arg(format!("{after}-0"));
        loop {
            let kept = self.idle.lock().pop();
            let was_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.connect_for_waiting().await?,
            };
            // If the caller goes away in the middle, so does the connection: its reply is nobody's.
            let Err(error) = link.send(&command).await else {
                let mut idle = self.idle.lock();
                if idle.len() < IDLE_MAX {
                    idle.push(link);
                }
                return Ok(());
            };
            match FailureKind::of(&error) {
                // It broke while nobody used it; that says nothing about the server.
                _ if was_kept => {}
                FailureKind::Wrong => return Err(FailureKind::Wrong.tell(&error, Duration::ZERO)),
                _ => return Err(unavailable(&error)),
            }
        }
    }

    async fn connect_for_waiting(&self) -> Result<RawConnection> {
        // If the store is down, callers take turns in finding out.
        self.link().await?;
        self.connector.connect(Purpose::Waiting).await.map_err(|error| unavailable(&error))
    }
}

/// Between half of it and all of it.
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
