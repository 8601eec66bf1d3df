//! Plain requests, each on a connection of its own, that give up.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// Asks; nothing if nobody answers in time.
pub(crate) async fn ask(
    address: &str,
    (method, path): (&str, &str),
    key: Option<&str>,
    body: &str,
    limit: Duration,
) -> Option<(u16, Value)> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let bytes = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{key}Content-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        let mut answer = vec![];
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await.ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let (head, text) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(text).ok()?))
    };
    tokio::time::timeout(limit, asked).await.ok().flatten()
}
