//! Speak, and hear the translation in the order spoken.
//!
//! Start at [`Session::start`], then [`Session::audio`] and [`Session::next`]. When the connection breaks, the session is resumed by
//! itself: what was missed comes, and nothing twice.
//!
//! Invariant: [`Event::Result`] and [`Event::Missing`] come in the order spoken, one for each segment.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use lingua_wire::session::{
    JobAccepted, Missing, SegmentResult, SessionAnswer, SessionEnd, SessionResume, SessionStart,
    SessionStarted, TextTurn, TurnEnd, TurnStart,
};
use lingua_wire::{Message, to_json};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use crate::connect::{ConnectError, Endpoint, OPEN_TIMEOUT, Socket, endpoint_builders};

/// How long to wait before the connection is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Where the scheduler is, and who asks.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    endpoint: Endpoint,
}

impl SessionOptions {
    /// A session at this scheduler: `ws://host:port/v1/session/ws`, or `wss://`.
    pub fn new(url: impl Into<String>) -> Self {
        Self { endpoint: Endpoint::new(url, "/v1/session/ws") }
    }

    endpoint_builders!();
}

/// What the scheduler says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A segment has become a job.
    Accepted(JobAccepted),
    /// A part of a text; each replaces the one before.
    Partial {
        /// Which turn.
        turn: u32,
        /// Which part of it.
        segment: u32,
        /// The text so far.
        text: String,
    },
    /// What came of a segment.
    Result(Box<SegmentResult<'static>>),
    /// Nothing came of a segment.
    Missing(Missing<'static>),
    /// What was sent is not understood; the session goes on.
    Refused {
        /// The code.
        code: String,
        /// What is wrong, and what to do.
        detail: String,
    },
    /// The connection broke, and the session goes on over another one.
    Resumed,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    socket: Socket,
    id: String,
    secret: String,
    resume_within: Duration,
    last_seq: u64,
    is_ending: bool,
}

impl Session {
    /// Starts a session.
    pub async fn start(
        options: SessionOptions,
        start: &SessionStart<'_>,
    ) -> Result<Self, ConnectError> {
        let (socket, started) = open(&options, &to_json(start)).await?;
        Ok(Self {
            options,
            socket,
            id: started.session_id.into_owned(),
            secret: started.resume_token.into_owned(),
            resume_within: Duration::from_millis(started.resume_ms),
            last_seq: 0,
            is_ending: false,
        })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Sends a frame of audio. Of what is sent while the connection is broken, nothing arrives.
    pub async fn audio(&mut self, frame: impl Into<Bytes>) {
        self.send(Frame::Binary(frame.into())).await;
    }

    /// Begins a turn; in a session of two ways with the speaker, `a` or `b`.
    pub async fn turn_start(&mut self, speaker: Option<&str>) {
        self.say(&TurnStart { speaker: speaker.map(Into::into) }).await;
    }

    /// Ends the turn.
    pub async fn turn_end(&mut self) {
        self.say(&TurnEnd {}).await;
    }

    /// A turn that is written.
    pub async fn text(&mut self, text: &str, speaker: Option<&str>) {
        self.say(&TextTurn { text: text.into(), speaker: speaker.map(Into::into) }).await;
    }

    /// Leaves: what is open still comes, then [`next`](Self::next) gives nothing more.
    pub async fn end(&mut self) {
        self.is_ending = true;
        self.say(&SessionEnd {}).await;
    }

    async fn say<M: Message + Serialize>(&mut self, message: &M) {
        self.send(Frame::Text(to_json(message).into())).await;
    }

    /// A connection that is broken is noticed by whoever listens.
    async fn send(&mut self, frame: Frame) {
        if let Err(error) = self.socket.send(frame).await {
            tracing::debug!(%error, "the session's connection is broken");
        }
    }

    /// What the scheduler says next; `None` when everything was said. It may be dropped and asked again without losing anything.
    pub async fn next(&mut self) -> Result<Option<Event>, ConnectError> {
        loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => {
                    if let Some(event) = self.hear(&text)? {
                        return Ok(Some(event));
                    }
                }
                Some(Ok(Frame::Close(_))) | None if self.is_ending => return Ok(None),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => {
                    self.resume().await?;
                    return Ok(Some(Event::Resumed));
                }
                Some(Ok(_)) => {}
            }
        }
    }

    fn hear(&mut self, text: &Utf8Bytes) -> Result<Option<Event>, ConnectError> {
        Ok(Some(match SessionAnswer::parse(text) {
            Ok(SessionAnswer::Accepted(accepted)) => Event::Accepted(accepted),
            Ok(SessionAnswer::Partial(partial)) => {
                let (turn, segment) = (partial.turn, partial.segment);
                Event::Partial { turn, segment, text: partial.text.into_owned() }
            }
            Ok(SessionAnswer::Result(result)) => {
                self.last_seq = result.seq;
                Event::Result(Box::new(result.into_owned()))
            }
            Ok(SessionAnswer::Missing(missing)) => {
                self.last_seq = missing.seq;
                Event::Missing(missing.into_owned())
            }
            Ok(SessionAnswer::Error(error)) => {
                if error.fatal {
                    return Err(error.into());
                }
                let (code, detail) = (error.error.into_owned(), error.detail.into_owned());
                Event::Refused { code, detail }
            }
            Ok(SessionAnswer::Started(_)) => return Ok(None),
            Err(error) => {
                tracing::warn!(%error, "a message was not understood");
                return Ok(None);
            }
        }))
    }

    /// Goes on over another connection, as long as the session waits.
    async fn resume(&mut self) -> Result<(), ConnectError> {
        let give_up = Instant::now() + self.resume_within;
        let resume = to_json(&SessionResume {
            session_id: self.id.as_str().into(),
            resume_token: self.secret.as_str().into(),
            last_seq: self.last_seq,
        });
        loop {
            match open(&self.options, &resume).await {
                Ok((socket, _)) => {
                    self.socket = socket;
                    if self.is_ending {
                        self.say(&SessionEnd {}).await;
                    }
                    return Ok(());
                }
                Err(ConnectError::Unreachable { .. }) if Instant::now() < give_up => {
                    sleep(RETRY).await
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Connects, says the first message and waits for the answer.
async fn open(
    options: &SessionOptions,
    first: &str,
) -> Result<(Socket, SessionStarted<'static>), ConnectError> {
    let unreachable = |detail: String| options.endpoint.unreachable(detail);
    let mut socket = options.endpoint.open().await?;
    let lost = |_| unreachable("the connection broke".into());
    socket.send(Frame::Text(first.into())).await.map_err(lost)?;
    let answered = async {
        loop {
            match socket.next().await {
                Some(Ok(Frame::Text(text))) => return Ok(text),
                Some(Ok(Frame::Close(_)) | Err(_)) | None => {
                    return Err(unreachable("it closed the connection".into()));
                }
                Some(Ok(_)) => {}
            }
        }
    };
    let text = timeout(OPEN_TIMEOUT, answered).await;
    let text = text.map_err(|_| unreachable("it did not answer".into()))??;
    match SessionAnswer::parse(&text) {
        Ok(SessionAnswer::Started(started)) => Ok((socket, started.into_owned())),
        Ok(SessionAnswer::Error(error)) => Err(error.into()),
        _ => Err(unreachable(format!("it said {text:.60}: is it a Lingua scheduler?"))),
    }
}
