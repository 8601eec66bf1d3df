//! Request ids and trace ids: in the log, in responses, at the node.

use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::Level;

use crate::client::{ServerClient, request};
use crate::server::{TestNode, TestServer, job};

/// Collects what is logged.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LogBuffer {
    /// The first line that contains all of these.
    fn line_with(&self, parts: &[&str]) -> Option<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let found = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.map(str::to_owned)
    }
}

#[tokio::test]
async fn log_lines_of_a_request_carry_its_id_and_route() {
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    client.request("GET", "/v1/jobs/nonsense", "X-Request-Id: order-7\r\n", "").await;
    let line = log.line_with(&["request done", "order-7"]).expect("a line for the request");
    for part in ["route=\"/v1/jobs/{id}\"", "method=GET", "status=404", "elapsed_ms="] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let made = client.get("/healthz").await;
    let id = made.header("x-request-id").expect("an id");
    assert!(log.line_with(&["request done", id, "status=200"]).is_some());
}

#[tokio::test]
async fn a_job_takes_its_trace_id_from_the_body_the_traceparent_or_the_request() {
    let server = TestServer::start().await;
    let mut node = TestNode::register(&server, "n1").await;
    let mut client = ServerClient::connect(&server).await;
    let mut traced = job();
    traced["trace_id"] = json!("from-the-body");
    let parent = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let named = "X-Request-Id: order-7\r\n";
    for (headers, body, expected) in [
        (format!("{parent}{named}"), traced, "from-the-body"),
        (format!("{parent}{named}"), job(), "0af7651916cd43dd8448eb211c80319c"),
        (named.to_owned(), job(), "order-7"),
    ] {
        client.send(&request("POST", "/v1/translate", &headers, &body.to_string())).await;
        let assign = node.accept().await;
        assert_eq!(assign["trace_id"], expected);
        node.finish(&assign).await;
        assert_eq!(node.message().await["type"], "job_confirmed");
        let done: Value = client.response().await.json();
        assert_eq!(done["trace_id"], expected);
    }
}
