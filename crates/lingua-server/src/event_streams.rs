//! The streams of `GET /v1/events`.
//!
//! Start at [`EventStreams::open`]. One task takes the engine's events, encodes each once and hands
//! them to all streams in batches, so that a busy fleet costs a stream [`BATCH`] apart one write,
//! not one for each event.
//!
//! Invariants: at most `max` streams are open, and at most `per_caller_max` of one caller; a stream
//! that is more than [`BATCHES_MAX`] batches behind gets `gap` in place of what it missed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::BytesMut;
use futures_util::{StreamExt, stream};
use lingua_engine::events::EngineEvent;
use lingua_wire::view::{JobUpdate, JobUpdateKind, LeaderUpdate, NodeUpdate, PoolUpdate};
use lingua_wire::{ErrorCode, Message, to_json};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use crate::limit::RateLimitKey;
use crate::reply::{ApiError, text};

/// Least time between two batches.
const BATCH: Duration = Duration::from_millis(50);

/// Most batches that wait for a stream.
const BATCHES_MAX: usize = 64;

/// How often a stream without events gets a comment, so that nobody takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Some events were lost.
const GAP: &[u8] = b"event: gap\ndata: {}\n\n";

/// Events with their encoded form.
type Batch = Arc<Vec<(Option<EngineEvent>, Bytes)>>;

/// All open streams.
#[derive(Debug)]
pub(crate) struct EventStreams {
    max: usize,
    per_caller_max: usize,
    batches: broadcast::Sender<Batch>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    open_of: HashMap<RateLimitKey, usize>,
    /// Whether the task that encodes runs.
    is_encoding: bool,
}

impl EventStreams {
    pub(crate) fn new(max: usize, per_caller_max: usize) -> Arc<Self> {
        let (batches, _) = broadcast::channel(BATCHES_MAX);
        Arc::new(Self { max, per_caller_max, batches, state: Mutex::default() })
    }

    /// Opens a stream of those events from now on that its caller sees, until `ended`. The stream
    /// holds `held`.
    pub(crate) fn open(
        self: &Arc<Self>,
        caller: RateLimitKey,
        held: impl Send + 'static,
        events: impl FnOnce() -> broadcast::Receiver<EngineEvent>,
        ended: impl Future<Output = ()> + Send + 'static,
        sees: impl Fn(&EngineEvent) -> bool + Send + Sync + 'static,
    ) -> Result<Response, ApiError> {
        let mut state = self.state.lock();
        let of_caller = state.open_of.get(&caller).copied().unwrap_or(0);
        if state.open >= self.max || of_caller >= self.per_caller_max {
            let (max, own) = (self.max, self.per_caller_max);
            let detail = format!(
                "too many event streams are open: {max} are allowed here, {own} of one caller; \
                 close one"
            );
            return Err(ApiError::new(ErrorCode::RateLimited, detail));
        }
        state.open += 1;
        *state.open_of.entry(caller).or_default() += 1;
        let batches = self.batches.subscribe();
        if !std::mem::replace(&mut state.is_encoding, true) {
            tokio::spawn(Arc::clone(self).encode(events()));
        }
        drop(state);
        let place = (OpenStream { streams: Arc::clone(self), caller }, held);
        let parts = stream::unfold((batches, place, sees), |(mut batches, place, sees)| async {
            let part = next_part(&mut batches, &sees).await?;
            Some((Ok::<_, Infallible>(part), (batches, place, sees)))
        });
        let body = Body::from_stream(parts.take_until(ended));
        let mut response = text(StatusCode::OK, "text/event-stream", body);
        let no_cache = header::HeaderValue::from_static("no-cache");
        response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
        Ok(response)
    }

    /// Encodes events for all streams, until none is open.
    async fn encode(self: Arc<Self>, mut events: broadcast::Receiver<EngineEvent>) {
        let mut next_at = Instant::now();
        loop {
            let mut received = Some(events.recv().await);
            tokio::time::sleep_until(next_at).await;
            let mut batch = vec![];
            while let Some(event) = received.take() {
                match event {
                    Ok(event) => {
                        let bytes = encoded(&event);
                        batch.push((Some(event), bytes));
                    }
                    Err(RecvError::Lagged(_)) => batch.push((None, Bytes::from_static(GAP))),
                    Err(RecvError::Closed) => return,
                }
                received = match events.try_recv() {
                    Ok(event) => Some(Ok(event)),
                    Err(broadcast::error::TryRecvError::Lagged(n)) => {
                        Some(Err(RecvError::Lagged(n)))
                    }
                    Err(_) => None,
                };
            }
            next_at = Instant::now() + BATCH;
            let mut state = self.state.lock();
            if state.open == 0 {
                state.is_encoding = false;
                return;
            }
            self.batches.send(Arc::new(batch)).ok();
        }
    }
}

/// A stream that is open until this is dropped.
struct OpenStream {
    streams: Arc<EventStreams>,
    caller: RateLimitKey,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.streams.state.lock();
        state.open -= 1;
        if let Some(open) = state.open_of.get_mut(&self.caller) {
            *open -= 1;
            if *open == 0 {
                state.open_of.remove(&self.caller);
            }
        }
    }
}

/// The next bytes of a stream; `None` if the server stops.
async fn next_part(
    batches: &mut broadcast::Receiver<Batch>,
    sees: &(impl Fn(&EngineEvent) -> bool + Sync),
) -> Option<Bytes> {
    let quiet_at = Instant::now() + KEEP_ALIVE;
    loop {
        match tokio::time::timeout_at(quiet_at, batches.recv()).await {
            Err(_) => return Some(Bytes::from_static(b":\n\n")),
            Ok(Err(RecvError::Lagged(_))) => return Some(Bytes::from_static(GAP)),
            Ok(Err(RecvError::Closed)) => return None,
            Ok(Ok(batch)) => {
                let is_seen = |event: &Option<EngineEvent>| event.as_ref().is_none_or(sees);
                let seen = batch.iter().filter(|(event, _)| is_seen(event));
                let mut part = BytesMut::with_capacity(seen.clone().map(|(_, b)| b.len()).sum());
                seen.for_each(|(_, bytes)| part.extend_from_slice(bytes));
                if !part.is_empty() {
                    return Some(part.freeze());
                }
            }
        }
    }
}

fn encoded(event: &EngineEvent) -> Bytes {
    match event {
        EngineEvent::Node { node, epoch } => {
            encoded_as(&NodeUpdate { node_id: node.clone(), epoch: *epoch })
        }
        EngineEvent::Job { job, attempt, state, node, text, .. } => encoded_as(&JobUpdate {
            kind: if text.is_some() { JobUpdateKind::Partial } else { JobUpdateKind::State },
            job_id: *job,
            attempt_id: *attempt,
            state: *state,
            node_id: node.clone(),
            text: text.as_deref().map(str::to_owned),
        }),
        EngineEvent::Pools { version } => encoded_as(&PoolUpdate { table_version: *version }),
        EngineEvent::Leader { term } => encoded_as(&LeaderUpdate { term: *term }),
    }
}

fn encoded_as<M: Message + Serialize>(event: &M) -> Bytes {
    let name = M::NAME.trim_end_matches("_update");
    format!("event: {name}\ndata: {}\n\n", to_json(event)).into()
}
