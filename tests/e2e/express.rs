//! Plain requests to translate, in every way in which their bytes can come.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, within};

/// A client that counts its own bytes.
struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer, as it came.
struct Answer {
    head: String,
    body: Value,
}

impl Raw {
    async fn to(scheduler: &Scheduler) -> Self {
        let stream = TcpStream::connect(&scheduler.address).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, read: vec![] }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("sent");
    }

    /// The next answer.
    async fn answer(&mut self) -> Answer {
        within(async {
            loop {
                if let Some(answer) = self.take() {
                    return answer;
                }
                assert!(self.more().await, "hung up on: {:?}", String::from_utf8_lossy(&self.read));
            }
        })
        .await
    }

    /// Whether nothing more comes.
    async fn is_over(&mut self) -> bool {
        within(async { !self.more().await && self.read.is_empty() }).await
    }

    async fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).await.unwrap_or(0);
        self.read.extend_from_slice(&bytes[..count]);
        count > 0
    }

    fn take(&mut self) -> Option<Answer> {
        let text = String::from_utf8_lossy(&self.read).into_owned();
        let (head, rest) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
        });
        let length = length.expect("a length");
        let body = rest.get(..length)?;
        self.read.drain(..head.len() + 4 + length);
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Some(Answer { head: head.to_ascii_lowercase(), body })
    }
}

fn plain(headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/translate HTTP/1.1\r\nHost: a\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
}

async fn working(s: &Scheduler) -> crate::raw_node::ServingNode {
    RawNode::join(s, "n1", 2).await.serve(2, Duration::from_millis(1))
}

#[tokio::test]
async fn requests_come_in_any_pieces_and_are_answered_in_turn() {
    let s = Scheduler::start().await;
    let node = working(&s).await;
    let mut client = Raw::to(&s).await;
    let text = plain("X-Request-Id: mine\r\n", &job().to_string());
    // Byte by byte.
    for byte in text.chars() {
        client.send(&byte.to_string()).await;
    }
    let answer = client.answer().await;
    assert!(answer.head.starts_with("http/1.1 200 ok\r\n"), "{}", answer.head);
    assert!(answer.head.contains("\r\nx-request-id: mine"), "{}", answer.head);
    assert!(answer.head.contains("\r\ncontent-type: application/json"), "{}", answer.head);
    assert!(answer.head.contains("\r\ndate: "), "{}", answer.head);
    assert_eq!(answer.body["state"], "DONE");
    // Head and body apart, as many clients send them.
    let (head, body) = text.split_at(text.find('{').expect("a body"));
    client.send(head).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.send(body).await;
    assert_eq!(client.answer().await.body["state"], "DONE");
    // Three at once: each is answered, in the order in which they came.
    let ask = |name: &str| plain(&format!("X-Request-Id: {name}\r\n"), &job().to_string());
    client.send(&[ask("one"), ask("two"), ask("three")].concat()).await;
    for name in ["one", "two", "three"] {
        let answer = client.answer().await;
        assert!(answer.head.contains(&format!("\r\nx-request-id: {name}")), "{}", answer.head);
        assert_eq!(answer.body["state"], "DONE");
    }
    // Without a name the answer has one all the same: the job's own.
    client.send(&plain("", &job().to_string())).await;
    let answer = client.answer().await;
    let id = answer.body["job_id"].as_str().and_then(|id| id.strip_prefix("job-")).expect("an id");
    assert!(answer.head.contains(&format!("\r\nx-request-id: {id}")), "{}", answer.head);
    node.check();
}

#[tokio::test]
async fn whatever_is_not_plain_is_answered_too_on_the_same_connection() {
    let s = Scheduler::start().await;
    let node = working(&s).await;
    let mut client = Raw::to(&s).await;
    let body = job().to_string();
    client.send(&plain("", &body)).await;
    assert_eq!(client.answer().await.body["state"], "DONE");
    // In chunks, with a plain one right behind it.
    let (length, plain_one) = (body.len(), plain("", &body));
    let chunked = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
    );
    client.send(&format!("{chunked}{plain_one}GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    for _ in 0..2 {
        assert_eq!(client.answer().await.body["state"], "DONE");
    }
    assert!(client.answer().await.head.starts_with("http/1.1 200"));
    // Two lengths are an attempt to smuggle a request past somebody.
    let mut client = Raw::to(&s).await;
    client.send(&plain("Content-Length: 2\r\n", &body)).await;
    let answer = client.answer_or_end().await;
    assert!(answer.is_none_or(|answer| answer.head.starts_with("http/1.1 400")));
    node.check();
}

#[tokio::test]
async fn errors_say_what_is_wrong_and_the_connection_goes_on() {
    let s = Scheduler::start().await;
    let mut client = Raw::to(&s).await;
    client.send(&plain("", "{")).await;
    let answer = client.answer().await;
    assert!(answer.head.starts_with("http/1.1 400 bad request\r\n"), "{}", answer.head);
    assert_eq!(answer.body["error"], "INVALID_REQUEST");
    client.send(&plain("", &job().to_string())).await;
    let answer = client.answer().await;
    assert!(answer.head.starts_with("http/1.1 503"), "{}", answer.head);
    assert_eq!(answer.body["error"], "NO_CAPABLE_NODE");
    let node = working(&s).await;
    client.send(&plain("", &job().to_string())).await;
    assert_eq!(client.answer().await.body["state"], "DONE");
    node.check();
}

#[tokio::test]
async fn a_stop_lets_the_answer_under_way_be_the_last() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let (mut busy, mut idle) = (Raw::to(&s).await, Raw::to(&s).await);
    busy.send(&plain("", &job().to_string())).await;
    let assign = node.expect("job_assign").await;
    node.report("job_ack", &assign, json!({})).await;
    let stopping = tokio::spawn(s.terminate());
    node.expect("drain").await;
    node.report("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    let answer = busy.answer().await;
    assert_eq!(answer.body["state"], "DONE");
    assert!(busy.is_over().await && idle.is_over().await);
    assert_eq!(stopping.await.expect("no panic"), Some(0));
}

impl Raw {
    async fn answer_or_end(&mut self) -> Option<Answer> {
        within(async {
            loop {
                if let Some(answer) = self.take() {
                    return Some(answer);
                }
                if !self.more().await {
                    return None;
                }
            }
        })
        .await
    }
}
