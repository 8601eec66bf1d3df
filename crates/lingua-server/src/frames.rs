//! What the two WebSockets share: their limits, the first message, errors and closing.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message as Frame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use lingua_wire::scheduler::ErrorMessage;
use lingua_wire::{ErrorCode, Message, to_json};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::error::ProtocolError;

use crate::auth::PROTOCOL;
use crate::pace::Pace;
use crate::reply::ApiError;

/// Bytes read at a time: with many idle nodes the usual 128 KiB would be most of the memory.
const BUFFER_BYTES: usize = 4 << 10;

/// How long a peer may take to read the last frames and to close its side.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Most frames that are read while a peer closes its side: one that goes on sending is not worth
/// the time of the others.
const CLOSING_FRAMES_MAX: usize = 1_000;

/// Codes of close frames.
pub(crate) const NORMAL: u16 = 1000;
pub(crate) const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const NOT_UTF8: u16 = 1007;
const POLICY: u16 = 1008;
const TOO_BIG: u16 = 1009;
const TRY_AGAIN: u16 = 1013;

/// The socket is closed, or has to be.
pub(crate) struct Closed;

/// The socket with its limits: the longest message that it reads, and the longest that it sends. A
/// client that offers our protocol gets it.
pub(crate) fn limited(
    ws: WebSocketUpgrade,
    read_bytes_max: usize,
    sent_bytes_max: usize,
) -> WebSocketUpgrade {
    ws.protocols([PROTOCOL])
        .max_message_size(read_bytes_max)
        .max_frame_size(read_bytes_max)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        // Audio in a result grows by a third when it becomes base64.
        .max_write_buffer_size(2 * sent_bytes_max.max(BUFFER_BYTES))
}

/// The error of a peer that sends more pings than anybody needs.
pub(crate) fn too_many_pings() -> ApiError {
    ApiError::new(ErrorCode::RateLimited, "too many pings; send one in a second at most")
}

/// Waits for the first frame, which has to be a text; `expected` says which message.
pub(crate) async fn first_text(
    socket: &mut WebSocket,
    limit_ms: u64,
    expected: &str,
) -> Result<Utf8Bytes, ApiError> {
    let invalid = |detail: String| ApiError::new(ErrorCode::InvalidRequest, detail);
    let first_has_to_be = || format!("the first frame has to be a {expected}, as text");
    let mut pings = Pace::of_pings();
    let first = async {
        loop {
            match socket.recv().await {
                Some(Ok(Frame::Text(first))) => return Ok(first),
                Some(Ok(Frame::Ping(_) | Frame::Pong(_))) if pings.take().is_none() => {}
                Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => return Err(too_many_pings()),
                Some(Err(failed)) => match too_big(&failed) {
                    Some(failed) => return Err(failed),
                    None => return Err(invalid(first_has_to_be())),
                },
                _ => return Err(invalid(first_has_to_be())),
            }
        }
    };
    let first = tokio::time::timeout(Duration::from_millis(limit_ms), first).await;
    let late = || invalid(format!("no {expected} within {limit_ms} ms; connect again, send it"));
    first.unwrap_or_else(|_| Err(late()))
}

/// The next frame, not before a time.
pub(crate) async fn paced(
    socket: &mut WebSocket,
    at: Option<Instant>,
) -> Option<Result<Frame, axum::Error>> {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
    socket.recv().await
}

/// Waits until the server stops.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
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
    let sending = socket.send(error(failed, true));
    tokio::time::timeout(CLOSE_LIMIT, sending).await.ok();
    close(socket, close_code(failed.code()), failed.code().as_str()).await;
}

/// Sends a close frame, or the answer to the peer's, and reads until the peer has closed too.
pub(crate) async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let closing = async {
        // Fails if the peer has sent one: then reading sends the answer.
        socket.send(Frame::Close(Some(CloseFrame { code, reason: reason.into() }))).await.ok();
        for _ in 0..CLOSING_FRAMES_MAX {
            let Some(Ok(_)) = socket.recv().await else { break };
        }
    };
    tokio::time::timeout(CLOSE_LIMIT, closing).await.ok();
}

/// The code in the close frame after a fatal error.
fn close_code(error: ErrorCode) -> u16 {
    match error {
        ErrorCode::PayloadTooLarge => TOO_BIG,
        ErrorCode::RateLimited | ErrorCode::FleetFull | ErrorCode::SchedulerDependencyDown => {
            TRY_AGAIN
        }
        _ => POLICY,
    }
}

/// The error of a message that is longer than allowed; `None` if the socket failed otherwise.
pub(crate) fn too_big(failed: &axum::Error) -> Option<ApiError> {
    let source = std::error::Error::source(failed)?;
    match source.downcast_ref::<tungstenite::Error>()? {
        tungstenite::Error::Capacity(why) => {
            Some(ApiError::new(ErrorCode::PayloadTooLarge, why.to_string()))
        }
        _ => None,
    }
}

/// The close frame for a peer whose frames are not those of the protocol; `None` if the socket
/// failed otherwise.
pub(crate) fn misframed(failed: &axum::Error) -> Option<(u16, &'static str)> {
    let source = std::error::Error::source(failed)?;
    match source.downcast_ref::<tungstenite::Error>()? {
        tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(_) => Some((PROTOCOL_ERROR, "not a WebSocket frame")),
        tungstenite::Error::Utf8(_) => Some((NOT_UTF8, "not UTF-8")),
        _ => None,
    }
}
