//! The relay's side of a node's WebSocket.
//!
//! Start at [`upgrade`], then [`RelayLink::poll`]: it reads all that can be read, writes all that
//! waits, and then flushes once.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{SinkExt, StreamExt};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE as UPGRADE_TO,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use lingua_core::{Epoch, NodeId};
use lingua_wire::node::NodeMessage;
use lingua_wire::scheduler::{HeartbeatAck, JobConfirmed, Registered};
use lingua_wire::{Message, to_json};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message as Frame, Utf8Bytes};

use super::{Relay, RelayResponse, RelayedResult, json, wall_ms};

/// Bytes read at a time, as in the scheduler.
const READ_BUFFER_BYTES: usize = 4 << 10;

/// Most jobs that wait to be written to one node.
const OUTBOX_MAX: usize = 4096;

/// Heartbeat interval of nodes, as in the scheduler.
const HEARTBEAT_MS: u64 = 5_000;

/// `GET /v1/node/ws`
pub(super) fn upgrade(relay: Arc<Relay>, mut request: Request<Incoming>) -> RelayResponse {
    let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY) else {
        return json(StatusCode::BAD_REQUEST, "{}".to_owned());
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER_BYTES)
                .write_buffer_size(READ_BUFFER_BYTES);
            let io = TokioIo::new(upgraded);
            let ws = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            serve(relay, ws).await;
        }
    });
    let mut response = json(StatusCode::SWITCHING_PROTOCOLS, String::new());
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE_TO, HeaderValue::from_static("websocket"));
    if let Ok(accept) = accept {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

async fn serve(relay: Arc<Relay>, mut ws: WebSocketStream<TokioIo<Upgraded>>) {
    let Some(Ok(Frame::Text(first))) = ws.next().await else { return };
    let Ok(NodeMessage::Register(register)) = NodeMessage::parse(&first) else { return };
    let made_up = || NodeId::new(&format!("node-{:08X}", rand::random::<u32>())).ok();
    let Some(node) = register.node_id.or_else(made_up) else { return };
    let hello = Registered {
        node_id: node.clone(),
        epoch: Epoch(1),
        heartbeat_interval_ms: HEARTBEAT_MS,
        pairs: 0,
    };
    if ws.send(text(&hello)).await.is_err() {
        return;
    }
    let (outbox, inbox) = mpsc::channel(OUTBOX_MAX);
    relay.nodes.lock().connected.push((node.clone(), outbox));
    let mut link = RelayLink { relay: &relay, node: &node, ws, inbox, acked_ms: 0 };
    std::future::poll_fn(|context| link.poll(context)).await;
    relay.nodes.lock().connected.retain(|(name, _)| *name != node);
}

fn text<M: Message + Serialize>(message: &M) -> Frame {
    Frame::Text(to_json(message).into())
}

struct RelayLink<'a> {
    relay: &'a Relay,
    node: &'a NodeId,
    ws: WebSocketStream<TokioIo<Upgraded>>,
    inbox: mpsc::Receiver<Utf8Bytes>,
    /// When the node last acknowledged a job.
    acked_ms: u64,
}

impl RelayLink<'_> {
    /// Reads and writes until nothing is left to do; ready when the connection has ended. Tokio
    /// bounds how much a socket or a channel gives in one poll.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match ready!(self.ws.poll_ready_unpin(context)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(()),
            }
            let reply = match self.ws.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(Frame::Text(message)))) => match self.on_message(&message) {
                    Some(reply) => reply,
                    None => continue,
                },
                Poll::Ready(Some(Ok(Frame::Close(_)) | Err(_)) | None) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Pending => match self.inbox.poll_recv(context) {
                    Poll::Ready(Some(assign)) => Frame::Text(assign),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                },
            };
            if self.ws.start_send_unpin(reply).is_err() {
                return Poll::Ready(());
            }
        }
        match ready!(self.ws.poll_flush_unpin(context)) {
            Ok(()) => Poll::Pending,
            Err(_) => Poll::Ready(()),
        }
    }

    /// Handles a message; returns the reply to it.
    fn on_message(&mut self, message: &str) -> Option<Frame> {
        match NodeMessage::parse(message) {
            Ok(NodeMessage::Heartbeat(_)) => Some(text(&HeartbeatAck::default())),
            Ok(NodeMessage::JobAck(_)) => {
                self.acked_ms = wall_ms();
                None
            }
            Ok(NodeMessage::JobDone(done)) => {
                let waiting = self.relay.waiting.lock().remove(&done.job_id);
                let accepted = waiting.is_some();
                if let Some(waiting) = waiting {
                    // The client may be gone.
                    let finished = RelayedResult { acked_ms: self.acked_ms, result: done.result };
                    waiting.send(finished).ok();
                }
                let (job_id, attempt_id) = (done.job_id, done.attempt_id);
                Some(text(&JobConfirmed { job_id, attempt_id, accepted }))
            }
            Ok(NodeMessage::JobFail(fail)) => {
                // The client gets an error because the sender is dropped.
                self.relay.waiting.lock().remove(&fail.job_id);
                let (job_id, attempt_id) = (fail.job_id, fail.attempt_id);
                Some(text(&JobConfirmed { job_id, attempt_id, accepted: true }))
            }
            _ => {
                eprintln!("relay: unknown message of {}: {message}", self.node);
                None
            }
        }
    }
}
