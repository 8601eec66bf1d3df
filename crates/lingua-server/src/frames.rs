//! What the two WebSockets share: their limits, the first message, errors and closing.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message as Frame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use lingua_wire::scheduler::ErrorMessage;
use lingua_wire::{ErrorCode, Message, to_json};
use serde::Serialize;

use crate::reply::ApiError;

/// Bytes read at a time: with many idle nodes the usual 128 KiB would be most of the memory.
const BUFFER_BYTES: usize = 4 << 10;

/// The socket is closed, or has to be.
pub(crate) struct Closed;

pub(crate) fn limited(ws: WebSocketUpgrade, message_bytes_max: usize) -> WebSocketUpgrade {
    ws.max_message_size(message_bytes_max)
        .max_frame_size(message_bytes_max)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
}

/// Waits for the first frame, which has to be a text; `expected` says which message.
pub(crate) async fn first_text(
    socket: &mut WebSocket,
    limit_ms: u64,
    expected: &str,
) -> Result<Utf8Bytes, ApiError> {
    let first = async {
        loop {
            match socket.recv().await {
                Some(Ok(Frame::Text(first))) => return Ok(first),
                Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => {}
                _ => return Err(format!("the first frame has to be a {expected}, as text")),
            }
        }
    };
    let first = tokio::time::timeout(Duration::from_millis(limit_ms), first).await;
    let late = |_| Err(format!("no {expected} within {limit_ms} ms; connect again, send it"));
    first.unwrap_or_else(late).map_err(|detail| ApiError::new(ErrorCode::InvalidRequest, detail))
}

/// A message as a frame.
pub(crate) fn text<M: Message + Serialize>(message: &M) -> Frame {
    Frame::Text(to_json(message).into())
}

/// An error as a frame; `fatal` tells the peer that the socket is closed after it.
pub(crate) fn error(error: &ApiError, fatal: bool) -> Frame {
    text(&ErrorMessage::new(error.code(), error.detail(), fatal))
}

/// Sends a fatal error and closes the socket. The peer may be gone already.
pub(crate) async fn close_with(socket: &mut WebSocket, failed: &ApiError) {
    socket.send(error(failed, true)).await.ok();
    close(socket, 1008, failed.code().as_str()).await;
}

pub(crate) async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    socket.send(Frame::Close(Some(CloseFrame { code, reason: reason.into() }))).await.ok();
}
