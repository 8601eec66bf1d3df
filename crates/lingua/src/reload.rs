//! Reads `auth.tokens_file` again when it changes, and on SIGHUP.
//!
//! Start at [`Reload::run`].
//!
//! Invariant: a file that is not valid changes nothing; what was in force stays in force.

use std::convert::Infallible;
use std::time::Duration;

use lingua_engine::tenants::TenantTable;
use lingua_server::auth::SharedTokens;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{AuthConfig, AuthFiles, Config, Identities};

/// How often to look at the files. A change takes effect when it was seen twice.
const LOOK: Duration = Duration::from_millis(200);

/// Keeps tokens and tenants as the files say.
pub(crate) struct Reload {
    auth: AuthConfig,
    tokens: SharedTokens,
    tenants: TenantTable,
    /// What the files were when they were last applied or refused.
    settled: AuthFiles,
    /// What they are since the last look: somebody may still be writing.
    unsettled: Option<AuthFiles>,
}

impl Reload {
    pub(crate) fn new(
        config: &Config,
        settled: AuthFiles,
        tokens: SharedTokens,
        tenants: TenantTable,
    ) -> Self {
        Self { auth: config.auth.clone(), tokens, tenants, settled, unsettled: None }
    }

    /// Looks for changes until it is dropped.
    pub(crate) async fn run(mut self) -> Infallible {
        // Without the file SIGHUP ends the process, as it does when a terminal is closed.
        if self.auth.tokens_file.is_none() {
            return std::future::pending().await;
        }
        let mut hangup = signal(SignalKind::hangup()).ok();
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                () = next(&mut hangup) => true,
                _ = look.tick() => false,
            };
            let auth = self.auth.clone();
            // The files may be on a slow disk.
            let Ok(files) = tokio::task::spawn_blocking(move || auth.read()).await else {
                continue;
            };
            self.look(files, is_asked);
        }
    }

    fn look(&mut self, files: AuthFiles, is_asked: bool) {
        let was_seen = self.unsettled.as_ref() == Some(&files);
        if is_asked || (was_seen && files != self.settled) {
            self.apply(&files);
            self.settled = files;
            self.unsettled = None;
        } else {
            self.unsettled = Some(files);
        }
    }

    fn apply(&self, files: &AuthFiles) {
        match self.auth.identities(files) {
            Ok(Identities { tokens, tenants }) => {
                tracing::info!(tokens = tokens.len(), tenants = tenants.len(), "tokens reloaded");
                // First the rules: nobody calls under those of before.
                self.tenants.replace(tenants);
                self.tokens.replace(tokens);
            }
            Err(error) => {
                tracing::error!(%error, "tokens not reloaded; those of before stay in force");
            }
        }
    }
}

async fn next(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}
