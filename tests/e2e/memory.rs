//! Bad input over and over: nothing is lost, and nothing grows.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::world::{Node, Scheduler, job_with, within};

/// How often each kind of bad input is sent. `LINGUA_BAD_INPUTS=200000` sends more.
const ROUNDS: usize = 20_000;

/// Requests or frames that are sent before answers are read.
const BATCH: usize = 100;

/// How much larger the process may be at the end than after it has seen a little of everything.
const GROWTH_MAX: f64 = 1.5;

/// How much an ended job may take for as long as it is remembered.
const JOB_KIB_MAX: u64 = 4;

fn rounds() -> usize {
    let given = std::env::var("LINGUA_BAD_INPUTS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(ROUNDS)
}

/// The memory of the process, in KiB.
fn resident_kib(scheduler: &Scheduler) -> u64 {
    let pid = scheduler.child.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Requests on one connection, in batches; every one of them must be answered with this status.
async fn bad_requests(scheduler: &Scheduler, path: &str, body: &str, status: u16, count: usize) {
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let start = format!("HTTP/1.1 {status} ");
    let mut stream = TcpStream::connect(&scheduler.address).await.expect("it listens");
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..count / BATCH {
        stream.write_all(request.repeat(BATCH).as_bytes()).await.expect("it reads");
        let (mut text, mut answers) = (String::new(), 0);
        while answers < BATCH || !text.ends_with('}') {
            let n = within(stream.read(&mut buffer)).await.expect("it answers");
            assert!(n > 0, "it hung up after {answers} answers");
            text.push_str(std::str::from_utf8(&buffer[..n]).expect("ASCII"));
            answers = text.matches(&start).count();
        }
        assert_eq!((answers, text.matches("HTTP/1.1 ").count()), (BATCH, BATCH), "{path}");
    }
}

/// Frames on one socket, in batches; every one of them must be answered by a message of this type.
async fn bad_frames(node: &mut Node, frame: &str, answer: &str, count: usize) {
    for _ in 0..count / BATCH {
        for _ in 0..BATCH {
            node.socket.feed(Message::text(frame)).await.expect("the socket is open");
        }
        node.socket.flush().await.expect("the socket is open");
        for _ in 0..BATCH {
            let told = node.expect(answer).await;
            assert_ne!(told["fatal"], true, "{told}");
        }
    }
}

/// Frames that say that they are enormous, each on a socket of its own.
async fn huge_frames(scheduler: &Scheduler, count: usize) {
    let upgrade = "GET /v1/node/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    // A masked text frame of a terabyte, and its first bytes.
    let mut frame = vec![0x81, 0xFF];
    frame.extend((1_u64 << 40).to_be_bytes());
    frame.extend([0; 64]);
    for _ in 0..count {
        let mut stream = TcpStream::connect(&scheduler.address).await.expect("it listens");
        stream.write_all(upgrade.as_bytes()).await.expect("it reads");
        stream.write_all(&frame).await.expect("it reads");
        let mut answer = vec![];
        // It hangs up with something unread, which may reset the connection.
        within(stream.read_to_end(&mut answer)).await.ok();
    }
}

/// Clients that ask for a translation and are gone before it comes.
async fn vanishing_clients(scheduler: &Scheduler, node: &mut Node, count: usize) {
    let body = job_with(json!({"wait_ms": 5_000})).to_string();
    let request = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..count {
        let mut stream = TcpStream::connect(&scheduler.address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let assign = node.expect("job_assign").await;
        drop(stream);
        node.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
        assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    }
}

async fn a_little_of_everything(scheduler: &Scheduler, node: &mut Node, count: usize) {
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
    // Nobody answers that; the heartbeat behind it is answered after it was heard.
    for _ in 0..count / BATCH {
        for _ in 0..BATCH {
            node.socket.feed(Message::text(partial.to_string())).await.expect("it is open");
        }
        node.send(json!({"type": "heartbeat"})).await;
        node.expect("heartbeat_ack").await;
    }
}

#[tokio::test]
async fn bad_input_over_and_over_takes_no_memory() {
    let s = Scheduler::start().await;
    let mut node = Node::join(&s, "n1", 4).await;
    let count = rounds();
    // Connections cost more than frames do, so there are fewer of these.
    let dear = count / 20;
    a_little_of_everything(&s, &mut node, count / 10).await;
    huge_frames(&s, dear / 10).await;
    vanishing_clients(&s, &mut node, dear / 10).await;
    let before_kib = resident_kib(&s);
    a_little_of_everything(&s, &mut node, count).await;
    huge_frames(&s, dear).await;
    let after_kib = resident_kib(&s);
    let growth = after_kib as f64 / before_kib as f64;
    assert!(growth <= GROWTH_MAX, "from {before_kib} to {after_kib} KiB");
    vanishing_clients(&s, &mut node, dear).await;
    // Their jobs are remembered for an hour, as everybody's are, and nothing else of them.
    let jobs_kib = resident_kib(&s).saturating_sub(after_kib.max(before_kib));
    assert!(jobs_kib <= JOB_KIB_MAX * dear as u64, "{jobs_kib} KiB for {dear} jobs");

    // Nothing is left behind, and it still works.
    assert_eq!(s.used().await, 0);
    let metrics = s.get("/metrics").await.text;
    assert!(metrics.contains("lingua_connections{kind=\"node\"} 1\n"), "{metrics}");
    let (id, _) = s.dispatch(job_with(json!({}))).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], Value::from("DONE"));
}
