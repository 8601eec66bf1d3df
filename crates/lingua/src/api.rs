//! HTTP requests to a scheduler, for the commands that show and change things.
//!
//! Start at [`TargetArgs::show`]. Replies stay bytes, so that `--json` prints what the server sent.

use std::path::PathBuf;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use lingua_sdk::{Client, ClientError};
use lingua_wire::message::{Message, parse};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::screen::print_line;

/// The scheduler to call, and how to print its reply.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Address of the scheduler.
    #[arg(long, global = true, env = "LINGUA_URL", default_value = "http://127.0.0.1:7410")]
    pub(crate) url: String,
    /// Token, if the scheduler requires one.
    #[arg(long, global = true, env = "LINGUA_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Trust the certificates in this PEM file [default: those that this machine trusts].
    #[arg(long, global = true, env = "LINGUA_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Print the scheduler's JSON as it is.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl TargetArgs {
    /// A client for the scheduler; it connects with the first request.
    pub(crate) fn api(&self) -> Result<ApiClient, CommandError> {
        let mut api = ApiClient::new(&self.url, self.token.as_deref())?;
        if let Some(ca) = &self.ca {
            api.client = api.client.with_ca(ca)?;
        }
        Ok(api)
    }

    /// Gets a page and prints it.
    pub(crate) async fn show<M: Message + DeserializeOwned>(
        &self,
        path: &str,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        self.print(&self.api()?.get(path).await?, text)
    }

    /// Posts a body and prints the reply.
    pub(crate) async fn post<M: Message + DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        self.print(&self.api()?.post(path, body).await?, text)
    }

    /// Prints a reply: as it is with `--json`, else as text.
    fn print<M: Message + DeserializeOwned>(
        &self,
        reply: &[u8],
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        match self.json {
            true => print_line(String::from_utf8_lossy(reply).trim_end()),
            false => print_line(text(&parse_reply(reply)?)),
        }
        Ok(())
    }
}

/// Why a request failed: the client's reason, and which flag may help.
#[derive(Debug, thiserror::Error)]
#[error("{reason}{}", advice(.reason.code()))]
pub(crate) struct CommandError {
    // Not called `source`: the message above includes it, and it must not be printed twice.
    reason: ClientError,
}

impl From<ClientError> for CommandError {
    fn from(reason: ClientError) -> Self {
        Self { reason }
    }
}

impl CommandError {
    /// The code of the error, for statistics.
    pub(crate) fn code(&self) -> &str {
        self.reason.code()
    }
}

/// What the server cannot know: the flags of this program.
fn advice(code: &str) -> &'static str {
    match code {
        "UNAUTHORIZED" | "FORBIDDEN" => "; give a token with --token or LINGUA_TOKEN",
        _ => "",
    }
}

/// A client of a scheduler. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct ApiClient {
    client: Client,
}

impl ApiClient {
    /// Checks the address and the token.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, CommandError> {
        let client = Client::new(url)?;
        let client = match token {
            Some(token) => client.with_token(token)?,
            None => client,
        };
        Ok(Self { client })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, CommandError> {
        Ok(self.client.get_raw(path).await?)
    }

    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, CommandError> {
        Ok(self.client.post_raw(path, body).await?)
    }
}

/// Parses a reply.
pub(crate) fn parse_reply<'a, M: Message + Deserialize<'a>>(reply: &'a [u8]) -> anyhow::Result<M> {
    parse(reply).context("cannot read the scheduler's reply; is it of another version?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_bad_address_shows_a_good_one() {
        assert!(ApiClient::new("http://127.0.0.1:7410/", None).is_ok());
        for url in ["ftp://example.org", "ws://127.0.0.1:7410", "127.0.0.1:7410", "http://a b"] {
            let error = ApiClient::new(url, None).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7410"), "{error}");
        }
        assert!(ApiClient::new("http://127.0.0.1:7410", Some("a\nb")).is_err());
    }

    #[test]
    fn the_error_for_a_missing_token_names_the_flag() {
        assert!(advice("UNAUTHORIZED").contains("--token"));
        assert_eq!(advice("JOB_NOT_FOUND"), "");
    }
}
