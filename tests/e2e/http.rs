//! An HTTP/1.1 client that keeps its connections open, as busy clients do.
//!
//! Start at [`HttpClient::send`].
//!
//! Invariant: a request is sent again only if it was never written, or if it is a GET.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper::header::HeaderMap;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::scheduler::within;

type Connection = SendRequest<Full<Bytes>>;

/// A client of one scheduler. Requests in sequence share one connection; a request that is sent
/// while another one waits opens a second connection.
#[derive(Clone)]
pub(crate) struct HttpClient {
    address: String,
    idle: Arc<Mutex<Vec<Connection>>>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body as JSON; null if it is something else.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Status and error code, which most tests compare.
    pub(crate) fn error(&self) -> (u16, &str) {
        (self.status, self.body["error"].as_str().unwrap_or_default())
    }
}

impl HttpClient {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), idle: Arc::default() }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &[], &body.to_string()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", &self.address);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let request = request.body(body).expect("a valid request");
        within(self.exchange(request)).await
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Reply {
        loop {
            let idle = self.idle.lock().pop();
            let is_reused = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await,
            };
            let copy = (request.method() == "GET").then(|| request.clone());
            match connection.try_send_request(request).await {
                Ok(response) => return self.read(connection, response).await,
                Err(mut error) => {
                    // The server may close a connection that has been idle.
                    let unsent = error.take_message().or(copy).filter(|_| is_reused);
                    request = unsent.unwrap_or_else(|| panic!("no response: {}", error.error()));
                }
            }
        }
    }

    async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).await.expect("the scheduler accepts");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let io = TokioIo::new(stream);
        let (connection, io) = hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
        tokio::spawn(io);
        connection
    }

    async fn read(&self, connection: Connection, response: Response<Incoming>) -> Reply {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a whole body").to_bytes();
        let text = String::from_utf8(body.to_vec()).expect("UTF-8");
        if !connection.is_closed() {
            self.idle.lock().push(connection);
        }
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { status, headers, body, text }
    }
}
