//! The session WebSocket: people speak, and hear the translation in the order spoken.
//!
//! | file | what |
//! |---|---|
//! | `compose.rs` | how a segment becomes a job |
//! | `voice.rs` | whether anybody speaks |
//! | `answer.rs` | what came of it, in the wire's words |
//!
//! Start at [`upgrade`]. The first message starts a session or goes on with one; then one task reads what the client says and
//! writes what it is told. A client that does not read fast enough is cut off; what it missed is kept until it resumes.
//!
//! Invariant: what is wrong with one frame is said and forgotten; nothing that was heard is lost by it.

mod answer;
mod compose;
mod voice;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures_util::StreamExt;
use lingua_core::id::hex;
use lingua_core::session::Format;
use lingua_engine::Timer;
use lingua_engine::session::{Attached, Holder, NewSession, Over, ToClient};
use lingua_store::Store;
use lingua_wire::session::{
    ErrorMessage, Plan, SessionMessage, SessionResume, SessionStart, SessionStarted,
};
use lingua_wire::{ErrorCode, Message, RequestError, to_json};
use serde::Serialize;

use crate::app::{App, Shared};
use crate::auth::{TokenHash, new_token};
use crate::metrics::Kind;
use crate::reply::ApiError;
use crate::routes::jobs::new_number;

pub(crate) use compose::Composer;
use voice::Voice;

/// Bytes read at a time.
const READ_BUFFER_BYTES: usize = 4 << 10;

/// Longest message: more than any frame of audio may have, so that one that is too long can be answered.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// How often a silent client is asked for a sign of life.
const PING: Duration = Duration::from_secs(15);

/// A client that gives none for so many times is gone.
const SILENT_PINGS: u32 = 3;

/// `GET /v1/session/ws`
pub(crate) async fn upgrade<S: Store, T: Timer>(
    app: Shared<S, T>,
    headers: HeaderMap,
    ws: WebSocketUpgrade,
) -> Response {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let holder = app.shared.options.tokens.holder(authorization).map(|(token, _)| token.bytes());
    let app = app.0;
    ws.max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(READ_BUFFER_BYTES)
        .on_upgrade(move |socket| async move {
            let open = app.shared.metrics.count_connection(Kind::Session);
            Box::pin(serve(&app, socket, holder)).await;
            drop(open);
        })
}

async fn serve<S: Store, T: Timer>(app: &App<S, T>, mut socket: WebSocket, holder: Option<Holder>) {
    let options = &app.shared.options;
    let wait = Duration::from_millis(options.first_message_ms);
    let joined = tokio::time::timeout(wait, join(app, &mut socket, holder)).await;
    let joined = joined.unwrap_or_else(|_| {
        let detail = "send session_start or session_resume first, and soon";
        Err(ApiError::new(ErrorCode::InvalidRequest, detail))
    });
    let (attached, plan, started) = match joined {
        Ok(joined) => joined,
        Err(failed) => return hang_up(&mut socket, failed.code(), failed.detail()).await,
    };
    if socket.send(text(&started)).await.is_err() {
        return;
    }
    tracing::debug!(session_id = %attached.id(), resumed = started.resumed, "session");
    let write_limit = Duration::from_millis(options.session.write_ms);
    let voice = match (options.session.rules.segments.silence_ms, plan.audio) {
        (Some(_), Format::Pcm16 { sample_rate }) => Some(Voice::new(sample_rate)),
        _ => None,
    };
    Connection { app, socket, attached, plan, voice, write_limit }.run().await;
}

type Joined<S, T> = (Attached<S, T>, Plan, SessionStarted<'static>);

/// Waits for the client to say what it wants.
async fn join<S: Store, T: Timer>(
    app: &App<S, T>,
    socket: &mut WebSocket,
    holder: Option<Holder>,
) -> Result<Joined<S, T>, ApiError> {
    let first = loop {
        match socket.next().await {
            Some(Ok(Frame::Text(first))) => break first,
            Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => {}
            _ => {
                let detail = "the first frame has to be session_start or session_resume, as text";
                return Err(ApiError::new(ErrorCode::InvalidRequest, detail));
            }
        }
    };
    match SessionMessage::parse(&first)? {
        SessionMessage::Start(start) => begin(app, start, first.as_bytes(), holder).await,
        SessionMessage::Resume(resume) => come_back(app, &resume).await,
        _ => {
            let what = "the first message has to be 'session_start' or 'session_resume'";
            Err(RequestError::invalid("type", what).into())
        }
    }
}

async fn begin<S: Store, T: Timer>(
    app: &App<S, T>,
    start: SessionStart<'_>,
    said: &[u8],
    holder: Option<Holder>,
) -> Result<Joined<S, T>, ApiError> {
    let plan = start.into_plan()?;
    let secret = new_token();
    let number = hex(new_number(app.shared.engine.now_ms()));
    let id = format!("sess-{}", String::from_utf8_lossy(&number));
    let new = NewSession {
        id: id.as_str().into(),
        secret: TokenHash::of(&secret).bytes(),
        holder,
        plan: Bytes::copy_from_slice(said),
        format: plan.audio,
        partials: plan.partials,
        context: plan.context,
    };
    let attached = app.shared.sessions.start(new).await?;
    let started = SessionStarted {
        session_id: id.into(),
        resume_token: secret.into(),
        resume_ms: app.shared.sessions.options().resume_ms,
        resumed: false,
    };
    Ok((attached, plan, started))
}

async fn come_back<S: Store, T: Timer>(
    app: &App<S, T>,
    resume: &SessionResume<'_>,
) -> Result<Joined<S, T>, ApiError> {
    let secret = TokenHash::of(&resume.resume_token).bytes();
    let sessions = &app.shared.sessions;
    let attached = sessions.resume(&resume.session_id, &secret, resume.last_seq).await?;
    let plan = compose::plan(attached.plan()).ok_or_else(|| {
        ApiError::new(ErrorCode::Internal, "what the session was started with cannot be read")
    })?;
    let started = SessionStarted {
        session_id: resume.session_id.clone().into_owned().into(),
        resume_token: resume.resume_token.clone().into_owned().into(),
        resume_ms: sessions.options().resume_ms,
        resumed: true,
    };
    Ok((attached, plan, started))
}

fn text<M: Message + Serialize>(message: &M) -> Frame {
    Frame::Text(to_json(message).into())
}

async fn hang_up(socket: &mut WebSocket, code: ErrorCode, detail: &str) {
    // A peer that is gone does not mind.
    socket.send(text(&ErrorMessage::new(code, detail, true))).await.ok();
    close(socket, 1008, code.as_str()).await;
}

async fn close(socket: &mut WebSocket, code: u16, reason: &str) {
    socket.send(Frame::Close(Some(CloseFrame { code, reason: reason.into() }))).await.ok();
}

/// The connection is over.
struct Ended;

/// A client with its session.
struct Connection<'a, S: Store, T: Timer> {
    app: &'a App<S, T>,
    socket: WebSocket,
    attached: Attached<S, T>,
    plan: Plan,
    voice: Option<Voice>,
    write_limit: Duration,
}

impl<S: Store, T: Timer> Connection<'_, S, T> {
    async fn run(mut self) {
        let mut ping = tokio::time::interval(PING);
        let mut silent_pings = 0;
        loop {
            let step = tokio::select! {
                frame = self.socket.next() => {
                    silent_pings = 0;
                    match frame {
                        Some(Ok(frame)) => self.hear(frame).await,
                        _ => Err(Ended),
                    }
                }
                told = self.attached.next() => self.tell(told).await,
                _ = ping.tick() => {
                    silent_pings += 1;
                    match silent_pings > SILENT_PINGS {
                        true => Err(Ended),
                        false => self.send(Frame::Ping(Bytes::new())).await,
                    }
                }
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// Sends a frame to a client that reads; one that does not is cut off.
    async fn send(&mut self, frame: Frame) -> Result<(), Ended> {
        match tokio::time::timeout(self.write_limit, self.socket.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Ended),
            Err(_) => {
                tracing::info!(session_id = %self.attached.id(), "client is too slow");
                Err(Ended)
            }
        }
    }

    async fn tell(&mut self, told: ToClient) -> Result<(), Ended> {
        let frame = match told {
            ToClient::Accepted(id, job) => text(&answer::accepted(id, job)),
            ToClient::Partial(id, said) => text(&answer::partial(id, &said)),
            ToClient::Delivered(delivered) => Frame::Text(answer::delivered(&delivered).into()),
            ToClient::Over(over) => {
                self.over(over).await;
                return Err(Ended);
            }
        };
        self.send(frame).await
    }

    async fn over(&mut self, over: Over) {
        let (code, detail) = match over {
            Over::Ended | Over::Away => return close(&mut self.socket, 1000, "session_end").await,
            Over::Superseded => {
                (ErrorCode::StaleEpoch, "another connection has resumed this session".to_owned())
            }
            Over::Idle => {
                let ms = self.app.shared.sessions.options().idle_ms;
                (ErrorCode::SessionIdle, format!("nothing was heard for {ms} ms; start a new one"))
            }
        };
        hang_up(&mut self.socket, code, &detail).await;
    }

    async fn hear(&mut self, frame: Frame) -> Result<(), Ended> {
        let heard = match &frame {
            Frame::Text(said) => self.hear_message(said),
            Frame::Binary(audio) => self.hear_audio(audio),
            Frame::Ping(_) | Frame::Pong(_) => Ok(()),
            Frame::Close(_) => return Err(Ended),
        };
        let Err(failed) = heard else { return Ok(()) };
        let fatal = matches!(failed.code(), ErrorCode::RateLimited | ErrorCode::StaleEpoch);
        if fatal {
            hang_up(&mut self.socket, failed.code(), failed.detail()).await;
            return Err(Ended);
        }
        self.send(text(&ErrorMessage::new(failed.code(), failed.detail(), false))).await
    }

    fn hear_audio(&mut self, audio: &[u8]) -> Result<(), ApiError> {
        let max = self.app.shared.options.session.frame_bytes_max;
        if audio.len() > max {
            let detail = format!(
                "the frame has {} bytes, at most {max} may be; send shorter ones",
                audio.len()
            );
            return Err(ApiError::new(ErrorCode::PayloadTooLarge, detail));
        }
        let is_speech = self.voice.as_mut().map(|voice| voice.hears(audio));
        Ok(self.attached.audio(audio, is_speech)?)
    }

    fn hear_message(&mut self, said: &str) -> Result<(), ApiError> {
        match SessionMessage::parse(said)? {
            SessionMessage::TurnStart(turn) => {
                let speaker = self.plan.speaker(turn.speaker.as_deref())?;
                self.attached.turn_start(speaker)?;
            }
            SessionMessage::TurnEnd(_) => self.attached.turn_end()?,
            SessionMessage::Text(turn) => {
                let speaker = self.plan.speaker(turn.speaker.as_deref())?;
                self.attached.text(&turn.text, speaker)?;
            }
            SessionMessage::End(_) => self.attached.end()?,
            SessionMessage::Start(_) | SessionMessage::Resume(_) => {
                let what = "this connection has its session already; open another connection";
                return Err(RequestError::invalid("type", what).into());
            }
        }
        Ok(())
    }
}

impl From<lingua_engine::session::SessionError> for ApiError {
    fn from(error: lingua_engine::session::SessionError) -> Self {
        Self::named(error.code(), error.to_string())
    }
}

/// What sessions are made with.
pub(crate) fn composer(default_wait_ms: u64) -> Arc<Composer> {
    Arc::new(Composer { wait_ms: default_wait_ms })
}
