//! A WebSocket that carries JSON messages, for the raw nodes and the session clients.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::scheduler::within;

pub(crate) type WebSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) struct JsonSocket {
    pub(crate) stream: WebSocket,
}

impl JsonSocket {
    /// Opens a WebSocket, with a bearer token if there is one.
    pub(crate) async fn connect(url: &str, token: Option<&str>) -> Self {
        let mut request = url.into_client_request().expect("a URL");
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header value");
            request.headers_mut().insert("authorization", value);
        }
        // Without Nagle's delay. Boxed because the future has room for a TLS handshake.
        let connecting = tokio_tungstenite::connect_async_with_config(request, None, true);
        let connecting = Box::pin(connecting);
        let stream = within(connecting).await.expect("the server upgrades the connection").0;
        Self { stream }
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.expect("the socket is open");
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.stream.send(Message::binary(bytes)).await.expect("the socket is open");
    }

    /// Sends a frame that the server may refuse to read.
    pub(crate) async fn try_send(&mut self, text: &str) {
        self.stream.send(Message::text(text)).await.ok();
    }

    /// Sends a binary frame that the server may refuse to read.
    pub(crate) async fn try_send_bytes(&mut self, bytes: Vec<u8>) {
        self.stream.send(Message::binary(bytes)).await.ok();
    }

    /// The next message; `{"binary": […]}` for a binary frame, null when the socket is closed.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match within(self.stream.next()).await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).expect("JSON"),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(bytes))) => return json!({"binary": bytes.to_vec()}),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Value::Null,
            }
        }
    }

    /// Sends a close frame.
    pub(crate) async fn send_close(&mut self, code: u16) {
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        self.stream.send(Message::Close(Some(frame))).await.expect("the socket is open");
    }

    /// Reads to the end; the code of the close frame, `None` if the socket ended without one.
    pub(crate) async fn close_code(&mut self) -> Option<u16> {
        loop {
            match within(self.stream.next()).await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// The next message of this type; messages of other types are skipped.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the socket closed before {kind}");
            if message["type"] == kind {
                return message;
            }
        }
    }
}
