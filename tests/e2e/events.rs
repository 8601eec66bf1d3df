//! `/v1/events`: the stream of changes.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job, within};

/// A stream of server-sent events.
pub(crate) struct EventStream {
    stream: TcpStream,
    unread: String,
}

impl EventStream {
    pub(crate) async fn open(scheduler: &Scheduler) -> Self {
        let mut stream =
            TcpStream::connect(&scheduler.address).await.expect("the scheduler accepts");
        stream
            .write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .expect("sent");
        let mut events = Self { stream, unread: String::new() };
        while !events.unread.contains("\r\n\r\n") {
            events.read().await;
        }
        assert!(events.unread.contains("text/event-stream"), "{}", events.unread);
        events
    }

    async fn read(&mut self) {
        let mut buffer = vec![0; 4096];
        let n = within(self.stream.read(&mut buffer)).await.expect("readable");
        assert!(n > 0, "the stream ended");
        self.unread.push_str(std::str::from_utf8(&buffer[..n]).expect("text"));
    }

    /// The data of the next event of this name.
    pub(crate) async fn next(&mut self, name: &str) -> Value {
        let start = format!("event: {name}\ndata: ");
        loop {
            if let Some(at) = self.unread.find(&start) {
                let rest = self.unread.split_off(at + start.len());
                if let Some((data, rest)) = rest.split_once('\n') {
                    let data = serde_json::from_str(data).expect("JSON");
                    self.unread = rest.to_owned();
                    return data;
                }
                self.unread.push_str(&rest);
            }
            self.read().await;
        }
    }
}

#[tokio::test]
async fn a_registration_is_an_event() {
    let s = Scheduler::start().await;
    let mut events = EventStream::open(&s).await;
    let _node = RawNode::join(&s, "n1", 1).await;
    assert_eq!(events.next("node").await["node_id"], "n1");
}

/// Requirements: NODE-30, JOB-14.
#[tokio::test]
async fn partial_texts_are_events_until_the_job_ends() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut events = EventStream::open(&s).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    node.report("job_partial", &assign, json!({"text": "你"})).await;
    node.report("job_partial", &assign, json!({"text": "你好"})).await;
    for text in ["你", "你好"] {
        let event = loop {
            let event = events.next("job").await;
            if event["kind"] == "partial" {
                break event;
            }
        };
        let expected = json!({
            "kind": "partial", "job_id": id, "attempt_id": 1, "state": "ACKED", "node_id": "n1",
            "text": text,
        });
        assert_eq!(event, expected);
    }
    let live = s.get(&format!("/v1/jobs/{id}")).await.body;
    assert_eq!((&live["state"], &live["partial"]), (&json!("ACKED"), &json!("你好")));

    let mut stale = assign.clone();
    stale["attempt_id"] = json!(7);
    node.report("job_partial", &stale, json!({"text": "of another attempt"})).await;
    node.done(&assign, "hello").await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    node.report("job_partial", &assign, json!({"text": "after the end"})).await;
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], ended.get("partial")), (&json!("DONE"), None));
    let event = events.next("job").await;
    assert_eq!((&event["kind"], &event["state"]), (&json!("state"), &json!("DONE")), "{event}");
    // The reply to the next message shows that the one before it was handled.
    node.heartbeat(json!({})).await;
    let metrics = s.get("/metrics").await.text;
    for reason in ["stale_partial", "job_over"] {
        let line = format!("lingua_node_rejected_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_polling_node_may_report_partial_texts() {
    let s = Scheduler::start().await;
    s.post(
        "/v1/node/register",
        json!({
            "node_id": "poller", "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"],
        }),
    )
    .await;
    let poll = s.get("/v1/node/poller/jobs?wait_ms=10000");
    let (_, (id, _)) = tokio::join!(poll, s.dispatch(job()));
    let about = json!({"job_id": id, "attempt_id": 1, "node_id": "poller", "text": "hel"});
    assert_eq!(s.post("/v1/job/ack", about.clone()).await.status, 200);
    assert_eq!(s.post("/v1/job/partial", about.clone()).await.status, 200);
    // The ack is handled after the partial text, which is in the same queue.
    assert_eq!(s.post("/v1/job/ack", about.clone()).await.status, 200);
    assert_eq!(s.get(&format!("/v1/jobs/{id}")).await.body["partial"], "hel");
    assert_eq!(s.post("/v1/job/done", about.clone()).await.status, 200);
    let late = s.post("/v1/job/partial", about).await;
    assert_eq!((late.status, &late.body["error"]), (409, &json!("STALE_ATTEMPT")));
}
