//! The options of the server.

use std::net::SocketAddr;

use lingua_core::with_defaults;
use lingua_engine::session::SessionOptions;

use crate::audio_ref::AudioRefRules;
use crate::audit::Audit;
use crate::auth::SharedTokens;
use crate::caller_address::TrustedProxies;
use crate::limit::RateLimit;
use crate::tls::Tls;

with_defaults! {
    /// The options of [`Server`](crate::Server).
    #[derive(Debug, Clone)]
    pub struct ServerOptions {
        /// The tokens in force, which may be replaced.
        pub tokens: SharedTokens = SharedTokens::default(),
        /// Where refusals and administrative acts are recorded.
        pub audit: Audit = Audit::default(),
        /// Allows the server to listen beyond this machine without tokens.
        pub allow_insecure: bool = false,
        /// Origins of web pages that may call, besides the server's own.
        pub allowed_origins: Vec<String> = vec![],
        /// Names under which the server is called without tokens, besides those of the loopback.
        pub allowed_hosts: Vec<String> = vec![],
        /// The proxies that say for whom they call.
        pub trusted_proxies: TrustedProxies = TrustedProxies::default(),
        /// Whether these proxies begin a connection with a header of the PROXY protocol.
        pub proxy_protocol: bool = false,
        /// Which references to audio a job may carry.
        pub audio_refs: AudioRefRules = AudioRefRules::default(),
        /// How long a job waits for a slot if its client sets no `wait_ms`.
        pub default_wait_ms: u64 = 2_000,
        /// How long `/v1/translate` waits if its client sets no `deadline_ms`.
        pub translate_ms: u64 = 30_000,
        /// Longest body of a request.
        pub body_bytes_max: usize = 4 << 20,
        /// How long a whole body may take to arrive; then the response is 408.
        pub body_ms: u64 = 30_000,
        /// Longest frame of a WebSocket.
        pub frame_bytes_max: usize = 4 << 20,
        /// How many pages and documents that need no token one address may ask for.
        pub open_rate_limit: RateLimit = RateLimit::new(100, 200),
        /// Most streams of events of this instance.
        pub event_streams_max: usize = 512,
        /// Most of them of one caller: a token, else an address.
        pub event_streams_per_caller: usize = 64,
        /// Messages that are read from one node in a second.
        pub node_messages_per_second: u32 = 100_000,
        /// Most connections, WebSockets included.
        pub connections_max: usize = 10_000,
        /// A peer that leaves bytes unread for this long is disconnected.
        pub write_ms: u64 = 10_000,
        /// Longest TLS handshake, longest wait for the head of the first or the next request,
        /// longest wait for the first message on a WebSocket.
        pub first_message_ms: u64 = 10_000,
        /// How long a stop waits for open requests.
        pub stop_ms: u64 = 10_000,
        /// Longest long poll.
        pub poll_ms_max: u64 = 60_000,
        /// How many requests one caller may send; unlimited if absent.
        pub rate_limit: Option<RateLimit> = None,
        /// The options of session sockets.
        pub session: SessionSocketOptions = SessionSocketOptions::default(),
        /// Certificate and key; without them the server speaks plain HTTP.
        pub tls: Option<Tls> = None,
        /// The kind of store that `/v1/cluster` shows.
        pub store_kind: String = "embedded".to_owned(),
    }
}

with_defaults! {
    /// How sessions are set up.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SessionSocketOptions {
        /// Their rules.
        pub rules: SessionOptions = SessionOptions::default(),
        /// Longest frame of audio.
        pub frame_bytes_max: usize = 64 << 10,
        /// How long a client may keep a write waiting.
        pub write_ms: u64 = 10_000,
        /// Messages and frames of audio that are read from one client in a second.
        pub messages_per_second: u32 = 1_000,
    }
}

/// The server would listen where everybody could use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {0} without tokens: everybody who reaches it could use it; make a \
     token with 'lingua token new', listen on 127.0.0.1, or set auth.allow_insecure = true"
)]
pub struct InsecureListen(pub SocketAddr);

impl ServerOptions {
    /// Refuses an address beyond this machine if there are no tokens.
    pub fn check_listen(&self, address: SocketAddr) -> Result<(), InsecureListen> {
        let open = self.tokens.current().is_open() && !address.ip().is_loopback();
        match open && !self.allow_insecure {
            true => Err(InsecureListen(address)),
            false => Ok(()),
        }
    }

    /// Whether tokens would cross a network unencrypted.
    pub fn shows_tokens(&self, address: SocketAddr) -> bool {
        !self.tokens.current().is_open() && self.tls.is_none() && !address.ip().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tokens_only_this_machine_may_call() {
        let options = ServerOptions::default();
        assert!(options.check_listen("127.0.0.1:7410".parse().unwrap()).is_ok());
        assert!(options.check_listen("[::1]:7410".parse().unwrap()).is_ok());
        let open: SocketAddr = "0.0.0.0:7410".parse().unwrap();
        let refused = options.check_listen(open).unwrap_err();
        assert!(refused.to_string().contains("lingua token new"));
        let insecure = ServerOptions { allow_insecure: true, ..options };
        assert!(insecure.check_listen(open).is_ok());
    }
}
