//! Callers with tokens of their own.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::http::Reply;
use crate::scheduler::Scheduler;

/// The section of the configuration for a token whose text is its name and `-secret`.
pub(crate) fn token(name: &str, role: &str, more: &str) -> String {
    let hash = Sha256::digest(secret(name).as_bytes());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[[auth.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nsha256 = \"{hash}\"\n{more}\n")
}

/// The token with this name.
pub(crate) fn secret(name: &str) -> String {
    format!("{name}-secret")
}

/// Somebody who calls a scheduler with a token.
pub(crate) struct Caller<'a> {
    scheduler: &'a Scheduler,
    bearer: String,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(scheduler: &'a Scheduler, name: &str) -> Self {
        Self { scheduler, bearer: format!("Bearer {}", secret(name)) }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let headers = [("Authorization", self.bearer.as_str())];
        self.scheduler.send(method, path, &headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &body.to_string()).await
    }
}
