//! An HTTP client that controls every byte that it sends.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{TestServer, within};

/// A keep-alive connection.
pub(crate) struct ServerClient {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A response with its head in lower case.
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl RawResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Status and error code; the response has to be a complete error.
    pub(crate) fn error(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.head);
        let body = self.json();
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{body}");
        (self.status, body["error"].as_str().expect("a code").to_owned())
    }
}

impl ServerClient {
    pub(crate) async fn connect(server: &TestServer) -> Self {
        let stream = TcpStream::connect(server.address).await.expect("the server listens");
        stream.set_nodelay(true).unwrap();
        Self { stream, received: vec![] }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("the connection is open");
    }

    pub(crate) async fn get(&mut self, path: &str) -> RawResponse {
        self.request("GET", path, "", "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> RawResponse {
        self.request("POST", path, "", &body.to_string()).await
    }

    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> RawResponse {
        self.send(&request(method, path, headers, body)).await;
        self.response().await
    }

    pub(crate) async fn response(&mut self) -> RawResponse {
        let response = self.response_or_end().await;
        response.expect("the server closed the connection without a response")
    }

    /// The next response; none if the server closes the connection first.
    pub(crate) async fn response_or_end(&mut self) -> Option<RawResponse> {
        within(async {
            loop {
                if let Some(response) = self.take_response() {
                    return Some(response);
                }
                if !self.receive().await {
                    return None;
                }
            }
        })
        .await
    }

    /// Waits until the server closes the connection; says whether nothing came before that.
    pub(crate) async fn closes(&mut self) -> bool {
        within(async { while self.receive().await {} }).await;
        self.received.is_empty()
    }

    async fn receive(&mut self) -> bool {
        self.stream.read_buf(&mut self.received).await.is_ok_and(|bytes| bytes > 0)
    }

    fn take_response(&mut self) -> Option<RawResponse> {
        let end = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let response = RawResponse { status, head, text: String::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().unwrap());
        let body = self.received.get(end + 4..end + 4 + length)?;
        let text = String::from_utf8(body.to_vec()).unwrap();
        self.received.drain(..end + 4 + length);
        Some(RawResponse { text, ..response })
    }
}

/// The bytes of a request; each of the headers ends with a line break.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}
