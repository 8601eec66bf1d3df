//! Asks a scheduler over HTTP, for the commands that people type.
//!
//! Start at [`Api`]. Answers are kept as bytes, so that `--json` prints what the server said.

use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use lingua_sdk::{Client, ClientError};
use lingua_wire::message::{Message, parse};
use serde::Deserialize;

use crate::screen::say;

/// Which scheduler, and how its answer is printed.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Where the scheduler is.
    #[arg(long, global = true, env = "LINGUA_URL", default_value = "http://127.0.0.1:7410")]
    pub(crate) url: String,
    /// Token to show it, if it wants one.
    #[arg(long, global = true, env = "LINGUA_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Trust the certificates in this PEM file [default: those that this machine trusts].
    #[arg(long, global = true, env = "LINGUA_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print the scheduler's JSON as it is.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Target {
    /// The scheduler to ask; nothing is connected yet.
    pub(crate) fn api(&self) -> Result<Api, ApiError> {
        let mut api = Api::new(&self.url, self.token.as_deref())?;
        if let Some(ca) = &self.ca {
            api.client = api.client.with_ca(ca)?;
        }
        Ok(api)
    }
}

/// Why there is no answer: the client's reason, and how to do better with this program.
#[derive(Debug, thiserror::Error)]
#[error("{reason}{}", advice(.reason.code()))]
pub(crate) struct ApiError {
    // Not called `source`: what it says is said here, and must not be said twice.
    reason: ClientError,
}

impl From<ClientError> for ApiError {
    fn from(reason: ClientError) -> Self {
        Self { reason }
    }
}

impl ApiError {
    /// One word for statistics.
    pub(crate) fn code(&self) -> &str {
        self.reason.code()
    }
}

/// What the server's own words leave out.
fn advice(code: &str) -> &'static str {
    match code {
        "UNAUTHORIZED" | "FORBIDDEN" => "; give a token with --token or LINGUA_TOKEN",
        _ => "",
    }
}

/// A scheduler. Cheap to clone; clones share connections, which are kept open.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: Client,
}

impl Api {
    /// Checks the address and the token.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, ApiError> {
        let client = Client::new(url)?;
        let client = match token {
            Some(token) => client.with_token(token)?,
            None => client,
        };
        Ok(Self { client })
    }

    /// Asks.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, ApiError> {
        Ok(self.client.get_raw(path).await?)
    }

    /// Orders.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, ApiError> {
        Ok(self.client.post_raw(path, body).await?)
    }
}

/// Reads an answer.
pub(crate) fn read<'a, M: Message + Deserialize<'a>>(answer: &'a [u8]) -> anyhow::Result<M> {
    parse(answer).context("the scheduler's answer is not understood; is it of another version?")
}

/// Prints an answer as it came.
pub(crate) fn print_raw(answer: &[u8]) {
    say(String::from_utf8_lossy(answer).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_address_says_what_a_good_one_looks_like() {
        assert!(Api::new("http://127.0.0.1:7410/", None).is_ok());
        for url in ["ftp://example.org", "ws://127.0.0.1:7410", "127.0.0.1:7410", "http://a b"] {
            let error = Api::new(url, None).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7410"), "{error}");
        }
        assert!(Api::new("http://127.0.0.1:7410", Some("a\nb")).is_err());
    }

    #[test]
    fn a_missing_token_is_explained_in_terms_of_flags() {
        assert!(advice("UNAUTHORIZED").contains("--token"));
        assert_eq!(advice("JOB_NOT_FOUND"), "");
    }
}
