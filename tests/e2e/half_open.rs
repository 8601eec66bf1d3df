//! Peers that vanish without a word: no goodbye, no end of the stream, only silence.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wire::Wire;
use crate::world::{Node, Scheduler, job, job_with, within};

impl Scheduler {
    async fn wait_clients(&self, wanted: i64) {
        let line = format!("lingua_connections{{kind=\"client\"}} {wanted}\n");
        within(async {
            while !self.get("/metrics").await.text.contains(&line) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_that_vanishes_without_a_word_is_noticed_and_its_job_goes_elsewhere() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "200")]).await;
    let wire = Wire::to(&s).await;
    let mut lost = Node::join_at(&wire.address, "lost", 1).await;
    let (id, node) = s.dispatch(job()).await;
    assert_eq!(node, "lost");
    let assign = lost.expect("job_assign").await;
    lost.say("job_ack", &assign, json!({})).await;
    let mut other = Node::join(&s, "other", 1).await;
    wire.goes_dead();
    let again = other.expect("job_assign").await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&json!(id), &json!(2)));
    other.say("job_ack", &again, json!({})).await;
    other.say("job_done", &again, json!({"result": {"text_translated": "hello"}})).await;
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["node_id"]), (&json!("DONE"), &json!("other")));
    assert_eq!(s.get("/v1/nodes/lost").await.body["state"], "offline");
    let metrics = s.get("/metrics").await.text;
    assert!(metrics.contains("lingua_connections{kind=\"node\"} 1"), "{metrics}");
}

#[tokio::test]
async fn a_node_that_only_answers_pings_is_kept() {
    let s = Scheduler::with(&[("SCHEDULER__HEARTBEAT_INTERVAL_MS", "100")]).await;
    let mut node = Node::join(&s, "quiet", 1).await;
    // Listening is enough to answer pings: nothing else is said for ten heartbeats.
    tokio::time::timeout(Duration::from_secs(1), node.next()).await.expect_err("nothing to hear");
    assert!(s.get("/metrics").await.text.contains("lingua_connections{kind=\"node\"} 1"));
}

#[tokio::test]
async fn a_client_that_vanishes_in_its_headers_body_or_answer_is_hung_up_on() {
    let patience = [("SERVER__FIRST_MESSAGE_MS", "300"), ("SERVER__BODY_MS", "300")];
    let s = Scheduler::with(&patience).await;
    let mut node = Node::join(&s, "n1", 1).await;
    let wire = Wire::to(&s).await;
    let body = job_with(json!({"wait_ms": 0})).to_string();
    let whole = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (in_headers, in_body) = (&whole[..30], &whole[..whole.len() - 10]);
    let mut streams = vec![];
    for said in [in_headers, in_body, &whole] {
        let mut stream = TcpStream::connect(&wire.address).await.expect("the wire");
        stream.write_all(said.as_bytes()).await.expect("written");
        streams.push(stream);
    }
    let assign = node.expect("job_assign").await;
    s.wait_clients(2).await;
    wire.goes_dead();
    node.say("job_done", &assign, json!({})).await;
    assert_eq!(s.ended(assign["job_id"].as_str().expect("an id")).await["state"], "DONE");
    s.wait_clients(1).await;
    drop(streams);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_told_so() {
    let s = Scheduler::with(&[("SERVER__BODY_MS", "200")]).await;
    let mut stream = TcpStream::connect(&s.address).await.expect("it listens");
    let head = "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"src";
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.expect("it answers and hangs up");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("did not arrive within 200 ms"), "{answer}");
}
