//! The loop of a node: connect, serve, connect again.
//!
//! Start at [`Worker::run`]; [`Worker::serve`] is the loop of one connection. `messages.rs` acts on
//! each message, `tasks.rs` runs the handlers.
//!
//! Invariant: one task owns all state. Handlers run in tasks of their own and deliver their result
//! by ending.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::NodeState;
use lingua_wire::node::Heartbeat;
use lingua_wire::scheduler::Registered;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::admission::Admission;
use super::backoff::Backoff;
use super::connection::{NodeOutbox, SchedulerConnection};
use super::error::{Disconnect, NodeRunError};
use super::handler::{Handler, HandlerPartial};
use super::messages::PendingAudio;
use super::options::NodeOptions;
use super::report::OutboundMessage;
use super::stats::Stats;
use super::stop::{StopPhase, StopSignal};
use super::stream::SoundStreams;
use super::tasks::HandlerResult;

/// Most partial texts on their way from handlers to the connection.
const PARTIALS_MAX: usize = 256;

/// Shortest and longest pause between heartbeats, whatever the scheduler asks for.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(10);
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// How far a pause between heartbeats may be off, so that a fleet does not send in step.
const HEARTBEAT_JITTER: f64 = 0.2;

/// After so many intervals without a frame, the connection counts as lost.
const SILENT_INTERVALS_MAX: u32 = 3;

/// How long a node that stops waits for the confirmation of its last results.
const CONFIRM_WAIT: Duration = Duration::from_secs(5);

/// The reason in `bye` and in the cancellation of jobs when the node was asked to stop.
const STOP_REASON: &str = "the node stops";

/// A running node.
pub(super) struct Worker<H> {
    pub(super) options: Arc<NodeOptions>,
    pub(super) handler: Arc<H>,
    pub(super) admission: Admission,
    /// `None` while there is no connection; what is sent then is dropped.
    pub(super) outbox: Option<NodeOutbox>,
    pub(super) pending_audio: Option<PendingAudio>,
    /// What the scheduler knows the node by on the current connection, or knew it by on the last.
    pub(super) registered: Option<Registered>,
    pub(super) streams: SoundStreams,
    pub(super) tasks: JoinSet<HandlerResult>,
    pub(super) partials: mpsc::Receiver<HandlerPartial>,
    pub(super) partials_in: mpsc::Sender<HandlerPartial>,
    pub(super) stats: Stats,
    random: StdRng,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(options: NodeOptions, handler: Arc<H>, stats: Stats) -> Self {
        let (partials_in, partials) = mpsc::channel(PARTIALS_MAX);
        let random = options.seed.map_or_else(rand::make_rng, StdRng::seed_from_u64);
        Self {
            admission: Admission::new(options.slots, options.health, stats.clone()),
            options: Arc::new(options),
            handler,
            outbox: None,
            pending_audio: None,
            registered: None,
            streams: SoundStreams::default(),
            tasks: JoinSet::new(),
            partials,
            partials_in,
            stats,
            random,
        }
    }

    /// Runs until the node is asked to stop, or until no scheduler will accept it.
    pub(super) async fn run(mut self, stop: &mut StopSignal<'_>) -> Result<(), NodeRunError> {
        let outcome = self.connect_and_serve(stop).await;
        self.stats.set_connected(false);
        match &outcome {
            Ok(()) => self.admission.cancel_all(STOP_REASON),
            Err(error) => self.admission.cancel_all(&error.to_string()),
        }
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        timeout(self.options.cancel_grace, ending).await.ok();
        outcome
    }

    async fn connect_and_serve(&mut self, stop: &mut StopSignal<'_>) -> Result<(), NodeRunError> {
        let (min, max) = self.options.backoff;
        let mut backoff = Backoff::new(min, max);
        loop {
            let why = match self.one_connection(&mut backoff, stop).await {
                Ok(()) => return Ok(()),
                Err(Disconnect::Fatal(error)) => return Err(error),
                Err(Disconnect::Lost(why)) => why,
            };
            let delay = backoff.next_delay(&mut self.random);
            tracing::warn!(reason = why, retry_ms = delay.as_millis() as u64, "not connected");
            if self.wait_unless_stopped(sleep(delay), stop).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Connects and serves; `Ok` means that the node may end.
    async fn one_connection(
        &mut self,
        backoff: &mut Backoff,
        stop: &mut StopSignal<'_>,
    ) -> Result<(), Disconnect> {
        self.admission.begin_epoch();
        let options = Arc::clone(&self.options);
        let known = self.registered.as_ref().map(|known| known.node_id.clone());
        let register = options.register(known.or(options.node_id.clone()), self.admission.health());
        let opening = Box::pin(SchedulerConnection::open(&options, &register));
        let Some(opened) = self.wait_unless_stopped(opening, stop).await else { return Ok(()) };
        let (mut connection, outbox, registered) = opened?;
        let since = Instant::now();
        self.outbox = Some(outbox);
        let served = self.serve(&mut connection, registered, stop).await;
        let outbox = self.outbox.take();
        self.stats.set_connected(false);
        backoff.connected_for(since.elapsed());
        if let Some(job) = self.pending_audio.take().and_then(PendingAudio::into_job) {
            // Its audio will not arrive any more, so it never starts.
            self.admission.release(job);
        }
        for job in self.streams.close_all() {
            self.admission.cancel(job, "the connection that brought its audio was lost");
        }
        served?;
        if let Some(outbox) = outbox {
            connection.close(outbox, STOP_REASON).await;
        }
        Ok(())
    }

    /// Takes the new identity, and sends the results that are not confirmed again.
    fn on_registered(&mut self, registered: Registered) -> Result<(), Disconnect> {
        tracing::info!(node_id = %registered.node_id, epoch = %registered.epoch, "registered");
        let is_again = self.registered.replace(registered).is_some();
        self.stats.set_connected(true);
        // Partial texts from before the connection are outdated.
        while self.partials.try_recv().is_ok() {}
        for result in self.admission.unconfirmed() {
            self.send(result.clone())?;
        }
        if is_again {
            self.stats.count_reconnect();
            self.send_heartbeat()?;
        }
        Ok(())
    }

    /// Serves one connection; `Ok` means that the node may end.
    async fn serve(
        &mut self,
        connection: &mut SchedulerConnection,
        registered: Registered,
        stop: &mut StopSignal<'_>,
    ) -> Result<(), Disconnect> {
        let interval = Duration::from_millis(registered.heartbeat_interval_ms)
            .clamp(HEARTBEAT_INTERVAL_MIN, HEARTBEAT_INTERVAL_MAX);
        self.on_registered(registered)?;
        let mut heartbeat_at = Instant::now() + self.jittered(interval);
        let mut silent_until = Instant::now() + interval * SILENT_INTERVALS_MAX;
        while !self.may_end(stop) {
            tokio::select! {
                frame = timeout_at(silent_until, connection.next()) => {
                    let frame = frame
                        .map_err(|_| Disconnect::lost("the scheduler was silent for too long"))?;
                    silent_until = Instant::now() + interval * SILENT_INTERVALS_MAX;
                    self.on_frame(frame?)?;
                }
                () = sleep_until(heartbeat_at) => {
                    heartbeat_at = Instant::now() + self.jittered(interval);
                    self.send_heartbeat()?;
                }
                Some(ended) = self.tasks.join_next() => self.on_task_ended(ended)?,
                Some(partial) = self.partials.recv() => self.on_partial(partial)?,
                phase = stop.next() => {
                    if phase != StopPhase::Expired {
                        self.admission.stop();
                        self.send_heartbeat()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for a future while jobs end and the request to stop may come. `None` means that the
    /// node may end.
    async fn wait_unless_stopped<T>(
        &mut self,
        future: impl Future<Output = T>,
        stop: &mut StopSignal<'_>,
    ) -> Option<T> {
        let mut future = pin!(future);
        while !self.may_end(stop) {
            tokio::select! {
                out = &mut future => return Some(out),
                // Without a connection there is none that could be lost.
                Some(ended) = self.tasks.join_next() => self.on_task_ended(ended).unwrap_or(()),
                _ = stop.next() => self.admission.stop(),
            }
        }
        None
    }

    fn may_end(&self, stop: &mut StopSignal<'_>) -> bool {
        match stop.phase() {
            StopPhase::Running => false,
            StopPhase::Expired => true,
            StopPhase::Stopping { .. } => {
                if self.admission.is_idle() {
                    stop.shorten(CONFIRM_WAIT);
                }
                self.admission.is_drained()
            }
        }
    }

    pub(super) fn send(&self, message: OutboundMessage) -> Result<(), Disconnect> {
        self.outbox.as_ref().map_or(Ok(()), |outbox| outbox.send(message))
    }

    pub(super) fn send_heartbeat(&self) -> Result<(), Disconnect> {
        let registered = self.registered.as_ref();
        self.send(OutboundMessage::new(&Heartbeat {
            node_id: registered.map(|known| known.node_id.clone()),
            epoch: registered.map(|known| known.epoch),
            health: Some(NodeState::of(self.admission.health(), false)),
            running: Some(self.admission.running()),
            ..Heartbeat::default()
        }))
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(self.random.random_range(1.0 - HEARTBEAT_JITTER..=1.0 + HEARTBEAT_JITTER))
    }
}
