//! The node WebSocket.
//!
//! Start at [`upgrade`]. A node has a short time to register. Then one task reads its messages and
//! writes the engine's. A node that does not read for [`WRITE_LIMIT`], or sends nothing for
//! [`SILENT_HEARTBEATS`] heartbeats, is disconnected.
//!
//! Invariant: when a registered connection ends, for whatever reason, the engine learns it once.

use std::pin::pin;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{FutureExt, SinkExt, StreamExt};
use lingua_core::job::AttemptReport;
use lingua_core::{NodeId, NodeState};
use lingua_engine::node::{RegisteredNode, ToNode};
use lingua_engine::{NodeError, Timer};
use lingua_store::Store;
use lingua_store::contract::LeaseKey;
use lingua_wire::node::{JobDone, NodeMessage, embed_audio};
use lingua_wire::scheduler::{
    AudioEnd, Drain, HeartbeatAck, JobCancel, JobConfirmed, Registered, tag,
};
use lingua_wire::{ErrorCode, RawJson, RequestError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument;

use crate::app::{App, Shared};
use crate::auth::Sender;
use crate::convert;
use crate::frames::{
    self, Closed, GOING_AWAY, NORMAL, close, close_with, first_text, limited, paced, text,
};
use crate::metrics::{ConnectionCount, Refused};
use crate::pace::Pace;
use crate::reply::ApiError;
use crate::routes::nodes::{RegistrationLog, pass_heartbeat};

/// A node that sends nothing for this many heartbeat intervals, not even a pong, is disconnected.
const SILENT_HEARTBEATS: u32 = 3;

/// How long a write may wait for the node to read.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Most messages that are read before others are written, and written before they are flushed.
const BATCH: usize = 64;

/// `GET /v1/node/ws`
pub(crate) async fn upgrade<S: Store, T: Timer>(
    app: Shared<S, T>,
    Extension(sender): Extension<Sender>,
    ws: WebSocketUpgrade,
) -> Response {
    let max = app.options.frame_bytes_max;
    let app = app.0;
    // The lines about the node name the request that opened its socket.
    let span = tracing::Span::current();
    limited(ws, max, max).on_upgrade(move |socket| {
        let served = async move {
            let counted = ConnectionCount::new(&app.metrics.nodes);
            serve(&app, socket, &sender).await;
            drop(counted);
        };
        served.instrument(span)
    })
}

async fn serve<S: Store, T: Timer>(app: &App<S, T>, mut socket: WebSocket, sender: &Sender) {
    let mut log = RegistrationLog::start();
    let (node, registered, channel) = match register(app, &mut socket, sender, &mut log).await {
        Ok(registered) => registered,
        Err(error) => {
            log.refused(app, &error);
            app.record_refusal(sender, "register on a socket", log.node_id(), &error);
            return close_with(&mut socket, &error).await;
        }
    };
    let epoch = registered.place.epoch;
    let (outbox, inbox) = channel;
    let ending = match socket.send(registered_frame(&node, &registered)).await {
        Ok(()) => {
            let connection = NodeConnection {
                app,
                sender,
                node: node.clone(),
                outbox,
                socket: &mut socket,
                pending_result: None,
                is_renewed: true,
                messages: Pace::of_messages(app.options.node_messages_per_second),
                pings: Pace::of_pings(),
            };
            connection.run(inbox, registered.heartbeat_ms).await
        }
        Err(_) => Ending::Gone,
    };
    // Before the peer has closed its side: its jobs must not wait for that. An error means that
    // the node is no longer registered with this connection.
    app.engine.disconnect(&node, epoch).await.ok();
    tracing::info!(node_id = %node, epoch = epoch.0, "node disconnected");
    match ending {
        Ending::Gone => {}
        Ending::Close(code, reason) => close(&mut socket, code, reason).await,
        Ending::Failed(error) => close_with(&mut socket, &error).await,
    }
}

/// Why a node's connection ends, and what the node is told.
enum Ending {
    /// It cannot be told anything.
    Gone,
    /// A close frame with this code and reason.
    Close(u16, &'static str),
    /// An error, then a close frame.
    Failed(Box<ApiError>),
}

impl From<Closed> for Ending {
    fn from(_: Closed) -> Self {
        Self::Gone
    }
}

type Channel = (mpsc::WeakSender<ToNode>, mpsc::Receiver<ToNode>);

fn registered_frame(node: &NodeId, registered: &RegisteredNode) -> Frame {
    text(&Registered {
        node_id: node.clone(),
        epoch: registered.place.epoch,
        heartbeat_interval_ms: registered.heartbeat_ms,
        pairs: registered.pairs as u64,
    })
}

/// Reads the first message and registers the node.
async fn register<S: Store, T: Timer>(
    app: &App<S, T>,
    socket: &mut WebSocket,
    sender: &Sender,
    log: &mut RegistrationLog,
) -> Result<(NodeId, RegisteredNode, Channel), ApiError> {
    let first = first_text(socket, app.options.first_message_ms, "`register` message").await?;
    let NodeMessage::Register(register) = NodeMessage::parse(&first)? else {
        let detail = "this connection has no node yet; send `register` first";
        return Err(ApiError::new(ErrorCode::NodeNotRegistered, detail));
    };
    let (outbox, inbox) = mpsc::channel(app.engine.options().bounds.outbox_max);
    let weak = outbox.downgrade();
    let registration = log.check(app, register, sender, outbox)?;
    let node = registration.node.clone();
    let registered = app.engine.register(registration).await?;
    log.complete(&node, &registered);
    Ok((node, registered, (weak, inbox)))
}

/// Fails if the node does not read.
async fn in_time<E: From<Closed>>(writing: impl Future<Output = Result<(), E>>) -> Result<(), E> {
    tokio::time::timeout(WRITE_LIMIT, writing).await.unwrap_or(Err(Closed.into()))
}

/// The socket of a registered node.
struct NodeConnection<'a, S, T> {
    app: &'a App<S, T>,
    sender: &'a Sender,
    node: NodeId,
    /// Not a sender of its own: when the engine drops the node, the inbox ends.
    outbox: mpsc::WeakSender<ToNode>,
    socket: &'a mut WebSocket,
    /// A result whose audio is the next frame.
    pending_result: Option<PendingResult>,
    /// Whether a heartbeat has come since the last ping.
    is_renewed: bool,
    messages: Pace,
    pings: Pace,
}

struct PendingResult {
    key: LeaseKey,
    report: AttemptReport,
    result: RawJson,
}

impl<S: Store, T: Timer> NodeConnection<'_, S, T> {
    async fn run(mut self, mut inbox: mpsc::Receiver<ToNode>, heartbeat_ms: u64) -> Ending {
        let mut ping = tokio::time::interval(Duration::from_millis(heartbeat_ms));
        let mut silent_heartbeats = 0;
        let mut stop = self.app.stop.subscribe();
        let mut access = pin!(self.app.options.tokens.watch(self.sender).ended());
        let mut read_at = None;
        loop {
            let step = tokio::select! {
                frame = paced(self.socket, read_at) => {
                    silent_heartbeats = 0;
                    self.read_ready(frame, &mut read_at).await
                }
                message = inbox.recv() => match message {
                    Some(message) => {
                        // Tasks that are ready run first: what they have for this node leaves in
                        // the same packet.
                        tokio::task::yield_now().await;
                        in_time(self.write_ready(message, &mut inbox)).await
                    }
                    // It was signed off elsewhere.
                    None => Err(Ending::Failed(Box::new(NodeError::NotRegistered.into()))),
                },
                _ = ping.tick() => {
                    silent_heartbeats += 1;
                    in_time(self.ping(silent_heartbeats)).await
                }
                () = frames::stopped(&mut stop) => Err(Ending::Close(GOING_AWAY, "stopping")),
                error = &mut access => {
                    let error = self.app.access_ended(self.sender, "node socket", error);
                    Err(Ending::Failed(Box::new(error)))
                }
            };
            if let Err(ending) = step {
                return ending;
            }
        }
    }

    /// Reads this frame and those that have arrived already; says when to read on if the node
    /// sends too fast.
    async fn read_ready(
        &mut self,
        first: Option<Result<Frame, axum::Error>>,
        read_at: &mut Option<Instant>,
    ) -> Result<(), Ending> {
        let mut frame = first;
        for _ in 0..BATCH {
            self.read(frame).await?;
            *read_at = self.messages.take();
            if read_at.is_some() {
                return Ok(());
            }
            match self.socket.next().now_or_never() {
                Some(next) => frame = next,
                None => return Ok(()),
            }
        }
        self.read(frame).await
    }

    async fn read(&mut self, frame: Option<Result<Frame, axum::Error>>) -> Result<(), Ending> {
        match frame {
            Some(Ok(frame)) => in_time(self.on_frame(frame)).await,
            Some(Err(error)) => {
                tracing::debug!(node_id = %self.node, %error, "node socket failed");
                Err(match (frames::too_big(&error), frames::misframed(&error)) {
                    (Some(error), _) => Ending::Failed(Box::new(error)),
                    (None, Some((code, reason))) => Ending::Close(code, reason),
                    (None, None) => Ending::Gone,
                })
            }
            None => Err(Ending::Gone),
        }
    }

    /// Pings the node. If it has answered the last ping and sent no heartbeat since, that answer
    /// is its sign of life.
    async fn ping(&mut self, silent_heartbeats: u32) -> Result<(), Ending> {
        if silent_heartbeats > SILENT_HEARTBEATS {
            tracing::info!(node_id = %self.node, "node sends nothing; disconnecting it");
            return Err(Ending::Gone);
        }
        if !std::mem::take(&mut self.is_renewed) && silent_heartbeats == 1 {
            self.app.engine.touch_later(&self.node);
        }
        Ok(self.send(Frame::Ping(Bytes::new())).await?)
    }

    /// Writes this message and those that wait behind it, then flushes once.
    async fn write_ready(
        &mut self,
        first: ToNode,
        inbox: &mut mpsc::Receiver<ToNode>,
    ) -> Result<(), Ending> {
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(message) = next.take().or_else(|| inbox.try_recv().ok()) else { break };
            self.write(message).await?;
        }
        self.socket.flush().await.map_err(|_| Ending::Gone)
    }

    async fn write(&mut self, message: ToNode) -> Result<(), Ending> {
        let frame = match message {
            ToNode::Assign(assignment) => {
                let now_ms = self.app.engine.now_ms();
                self.feed(text(&convert::assign(&assignment, now_ms, false))).await?;
                match assignment.request.audio() {
                    Some((_, _, audio)) if !assignment.stream => Frame::Binary(audio),
                    _ => return Ok(()),
                }
            }
            ToNode::Sound { key, sound } => {
                let tag = tag(convert::job_ref(key));
                let bytes = sound.iter().map(Bytes::len).sum::<usize>();
                let mut frame = Vec::with_capacity(tag.len() + bytes);
                frame.extend_from_slice(&tag);
                sound.iter().for_each(|chunk| frame.extend_from_slice(chunk));
                Frame::Binary(frame.into())
            }
            ToNode::SoundEnd { key: LeaseKey { job, attempt }, bytes } => {
                text(&AudioEnd { job_id: job, attempt_id: attempt, bytes: bytes as u64 })
            }
            ToNode::Cancel { key: LeaseKey { job, attempt }, reason } => {
                text(&JobCancel { job_id: job, attempt_id: attempt, reason: reason.into() })
            }
            ToNode::Confirmed { key, accepted } => confirmation(key, accepted),
            ToNode::AckRefused { key, why } => {
                let detail = format!("ack of {} attempt {}: {why}", key.job, key.attempt);
                frames::error(&ApiError::new(ErrorCode::StaleAttempt, detail), false)
            }
            ToNode::Registered(registered) => registered_frame(&self.node, &registered),
            ToNode::Drain => text(&Drain {}),
            ToNode::Superseded => {
                let detail = "another connection registered this node id; this one is closed";
                let error = ApiError::new(ErrorCode::StaleEpoch, detail);
                return Err(Ending::Failed(Box::new(error)));
            }
        };
        Ok(self.feed(frame).await?)
    }

    async fn feed(&mut self, frame: Frame) -> Result<(), Closed> {
        self.socket.feed(frame).await.map_err(|_| Closed)
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Closed> {
        self.socket.send(frame).await.map_err(|_| Closed)
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<(), Ending> {
        let reply = match frame {
            Frame::Text(message) => self.on_message(&message).await,
            Frame::Binary(audio) => self.on_audio(&audio).await,
            Frame::Ping(_) | Frame::Pong(_) => match self.pings.take() {
                None => Ok(None),
                Some(_) => return Err(Ending::Failed(Box::new(frames::too_many_pings()))),
            },
            Frame::Close(_) => return Err(Ending::Close(NORMAL, "")),
        };
        match reply {
            Ok(None) => Ok(()),
            Ok(Some(Frame::Close(_))) => Err(Ending::Close(NORMAL, "bye")),
            Ok(Some(reply)) => Ok(self.send(reply).await?),
            Err(error) => {
                let is_over =
                    matches!(error.code(), ErrorCode::StaleEpoch | ErrorCode::NodeNotRegistered);
                if is_over {
                    return Err(Ending::Failed(Box::new(error)));
                }
                Ok(self.send(frames::error(&error, false)).await?)
            }
        }
    }

    /// Passes a message to the engine; returns the reply, if it has one.
    async fn on_message(&mut self, message: &str) -> Result<Option<Frame>, ApiError> {
        let engine = &self.app.engine;
        if self.pending_result.take().is_some() {
            let what = "a binary frame has to follow the message that announces it";
            return Err(RequestError::invalid("result.tts_audio.bytes", what).into());
        }
        match NodeMessage::parse(message)? {
            NodeMessage::Heartbeat(heartbeat) => {
                self.is_own(heartbeat.node_id.as_ref())?;
                let (cancel, drain) =
                    pass_heartbeat(self.app, self.sender, &self.node, &heartbeat).await?;
                self.is_renewed = true;
                let ack = text(&HeartbeatAck { cancel, drain });
                if heartbeat.health == Some(NodeState::Offline) {
                    // If the node is gone, it needs no answer.
                    self.send(ack).await.ok();
                    return Ok(Some(Frame::Close(None)));
                }
                Ok(Some(ack))
            }
            NodeMessage::JobAck(ack) => {
                self.is_own(ack.node_id.as_ref())?;
                engine.acked(ack.job_id, ack.report(self.node.clone()), false).await?;
                Ok(None)
            }
            NodeMessage::JobDone(done) => self.on_done(done).await,
            NodeMessage::JobFail(fail) => {
                self.is_own(fail.node_id.as_ref())?;
                let key = LeaseKey { job: fail.job_id, attempt: fail.attempt_id };
                let (report, retryable) = (fail.report(self.node.clone()), fail.is_retryable());
                let reason = fail.reason.into_owned();
                let handled = engine.failed(fail.job_id, report, reason, retryable, false).await;
                confirm_ended(key, handled)
            }
            NodeMessage::JobPartial(partial) => {
                self.is_own(partial.node_id.as_ref())?;
                engine.partial(partial.job_id, partial.report(self.node.clone()), &partial.text);
                Ok(None)
            }
            NodeMessage::Bye(_) => Ok(Some(Frame::Close(None))),
            NodeMessage::Register(mut register) => {
                self.is_own(register.node_id.as_ref())?;
                register.node_id = Some(self.node.clone());
                let outbox = self.outbox.upgrade().ok_or(NodeError::NotRegistered)?;
                let mut log = RegistrationLog::start();
                let registration = log.check(self.app, register, self.sender, outbox)?;
                let registered = engine.register_again(registration).await?;
                log.complete(&self.node, &registered);
                self.is_renewed = true;
                Ok(Some(registered_frame(&self.node, &registered)))
            }
        }
    }

    /// A connection speaks for its own node only.
    fn is_own(&self, named: Option<&NodeId>) -> Result<(), ApiError> {
        match named {
            Some(named) if *named != self.node => {
                let what = format!(
                    "this connection belongs to node '{}', not to '{named}'; leave node_id out, \
                     or open a connection of its own",
                    self.node
                );
                let error = ApiError::from(RequestError::invalid("node_id", &what));
                let error = error.because(Refused::OtherNode);
                let action = "speak for another node";
                self.app.record_refusal(self.sender, action, named.as_str(), &error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    async fn on_done(&mut self, done: JobDone<'_>) -> Result<Option<Frame>, ApiError> {
        self.is_own(done.node_id.as_ref())?;
        let key = LeaseKey { job: done.job_id, attempt: done.attempt_id };
        let report = done.report(self.node.clone());
        let audio_bytes = done.result()?.and_then(|result| result.frame_bytes());
        match (done.result, audio_bytes) {
            (Some(result), Some(_)) => {
                self.pending_result = Some(PendingResult { key, report, result });
                Ok(None)
            }
            (result, _) => self.finish(key, report, result).await,
        }
    }

    async fn on_audio(&mut self, audio: &[u8]) -> Result<Option<Frame>, ApiError> {
        let Some(PendingResult { key, report, result }) = self.pending_result.take() else {
            let what = "no message announced this binary frame; send `job_done` with \
                        result.tts_audio.bytes first";
            return Err(RequestError::invalid("", what).into());
        };
        self.finish(key, report, Some(embed_audio(&result, audio)?)).await
    }

    async fn finish(
        &mut self,
        key: LeaseKey,
        report: AttemptReport,
        result: Option<RawJson>,
    ) -> Result<Option<Frame>, ApiError> {
        let output = convert::output(result)?;
        confirm_ended(key, self.app.engine.done(key.job, report, output, false).await)
    }
}

/// Confirms a report about a job that has ended, so that the node does not repeat it. The job
/// itself confirms a report that it accepts.
fn confirm_ended(key: LeaseKey, handled: Result<(), NodeError>) -> Result<Option<Frame>, ApiError> {
    match handled {
        Ok(()) => Ok(None),
        Err(error @ NodeError::Store(_)) => Err(error.into()),
        Err(_) => Ok(Some(confirmation(key, false))),
    }
}

fn confirmation(key: LeaseKey, accepted: bool) -> Frame {
    text(&JobConfirmed { job_id: key.job, attempt_id: key.attempt, accepted })
}
