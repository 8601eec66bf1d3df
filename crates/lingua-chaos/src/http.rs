//! HTTP requests with a time limit, each over a connection of its own.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest response that is read.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;

/// Sends a request; `None` if no response arrives in time.
pub(crate) async fn request(
    address: &str,
    (method, path): (&str, &str),
    key: Option<&str>,
    body: &str,
    limit: Duration,
) -> Option<(u16, Value)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let bytes = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             {key}Content-Length: {bytes}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
        let mut response = vec![];
        stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).await.ok()?;
        let response = String::from_utf8(response).ok()?;
        let (head, text) = response.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(text).ok()?))
    };
    tokio::time::timeout(limit, exchange).await.ok().flatten()
}
