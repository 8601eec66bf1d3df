//! HTTP requests to a scheduler, for the commands that show and change things.
//!
//! Start at [`TargetArgs::show`]. Replies stay bytes, so that `--json` prints what the server sent.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use bytes::Bytes;
use clap::{Args, Subcommand};
use lingua_sdk::{Client, ClientError, ConnectionError, NodeOptions, SessionSettings};
use lingua_wire::message::{Message, parse};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::clean::clean_json;
use crate::screen::print_line;

/// The scheduler to connect to.
#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// Address of the scheduler.
    #[arg(long, global = true, env = "LINGUA_URL", default_value = "http://127.0.0.1:7410")]
    url: String,
    /// Token, if the scheduler requires one.
    #[arg(long, global = true, env = "LINGUA_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Trust the certificates in this PEM file [default: those that this machine trusts].
    #[arg(long, global = true, env = "LINGUA_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl SchedulerArgs {
    /// A client of the scheduler; it connects with the first request.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        self.identify(Client::new(&http_url(&self.url))?, Client::with_token, Client::with_ca)
    }

    /// Options of a node of the scheduler, without languages yet.
    pub(crate) fn node_options(&self) -> Result<NodeOptions, ConnectionError> {
        let options = NodeOptions::new(self.node_url());
        self.identify(options, |options, token| Ok(options.token(token)), NodeOptions::ca)
    }

    /// The address that nodes connect to.
    pub(crate) fn node_url(&self) -> String {
        socket_url(&self.url, NODE_SOCKET)
    }

    /// Settings of a session with the scheduler.
    pub(crate) fn session_settings(&self) -> Result<SessionSettings, ConnectionError> {
        let settings = SessionSettings::new(socket_url(&self.url, SESSION_SOCKET));
        self.identify(settings, |settings, token| Ok(settings.token(token)), SessionSettings::ca)
    }

    /// Adds the token and the trusted certificates to what connects to the scheduler.
    fn identify<T, E>(
        &self,
        mut connector: T,
        with_token: impl FnOnce(T, &str) -> Result<T, E>,
        with_ca: impl FnOnce(T, &Path) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(token) = &self.token {
            connector = with_token(connector, token)?;
        }
        match &self.ca {
            Some(ca) => with_ca(connector, ca),
            None => Ok(connector),
        }
    }
}

pub(crate) const NODE_SOCKET: &str = "/v1/node/ws";
pub(crate) const SESSION_SOCKET: &str = "/v1/session/ws";

/// The address of a socket, from an HTTP address or from a socket address with or without a path.
pub(crate) fn socket_url(url: &str, path: &str) -> String {
    let url = http_url(url);
    match url.split_once("://") {
        Some(("http", host)) => format!("ws://{}{path}", host.trim_end_matches('/')),
        Some(("https", host)) => format!("wss://{}{path}", host.trim_end_matches('/')),
        _ => url,
    }
}

/// The HTTP address of a scheduler, from that or from the address of one of its sockets.
fn http_url(url: &str) -> String {
    let host = |rest: &str| {
        let sockets = [NODE_SOCKET, SESSION_SOCKET];
        let host = sockets.iter().find_map(|path| rest.strip_suffix(path)).unwrap_or(rest);
        host.trim_end_matches('/').to_owned()
    };
    match url.split_once("://") {
        Some(("ws" | "http", rest)) => format!("http://{}", host(rest)),
        Some(("wss" | "https", rest)) => format!("https://{}", host(rest)),
        _ => url.to_owned(),
    }
}

/// The scheduler to call, and how to print its reply.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,
    /// Print the scheduler's JSON as it is.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Flags of a command that lists things, or shows one of them.
#[derive(Debug, Args)]
pub(crate) struct ListArgs<Id: ListId> {
    #[command(subcommand)]
    pub(crate) command: Option<ListCommand<Id>>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ListCommand<Id: ListId> {
    /// List them, one to a line; the default.
    Ls,
    /// Show everything about one of them.
    Show {
        /// Its id, as in the first column of the list.
        id: Id,
    },
}

/// An id that a command line can have.
pub(crate) trait ListId:
    FromStr<Err: Error + Send + Sync> + Clone + Send + Sync + 'static
{
}

impl<T> ListId for T where T: FromStr<Err: Error + Send + Sync> + Clone + Send + Sync + 'static {}

impl TargetArgs {
    /// Gets a page and prints it.
    pub(crate) async fn show<M: Message + DeserializeOwned>(
        &self,
        path: &str,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        self.print(&self.scheduler.client()?.get_raw(path).await?, text)
    }

    /// Posts a body and prints the reply.
    pub(crate) async fn post<M: Message + DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        self.print(&self.scheduler.client()?.post_raw(path, body).await?, text)
    }

    /// Prints a reply: as it is with `--json`, else as text.
    pub(crate) fn print<M: Message + DeserializeOwned>(
        &self,
        reply: &[u8],
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        match self.json {
            true => print_line(clean_json(String::from_utf8_lossy(reply).trim_end())),
            false => print_line(text(&parse_reply(reply)?)),
        }
        Ok(())
    }
}

/// What the server cannot know: what this program offers against an error.
pub(crate) fn advice(code: &str) -> &'static str {
    match code {
        "NODE_NOT_REGISTERED" => "; 'lingua nodes' lists the nodes",
        "UNAUTHORIZED" | "FORBIDDEN" => "; give a token with --token or LINGUA_TOKEN",
        _ => "",
    }
}

/// Parses a reply.
pub(crate) fn parse_reply<'a, M: Message + Deserialize<'a>>(reply: &'a [u8]) -> anyhow::Result<M> {
    parse(reply).context("cannot read the scheduler's reply; is it of another version?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str, token: Option<&str>) -> Result<Client, ClientError> {
        let token = token.map(str::to_owned);
        SchedulerArgs { url: url.to_owned(), token, ca: None }.client()
    }

    #[test]
    fn the_error_for_a_bad_address_shows_a_good_one() {
        assert!(client("http://127.0.0.1:7410/", None).is_ok());
        for url in ["ftp://example.org", "127.0.0.1:7410", "http://a b"] {
            let error = client(url, None).unwrap_err();
            assert!(error.to_string().contains("http://127.0.0.1:7410"), "{error}");
        }
        assert!(client("http://127.0.0.1:7410", Some("a\nb")).is_err());
    }

    #[test]
    fn the_error_for_a_missing_token_names_the_flag() {
        assert!(advice("UNAUTHORIZED").contains("--token"));
        assert_eq!(advice("JOB_NOT_FOUND"), "");
    }

    #[test]
    fn http_and_socket_addresses_give_the_same_node_socket() {
        let socket = "ws://127.0.0.1:7410/v1/node/ws";
        assert_eq!(socket_url("http://127.0.0.1:7410/", NODE_SOCKET), socket);
        assert_eq!(socket_url(socket, NODE_SOCKET), socket);
        assert_eq!(socket_url("ws://127.0.0.1:7410", NODE_SOCKET), socket);
        assert_eq!(socket_url("ws://127.0.0.1:7410/v1/session/ws", NODE_SOCKET), socket);
        assert_eq!(http_url(socket), "http://127.0.0.1:7410");
        assert_eq!(http_url("wss://h/"), "https://h");
        assert_eq!(socket_url("https://h", NODE_SOCKET), "wss://h/v1/node/ws");
    }
}
