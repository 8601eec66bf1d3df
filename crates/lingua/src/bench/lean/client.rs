//! A connection that asks.
//!
//! Start at [`Client::ask`]. What goes out is prepared; of what comes in only the end is found, and
//! whether it is good. [`request`] and [`reply`] are HTTP/1.1, as much of it as our servers speak.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Door, Reply};

/// Room for an answer of the usual length.
const BUFFER_BYTES: usize = 2 << 10;

/// Longest answer that is waited for.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The word for a connection that ended in the middle.
const DISCONNECTED: &str = "DISCONNECTED";

/// A client with one connection.
#[derive(Debug)]
pub(in crate::bench) struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    requests: Arc<[Bytes]>,
    next: usize,
    reply: Reply,
    is_broken: bool,
}

impl Client {
    /// Connects; clients start at different requests, so that all kinds are always on their way.
    pub(in crate::bench) async fn connect(door: &Door, number: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect(door.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            requests: Arc::clone(&door.requests),
            next: number,
            reply: door.reply,
            is_broken: false,
        })
    }

    /// Whether it is over with this connection.
    pub(in crate::bench) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends the next request and waits for its answer.
    pub(in crate::bench) async fn ask(&mut self) -> Result<(), String> {
        let request = &self.requests[self.next % self.requests.len()];
        self.next = self.next.wrapping_add(1);
        if self.stream.write_all(request).await.is_err() {
            return self.broken();
        }
        loop {
            if let Some(answer) = (self.reply)(&mut self.buffer) {
                return answer;
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            if !matches!(read, Ok(1..)) || self.buffer.len() > ANSWER_BYTES_MAX {
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
pub(in crate::bench) fn request(host: &str, body: &str) -> Bytes {
    let length = body.len();
    Bytes::from(format!(
        "POST /v1/translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// Takes a whole answer; one that is not 200 is an error with the code in its body.
pub(in crate::bench) fn reply(buffer: &mut BytesMut) -> Option<Result<(), String>> {
    let head_end = buffer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = &buffer[..head_end];
    let length = content_length(head)?;
    let body_start = head_end + 4;
    let whole = body_start + length;
    if buffer.len() < whole {
        return None;
    }
    let is_good = head.get(9..12) == Some(b"200");
    let answer = if is_good { Ok(()) } else { Err(code(&buffer[body_start..whole])) };
    buffer.advance(whole);
    Some(answer)
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let is_it =
        |line: &&[u8]| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME);
    let line = head.split(|&byte| byte == b'\n').find(is_it)?;
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
    fn answers_are_taken_whole_and_one_at_a_time() {
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let mut buffer = BytesMut::new();
        for &byte in &good[..good.len() - 1] {
            buffer.extend_from_slice(&[byte]);
            assert_eq!(reply(&mut buffer), None);
        }
        buffer
            .extend_from_slice(b"}HTTP/1.1 503 Service Unavailable\r\ncontent-length: 24\r\n\r\n");
        assert_eq!(reply(&mut buffer), Some(Ok(())));
        assert_eq!(reply(&mut buffer), None);
        buffer.extend_from_slice(br#"{"error":"RATE_LIMITED"}"#);
        assert_eq!(reply(&mut buffer), Some(Err("RATE_LIMITED".to_owned())));
        assert!(buffer.is_empty());
    }
}
