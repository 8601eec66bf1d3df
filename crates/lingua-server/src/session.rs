//! The session WebSocket: a client speaks and gets translations in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `voice.rs` | voice activity detection |
//! | `messages.rs` | what the session yields, as messages to the client |
//!
//! Start at [`upgrade`]. The first message starts or resumes a session; then one task reads from
//! the client and writes to it. A client that does not read for `session.write_ms` is disconnected;
//! the session keeps what it missed until it resumes.
//!
//! Invariant: a bad frame is answered with an error and changes nothing else.

mod messages;
mod voice;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use lingua_core::id::hex;
use lingua_core::session::{AudioEncoding, SessionPlan};
use lingua_engine::Timer;
use lingua_engine::session::{
    ClientConnection, CloseReason, NewSession, SessionOutput, SessionRefusal,
};
use lingua_store::Store;
use lingua_wire::session::{
    SessionRequest, SessionResume, SessionStart, SessionStarted, parse_speaker,
};
use lingua_wire::{ErrorCode, RequestError};

use crate::app::{App, Shared};
use crate::auth::{Sender, TokenHash, new_token};
use crate::frames::{
    self, Closed, GOING_AWAY, NORMAL, close, close_with, first_text, limited, paced, text,
};
use crate::metrics::{ConnectionCount, Refused};
use crate::pace::Pace;
use crate::reply::ApiError;
use crate::routes::jobs::new_number;

pub(crate) use voice::VoiceDetector;

/// Longest message: above the limit for audio frames, so that a frame that is too long gets an
/// error.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How often to ping a client that sends nothing.
const PING: Duration = Duration::from_secs(15);

/// A client that has not answered this many pings is gone.
const UNANSWERED_PINGS: u32 = 3;

/// `GET /v1/session/ws`
pub(crate) async fn upgrade<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    ws: WebSocketUpgrade,
) -> Response {
    let app = app.0;
    // A result is as long as the frame or the body that brought it.
    let sent_max = app.options.frame_bytes_max.max(app.options.body_bytes_max);
    limited(ws, MESSAGE_BYTES_MAX, sent_max).on_upgrade(move |socket| async move {
        let counted = ConnectionCount::new(&app.metrics.session_sockets);
        Box::pin(serve(&app, socket, &sender)).await;
        drop(counted);
    })
}

async fn serve<S: Store, T: Timer>(app: &App<S, T>, mut socket: WebSocket, sender: &Sender) {
    let mut object = String::new();
    let (session, started) = match open(app, &mut socket, sender, &mut object).await {
        Ok(opened) => opened,
        Err(failed) => {
            app.record_refusal(sender, "open a session", &object, &failed);
            return close_with(&mut socket, &failed).await;
        }
    };
    if socket.send(text(&started)).await.is_err() {
        return;
    }
    tracing::debug!(session_id = %session.id(), resumed = started.resumed, "session connected");
    let options = &app.options.session;
    let write_limit = Duration::from_millis(options.write_ms);
    let voice = match session.plan().audio {
        AudioEncoding::Pcm16 { sample_rate } if session.detects_silence() => {
            Some(VoiceDetector::new(sample_rate))
        }
        _ => None,
    };
    let messages = Pace::of_messages(options.messages_per_second);
    let pings = Pace::of_pings();
    SessionSocket { app, socket, session, voice, write_limit, messages, pings }.run(sender).await;
}

type Opened<S, T> = (ClientConnection<S, T>, SessionStarted);

/// Reads the first message and starts or resumes a session; `resumed` becomes its id.
async fn open<S: Store, T: Timer>(
    app: &App<S, T>,
    socket: &mut WebSocket,
    sender: &Sender,
    resumed: &mut String,
) -> Result<Opened<S, T>, ApiError> {
    let expected = "`session_start` or `session_resume` message";
    let first = first_text(socket, app.options.first_message_ms, expected).await?;
    match SessionRequest::parse(&first)? {
        SessionRequest::Start(message) => start(app, message, sender).await,
        SessionRequest::Resume(message) => {
            resumed.clone_from(&message.session_id);
            let opened = resume(app, message, sender).await?;
            allow_languages(sender, opened.0.plan())?;
            Ok(opened)
        }
        _ => {
            let what = "the first message must be 'session_start' or 'session_resume'";
            Err(RequestError::invalid("type", what).into())
        }
    }
}

/// Refuses languages that the caller's grant does not list.
fn allow_languages(sender: &Sender, plan: &SessionPlan) -> Result<(), ApiError> {
    let Some(grant) = &sender.grant else { return Ok(()) };
    match plan.direction.pairs().find(|pair| !grant.allows(*pair)) {
        None => Ok(()),
        Some(pair) => {
            let detail = format!("the grant does not allow {pair}; ask for one that lists it");
            Err(ApiError::new(ErrorCode::Forbidden, detail).because(Refused::GrantLangs))
        }
    }
}

async fn start<S: Store, T: Timer>(
    app: &App<S, T>,
    message: SessionStart,
    sender: &Sender,
) -> Result<Opened<S, T>, ApiError> {
    let plan = message.into_plan()?;
    allow_languages(sender, &plan)?;
    let (sessions, resume_token) = (&app.sessions, new_token());
    let number = hex(new_number(app.engine.now_ms()));
    let session_id = format!("sess-{}", String::from_utf8_lossy(&number));
    let (id, secret) = (session_id.as_str().into(), TokenHash::of(&resume_token).bytes());
    let (token, tenant) = (sender.token.map(TokenHash::bytes), sender.tenant);
    let limited = sender.limited_token().map(Arc::new);
    let new = NewSession { id, secret, token, tenant, limited, plan };
    let session = sessions.start(new).await?;
    let (resume_ms, warning) = (sessions.options().resume_ms, session.warning().await);
    let started = SessionStarted { session_id, resume_token, resume_ms, ..Default::default() };
    Ok((session, SessionStarted { warning, ..started }))
}

async fn resume<S: Store, T: Timer>(
    app: &App<S, T>,
    message: SessionResume,
    sender: &Sender,
) -> Result<Opened<S, T>, ApiError> {
    let SessionResume { session_id, resume_token, last_seq } = message;
    let (sessions, secret) = (&app.sessions, TokenHash::of(&resume_token).bytes());
    let session = sessions.resume(&session_id, (&secret, sender.tenant), last_seq).await?;
    let (resume_ms, received) = (sessions.options().resume_ms, session.received());
    let started = SessionStarted {
        session_id,
        resume_token,
        resume_ms,
        resumed: true,
        received_ms: Some(received.open_turn_ms),
        turns: Some(received.turns),
        turn_open: Some(received.is_turn_open),
        warning: None,
    };
    Ok((session, started))
}

/// A client's socket with its session.
struct SessionSocket<'a, S: Store, T: Timer> {
    app: &'a App<S, T>,
    socket: WebSocket,
    session: ClientConnection<S, T>,
    voice: Option<VoiceDetector>,
    write_limit: Duration,
    messages: Pace,
    pings: Pace,
}

impl<S: Store, T: Timer> SessionSocket<'_, S, T> {
    async fn run(mut self, sender: &Sender) {
        let mut ping = tokio::time::interval(PING);
        let mut unanswered_pings = 0;
        let mut stop = self.app.stop.subscribe();
        let mut access = pin!(self.app.options.tokens.watch(sender).ended());
        let mut read_at = None;
        loop {
            let step = tokio::select! {
                frame = paced(&mut self.socket, read_at) => {
                    unanswered_pings = 0;
                    read_at = self.messages.take();
                    match frame {
                        Some(Ok(frame)) => self.on_frame(frame).await,
                        Some(Err(error)) => {
                            self.close_failed(&error).await;
                            Err(Closed)
                        }
                        None => Err(Closed),
                    }
                }
                output = self.session.next() => self.on_output(output).await,
                _ = ping.tick() => {
                    unanswered_pings += 1;
                    match unanswered_pings > UNANSWERED_PINGS {
                        true => Err(Closed),
                        false => self.send(Frame::Ping(Bytes::new())).await,
                    }
                }
                () = frames::stopped(&mut stop) => {
                    close(&mut self.socket, GOING_AWAY, "stopping").await;
                    Err(Closed)
                }
                error = &mut access => {
                    let error = self.app.access_ended(sender, "session socket", error);
                    close_with(&mut self.socket, &error).await;
                    Err(Closed)
                }
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// Tells a client why its frames cannot be read, if it can be told.
    async fn close_failed(&mut self, error: &axum::Error) {
        if let Some(error) = frames::too_big(error) {
            close_with(&mut self.socket, &error).await;
        } else if let Some((code, reason)) = frames::misframed(error) {
            close(&mut self.socket, code, reason).await;
        }
    }

    /// Sends a frame; disconnects a client that does not read within the limit.
    async fn send(&mut self, frame: Frame) -> Result<(), Closed> {
        match tokio::time::timeout(self.write_limit, self.socket.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Closed),
            Err(_) => {
                tracing::info!(session_id = %self.session.id(), "client does not read");
                Err(Closed)
            }
        }
    }

    async fn on_output(&mut self, output: SessionOutput) -> Result<(), Closed> {
        let frame = match output {
            SessionOutput::Accepted(id, job) => text(&messages::accepted(id, job)),
            SessionOutput::Partial(id, partial) => text(&messages::partial(id, &partial)),
            SessionOutput::Delivery(delivery) => Frame::Text(messages::delivery(delivery).into()),
            SessionOutput::Closed(reason) => {
                self.close(reason).await;
                return Err(Closed);
            }
        };
        self.send(frame).await
    }

    async fn close(&mut self, reason: CloseReason) {
        let error = match reason {
            CloseReason::Ended | CloseReason::Abandoned => {
                return close(&mut self.socket, NORMAL, "session_end").await;
            }
            CloseReason::Superseded => {
                let detail = "another connection has resumed this session";
                ApiError::new(ErrorCode::StaleEpoch, detail)
            }
            CloseReason::Idle => {
                let ms = self.app.sessions.options().idle_ms;
                let detail = format!("nothing was received for {ms} ms; start anew");
                ApiError::new(ErrorCode::SessionIdle, detail)
            }
        };
        close_with(&mut self.socket, &error).await;
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<(), Closed> {
        let taken = match frame {
            Frame::Text(message) => self.on_message(&message),
            Frame::Binary(audio) => self.on_audio(audio),
            Frame::Ping(_) | Frame::Pong(_) => match self.pings.take() {
                None => Ok(None),
                Some(_) => Err(frames::too_many_pings()),
            },
            Frame::Close(_) => {
                close(&mut self.socket, NORMAL, "").await;
                return Err(Closed);
            }
        };
        let failed = match taken {
            Ok(None) => return Ok(()),
            Ok(Some(reply)) => return self.send(reply).await,
            Err(failed) => failed,
        };
        if matches!(failed.code(), ErrorCode::RateLimited | ErrorCode::StaleEpoch) {
            close_with(&mut self.socket, &failed).await;
            return Err(Closed);
        }
        self.send(frames::error(&failed, false)).await
    }

    /// Takes a frame of audio. If there is no room for it, the client is told and may go on.
    fn on_audio(&mut self, audio: Bytes) -> Result<Option<Frame>, ApiError> {
        let (bytes, max) = (audio.len(), self.app.options.session.frame_bytes_max);
        if bytes > max {
            let detail = format!("the frame has {bytes} bytes; send at most {max} per frame");
            return Err(ApiError::new(ErrorCode::PayloadTooLarge, detail));
        }
        let is_speech = self.voice.as_mut().map(|voice| voice.is_speech(&audio));
        match self.session.audio(audio, is_speech) {
            Ok(()) => Ok(None),
            Err(refusal) => dropped(refusal),
        }
    }

    fn on_message(&mut self, message: &str) -> Result<Option<Frame>, ApiError> {
        let direction = self.session.plan().direction;
        match SessionRequest::parse(message)? {
            SessionRequest::TurnStart(turn) => {
                self.session.turn_start(parse_speaker(turn.speaker.as_deref(), direction)?)?;
            }
            SessionRequest::TurnEnd(_) => self.session.turn_end()?,
            SessionRequest::Text(turn) => {
                let speaker = parse_speaker(turn.speaker.as_deref(), direction)?;
                return self.session.text(&turn.text, speaker).map_or_else(dropped, |()| Ok(None));
            }
            SessionRequest::End(_) => self.session.end()?,
            SessionRequest::Start(_) | SessionRequest::Resume(_) => {
                let what = "this connection already has a session; open another connection";
                return Err(RequestError::invalid("type", what).into());
            }
        }
        Ok(None)
    }
}

/// What had no room was dropped: the client is told and may go on. Other refusals are errors.
fn dropped(refusal: SessionRefusal) -> Result<Option<Frame>, ApiError> {
    match refusal {
        full @ (SessionRefusal::NoRoom(_) | SessionRefusal::TooManySegments { .. }) => {
            Ok(Some(frames::error(&full.into(), false)))
        }
        refusal => Err(refusal.into()),
    }
}
