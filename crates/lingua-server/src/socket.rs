//! The node WebSocket.
//!
//! Start at [`upgrade`]. A node has a short time to register; then one task reads what it says and
//! writes what it is told. A node that does not read fast enough fills its outbox and is cut off; one
//! that says nothing for three heartbeats is cut off too.
//!
//! Invariant: when the connection ends, for whatever reason, the engine is told once.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use lingua_core::NodeId;
use lingua_engine::handle::{NodeRegistration, RegisteredNode};
use lingua_engine::node::ToNode;
use lingua_engine::{NodeError as Refused, Timer};
use lingua_store::Store;
use lingua_store::contract::LeaseKey;
use lingua_wire::node::{JobDone, JobRef, NodeMessage, embed_audio};
use lingua_wire::scheduler::{
    AudioEnd, Drain, ErrorMessage, HeartbeatAck, JobCancel, JobConfirmed, Registered, tag,
};
use lingua_wire::{ErrorCode, Message, RawJson, RequestError, to_json};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::app::{App, Shared};
use crate::convert;
use crate::metrics::Kind;
use crate::reply::ApiError;
use crate::routes::nodes::{log_steps, new_node_id, take_beat};

/// Bytes read at a time: with many idle nodes the usual 128 KiB would be most of the memory.
const READ_BUFFER_BYTES: usize = 4 << 10;

/// A node that is silent for this many heartbeats is gone.
const SILENT_BEATS: u32 = 3;

/// How long a node may keep a write waiting.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Most messages written before they are flushed.
const BATCH: usize = 64;

/// `GET /v1/node/ws`
pub(crate) async fn upgrade<S: Store, T: Timer>(
    app: Shared<S, T>,
    ws: WebSocketUpgrade,
) -> Response {
    let max = app.shared.options.frame_bytes_max;
    let app = app.0;
    ws.max_message_size(max)
        .max_frame_size(max)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(READ_BUFFER_BYTES)
        .max_write_buffer_size(2 * max)
        .on_upgrade(move |socket| async move {
            let open = app.shared.metrics.count_connection(Kind::Node);
            serve(&app, socket).await;
            drop(open);
        })
}

async fn serve<S: Store, T: Timer>(app: &App<S, T>, mut socket: WebSocket) {
    let wait = Duration::from_millis(app.shared.options.first_message_ms);
    let joined = tokio::time::timeout(wait, join(app, &mut socket)).await.unwrap_or_else(|_| {
        let ms = app.shared.options.first_message_ms;
        let detail =
            format!("no `register` message within {ms} ms; connect again and send it first");
        Err(ApiError::new(ErrorCode::InvalidRequest, detail))
    });
    let (node, joined, inbox) = match joined {
        Ok(joined) => joined,
        Err(failed) => return hang_up(&mut socket, &failed).await,
    };
    let hello = Registered {
        node_id: node.clone(),
        epoch: joined.place.epoch,
        heartbeat_interval_ms: joined.heartbeat_ms,
        pairs: joined.pairs as u64,
    };
    if socket.send(text(&hello)).await.is_ok() {
        let connection = Connection { app, node: node.clone(), socket, announced: None };
        connection.run(inbox, joined.heartbeat_ms).await;
    }
    // Not registered any more: a later connection has taken over, or it said goodbye.
    app.shared.engine.disconnect(&node, joined.place.epoch).await.ok();
    tracing::info!(node_id = %node, epoch = joined.place.epoch.0, "node disconnected");
}

type Member = (NodeId, RegisteredNode, mpsc::Receiver<ToNode>);

/// Waits for the node to introduce itself.
async fn join<S: Store, T: Timer>(
    app: &App<S, T>,
    socket: &mut WebSocket,
) -> Result<Member, ApiError> {
    let first = loop {
        match socket.next().await {
            Some(Ok(Frame::Text(first))) => break first,
            Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => {}
            _ => {
                let detail = "the first frame has to be a register message, as text";
                return Err(ApiError::new(ErrorCode::InvalidRequest, detail));
            }
        }
    };
    let NodeMessage::Register(register) = NodeMessage::parse(&first)? else {
        return Err(RequestError::invalid("type", "the first message has to be 'register'").into());
    };
    let parts = register.into_parts()?;
    tracing::info!(step = "register_start", "a node registers");
    let node = parts.node.unwrap_or_else(new_node_id);
    log_steps(&node, &parts.profile);
    let (outbox, inbox) = mpsc::channel(app.shared.engine.options().bounds.outbox_max);
    let (profile, health) = (Arc::new(parts.profile), parts.health);
    let version = parts.version.map(Into::into);
    let registration = NodeRegistration { node: node.clone(), profile, health, version, outbox };
    tracing::info!(step = "register_store_write", node_id = %node, "writing to the store");
    let joined = app.shared.engine.register(registration).await?;
    tracing::info!(step = "register_store_success", node_id = %node, "written");
    tracing::info!(step = "register_connection_registered", node_id = %node, "connection known");
    let epoch = joined.place.epoch.0;
    tracing::info!(step = "register_complete", node_id = %node, epoch, pairs = joined.pairs, "registered");
    Ok((node, joined, inbox))
}

fn job_ref(key: LeaseKey) -> JobRef {
    JobRef { job_id: key.job, attempt_id: key.attempt }
}

fn text<M: Message + Serialize>(message: &M) -> Frame {
    Frame::Text(to_json(message).into())
}

async fn hang_up(socket: &mut WebSocket, failed: &ApiError) {
    let error = ErrorMessage::new(failed.code(), failed.detail(), true);
    // A peer that is gone does not mind.
    socket.send(text(&error)).await.ok();
    let reason = failed.code().as_str().into();
    socket.send(Frame::Close(Some(CloseFrame { code: 1008, reason }))).await.ok();
}

/// A node that has registered.
struct Connection<'a, S, T> {
    app: &'a App<S, T>,
    node: NodeId,
    socket: WebSocket,
    /// A result whose audio is in the next frame.
    announced: Option<Announced>,
}

struct Announced {
    key: LeaseKey,
    report: lingua_core::job::AttemptReport,
    result: RawJson,
}

/// Why a connection ends.
struct Over;

/// A peer that does not read makes every write wait: not for ever.
async fn in_time(step: impl Future<Output = Result<(), Over>>) -> Result<(), Over> {
    let mut step = pin!(step);
    // Nearly always there is nothing to wait for, and no timer is needed.
    let at_once = poll_fn(|context| Poll::Ready(step.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(done) => done,
        Poll::Pending => tokio::time::timeout(WRITE_LIMIT, step).await.unwrap_or(Err(Over)),
    }
}

impl<S: Store, T: Timer> Connection<'_, S, T> {
    async fn run(mut self, mut inbox: mpsc::Receiver<ToNode>, heartbeat_ms: u64) {
        let beat = Duration::from_millis(heartbeat_ms);
        let mut ping = tokio::time::interval(beat);
        let mut silent_beats = 0;
        loop {
            let step = tokio::select! {
                frame = self.socket.next() => {
                    silent_beats = 0;
                    self.read_all(frame).await
                }
                order = inbox.recv() => match order {
                    Some(order) => {
                        // Whoever else is ready goes first: what they have for this node leaves in
                        // the same packet.
                        tokio::task::yield_now().await;
                        in_time(self.write(order, &mut inbox)).await
                    }
                    None => Err(Over),
                },
                _ = ping.tick() => {
                    silent_beats += 1;
                    in_time(self.ping(silent_beats)).await
                }
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// Reads this frame, and those that have come with it.
    async fn read_all(&mut self, first: Option<Result<Frame, axum::Error>>) -> Result<(), Over> {
        let mut next = first;
        for _ in 0..BATCH {
            match next {
                Some(Ok(frame)) => in_time(self.read(frame)).await?,
                Some(Err(error)) => {
                    tracing::debug!(node_id = %self.node, %error, "socket failed");
                    return Err(Over);
                }
                None => return Err(Over),
            }
            let ready = poll_fn(|context| Poll::Ready(self.socket.poll_next_unpin(context))).await;
            let Poll::Ready(frame) = ready else { return Ok(()) };
            next = frame;
        }
        // Too much at once: this one is read, and then others have their turn.
        match next {
            Some(Ok(frame)) => in_time(self.read(frame)).await,
            _ => Err(Over),
        }
    }

    /// Asks for a sign of life; gives up on a node that has given none for too long.
    async fn ping(&mut self, silent_beats: u32) -> Result<(), Over> {
        if silent_beats > SILENT_BEATS {
            tracing::info!(node_id = %self.node, "node is silent");
            return Err(Over);
        }
        self.socket.send(Frame::Ping(Bytes::new())).await.map_err(|_| Over)
    }

    /// Writes what has gathered, then flushes once.
    async fn write(
        &mut self,
        first: ToNode,
        inbox: &mut mpsc::Receiver<ToNode>,
    ) -> Result<(), Over> {
        let mut order = Some(first);
        for _ in 0..BATCH {
            let Some(next) = order.take().or_else(|| inbox.try_recv().ok()) else { break };
            self.tell(next).await?;
        }
        self.socket.flush().await.map_err(|_| Over)
    }

    async fn tell(&mut self, order: ToNode) -> Result<(), Over> {
        match order {
            ToNode::Assign(assignment) => {
                let now_ms = self.app.shared.engine.now_ms();
                self.feed(text(&convert::assign(&assignment, now_ms, false))).await?;
                let audio = if assignment.stream { None } else { assignment.request.audio() };
                match audio {
                    Some((_, _, audio)) => self.feed(Frame::Binary(audio)).await,
                    None => Ok(()),
                }
            }
            ToNode::Sound { key, sound } => {
                let tag = tag(job_ref(key));
                let bytes = sound.iter().map(Bytes::len).sum::<usize>();
                let mut frame = Vec::with_capacity(tag.len() + bytes);
                frame.extend_from_slice(&tag);
                sound.iter().for_each(|chunk| frame.extend_from_slice(chunk));
                self.feed(Frame::Binary(frame.into())).await
            }
            ToNode::SoundEnd { key, bytes } => {
                let (job_id, attempt_id) = (key.job, key.attempt);
                self.feed(text(&AudioEnd { job_id, attempt_id, bytes: bytes as u64 })).await
            }
            ToNode::Cancel { key, reason } => {
                let (job_id, attempt_id) = (key.job, key.attempt);
                self.feed(text(&JobCancel { job_id, attempt_id, reason: reason.into() })).await
            }
            ToNode::Confirmed { key, accepted } => self.confirm(key, accepted).await,
            ToNode::Drain => self.feed(text(&Drain {})).await,
            ToNode::Superseded => {
                let detail = "another connection registered with this node id; this one is over";
                let failed = ApiError::new(ErrorCode::StaleEpoch, detail);
                hang_up(&mut self.socket, &failed).await;
                Err(Over)
            }
        }
    }

    async fn feed(&mut self, frame: Frame) -> Result<(), Over> {
        self.socket.feed(frame).await.map_err(|_| Over)
    }

    async fn confirm(&mut self, key: LeaseKey, accepted: bool) -> Result<(), Over> {
        let (job_id, attempt_id) = (key.job, key.attempt);
        self.feed(text(&JobConfirmed { job_id, attempt_id, accepted })).await
    }

    async fn read(&mut self, frame: Frame) -> Result<(), Over> {
        let heard = match frame {
            Frame::Text(said) => self.hear(&said).await,
            Frame::Binary(audio) => self.hear_audio(&audio).await,
            Frame::Ping(_) | Frame::Pong(_) => return Ok(()),
            Frame::Close(_) => return Err(Over),
        };
        match heard {
            Ok(step) => step,
            Err(failed) => {
                let fatal = failed.code() == ErrorCode::StaleEpoch;
                let error = ErrorMessage::new(failed.code(), failed.detail(), fatal);
                self.socket.send(text(&error)).await.map_err(|_| Over)?;
                if fatal { Err(Over) } else { Ok(()) }
            }
        }
    }

    async fn hear(&mut self, said: &str) -> Result<Result<(), Over>, ApiError> {
        let engine = &self.app.shared.engine;
        if self.announced.take().is_some() {
            let what = "a binary frame was announced and did not follow";
            return Err(RequestError::invalid("result.tts_audio.bytes", what).into());
        }
        match NodeMessage::parse(said)? {
            NodeMessage::Heartbeat(beat) => {
                let (cancel, drain) = take_beat(self.app, &self.node, &beat).await?;
                let ack = HeartbeatAck { cancel, drain };
                return Ok(self.socket.send(text(&ack)).await.map_err(|_| Over));
            }
            NodeMessage::JobAck(ack) => {
                let report = ack.report(self.node.clone());
                engine.acked(ack.job_id, report, false).await?;
            }
            NodeMessage::JobDone(done) => return self.hear_done(done).await,
            NodeMessage::JobFail(fail) => {
                let key = LeaseKey { job: fail.job_id, attempt: fail.attempt_id };
                let (report, retryable) = (fail.report(self.node.clone()), fail.is_retryable());
                let reason = fail.reason.into_owned();
                let heard = engine.failed(fail.job_id, report, reason, retryable, false).await;
                return self.answer(key, heard).await;
            }
            NodeMessage::JobPartial(partial) => {
                engine.partial(partial.job_id, partial.report(self.node.clone()), &partial.text);
            }
            NodeMessage::Bye(_) => return Ok(Err(Over)),
            NodeMessage::Register(_) => {
                let what =
                    "this connection has registered already; change capabilities in a heartbeat";
                return Err(RequestError::invalid("type", what).into());
            }
        }
        Ok(Ok(()))
    }

    async fn hear_done(&mut self, done: JobDone<'_>) -> Result<Result<(), Over>, ApiError> {
        let key = LeaseKey { job: done.job_id, attempt: done.attempt_id };
        let report = done.report(self.node.clone());
        let frame_bytes = done.result()?.and_then(|result| result.frame_bytes());
        match (done.result, frame_bytes) {
            (Some(result), Some(_)) => {
                self.announced = Some(Announced { key, report, result });
                Ok(Ok(()))
            }
            (result, _) => {
                let result = convert::result(result);
                let heard = self.app.shared.engine.done(key.job, report, result, false).await;
                self.answer(key, heard).await
            }
        }
    }

    async fn hear_audio(&mut self, audio: &[u8]) -> Result<Result<(), Over>, ApiError> {
        let Some(Announced { key, report, result }) = self.announced.take() else {
            return Err(RequestError::invalid("", "a binary frame that nothing announced").into());
        };
        let result = convert::result(Some(embed_audio(&result, audio)?));
        let heard = self.app.shared.engine.done(key.job, report, result, false).await;
        self.answer(key, heard).await
    }

    /// Confirms a last word about a job that is over: the node need not keep it. A word that was
    /// heard is confirmed by the job itself.
    async fn answer(
        &mut self,
        key: LeaseKey,
        heard: Result<(), Refused>,
    ) -> Result<Result<(), Over>, ApiError> {
        match heard {
            Ok(()) => Ok(Ok(())),
            Err(Refused::Store(error)) => Err(Refused::Store(error).into()),
            Err(_) => {
                let told = self.confirm(key, false).await;
                Ok(match told {
                    Ok(()) => self.socket.flush().await.map_err(|_| Over),
                    over => over,
                })
            }
        }
    }
}
