//! The bare relay: the scheduler's sockets and messages without scheduling.
//!
//! Start at [`run`]. A job goes to the next connected node in turn, and its result to the client
//! that waits; the relay remembers only which client waits for which job. There are no slots,
//! leases, retries, timers, metrics, tokens or routes. The cost of scheduling is what a scheduler
//! takes beyond this, so the relay is as fast as we can make it: hyper without a router, one
//! thread, frames flushed in batches (`relay/socket.rs`).
//!
//! Invariant: it reads and writes the same messages as the scheduler, in the same types.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use lingua_core::job::JobState;
use lingua_core::{Attempt, Fence, InstanceId, JobId, NodeId};
use lingua_wire::client::Dispatch;
use lingua_wire::scheduler::{AssignOptions, JobAssign};
use lingua_wire::view::{AttemptView, JobView, Timings};
use lingua_wire::{ErrorBody, ErrorCode, RawJson, RequestError, parse, to_json};
use parking_lot::Mutex;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Utf8Bytes;

mod socket;

/// What the relay prints before its address.
pub(crate) const LISTENING: &str = "the relay listens on ";

/// Connections that may wait to be accepted, as in the scheduler.
const BACKLOG: u32 = 4096;

/// Longest body, as in the scheduler.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The deadline in a job's message, as in the scheduler.
const DEADLINE_MS: u64 = 60_000;

#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Relays until the process is killed.
pub(crate) async fn run(args: &RelayArgs) -> anyhow::Result<()> {
    let socket = TcpSocket::new_v4().context("no socket")?;
    let listener = socket.bind(args.listen).and_then(|()| socket.listen(BACKLOG));
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr().context("the listener has no address")?;
    let instance = InstanceId::new("relay").context("no name")?;
    let relay = Arc::new(Relay {
        instance,
        nodes: Mutex::default(),
        waiting: Mutex::default(),
        jobs: AtomicU64::new(1),
    });
    println!("{LISTENING}{address}");
    loop {
        // A connection that breaks before it is accepted is no reason to end.
        if let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).ok();
            tokio::spawn(serve_connection(Arc::clone(&relay), stream));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "messages carry the wall time")]
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[derive(Debug)]
struct Relay {
    instance: InstanceId,
    nodes: Mutex<RelayNodes>,
    waiting: Mutex<HashMap<JobId, oneshot::Sender<RelayedResult>>>,
    jobs: AtomicU64,
}

#[derive(Debug, Default)]
struct RelayNodes {
    connected: Vec<(NodeId, mpsc::Sender<Utf8Bytes>)>,
    next: usize,
}

/// How a job ended.
#[derive(Debug)]
struct RelayedResult {
    acked_ms: u64,
    result: Option<RawJson>,
}

async fn serve_connection(relay: Arc<Relay>, stream: TcpStream) {
    let service = service_fn(move |request| respond(Arc::clone(&relay), request));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A client that disconnects needs no reply.
    connection.with_upgrades().await.ok();
}

type RelayResponse = Response<Full<Bytes>>;

async fn respond(relay: Arc<Relay>, request: Request<Incoming>) -> hyper::Result<RelayResponse> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/translate") => {
            let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
            let done = match body {
                Ok(body) => relay.translate(&body.to_bytes()).await,
                Err(_) => Err(refused(RequestError::invalid("", "the body cannot be read"))),
            };
            Ok(match done {
                Ok(view) => json(StatusCode::OK, to_json(&view)),
                Err(failed) => json(StatusCode::SERVICE_UNAVAILABLE, to_json(&*failed)),
            })
        }
        (&Method::GET, "/v1/node/ws") => Ok(socket::upgrade(relay, request)),
        _ => Ok(json(StatusCode::NOT_FOUND, "{}".to_owned())),
    }
}

fn json(status: StatusCode, body: String) -> RelayResponse {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl Relay {
    async fn translate(&self, body: &[u8]) -> Result<JobView, Box<ErrorBody>> {
        let dispatch: Dispatch<'_> = parse(body).map_err(refused)?;
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        let job = JobId::new(u128::from(number));
        let trace: Cow<'_, str> =
            dispatch.trace_id.unwrap_or_else(|| format!("{number:032x}").into());
        let language = |_| refused(RequestError::invalid("src_lang", "not a language"));
        let assign = JobAssign {
            job_id: job,
            attempt_id: Attempt(1),
            fence: Fence(number),
            session_id: dispatch.session_id.unwrap_or(Cow::Borrowed("none")),
            src_lang: dispatch.src_lang.parse().map_err(language)?,
            tgt_lang: dispatch.tgt_lang.parse().map_err(language)?,
            audio_ref: dispatch.audio_ref,
            audio: None,
            text: dispatch.text,
            options: AssignOptions::default(),
            deadline_ms: Some(DEADLINE_MS),
            bind: None,
            two_way: None,
            context: vec![],
            trace_id: trace,
        };
        let created_ms = wall_ms();
        let (node, finished) = self.send(&assign)?;
        let Ok(RelayedResult { acked_ms, result }) = finished.await else {
            return Err(no_node("the node left before it was done"));
        };
        let ended_ms = wall_ms();
        let since = |ms: u64| Some(ms.saturating_sub(created_ms));
        Ok(JobView {
            job_id: job,
            state: JobState::Done,
            session_id: Some(assign.session_id.into_owned()),
            src_lang: assign.src_lang,
            tgt_lang: assign.tgt_lang,
            served_as: None,
            node_id: Some(node.clone()),
            attempt_id: Attempt(1),
            instance_id: Some(self.instance.clone()),
            trace_id: Some(assign.trace_id.into_owned()),
            attempts: vec![AttemptView {
                attempt_id: Attempt(1),
                node_id: Some(node),
                state: JobState::Done,
                reason: None,
                reserved_ms: Some(created_ms),
                dispatched_ms: Some(created_ms),
                acked_ms: Some(acked_ms),
                ended_ms: Some(ended_ms),
            }],
            timings: Timings {
                queue_ms: Some(0),
                dispatch_ms: Some(0),
                ack_ms: since(acked_ms),
                run_ms: since(ended_ms),
                total_ms: since(ended_ms),
            },
            partial: None,
            result,
            error: None,
            detail: None,
            created_ms,
            updated_ms: ended_ms,
            deadline_at_ms: None,
        })
    }

    /// Sends the job to the next node; the receiver gets its result.
    fn send(
        &self,
        assign: &JobAssign<'_>,
    ) -> Result<(NodeId, oneshot::Receiver<RelayedResult>), Box<ErrorBody>> {
        let (done, finished) = oneshot::channel();
        let frame = Utf8Bytes::from(to_json(assign));
        // Before it is sent: the result must not come first.
        self.waiting.lock().insert(assign.job_id, done);
        let mut nodes = self.nodes.lock();
        let number = nodes.next;
        nodes.next = number.wrapping_add(1);
        let count = nodes.connected.len();
        let next = number.checked_rem(count).and_then(|index| nodes.connected.get(index));
        match next {
            Some((node, outbox)) if outbox.try_send(frame).is_ok() => Ok((node.clone(), finished)),
            _ => {
                self.waiting.lock().remove(&assign.job_id);
                Err(no_node("no node is connected, or it does not read"))
            }
        }
    }
}

fn refused(error: RequestError) -> Box<ErrorBody> {
    Box::new(error.into())
}

fn no_node(detail: &str) -> Box<ErrorBody> {
    Box::new(ErrorBody::new(ErrorCode::NoCapableNode, detail))
}
