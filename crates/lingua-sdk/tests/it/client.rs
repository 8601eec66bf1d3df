//! The client against a server that answers what the test tells it to.

use std::borrow::Cow;

use lingua_core::job::JobState;
use lingua_core::{JobId, NodeId};
use lingua_sdk::{Client, ClientError};
use lingua_wire::client::Dispatch;
use lingua_wire::lang;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::bounded;

/// A request as it came over the wire.
#[derive(Debug)]
struct RecordedRequest {
    connection: usize,
    line: String,
    headers: Vec<String>,
    body: String,
}

/// Answers every request with the same status and body.
async fn serve(
    status: u16,
    body: &'static str,
) -> (String, mpsc::UnboundedReceiver<RecordedRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = read(&mut stream, connection).await {
                    asked.send(request).ok();
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
                    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                }
            });
        }
    });
    (url, requests)
}

async fn read(
    stream: &mut BufReader<tokio::net::TcpStream>,
    connection: usize,
) -> Option<RecordedRequest> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
    let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let body = String::from_utf8(body).unwrap();
    Some(RecordedRequest { connection, line: lines.remove(0), headers: lines, body })
}

fn hello() -> Dispatch<'static> {
    Dispatch {
        src_lang: Cow::Borrowed("en"),
        tgt_lang: Cow::Borrowed("zh"),
        text: Some(Cow::Borrowed("hello")),
        ..Dispatch::default()
    }
}

#[tokio::test]
async fn every_call_has_its_route_and_all_share_one_connection() {
    bounded(async {
        let (url, mut asked) = serve(200, "{}").await;
        let client = Client::new(&format!("{url}/")).unwrap();
        let (id, node) = (JobId::new(255), NodeId::new("node-1").unwrap());
        let job = id.to_string();
        let pair = lang::pool("pair", "zh:en").unwrap();
        client.dispatch(&hello()).await.unwrap_err();
        client.translate(&hello()).await.unwrap_err();
        client.explain(&hello()).await.unwrap_err();
        client.job(id, 5).await.unwrap_err();
        client.jobs(None, None).await.unwrap_err();
        client.jobs(Some(JobState::Done), Some(7)).await.unwrap_err();
        client.cancel(id).await.unwrap_err();
        client.nodes().await.unwrap_err();
        client.node(&node).await.unwrap_err();
        client.drain(&node).await.unwrap();
        client.resume(&node).await.unwrap();
        client.pools().await.unwrap_err();
        client.pool(&pair).await.unwrap_err();
        client.cluster().await.unwrap_err();
        assert_eq!(client.metrics().await.unwrap(), "{}");
        assert!(client.healthz().await.unwrap() && client.readyz().await.unwrap());
        for line in [
            "post /v1/dispatch/f2f",
            "post /v1/translate",
            "post /v1/explain",
            &format!("get /v1/jobs/{job}?wait_ms=5"),
            "get /v1/jobs",
            "get /v1/jobs?state=done&limit=7",
            &format!("post /v1/jobs/{job}/cancel"),
            "get /v1/nodes",
            "get /v1/nodes/node-1",
            "post /v1/nodes/node-1/drain",
            "post /v1/nodes/node-1/resume",
            "get /v1/pools",
            "get /v1/pools/zh:en",
            "get /v1/cluster",
            "get /metrics",
            "get /healthz",
            "get /readyz",
        ] {
            let request = asked.recv().await.unwrap();
            assert_eq!(request.line, format!("{line} http/1.1"));
            assert_eq!(request.connection, 0, "{line} came over a new connection");
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_is_sent_as_the_wire_has_it_and_the_answer_read() {
    bounded(async {
        let body =
            r#"{"job_id":"job-000000000000000000000000000000ff","node_id":"n","attempt_id":1}"#;
        let (url, mut asked) = serve(200, body).await;
        let client = Client::new(&url).unwrap().with_token("t0ken").unwrap();
        let reply = client.dispatch_once(&hello(), "key-1").await.unwrap();
        assert_eq!((reply.job_id, reply.node_id.as_str()), (JobId::new(255), "n"));
        let request = asked.recv().await.unwrap();
        assert_eq!(request.body, r#"{"src_lang":"en","tgt_lang":"zh","text":"hello"}"#);
        for header in [
            "authorization: bearer t0ken",
            "idempotency-key: key-1",
            "content-type: application/json",
        ] {
            assert!(request.headers.iter().any(|line| line == header), "no {header}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_is_read_with_its_code_and_its_advice() {
    bounded(async {
        let body = concat!(
            r#"{"error":"ALL_CANDIDATES_FULL_OR_FAILED","#,
            r#""detail":"all are busy","retry_after_ms":250}"#
        );
        let (url, _asked) = serve(503, body).await;
        let client = Client::new(&url).unwrap();
        let error = client.dispatch(&hello()).await.unwrap_err();
        assert_eq!(error.code(), "ALL_CANDIDATES_FULL_OR_FAILED");
        assert_eq!((error.retry_after_ms(), error.is_safe_to_retry()), (Some(250), true));
        let shown = "ALL_CANDIDATES_FULL_OR_FAILED (status 503): all are busy";
        assert_eq!(error.to_string(), shown);
        assert!(!client.readyz().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn an_absent_scheduler_is_an_error_that_says_what_to_do() {
    bounded(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = Client::new(&url).unwrap().nodes().await.unwrap_err();
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("cannot reach {url}: ")), "{shown}");
        assert!(shown.contains("refused"), "{shown}");
        let advice = "is `lingua serve` running? give its address with --url";
        assert!(shown.ends_with(advice), "{shown}");
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_no_scheduler_is_recognised() {
    bounded(async {
        for (status, body) in [(200, "<html>"), (404, "<html>"), (500, "")] {
            let (url, _asked) = serve(status, body).await;
            let error = Client::new(&url).unwrap().cluster().await.unwrap_err();
            assert!(matches!(error, ClientError::BadResponse { .. }), "{error}");
            assert!(error.to_string().contains("Lingua scheduler"), "{error}");
        }
        for url in ["", "127.0.0.1:7410", "wss://x", "ftp://x", "http://x/?q"] {
            let error = Client::new(url).unwrap_err();
            assert!(matches!(error, ClientError::BadUrl { .. }), "{url}");
        }
    })
    .await;
}
