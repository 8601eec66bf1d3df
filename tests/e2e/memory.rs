//! A lot of bad input: the scheduler survives it and its memory does not grow.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job_with, within};

/// How often each kind of bad input is sent. `LINGUA_BAD_INPUTS=200000` sends more.
const ROUNDS: usize = 20_000;

/// Requests or frames that are sent before the replies are read.
const BATCH: usize = 100;

/// By what factor the process may grow after it has seen some input of each kind.
const GROWTH_MAX: f64 = 1.5;

/// Memory for an ended job while its record is kept.
const JOB_KIB_MAX: u64 = 4;

fn rounds() -> usize {
    let given = std::env::var("LINGUA_BAD_INPUTS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(ROUNDS)
}

/// The memory of the process, in KiB.
pub(crate) fn resident_kib(scheduler: &Scheduler) -> u64 {
    let pid = scheduler.child.id().expect("the process runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Sends requests over one connection; each must be answered with this status.
async fn bad_requests(scheduler: &Scheduler, path: &str, body: &str, status: u16, count: usize) {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let start = format!("HTTP/1.1 {status} ");
    let mut stream = TcpStream::connect(&scheduler.address).await.expect("the scheduler accepts");
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..count / BATCH {
        stream.write_all(request.repeat(BATCH).as_bytes()).await.expect("sent");
        let (mut text, mut replies) = (String::new(), 0);
        while replies < BATCH || !text.ends_with("}\n") {
            let n = within(stream.read(&mut buffer)).await.expect("a reply");
            assert!(n > 0, "disconnected after {replies} replies");
            text.push_str(std::str::from_utf8(&buffer[..n]).expect("ASCII"));
            replies = text.matches(&start).count();
        }
        assert_eq!((replies, text.matches("HTTP/1.1 ").count()), (BATCH, BATCH), "{path}");
    }
}

/// Sends frames over one socket; each must be answered with a message of this type.
async fn bad_frames(node: &mut RawNode, frame: &str, reply: &str, count: usize) {
    for _ in 0..count / BATCH {
        for _ in 0..BATCH {
            node.stream.feed(Message::text(frame)).await.expect("the socket is open");
        }
        node.stream.flush().await.expect("the socket is open");
        for _ in 0..BATCH {
            let message = node.expect(reply).await;
            assert_ne!(message["fatal"], true, "{message}");
        }
    }
}

/// Sends frames that claim to be a terabyte, each over a socket of its own.
async fn huge_frames(scheduler: &Scheduler, count: usize) {
    let upgrade = "GET /v1/node/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // A masked text frame of a terabyte, and its first bytes.
    let mut frame = vec![0x81, 0xFF];
    frame.extend((1_u64 << 40).to_be_bytes());
    frame.extend([0; 64]);
    for _ in 0..count {
        let mut stream =
            TcpStream::connect(&scheduler.address).await.expect("the scheduler accepts");
        stream.write_all(upgrade.as_bytes()).await.expect("sent");
        stream.write_all(&frame).await.expect("sent");
        let mut rest = vec![];
        // The server closes with unread bytes, which may reset the connection.
        within(stream.read_to_end(&mut rest)).await.ok();
    }
}

/// Clients that disconnect before their translation is done.
async fn vanishing_clients(scheduler: &Scheduler, node: &mut RawNode, count: usize) {
    let body = job_with(json!({"wait_ms": 5_000})).to_string();
    let request = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..count {
        let mut stream =
            TcpStream::connect(&scheduler.address).await.expect("the scheduler accepts");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let assign = node.expect("job_assign").await;
        drop(stream);
        assert_eq!(node.expect("job_cancel").await["job_id"], assign["job_id"]);
        node.done(&assign, "hello").await;
        assert_eq!(node.expect("job_confirmed").await["accepted"], false);
    }
}

async fn each_bad_input(scheduler: &Scheduler, node: &mut RawNode, count: usize) {
    bad_requests(scheduler, "/v1/translate", "{\"src_lang\": nonsense", 400, count).await;
    bad_requests(scheduler, "/v1/node/heartbeat", "{\"node_id\":\"nobody\"}", 404, count).await;
    bad_frames(node, "{\"type\": nonsense", "error", count).await;
    bad_frames(node, "{\"type\":\"juggle\"}", "error", count).await;
    let job = "job-000000000000000000000000000000ff";
    let ack = json!({"type": "job_ack", "job_id": job, "attempt_id": 1}).to_string();
    bad_frames(node, &ack, "error", count).await;
    let done = json!({"type": "job_done", "job_id": job, "attempt_id": 1}).to_string();
    bad_frames(node, &done, "job_confirmed", count).await;
    let partial = json!({"type": "job_partial", "job_id": job, "attempt_id": 1, "text": "x"});
    // A partial text gets no reply; the reply to the heartbeat shows that it was handled.
    for _ in 0..count / BATCH {
        for _ in 0..BATCH {
            node.stream.feed(Message::text(partial.to_string())).await.expect("the socket is open");
        }
        node.heartbeat(json!({})).await;
    }
}

#[tokio::test]
async fn bad_input_does_not_make_the_process_grow() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let count = rounds();
    // Connections cost more than frames, so there are fewer of them.
    let connections = count / 20;
    each_bad_input(&s, &mut node, count / 10).await;
    huge_frames(&s, connections / 10).await;
    vanishing_clients(&s, &mut node, connections / 10).await;
    let before_kib = resident_kib(&s);
    each_bad_input(&s, &mut node, count).await;
    huge_frames(&s, connections).await;
    let after_kib = resident_kib(&s);
    let growth = after_kib as f64 / before_kib as f64;
    assert!(growth <= GROWTH_MAX, "from {before_kib} to {after_kib} KiB");
    vanishing_clients(&s, &mut node, connections).await;
    // Only the records of their jobs stay, as those of all jobs do for an hour.
    let jobs_kib = resident_kib(&s).saturating_sub(after_kib.max(before_kib));
    assert!(jobs_kib <= JOB_KIB_MAX * connections as u64, "{jobs_kib} KiB for {connections} jobs");

    // No slot and no connection is left, and jobs are still done.
    assert_eq!(s.used().await, 0);
    let metrics = s.get("/metrics").await.text;
    assert!(metrics.contains("lingua_connections{kind=\"node\"} 1\n"), "{metrics}");
    let (id, _) = s.dispatch(job_with(json!({}))).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], Value::from("DONE"));
}
