//! What happens, as those see it who watch.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{Node, Scheduler, job, within};

/// A stream of server-sent events.
pub(crate) struct Watch {
    stream: TcpStream,
    unread: String,
}

impl Watch {
    pub(crate) async fn open(scheduler: &Scheduler) -> Self {
        let mut stream = TcpStream::connect(&scheduler.address).await.expect("it listens");
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it reads");
        let mut watch = Self { stream, unread: String::new() };
        while !watch.unread.contains("\r\n\r\n") {
            watch.read().await;
        }
        assert!(watch.unread.contains("text/event-stream"), "{}", watch.unread);
        watch
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
async fn events_are_streamed() {
    let s = Scheduler::start().await;
    let mut watch = Watch::open(&s).await;
    let _node = Node::join(&s, "n1", 1).await;
    assert_eq!(watch.next("node").await["node_id"], "n1");
}

#[tokio::test]
async fn a_partial_text_reaches_those_who_watch_until_the_job_ends() {
    let s = Scheduler::start().await;
    let mut node = Node::join(&s, "n1", 1).await;
    let mut watch = Watch::open(&s).await;
    let (id, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    node.say("job_ack", &assign, json!({})).await;
    node.say("job_partial", &assign, json!({"text": "你"})).await;
    node.say("job_partial", &assign, json!({"text": "你好"})).await;
    for text in ["你", "你好"] {
        let told = loop {
            let told = watch.next("job").await;
            if told["kind"] == "partial" {
                break told;
            }
        };
        let expected = json!({
            "kind": "partial", "job_id": id, "attempt_id": 1, "state": "ACKED", "node_id": "n1", "text": text,
        });
        assert_eq!(told, expected);
    }
    let live = s.get(&format!("/v1/jobs/{id}")).await.body;
    assert_eq!((&live["state"], &live["partial"]), (&json!("ACKED"), &json!("你好")));

    let mut stale = assign.clone();
    stale["attempt_id"] = json!(7);
    node.say("job_partial", &stale, json!({"text": "of another try"})).await;
    node.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
    node.say("job_partial", &assign, json!({"text": "after the end"})).await;
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], ended.get("partial")), (&json!("DONE"), None));
    let told = watch.next("job").await;
    assert_eq!((&told["kind"], &told["state"]), (&json!("state"), &json!("DONE")), "{told}");
    // The node's next word is answered, so the one before it was heard.
    node.send(json!({"type": "heartbeat"})).await;
    node.expect("heartbeat_ack").await;
    let metrics = s.get("/metrics").await.text;
    for reason in ["stale_partial", "job_over"] {
        let line = format!("lingua_node_rejected_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_polling_node_gives_partial_texts_too() {
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
    // The ack is heard after the partial text, which waits in the same line.
    assert_eq!(s.post("/v1/job/ack", about.clone()).await.status, 200);
    assert_eq!(s.get(&format!("/v1/jobs/{id}")).await.body["partial"], "hel");
    assert_eq!(s.post("/v1/job/done", about.clone()).await.status, 200);
    let late = s.post("/v1/job/partial", about).await;
    assert_eq!((late.status, &late.body["error"]), (409, &json!("STALE_ATTEMPT")));
}
