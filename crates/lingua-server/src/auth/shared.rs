//! The tokens in force, which may be replaced while the server runs.
//!
//! Start at [`SharedTokens::replace`] and [`AccessWatch::ended`].
//!
//! Invariant: whatever outlives the check of its request (a socket, a stream, a long poll) has an
//! [`AccessWatch`] and ends when its token is revoked or expires.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::{AccessError, Sender, Tokens, wall_ms};

/// Longest wait before the wall clock is read again: it may have been set meanwhile.
const CLOCK_CHECK_MS: u64 = 30_000;

/// The tokens in force. Clones share them.
#[derive(Debug, Clone)]
pub struct SharedTokens(Arc<watch::Sender<Arc<Tokens>>>);

impl From<Tokens> for SharedTokens {
    fn from(tokens: Tokens) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(tokens))))
    }
}

impl Default for SharedTokens {
    fn default() -> Self {
        Tokens::default().into()
    }
}

impl SharedTokens {
    /// Replaces all tokens. Connections whose token is no longer among them end.
    pub fn replace(&self, tokens: Tokens) {
        self.0.send_replace(Arc::new(tokens));
    }

    /// The tokens that are in force now.
    pub fn current(&self) -> Arc<Tokens> {
        Arc::clone(&self.0.borrow())
    }

    /// Watches whether a caller keeps its access.
    pub(crate) fn watch(&self, sender: &Sender) -> AccessWatch {
        AccessWatch { tokens: self.0.subscribe(), sender: sender.clone() }
    }
}

/// Whether a caller whose request was accepted still has access.
pub(crate) struct AccessWatch {
    tokens: watch::Receiver<Arc<Tokens>>,
    sender: Sender,
}

impl AccessWatch {
    /// Waits until the caller has no access any more.
    pub(crate) async fn ended(mut self) -> AccessError {
        loop {
            let now_ms = wall_ms();
            let until_ms = match self.tokens.borrow_and_update().recheck(&self.sender, now_ms) {
                Ok(until_ms) => until_ms,
                Err(error) => return error,
            };
            let changed = self.tokens.changed();
            let changed = match until_ms {
                None => changed.await,
                Some(until_ms) => {
                    let wait_ms = (until_ms - now_ms).min(CLOCK_CHECK_MS);
                    timeout(Duration::from_millis(wait_ms), changed).await.unwrap_or(Ok(()))
                }
            };
            if changed.is_err() {
                // The server is gone, and with it what could change.
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KnownToken, Role, TokenHash};
    use super::*;

    fn tokens(known: KnownToken) -> Tokens {
        Tokens::new([(TokenHash::of("x"), known)])
    }

    async fn ends(watch: AccessWatch) -> Option<AccessError> {
        timeout(Duration::from_millis(300), watch.ended()).await.ok()
    }

    #[tokio::test]
    async fn a_watch_ends_when_the_token_is_revoked_changed_or_expired() {
        let client = || KnownToken { name: "app".into(), ..KnownToken::new(Role::Client) };
        let shared = SharedTokens::from(tokens(client()));
        let sender = || shared.current().identify(Some("x"), wall_ms()).unwrap();
        assert_eq!(ends(shared.watch(&sender())).await, None);

        let watch = shared.watch(&sender());
        shared.replace(tokens(KnownToken { nodes_max: Some(1), ..client() }));
        assert_eq!(ends(watch).await, None, "its limits may change");
        let soon = Some(wall_ms() + 100);
        let watch = shared.watch(&sender());
        shared.replace(tokens(KnownToken { expires_ms: soon, ..client() }));
        assert_eq!(ends(watch).await, Some(AccessError::Expired));

        for other in [
            tokens(KnownToken { role: Role::Admin, ..client() }),
            tokens(KnownToken { name: "another".into(), ..client() }),
            tokens(KnownToken { tenant: "alice".parse().ok(), ..client() }),
            Tokens::new([]).required(),
        ] {
            shared.replace(tokens(client()));
            let watch = shared.watch(&sender());
            shared.replace(other);
            assert_eq!(ends(watch).await, Some(AccessError::Revoked));
        }
    }

    #[tokio::test]
    async fn who_called_without_a_token_needs_one_once_there_are_tokens() {
        let shared = SharedTokens::default();
        let anyone = shared.current().identify(None, 0).unwrap();
        let watch = shared.watch(&anyone);
        shared.replace(tokens(KnownToken::new(Role::Client)));
        assert_eq!(ends(watch).await, Some(AccessError::Revoked));
    }
}
