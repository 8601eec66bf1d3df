//! A scheduler that does what the test tells it to, written from the protocol of node sockets.
//!
//! Start at [`Scheduler::accept`]. It reads and writes JSON by hand and shares no message type with
//! the SDK, so a field that the SDK misnames fails the test.

use futures_util::{SinkExt, StreamExt};
use lingua_core::{Attempt, JobId};
use lingua_wire::node::JobRef;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

/// So long that no test reaches a second heartbeat unless it wants to.
pub(crate) const NEVER_MS: u64 = 60_000;

/// A scheduler that listens.
pub(crate) struct Scheduler {
    pub(crate) listener: TcpListener,
}

/// One connection of a node.
pub(crate) struct Peer {
    socket: WebSocketStream<TcpStream>,
    pub(crate) authorization: Option<String>,
    /// The `heartbeat_ack` that answers heartbeats; `None` leaves them unanswered.
    pub(crate) ack: Option<Value>,
}

/// What a node sent.
#[derive(Debug, PartialEq)]
pub(crate) enum Report {
    Register(Value),
    Heartbeat(Value),
    Ack(JobRef),
    Partial(JobRef, String),
    Done { job: JobRef, result: Value, audio: Option<Vec<u8>> },
    Fail { job: JobRef, reason: String, retryable: bool },
    Bye,
    Pong(Vec<u8>),
    Closed,
}

/// The first attempt of a job.
pub(crate) fn job(number: u128) -> JobRef {
    JobRef { job_id: JobId::new(number), attempt_id: Attempt::FIRST }
}

/// The job as heartbeats and acknowledgements name it.
pub(crate) fn named(job: JobRef) -> Value {
    json!({"job_id": job.job_id.to_string(), "attempt_id": job.attempt_id.0})
}

/// A refusal, or a failure that another node might not have.
pub(crate) fn fail(job: JobRef, reason: &str) -> Report {
    Report::Fail { job, reason: reason.to_owned(), retryable: true }
}

/// A `heartbeat_ack`.
pub(crate) fn heartbeat_ack(cancel: &[JobRef], drain: bool) -> Value {
    let cancel: Vec<Value> = cancel.iter().copied().map(named).collect();
    json!({"type": "heartbeat_ack", "cancel": cancel, "drain": drain})
}

/// The 20 bytes in front of streamed audio: the job's number and the attempt, big-endian.
pub(crate) fn tagged(job: JobRef, audio: &[u8]) -> Frame {
    let hex = job.job_id.to_string();
    let number = u128::from_str_radix(hex.strip_prefix("job-").unwrap(), 16).unwrap();
    let tag = [&number.to_be_bytes()[..], &job.attempt_id.0.to_be_bytes()].concat();
    Frame::binary([&tag, audio].concat())
}

impl Scheduler {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/v1/node/ws", self.listener.local_addr().unwrap())
    }

    /// Accepts a connection and completes the handshake.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut authorization = None;
        #[allow(clippy::result_large_err, reason = "the library wants it so")]
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().path(), "/v1/node/ws");
            let header = request.headers().get("authorization");
            authorization = header.map(|value| value.to_str().unwrap().to_owned());
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, check).await.unwrap();
        Peer { socket, authorization, ack: Some(heartbeat_ack(&[], false)) }
    }

    /// Accepts a connection and its registration.
    pub(crate) async fn accept_registered(&self, epoch: u64) -> Peer {
        let mut peer = self.accept().await;
        peer.register(epoch, NEVER_MS).await;
        peer
    }
}

impl Peer {
    /// Reads the registration and accepts it.
    pub(crate) async fn register(&mut self, epoch: u64, heartbeat_interval_ms: u64) -> Value {
        let Report::Register(register) = self.next().await else { panic!("no registration") };
        let node_id = register.get("node_id").cloned().unwrap_or(json!("node-0000CAFE"));
        self.send(json!({
            "type": "registered",
            "node_id": node_id,
            "epoch": epoch,
            "heartbeat_interval_ms": heartbeat_interval_ms,
        }))
        .await;
        register
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.send_frame(Frame::text(message.to_string())).await;
    }

    pub(crate) async fn send_frame(&mut self, frame: Frame) {
        self.socket.send(frame).await.unwrap();
    }

    /// Sends a message about a job with these further fields.
    async fn send_about(&mut self, kind: &str, job: JobRef, further: Value) {
        let mut message = named(job);
        message["type"] = json!(kind);
        for (name, value) in further.as_object().unwrap() {
            message[name] = value.clone();
        }
        self.send(message).await;
    }

    /// Assigns a job that translates a text.
    pub(crate) async fn assign(&mut self, job: JobRef, fence: u64) {
        self.assign_with(job, fence, json!({"text": "hello"})).await;
    }

    /// Assigns a job that translates a text, and waits until the node has acknowledged it.
    pub(crate) async fn assign_acked(&mut self, job: JobRef, fence: u64) {
        self.assign(job, fence).await;
        assert_eq!(self.next().await, Report::Ack(job));
    }

    pub(crate) async fn assign_audio(&mut self, job: JobRef, fence: u64, audio: Value) {
        self.assign_with(job, fence, json!({"audio": audio})).await;
    }

    async fn assign_with(&mut self, job: JobRef, fence: u64, mut fields: Value) {
        for (name, value) in [
            ("fence", json!(fence)),
            ("session_id", json!("room-1")),
            ("src_lang", json!("en")),
            ("tgt_lang", json!("zh")),
            ("options", json!({"require_tts": false, "services": [], "priority": 0})),
            ("deadline_ms", json!(5000)),
            ("trace_id", json!("trace-1")),
        ] {
            fields[name] = value;
        }
        self.send_about("job_assign", job, fields).await;
    }

    pub(crate) async fn audio_end(&mut self, job: JobRef, bytes: u64) {
        self.send_about("audio_end", job, json!({"bytes": bytes})).await;
    }

    pub(crate) async fn confirm(&mut self, job: JobRef) {
        self.send_about("job_confirmed", job, json!({"accepted": true})).await;
    }

    pub(crate) async fn cancel(&mut self, job: JobRef, reason: &str) {
        self.send_about("job_cancel", job, json!({"reason": reason})).await;
    }

    pub(crate) async fn drain(&mut self) {
        self.send(json!({"type": "drain"})).await;
    }

    pub(crate) async fn error(&mut self, code: &str, fatal: bool) {
        let detail = "the detail of the scheduler";
        self.send(json!({"type": "error", "error": code, "detail": detail, "fatal": fatal})).await;
    }

    /// Waits until the node has read everything that was sent to it.
    pub(crate) async fn sync(&mut self) {
        self.send_frame(Frame::Ping(vec![1, 2, 3].into())).await;
        assert_eq!(self.next().await, Report::Pong(vec![1, 2, 3]));
    }

    /// The next frame of the node, heartbeats included.
    async fn receive(&mut self) -> Report {
        let text = loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => break text,
                Some(Ok(Frame::Pong(data))) => return Report::Pong(data.to_vec()),
                Some(Ok(Frame::Binary(_))) => panic!("audio that was not announced"),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => return Report::Closed,
                Some(Ok(_)) => {}
            }
        };
        let mut message: Value = serde_json::from_str(&text).unwrap();
        let text_of = |name: &str| message[name].as_str().expect(name).to_owned();
        let job = || JobRef {
            job_id: text_of("job_id").parse().unwrap(),
            attempt_id: Attempt(message["attempt_id"].as_u64().unwrap().try_into().unwrap()),
        };
        match text_of("type").as_str() {
            "register" => Report::Register(message),
            "heartbeat" => {
                if let Some(ack) = self.ack.clone() {
                    self.send(ack).await;
                }
                Report::Heartbeat(message)
            }
            "job_ack" => Report::Ack(job()),
            "job_partial" => Report::Partial(job(), text_of("text")),
            "job_done" => {
                assert_eq!(message["status"], "ok");
                let job = job();
                let result = message["result"].take();
                let audio = match result["tts_audio"]["bytes"].as_u64() {
                    None => None,
                    Some(bytes) => Some(self.audio(bytes).await),
                };
                Report::Done { job, result, audio }
            }
            "job_fail" => {
                assert_eq!(message["status"], "error");
                let retryable = message["retryable"].as_bool().unwrap_or(true);
                Report::Fail { job: job(), reason: text_of("reason"), retryable }
            }
            "bye" => Report::Bye,
            other => panic!("the protocol has no {other}"),
        }
    }

    /// The audio that was announced.
    async fn audio(&mut self, bytes: u64) -> Vec<u8> {
        let Some(Ok(Frame::Binary(audio))) = self.socket.next().await else {
            panic!("no audio behind its announcement")
        };
        assert_eq!(audio.len() as u64, bytes);
        audio.to_vec()
    }

    /// The next frame of the node that is not a heartbeat.
    pub(crate) async fn next(&mut self) -> Report {
        loop {
            match self.receive().await {
                Report::Heartbeat(_) => {}
                report => return report,
            }
        }
    }

    /// The next heartbeat; nothing else may come before it.
    pub(crate) async fn heartbeat(&mut self) -> Value {
        match self.receive().await {
            Report::Heartbeat(heartbeat) => heartbeat,
            report => panic!("no heartbeat: {report:?}"),
        }
    }

    /// The result of a job that succeeded, and its audio.
    pub(crate) async fn done(&mut self, expected: JobRef) -> (Value, Option<Vec<u8>>) {
        match self.next().await {
            Report::Done { job, result, audio } if job == expected => (result, audio),
            report => panic!("{expected:?} is not done: {report:?}"),
        }
    }
}
