//! Sends speech to a scheduler and receives the translation in the order spoken.
//!
//! Start at [`Session::start`], then [`Session::audio`] and [`Session::next`]. When the connection
//! breaks, the session resumes by itself, without losing or repeating a result.
//!
//! Invariant: [`SessionEvent::Result`] and [`SessionEvent::Missing`] come in the order spoken, one
//! for each segment.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use lingua_wire::session::{
    JobAccepted, SegmentMissing, SegmentResult, SessionEnd, SessionPartial, SessionResume,
    SessionStart, SessionStarted, SessionUpdate, TextTurn, TurnEnd, TurnStart,
};
use lingua_wire::{Message, to_json};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use crate::connect::{ConnectionError, OPEN_TIMEOUT, SchedulerEndpoint, Socket, endpoint_builders};

/// Pause between two attempts to resume.
const RETRY: Duration = Duration::from_millis(200);

/// How to reach the scheduler.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    endpoint: SchedulerEndpoint,
}

impl SessionSettings {
    /// `url` is `ws://host:port/v1/session/ws`, or `wss://`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { endpoint: SchedulerEndpoint::new(url, "/v1/session/ws") }
    }

    endpoint_builders!();
}

/// A message from the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum SessionEvent {
    /// A segment has become a job.
    Accepted(JobAccepted),
    /// A partial text; it replaces the previous one.
    Partial(SessionPartial),
    /// The result of a segment.
    Result(Box<SegmentResult<'static>>),
    /// A segment has no result.
    Missing(SegmentMissing),
    /// The scheduler refused something that was sent; the session continues.
    Refused { code: String, detail: String },
    /// The connection broke, and the session has resumed over another one.
    Resumed,
}

/// A session with a scheduler.
#[derive(Debug)]
pub struct Session {
    settings: SessionSettings,
    socket: Socket,
    id: String,
    resume_token: String,
    resume_within: Duration,
    last_seq: u64,
    is_ending: bool,
}

impl Session {
    /// Starts a session.
    pub async fn start(
        settings: SessionSettings,
        start: &SessionStart,
    ) -> Result<Self, ConnectionError> {
        let (socket, started) = open(&settings, &to_json(start)).await?;
        Ok(Self {
            settings,
            socket,
            id: started.session_id,
            resume_token: started.resume_token,
            resume_within: Duration::from_millis(started.resume_ms),
            last_seq: 0,
            is_ending: false,
        })
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a frame of audio. Frames sent while the connection is broken are lost.
    pub async fn audio(&mut self, frame: impl Into<Bytes>) {
        self.send(Frame::Binary(frame.into())).await;
    }

    /// Opens a turn; in a two-way session with the speaker, `a` or `b`.
    pub async fn turn_start(&mut self, speaker: Option<&str>) {
        self.send_message(&TurnStart { speaker: speaker.map(Into::into) }).await;
    }

    /// Ends the turn.
    pub async fn turn_end(&mut self) {
        self.send_message(&TurnEnd {}).await;
    }

    /// Sends a turn of text.
    pub async fn text(&mut self, text: &str, speaker: Option<&str>) {
        self.send_message(&TextTurn { text: text.into(), speaker: speaker.map(Into::into) }).await;
    }

    /// Ends the session: open segments still come, then [`next`](Self::next) returns `None`.
    pub async fn end(&mut self) {
        self.is_ending = true;
        self.send_message(&SessionEnd {}).await;
    }

    async fn send_message<M: Message + Serialize>(&mut self, message: &M) {
        self.send(Frame::Text(to_json(message).into())).await;
    }

    /// Leaves errors to [`next`](Self::next), which resumes the session.
    async fn send(&mut self, frame: Frame) {
        if let Err(error) = self.socket.send(frame).await {
            tracing::debug!(%error, "the connection is broken");
        }
    }

    /// The next message; `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<SessionEvent>, ConnectionError> {
        loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => {
                    if let Some(event) = self.on_message(&text)? {
                        return Ok(Some(event));
                    }
                }
                Some(Ok(Frame::Close(_))) | None if self.is_ending => return Ok(None),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => {
                    self.resume().await?;
                    return Ok(Some(SessionEvent::Resumed));
                }
                Some(Ok(_)) => {}
            }
        }
    }

    fn on_message(&mut self, text: &Utf8Bytes) -> Result<Option<SessionEvent>, ConnectionError> {
        Ok(Some(match SessionUpdate::parse(text) {
            Ok(SessionUpdate::Accepted(accepted)) => SessionEvent::Accepted(accepted),
            Ok(SessionUpdate::Partial(partial)) => SessionEvent::Partial(partial),
            Ok(SessionUpdate::Result(result)) => {
                self.last_seq = result.seq;
                SessionEvent::Result(Box::new(result.into_owned()))
            }
            Ok(SessionUpdate::Missing(missing)) => {
                self.last_seq = missing.seq;
                SessionEvent::Missing(missing)
            }
            Ok(SessionUpdate::Error(error)) => {
                if error.fatal {
                    return Err(error.into());
                }
                let (code, detail) = (error.error.into_owned(), error.detail.into_owned());
                SessionEvent::Refused { code, detail }
            }
            Ok(SessionUpdate::Started(_)) => return Ok(None),
            Err(error) => {
                tracing::warn!(%error, "cannot read a message");
                return Ok(None);
            }
        }))
    }

    /// Resumes over another connection, for as long as the session waits.
    async fn resume(&mut self) -> Result<(), ConnectionError> {
        let give_up = Instant::now() + self.resume_within;
        let resume = to_json(&SessionResume {
            session_id: self.id.clone(),
            resume_token: self.resume_token.clone(),
            last_seq: self.last_seq,
        });
        loop {
            match open(&self.settings, &resume).await {
                Ok((socket, _)) => {
                    self.socket = socket;
                    if self.is_ending {
                        self.send_message(&SessionEnd {}).await;
                    }
                    return Ok(());
                }
                Err(ConnectionError::Unreachable { .. }) if Instant::now() < give_up => {
                    sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects, sends the first message and waits for the reply.
async fn open(
    settings: &SessionSettings,
    first: &str,
) -> Result<(Socket, SessionStarted), ConnectionError> {
    let endpoint = &settings.endpoint;
    let mut socket = endpoint.open().await?;
    let lost = |_| endpoint.unreachable("the connection broke");
    socket.send(Frame::Text(first.into())).await.map_err(lost)?;
    let reply = async {
        loop {
            match socket.next().await {
                Some(Ok(Frame::Text(text))) => return Ok(text),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => {
                    return Err(endpoint.unreachable("it closed the connection"));
                }
                Some(Ok(_)) => {}
            }
        }
    };
    let text = timeout(OPEN_TIMEOUT, reply).await;
    let text = text.map_err(|_| endpoint.unreachable("it did not reply"))??;
    match SessionUpdate::parse(&text) {
        Ok(SessionUpdate::Started(started)) => Ok((socket, started)),
        Ok(SessionUpdate::Error(error)) => Err(error.into()),
        _ => Err(endpoint.unreachable(format!("it replied {text:.60}: is it a Lingua scheduler?"))),
    }
}
