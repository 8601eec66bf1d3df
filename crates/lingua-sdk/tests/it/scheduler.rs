//! A scheduler that says what the test tells it to say.
//!
//! Start at [`Scheduler::accept`]. It reads with the wire crate, as the real one does, so a frame that
//! the real one would refuse fails the test.

use std::borrow::Cow;

use futures_util::{SinkExt, StreamExt};
use lingua_core::{Attempt, Epoch, Fence, JobId, Lang, NodeId, Source};
use lingua_wire::audio::Audio;
use lingua_wire::node::{Heartbeat, JobRef, NodeMessage, Register};
use lingua_wire::scheduler::{
    AssignOptions, Drain, ErrorMessage, HeartbeatAck, JobAssign, JobCancel, JobConfirmed,
    Registered, SchedulerMessage,
};
use lingua_wire::{ErrorCode, RawJson};
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
    /// What heartbeats are answered with.
    pub(crate) ack: Option<HeartbeatAck>,
}

/// What a node said.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    Register(Register),
    Heartbeat(Heartbeat),
    Ack(JobRef),
    Partial(JobRef, String),
    Done { job: JobRef, result: Option<RawJson>, audio: Option<Vec<u8>> },
    Fail { job: JobRef, reason: String, retryable: bool },
    Bye,
    Pong(Vec<u8>),
    Closed,
}

/// The first attempt of a job.
pub(crate) fn job(number: u128) -> JobRef {
    JobRef { job_id: JobId::new(number), attempt_id: Attempt::FIRST }
}

/// A refusal or a failure, as it should be.
pub(crate) fn fail(job: JobRef, reason: &str) -> Said {
    Said::Fail { job, reason: reason.to_owned(), retryable: true }
}

/// An order to translate a text.
pub(crate) fn order(job: JobRef, fence: u64) -> JobAssign<'static> {
    JobAssign {
        job_id: job.job_id,
        attempt_id: job.attempt_id,
        fence: Fence(fence),
        session_id: Cow::Borrowed("room-1"),
        src_lang: Source::Known(Lang::new("en").unwrap()),
        tgt_lang: Lang::new("zh").unwrap(),
        audio_ref: None,
        audio: None,
        text: Some(Cow::Borrowed("hello")),
        options: AssignOptions::default(),
        deadline_ms: Some(5000),
        bind: None,
        two_way: None,
        context: vec![],
        trace_id: Cow::Borrowed("trace-1"),
    }
}

impl Scheduler {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/v1/node/ws", self.listener.local_addr().unwrap())
    }

    /// Takes a connection up to the handshake.
    pub(crate) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut authorization = None;
        #[expect(clippy::result_large_err, reason = "the library wants it so")]
        let look = |request: &Request, answer: Response| -> Result<Response, ErrorResponse> {
            assert_eq!(request.uri().path(), "/v1/node/ws");
            let header = request.headers().get("authorization");
            authorization = header.map(|value| value.to_str().unwrap().to_owned());
            Ok(answer)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, look).await.unwrap();
        Peer { socket, authorization, ack: Some(HeartbeatAck::default()) }
    }

    /// Takes a connection and its registration.
    pub(crate) async fn accept_registered(&self, epoch: u64) -> Peer {
        let mut peer = self.accept().await;
        peer.register(epoch, NEVER_MS).await;
        peer
    }
}

impl Peer {
    /// Reads the registration and takes it.
    pub(crate) async fn register(&mut self, epoch: u64, heartbeat_interval_ms: u64) -> Register {
        let Said::Register(register) = self.next().await else { panic!("no registration") };
        register.clone().into_parts().unwrap();
        let node_id = register.node_id.clone().unwrap_or(NodeId::new("node-0000CAFE").unwrap());
        let epoch = Epoch(epoch);
        let registered = Registered { node_id, epoch, heartbeat_interval_ms, pairs: 4 };
        self.say(SchedulerMessage::Registered(registered)).await;
        register
    }

    pub(crate) async fn say(&mut self, message: SchedulerMessage<'_>) {
        self.send(Frame::text(message.to_json())).await;
    }

    pub(crate) async fn send(&mut self, frame: Frame) {
        self.socket.send(frame).await.unwrap();
    }

    pub(crate) async fn assign(&mut self, job: JobRef, fence: u64) {
        self.say(SchedulerMessage::JobAssign(order(job, fence))).await;
    }

    pub(crate) async fn assign_audio(&mut self, job: JobRef, fence: u64, audio: Audio<'_>) {
        let order = JobAssign { text: None, audio: Some(audio), ..order(job, fence) };
        self.say(SchedulerMessage::JobAssign(order)).await;
    }

    pub(crate) async fn confirm(&mut self, job: JobRef) {
        let JobRef { job_id, attempt_id } = job;
        let confirmed = JobConfirmed { job_id, attempt_id, accepted: true };
        self.say(SchedulerMessage::JobConfirmed(confirmed)).await;
    }

    pub(crate) async fn cancel(&mut self, job: JobRef, reason: &str) {
        let JobRef { job_id, attempt_id } = job;
        let cancel = JobCancel { job_id, attempt_id, reason: reason.into() };
        self.say(SchedulerMessage::JobCancel(cancel)).await;
    }

    pub(crate) async fn drain(&mut self) {
        self.say(SchedulerMessage::Drain(Drain {})).await;
    }

    pub(crate) async fn error(&mut self, code: ErrorCode, fatal: bool) {
        self.say(SchedulerMessage::Error(ErrorMessage::new(code, "so it is", fatal))).await;
    }

    /// Waits until the node has read all that was said to it.
    pub(crate) async fn settle(&mut self) {
        self.send(Frame::Ping(vec![1, 2, 3].into())).await;
        assert_eq!(self.next().await, Said::Pong(vec![1, 2, 3]));
    }

    /// The next thing that the node says, heartbeats included.
    pub(crate) async fn hear(&mut self) -> Said {
        let text = loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => break text,
                Some(Ok(Frame::Pong(data))) => return Said::Pong(data.to_vec()),
                Some(Ok(Frame::Binary(_))) => panic!("audio that nobody announced"),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => return Said::Closed,
                Some(Ok(_)) => {}
            }
        };
        match NodeMessage::parse(&text).unwrap() {
            NodeMessage::Register(register) => Said::Register(register),
            NodeMessage::Heartbeat(heartbeat) => {
                if let Some(ack) = self.ack.clone() {
                    self.say(SchedulerMessage::HeartbeatAck(ack)).await;
                }
                Said::Heartbeat(heartbeat)
            }
            NodeMessage::JobAck(ack) => Said::Ack(ack.job_ref()),
            NodeMessage::JobPartial(partial) => {
                Said::Partial(partial.job_ref(), partial.text.clone().into_owned())
            }
            NodeMessage::JobDone(done) => {
                let bytes = done.result().unwrap().and_then(|result| result.frame_bytes());
                let audio = match bytes {
                    None => None,
                    Some(bytes) => Some(self.audio(bytes).await),
                };
                Said::Done { job: done.job_ref(), result: done.result, audio }
            }
            NodeMessage::JobFail(fail) => Said::Fail {
                job: fail.job_ref(),
                retryable: fail.is_retryable(),
                reason: fail.reason.into_owned(),
            },
            NodeMessage::Bye(_) => Said::Bye,
        }
    }

    /// The audio that was announced.
    async fn audio(&mut self, bytes: usize) -> Vec<u8> {
        let Some(Ok(Frame::Binary(audio))) = self.socket.next().await else {
            panic!("no audio behind its announcement")
        };
        assert_eq!(audio.len(), bytes);
        audio.to_vec()
    }

    /// The next thing that the node says, besides that it is alive.
    pub(crate) async fn next(&mut self) -> Said {
        loop {
            match self.hear().await {
                Said::Heartbeat(_) => {}
                said => return said,
            }
        }
    }

    /// The next heartbeat; nothing else may come before it.
    pub(crate) async fn heartbeat(&mut self) -> Heartbeat {
        match self.hear().await {
            Said::Heartbeat(heartbeat) => heartbeat,
            said => panic!("no heartbeat: {said:?}"),
        }
    }

    /// The result of a job that ended well, and its audio.
    pub(crate) async fn done(&mut self, expected: JobRef) -> (String, Option<Vec<u8>>) {
        match self.next().await {
            Said::Done { job, result: Some(result), audio } if job == expected => {
                (result.as_str().to_owned(), audio)
            }
            said => panic!("{expected:?} is not done: {said:?}"),
        }
    }
}
