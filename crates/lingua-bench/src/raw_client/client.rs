//! A connection that sends prepared requests.
//!
//! Start at [`RawClient::send`]. Of a reply it reads only where it ends and whether it is a
//! success. [`request`] and [`take_reply`] know as much of HTTP/1.1 as the scheduler and the relay
//! use.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{BrokerEndpoint, TakeReply};

/// Room for a reply of the usual length.
const BUFFER_BYTES: usize = 2 << 10;

/// Longest reply that is read.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// The error code of a connection that ended before the reply did.
const DISCONNECTED: &str = "DISCONNECTED";

#[derive(Debug)]
pub(crate) struct RawClient {
    stream: TcpStream,
    buffer: BytesMut,
    requests: Arc<[Bytes]>,
    next: usize,
    take_reply: TakeReply,
    is_broken: bool,
}

impl RawClient {
    /// Connects. Clients start with different requests, so that all kinds are always under way.
    pub(crate) async fn connect(endpoint: &BrokerEndpoint, number: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect(endpoint.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            requests: Arc::clone(&endpoint.requests),
            next: number,
            take_reply: endpoint.reply,
            is_broken: false,
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends the next request and waits for its reply.
    pub(crate) async fn send(&mut self) -> Result<(), String> {
        let request = &self.requests[self.next % self.requests.len()];
        self.next = self.next.wrapping_add(1);
        if self.stream.write_all(request).await.is_err() {
            return self.broken();
        }
        loop {
            if let Some(reply) = (self.take_reply)(&mut self.buffer) {
                return reply;
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            if !matches!(read, Ok(1..)) || self.buffer.len() > REPLY_BYTES_MAX {
                return self.broken();
            }
        }
    }

    fn broken(&mut self) -> Result<(), String> {
        self.is_broken = true;
        Err(DISCONNECTED.to_owned())
    }
}

/// `POST /v1/translate` with this body.
pub(crate) fn request(host: &str, token: Option<&str>, body: &str) -> Bytes {
    let (length, authorization) = (body.len(), authorization(token));
    Bytes::from(format!(
        "POST /v1/translate HTTP/1.1\r\nHost: {host}\r\n{authorization}Content-Type: \
         application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// The header that shows a token, or nothing.
pub(super) fn authorization(token: Option<&str>) -> String {
    token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"))
}

/// Takes a whole reply; any status but 200 is an error, with its code from the body.
pub(crate) fn take_reply(buffer: &mut BytesMut) -> Option<Result<(), String>> {
    let head_end = buffer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = &buffer[..head_end];
    let length = content_length(head)?;
    let body_start = head_end + 4;
    let whole = body_start + length;
    if buffer.len() < whole {
        return None;
    }
    let is_good = head.get(9..12) == Some(b"200");
    let reply = if is_good { Ok(()) } else { Err(code(&buffer[body_start..whole])) };
    buffer.advance(whole);
    Some(reply)
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let is_length =
        |line: &&[u8]| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME);
    let line = head.split(|&byte| byte == b'\n').find(is_length)?;
    std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()
}

fn code(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    body["error"].as_str().unwrap_or("UNKNOWN").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_taken_whole_and_alone() {
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let mut buffer = BytesMut::new();
        for &byte in &good[..good.len() - 1] {
            buffer.extend_from_slice(&[byte]);
            assert_eq!(take_reply(&mut buffer), None);
        }
        buffer
            .extend_from_slice(b"}HTTP/1.1 503 Service Unavailable\r\ncontent-length: 24\r\n\r\n");
        assert_eq!(take_reply(&mut buffer), Some(Ok(())));
        assert_eq!(take_reply(&mut buffer), None);
        buffer.extend_from_slice(br#"{"error":"RATE_LIMITED"}"#);
        assert_eq!(take_reply(&mut buffer), Some(Err("RATE_LIMITED".to_owned())));
        assert!(buffer.is_empty());
    }
}
