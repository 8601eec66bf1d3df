//! Opening a WebSocket to the scheduler, for nodes and for sessions.
//!
//! Start at [`SchedulerEndpoint::open`]; [`ConnectionError`] has what can go wrong, and what to do.

use std::sync::Arc;
use std::time::Duration;

use lingua_wire::ErrorCode;
use lingua_wire::scheduler::ErrorMessage;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
};

use crate::tls;

/// How long it may take to connect, and then again to get the first response.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest message of the scheduler: inline audio as base64, and the rest of the message.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum ConnectionError {
    /// The address cannot be the address of a scheduler.
    #[error("{url:?} is not usable: {detail}")]
    BadUrl { url: String, detail: String },
    /// The token has characters that a header cannot carry.
    #[error("the token has characters that cannot be sent; use printable ASCII")]
    BadToken,
    /// The file with the trusted certificates cannot be used.
    #[error("cannot trust {detail}; give a PEM file of certificates")]
    BadCa { detail: String },
    /// There was no usable response. Another try may succeed.
    #[error("cannot reach {url}: {detail}: is `lingua serve` running?")]
    Unreachable { url: String, detail: String },
    /// The scheduler refused the connection or ended it for good.
    #[error("the scheduler refused ({code}): {detail}")]
    Refused { code: String, detail: String },
}

impl ConnectionError {
    /// The error code that users see.
    pub fn code(&self) -> &str {
        match self {
            Self::BadUrl { .. } | Self::BadToken | Self::BadCa { .. } => {
                ErrorCode::InvalidRequest.as_str()
            }
            Self::Unreachable { .. } => "UNREACHABLE",
            Self::Refused { code, .. } => code,
        }
    }
}

impl From<ErrorMessage<'_>> for ConnectionError {
    fn from(error: ErrorMessage<'_>) -> Self {
        Self::Refused { code: error.error.into_owned(), detail: error.detail.into_owned() }
    }
}

/// The address of a scheduler, the token to show it, and the certificates to trust.
#[derive(Debug, Clone)]
pub(crate) struct SchedulerEndpoint {
    url: String,
    /// Path of the route, for the example in errors.
    route: &'static str,
    pub(crate) token: Option<Token>,
    /// The certificates of this machine if absent.
    pub(crate) trust: Option<Arc<ClientConfig>>,
}

/// A token that logs do not show.
#[derive(Clone)]
pub(crate) struct Token(pub(crate) String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

impl SchedulerEndpoint {
    pub(crate) fn new(url: impl Into<String>, route: &'static str) -> Self {
        Self { url: url.into(), route, token: None, trust: None }
    }

    /// Opens the socket.
    pub(crate) async fn open(&self) -> Result<Socket, ConnectionError> {
        let request = self.request()?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let tls = match request.uri().scheme_str() {
            Some("wss") => Connector::Rustls(self.trust.clone().unwrap_or_else(tls::trust_system)),
            _ => Connector::Plain,
        };
        // Boxed, because the future has room for a TLS handshake, too.
        let opening =
            Box::pin(connect_async_tls_with_config(request, Some(config), true, Some(tls)));
        match timeout(OPEN_TIMEOUT, opening).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(error)) => Err(self.handshake_error(error)),
            Err(_) => Err(self.unreachable("it did not accept the connection in time")),
        }
    }

    pub(crate) fn unreachable(&self, detail: impl Into<String>) -> ConnectionError {
        ConnectionError::Unreachable { url: self.url.clone(), detail: detail.into() }
    }

    fn bad_url(&self, why: &str) -> ConnectionError {
        let detail = format!("{why}; give an address like ws://127.0.0.1:7410{}", self.route);
        ConnectionError::BadUrl { url: self.url.clone(), detail }
    }

    /// The address; one without a path gets that of the route.
    fn full_url(&self) -> String {
        let host = self.url.split_once("://").map_or("", |(_, rest)| rest.trim_end_matches('/'));
        match host.contains(['/', '?']) || host.is_empty() {
            true => self.url.clone(),
            false => format!("{}{}", self.url.trim_end_matches('/'), self.route),
        }
    }

    fn request(&self) -> Result<Request, ConnectionError> {
        let mut request = self
            .full_url()
            .into_client_request()
            .map_err(|error| self.bad_url(&error.to_string()))?;
        if !matches!(request.uri().scheme_str(), Some("ws" | "wss")) {
            return Err(self.bad_url("it does not start with ws:// or wss://"));
        }
        if let Some(Token(token)) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| ConnectionError::BadToken)?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    fn handshake_error(&self, error: tungstenite::Error) -> ConnectionError {
        match error {
            tungstenite::Error::Http(response) => {
                let status = response.status().as_u16();
                let code = match status {
                    401 => ErrorCode::Unauthorized,
                    403 => ErrorCode::Forbidden,
                    404 => {
                        let detail = format!("it has no such route; the path is {}", self.route);
                        return self.unreachable(detail);
                    }
                    _ => return self.unreachable(format!("it answered with status {status}")),
                };
                let detail = format!("{} answered with status {status}; check the token", self.url);
                ConnectionError::Refused { code: code.as_str().to_owned(), detail }
            }
            tungstenite::Error::Url(error) => self.bad_url(&error.to_string()),
            error => match tls::distrust(&error) {
                Some(why) => self.unreachable(format!(
                    "its certificate is not trusted: {why}; give the certificate that signed it"
                )),
                None => match tls::mix_up(&error, self.url.starts_with("wss:")) {
                    Some(advice) => self.unreachable(advice),
                    None => self.unreachable(error.to_string()),
                },
            },
        }
    }
}

/// Adds the builders `token` and `ca` to options that have an `endpoint`.
macro_rules! endpoint_builders {
    () => {
        /// Shows this token to the scheduler.
        #[must_use]
        pub fn token(mut self, token: impl Into<String>) -> Self {
            self.endpoint.token = Some($crate::connect::Token(token.into()));
            self
        }

        /// Trusts the certificates in this PEM file instead of those of this machine.
        pub fn ca(mut self, path: &std::path::Path) -> Result<Self, $crate::ConnectionError> {
            let trust = $crate::tls::trust_file(path)
                .map_err(|detail| $crate::ConnectionError::BadCa { detail })?;
            self.endpoint.trust = Some(trust);
            Ok(self)
        }
    };
}

pub(crate) use endpoint_builders;
