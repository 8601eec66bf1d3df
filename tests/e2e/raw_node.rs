//! A node written from the protocol alone: a WebSocket and JSON, nothing of the SDK.
//!
//! Start at [`RawNode::join`]. The test sends and receives each message itself, or lets the node
//! work by itself with [`RawNode::serve`].
//!
//! Invariant: a serving node counts its own jobs, so it notices when the scheduler oversells it.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::json_socket::{JsonSocket, WebSocket};
use crate::scheduler::Scheduler;

pub(crate) struct RawNode {
    pub(crate) socket: JsonSocket,
    /// The `registered` message.
    pub(crate) registered: Value,
}

impl Deref for RawNode {
    type Target = JsonSocket;

    fn deref(&self) -> &JsonSocket {
        &self.socket
    }
}

impl DerefMut for RawNode {
    fn deref_mut(&mut self) -> &mut JsonSocket {
        &mut self.socket
    }
}

/// A `register` message for the languages zh and en.
pub(crate) fn register(id: &str, slots: usize) -> Value {
    register_langs(id, slots, &["zh", "en"])
}

/// A `register` message for any of these languages to any other.
pub(crate) fn register_langs(id: &str, slots: usize, langs: &[&str]) -> Value {
    json!({
        "type": "register", "node_id": id, "max_concurrent_jobs": slots,
        "asr_langs": langs, "semantic_langs": langs, "tts_langs": langs,
    })
}

impl RawNode {
    /// Registers for zh and en.
    pub(crate) async fn join(scheduler: &Scheduler, id: &str, slots: usize) -> Self {
        Self::join_with(scheduler, register(id, slots)).await
    }

    pub(crate) async fn join_with(scheduler: &Scheduler, register: Value) -> Self {
        Self::join_at(&scheduler.address, None, register).await
    }

    /// Registers at any address, such as that of a proxy, with a token if there is one.
    pub(crate) async fn join_at(address: &str, token: Option<&str>, register: Value) -> Self {
        let mut node = Self::connect(address, token).await;
        node.send(register).await;
        node.registered = node.next().await;
        assert_eq!(node.registered["type"], "registered", "{}", node.registered);
        node
    }

    /// Connects and sends nothing.
    pub(crate) async fn connect(address: &str, token: Option<&str>) -> Self {
        let socket = JsonSocket::connect(&format!("ws://{address}/v1/node/ws"), token).await;
        Self { socket, registered: Value::Null }
    }

    /// Sends a message about an assigned job: `job_ack`, `job_partial`, `job_done` or `job_fail`.
    pub(crate) async fn report(&mut self, kind: &str, assign: &Value, fields: Value) {
        self.send(report(kind, assign, fields)).await;
    }

    /// Acknowledges an assigned job.
    pub(crate) async fn ack(&mut self, assign: &Value) {
        self.report("job_ack", assign, json!({})).await;
    }

    /// Reports this translation.
    pub(crate) async fn done(&mut self, assign: &Value, text: &str) {
        self.report("job_done", assign, json!({"result": {"text_translated": text}})).await;
    }

    /// Does the next job; gives its assignment.
    pub(crate) async fn work(&mut self) -> Value {
        let assign = self.expect("job_assign").await;
        self.ack(&assign).await;
        self.done(&assign, "hello").await;
        let confirmed = self.expect("job_confirmed").await;
        assert_eq!(confirmed["accepted"], true, "{confirmed}");
        assign
    }

    /// Sends a heartbeat and waits for the reply.
    pub(crate) async fn heartbeat(&mut self, fields: Value) -> Value {
        let mut message = json!({"type": "heartbeat"});
        merge(&mut message, fields);
        self.send(message).await;
        self.expect("heartbeat_ack").await
    }

    /// Closes the connection with a close frame but without `bye`.
    pub(crate) async fn close(mut self) {
        self.socket.stream.close(None).await.ok();
    }

    /// Drops the connection without a close frame, as a crashed process does.
    pub(crate) fn crash(self) {}

    /// Does every job by itself from now on, each for `work`.
    pub(crate) fn serve(self, slots: usize, work: Duration) -> ServingNode {
        self.serve_each(slots, move |_| work)
    }

    /// Does every job by itself from now on, each for as long as `work` says of its assignment,
    /// from the end of its audio on.
    pub(crate) fn serve_each(
        self,
        slots: usize,
        work: impl Fn(&Value) -> Duration + Send + 'static,
    ) -> ServingNode {
        let (running, running_max) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let task = tokio::spawn(serve(self.socket, work, running, Arc::clone(&running_max)));
        ServingNode { running_max, slots, task }
    }
}

/// A node that does its jobs by itself.
pub(crate) struct ServingNode {
    /// The most jobs that it had at the same time.
    running_max: Arc<AtomicUsize>,
    slots: usize,
    task: tokio::task::JoinHandle<()>,
}

impl ServingNode {
    /// Stops the node at once; its connection breaks.
    pub(crate) fn kill(&self) {
        self.task.abort();
    }

    /// The node was used and never had more jobs than slots.
    pub(crate) fn check(&self) {
        let most = self.running_max.load(Ordering::SeqCst);
        assert!(most <= self.slots, "{most} jobs at once in {} slots", self.slots);
        assert!(most > 0, "the node got no job");
    }
}

async fn serve(
    socket: JsonSocket,
    work: impl Fn(&Value) -> Duration,
    running: Arc<AtomicUsize>,
    running_max: Arc<AtomicUsize>,
) {
    let (mut sink, mut stream) = socket.stream.split();
    let (finish, mut finished) = mpsc::unbounded_channel::<Value>();
    let mut streams: HashMap<String, Value> = HashMap::new();
    loop {
        tokio::select! {
            frame = stream.next() => {
                let Some(Ok(frame)) = frame else { return };
                let Message::Text(text) = frame else { continue };
                let message: Value = serde_json::from_str(&text).expect("JSON");
                let id = || message["job_id"].as_str().unwrap_or_default().to_owned();
                let assign = match message["type"].as_str() {
                    Some("job_assign") => {
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        running_max.fetch_max(now, Ordering::SeqCst);
                        if !send(&mut sink, report("job_ack", &message, json!({}))).await {
                            return;
                        }
                        if message["audio"]["stream"] == true {
                            streams.insert(id(), message);
                            continue;
                        }
                        message
                    }
                    Some("audio_end") => match streams.remove(&id()) {
                        Some(assign) => assign,
                        None => continue,
                    },
                    _ => continue,
                };
                let (finish, work) = (finish.clone(), work(&assign));
                tokio::spawn(async move {
                    tokio::time::sleep(work).await;
                    finish.send(assign).ok();
                });
            }
            Some(assign) = finished.recv() => {
                running.fetch_sub(1, Ordering::SeqCst);
                let result = json!({"result": {"text_translated": "hello"}});
                if !send(&mut sink, report("job_done", &assign, result)).await {
                    return;
                }
            }
        }
    }
}

/// Sends a message; whether the socket is still open.
async fn send(sink: &mut SplitSink<WebSocket, Message>, message: Value) -> bool {
    sink.send(Message::text(message.to_string())).await.is_ok()
}

fn report(kind: &str, assign: &Value, fields: Value) -> Value {
    let mut message = json!({
        "type": kind, "job_id": assign["job_id"], "attempt_id": assign["attempt_id"],
    });
    merge(&mut message, fields);
    message
}

fn merge(message: &mut Value, fields: Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        message[key] = value.clone();
    }
}
