//! Peers that write or read slowly, on every route: they are cut, and others are served.
//!
//! The routes come from `/openapi.json`, so that none is forgotten.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::floods::{assert_bounded, masked, pour, slow_reader, upgraded};
use crate::memory::resident_kib;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job, within};

/// Method and path of every route.
async fn routes(s: &Scheduler) -> Vec<(String, String)> {
    let document = s.get("/openapi.json").await.body;
    let paths = document["paths"].as_object().expect("paths");
    let routes = paths.iter().flat_map(|(path, methods)| {
        let path = path.replace("{id}", "nobody").replace("{pair}", "zh:en");
        let methods = methods.as_object().into_iter().flat_map(|methods| methods.keys());
        methods.map(move |method| (method.to_uppercase(), path.clone()))
    });
    let routes: Vec<_> = routes.collect();
    assert!(routes.len() >= 30, "{routes:?}");
    routes
}

/// Sends the start, and then one byte after the other until the server closes the connection.
async fn drip(s: &Scheduler, start: String, byte: &[u8]) {
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    stream.write_all(start.as_bytes()).await.expect("sent");
    let (mut reading, mut writing) = stream.split();
    let dripping = async {
        while writing.write_all(byte).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = vec![];
    tokio::select! {
        read = reading.read_to_end(&mut answer) => { read.ok(); }
        () = dripping => {}
    }
}

#[tokio::test]
async fn a_client_that_drips_is_cut_on_every_route() {
    let s =
        Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "400"), ("SERVER__BODY_MS", "400")]).await;
    let mut drips = vec![];
    for (method, path) in routes(&s).await {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        drips.push((format!("{head}X-Drip: "), &b"x"[..]));
        if method == "POST" {
            drips.push((format!("{head}Content-Length: 100000\r\n\r\n{{\"text\": \""), b"x"));
            let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n");
            drips.push((chunked, b"1\r\n \r\n"));
        }
        if path.ends_with("/ws") {
            // A frame that announces a thousand bytes.
            let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13";
            let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
            drips.push((format!("{head}{upgrade}\r\n{key}\r\n\r\n\u{1}~\u{3}"), b" "));
        }
    }
    within(join_all(drips.into_iter().map(|(start, byte)| drip(&s, start, byte)))).await;
    assert_eq!(s.get("/healthz").await.status, 200);
}

/// Sends requests and reads no answer, on each route over a connection of its own.
#[tokio::test]
async fn a_client_that_reads_no_answer_is_cut_on_every_route() {
    let settings =
        [("SERVER__WRITE_MS", "1000"), ("LIMITS__OPEN_REQUESTS_PER_SECOND", "100000000")];
    let s = Scheduler::with(&settings).await;
    let before_kib = resident_kib(&s);
    let mut routes = routes(&s).await;
    // A stream of events is one answer; `floods` reads none of it.
    routes.retain(|(_, path)| path != "/v1/events");
    let pours = routes.iter().map(async |(method, path)| {
        let mut stream = slow_reader(&s).await;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        let request = format!("{head}Content-Length: 2\r\n\r\n{{}}").repeat(50);
        pour(&mut stream, request.as_bytes(), Duration::from_secs(15)).await;
        (path, stream)
    });
    let open = join_all(pours).await;
    // The connection of this client.
    s.until_metric("lingua_connections{kind=\"client\"}", 1.0).await;
    assert_bounded(before_kib, resident_kib(&s));
    drop(open);
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    node.work().await;
}

/// Messages whose replies, errors, the peer does not read.
#[tokio::test]
async fn a_socket_that_reads_no_answer_is_cut() {
    let s = Scheduler::with(&[("SERVER__WRITE_MS", "1000"), ("SESSION__WRITE_MS", "1000")]).await;
    let start: Value = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let wrong = masked(1, br#"{"type":"juggle"}"#).repeat(500);
    for (path, first, kind) in
        [("/v1/session/ws", start, "session"), ("/v1/node/ws", register("n1", 1), "node")]
    {
        let before_kib = resident_kib(&s);
        let mut stream = upgraded(&s, path, &first).await;
        pour(&mut stream, &wrong, Duration::from_secs(15)).await;
        s.until_metric(&format!("lingua_connections{{kind=\"{kind}\"}}"), 0.0).await;
        assert_bounded(before_kib, resident_kib(&s));
    }
}
