//! Reads `auth.tokens_file`, and the keys of grants, again when they change and on SIGHUP, which
//! also opens the audit log again.
//!
//! Start at [`Reload::run`].
//!
//! Invariant: a file that is not valid changes nothing; what was in force stays in force.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lingua_engine::tenants::TenantTable;
use lingua_server::audit::Audit;
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
    audit: Audit,
    /// Asks for a look; absent without files, when SIGHUP ends the process, as it does when a
    /// terminal is closed. Held from the start: a signal that came earlier would end it, too.
    hangup: Option<Signal>,
    /// What the files were when they were last applied or refused.
    settled: Arc<AuthFiles>,
    /// What they were at the last look: somebody may still be writing.
    seen: Arc<AuthFiles>,
}

impl Reload {
    pub(crate) fn new(
        config: &Config,
        files: AuthFiles,
        tokens: SharedTokens,
        tenants: TenantTable,
        audit: Audit,
    ) -> Self {
        let files = Arc::new(files);
        let (settled, seen) = (Arc::clone(&files), files);
        let auth = config.auth.clone();
        let has_files = auth.has_files() || config.audit.file.is_some();
        let hangup = has_files.then(|| signal(SignalKind::hangup()).ok()).flatten();
        Self { auth, tokens, tenants, audit, hangup, settled, seen }
    }

    /// Looks for changes until it is dropped.
    pub(crate) async fn run(mut self) -> Infallible {
        if self.hangup.is_none() && !self.auth.has_files() {
            return std::future::pending().await;
        }
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                () = next(&mut self.hangup) => true,
                _ = look.tick() => false,
            };
            if is_asked {
                self.audit.reopen();
            }
            if !self.auth.has_files() {
                continue;
            }
            let (auth, seen) = (self.auth.clone(), Arc::clone(&self.seen));
            // The files may be on a slow disk.
            let read = tokio::task::spawn_blocking(move || auth.read(Some(&seen)));
            if let Ok(files) = read.await {
                self.look(Arc::new(files), is_asked);
            }
        }
    }

    fn look(&mut self, files: Arc<AuthFiles>, is_asked: bool) {
        let is_settled = files == self.seen && files != self.settled;
        if is_asked || is_settled {
            self.apply(&files);
            self.settled = Arc::clone(&files);
        }
        self.seen = files;
    }

    fn apply(&self, files: &AuthFiles) {
        match self.auth.identities(files) {
            Ok(Identities { tokens, tenants }) => {
                tracing::info!(tokens = tokens.len(), tenants = tenants.len(), "tokens reloaded");
                // First the rules, so that no call comes under the earlier ones.
                self.tenants.replace(tenants);
                self.tokens.replace(tokens);
                self.audit.own_act("reload", "tokens", "ok");
            }
            Err(error) => {
                self.audit.own_act("reload", "tokens", &error.to_string());
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
