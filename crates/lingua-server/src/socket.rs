//! The node WebSocket.
//!
//! Start at [`upgrade`]. A node has a short time to register. Then one task reads its messages and
//! writes the engine's. A node that does not read for [`WRITE_LIMIT`], or sends nothing for
//! [`SILENT_HEARTBEATS`] heartbeats, is disconnected.
//!
//! Invariant: when a registered connection ends, for whatever reason, the engine learns it once.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{FutureExt, SinkExt, StreamExt};
use lingua_core::NodeId;
use lingua_core::job::AttemptReport;
use lingua_engine::handle::{NodeRegistration, RegisteredNode};
use lingua_engine::node::ToNode;
use lingua_engine::{NodeError, Timer};
use lingua_store::Store;
use lingua_store::contract::LeaseKey;
use lingua_wire::node::{JobDone, NodeMessage, embed_audio};
use lingua_wire::scheduler::{
    AudioEnd, Drain, HeartbeatAck, JobCancel, JobConfirmed, Registered, tag,
};
use lingua_wire::{ErrorCode, RawJson, RequestError};
use tokio::sync::mpsc;

use crate::app::{App, Shared};
use crate::convert;
use crate::frames::{self, Closed, close_with, first_text, limited, text};
use crate::metrics::ConnectionCount;
use crate::reply::ApiError;
use crate::routes::nodes::{log_registered, pass_heartbeat, read_registration};

/// A node that sends nothing for this many heartbeat intervals, not even a pong, is disconnected.
const SILENT_HEARTBEATS: u32 = 3;

/// How long a write may wait for the node to read.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Most messages that are read before others are written, and written before they are flushed.
const BATCH: usize = 64;

/// `GET /v1/node/ws`
pub(crate) async fn upgrade<S: Store, T: Timer>(
    app: Shared<S, T>,
    ws: WebSocketUpgrade,
) -> Response {
    let max = app.options.frame_bytes_max;
    let app = app.0;
    limited(ws, max).max_write_buffer_size(2 * max).on_upgrade(move |socket| async move {
        let counted = ConnectionCount::new(&app.metrics.nodes);
        serve(&app, socket).await;
        drop(counted);
    })
}

async fn serve<S: Store, T: Timer>(app: &App<S, T>, mut socket: WebSocket) {
    let (node, registered, inbox) = match register(app, &mut socket).await {
        Ok(registered) => registered,
        Err(error) => return close_with(&mut socket, &error).await,
    };
    let epoch = registered.place.epoch;
    let reply = Registered {
        node_id: node.clone(),
        epoch,
        heartbeat_interval_ms: registered.heartbeat_ms,
        pairs: registered.pairs as u64,
    };
    if socket.send(text(&reply)).await.is_ok() {
        let connection = NodeConnection { app, node: node.clone(), socket, pending_result: None };
        connection.run(inbox, registered.heartbeat_ms).await;
    }
    // An error means that the node is no longer registered with this epoch.
    app.engine.disconnect(&node, epoch).await.ok();
    tracing::info!(node_id = %node, epoch = epoch.0, "node disconnected");
}

/// Reads the first message and registers the node.
async fn register<S: Store, T: Timer>(
    app: &App<S, T>,
    socket: &mut WebSocket,
) -> Result<(NodeId, RegisteredNode, mpsc::Receiver<ToNode>), ApiError> {
    let first = first_text(socket, app.options.first_message_ms, "`register` message").await?;
    let NodeMessage::Register(register) = NodeMessage::parse(&first)? else {
        return Err(RequestError::invalid("type", "the first message has to be 'register'").into());
    };
    let (node, profile, health, version) = read_registration(register)?;
    let (outbox, inbox) = mpsc::channel(app.engine.options().bounds.outbox_max);
    let registration = NodeRegistration { node: node.clone(), profile, health, version, outbox };
    let registered = app.engine.register(registration).await?;
    log_registered(&node, &registered);
    Ok((node, registered, inbox))
}

/// Fails if the node does not read.
async fn in_time(writing: impl Future<Output = Result<(), Closed>>) -> Result<(), Closed> {
    tokio::time::timeout(WRITE_LIMIT, writing).await.unwrap_or(Err(Closed))
}

/// The socket of a registered node.
struct NodeConnection<'a, S, T> {
    app: &'a App<S, T>,
    node: NodeId,
    socket: WebSocket,
    /// A result whose audio is the next frame.
    pending_result: Option<PendingResult>,
}

struct PendingResult {
    key: LeaseKey,
    report: AttemptReport,
    result: RawJson,
}

impl<S: Store, T: Timer> NodeConnection<'_, S, T> {
    async fn run(mut self, mut inbox: mpsc::Receiver<ToNode>, heartbeat_ms: u64) {
        let mut ping = tokio::time::interval(Duration::from_millis(heartbeat_ms));
        let mut silent_heartbeats = 0;
        loop {
            let step = tokio::select! {
                frame = self.socket.next() => {
                    silent_heartbeats = 0;
                    self.read_ready(frame).await
                }
                message = inbox.recv() => match message {
                    Some(message) => {
                        // Tasks that are ready run first: what they have for this node leaves in
                        // the same packet.
                        tokio::task::yield_now().await;
                        in_time(self.write_ready(message, &mut inbox)).await
                    }
                    None => Err(Closed),
                },
                _ = ping.tick() => {
                    silent_heartbeats += 1;
                    in_time(self.ping(silent_heartbeats)).await
                }
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// Reads this frame and those that have arrived already.
    async fn read_ready(
        &mut self,
        first: Option<Result<Frame, axum::Error>>,
    ) -> Result<(), Closed> {
        let mut frame = first;
        for _ in 0..BATCH {
            self.read(frame).await?;
            match self.socket.next().now_or_never() {
                Some(next) => frame = next,
                None => return Ok(()),
            }
        }
        self.read(frame).await
    }

    async fn read(&mut self, frame: Option<Result<Frame, axum::Error>>) -> Result<(), Closed> {
        match frame {
            Some(Ok(frame)) => in_time(self.on_frame(frame)).await,
            Some(Err(error)) => {
                tracing::debug!(node_id = %self.node, %error, "node socket failed");
                Err(Closed)
            }
            None => Err(Closed),
        }
    }

    async fn ping(&mut self, silent_heartbeats: u32) -> Result<(), Closed> {
        if silent_heartbeats > SILENT_HEARTBEATS {
            tracing::info!(node_id = %self.node, "node sends nothing; disconnecting it");
            return Err(Closed);
        }
        self.send(Frame::Ping(Bytes::new())).await
    }

    /// Writes this message and those that wait behind it, then flushes once.
    async fn write_ready(
        &mut self,
        first: ToNode,
        inbox: &mut mpsc::Receiver<ToNode>,
    ) -> Result<(), Closed> {
        let mut next = Some(first);
        for _ in 0..BATCH {
            let Some(message) = next.take().or_else(|| inbox.try_recv().ok()) else { break };
            self.write(message).await?;
        }
        self.socket.flush().await.map_err(|_| Closed)
    }

    async fn write(&mut self, message: ToNode) -> Result<(), Closed> {
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
            ToNode::Drain => text(&Drain {}),
            ToNode::Superseded => {
                let detail = "another connection registered this node id; this one is closed";
                let error = ApiError::new(ErrorCode::StaleEpoch, detail);
                close_with(&mut self.socket, &error).await;
                return Err(Closed);
            }
        };
        self.feed(frame).await
    }

    async fn feed(&mut self, frame: Frame) -> Result<(), Closed> {
        self.socket.feed(frame).await.map_err(|_| Closed)
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Closed> {
        self.socket.send(frame).await.map_err(|_| Closed)
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<(), Closed> {
        let reply = match frame {
            Frame::Text(message) => self.on_message(&message).await,
            Frame::Binary(audio) => self.on_audio(&audio).await,
            Frame::Ping(_) | Frame::Pong(_) => Ok(None),
            Frame::Close(_) => return Err(Closed),
        };
        match reply {
            Ok(None) => Ok(()),
            Ok(Some(Frame::Close(_))) => Err(Closed),
            Ok(Some(reply)) => self.send(reply).await,
            Err(error) => {
                let fatal = error.code() == ErrorCode::StaleEpoch;
                self.send(frames::error(&error, fatal)).await?;
                if fatal { Err(Closed) } else { Ok(()) }
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
                let (cancel, drain) = pass_heartbeat(self.app, &self.node, &heartbeat).await?;
                Ok(Some(text(&HeartbeatAck { cancel, drain })))
            }
            NodeMessage::JobAck(ack) => {
                engine.acked(ack.job_id, ack.report(self.node.clone()), false).await?;
                Ok(None)
            }
            NodeMessage::JobDone(done) => self.on_done(done).await,
            NodeMessage::JobFail(fail) => {
                let key = LeaseKey { job: fail.job_id, attempt: fail.attempt_id };
                let (report, retryable) = (fail.report(self.node.clone()), fail.is_retryable());
                let reason = fail.reason.into_owned();
                let handled = engine.failed(fail.job_id, report, reason, retryable, false).await;
                confirm_ended(key, handled)
            }
            NodeMessage::JobPartial(partial) => {
                engine.partial(partial.job_id, partial.report(self.node.clone()), &partial.text);
                Ok(None)
            }
            NodeMessage::Bye(_) => Ok(Some(Frame::Close(None))),
            NodeMessage::Register(_) => {
                let what = "this connection is registered; change capabilities in a heartbeat";
                Err(RequestError::invalid("type", what).into())
            }
        }
    }

    async fn on_done(&mut self, done: JobDone<'_>) -> Result<Option<Frame>, ApiError> {
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
        let result = convert::result(result);
        confirm_ended(key, self.app.engine.done(key.job, report, result, false).await)
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
