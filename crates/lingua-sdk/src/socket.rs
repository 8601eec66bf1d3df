//! Opening a WebSocket to the scheduler.
//!
//! Start at [`open`].

use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{
    Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config,
};

use crate::tls::Trust;

/// Longest message of the scheduler: inline audio as base64, and the rest of it.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens a WebSocket.
pub(crate) async fn open(request: Request, trust: &Trust) -> Result<Socket, Error> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let tls = match request.uri().scheme_str() {
        Some("wss") => Connector::Rustls(trust.config()),
        _ => Connector::Plain,
    };
    // In a box, because it has room for a TLS handshake, too.
    let opening = Box::pin(connect_async_tls_with_config(request, Some(config), true, Some(tls)));
    opening.await.map(|(socket, _)| socket)
}
