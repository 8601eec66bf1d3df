//! The life of a node: connect, serve, connect again.
//!
//! Start at [`Worker::run`]; [`Worker::serve`] is the loop of one connection. `node/frames.rs` says
//! what follows from each message, `node/jobs.rs` starts handlers and takes what comes of them.
//!
//! Invariant: one task owns all state. Handlers run in tasks of their own and hand in their outcome
//! by ending.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::{Epoch, NodeId};
use lingua_wire::node::Heartbeat;
use lingua_wire::scheduler::Registered;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::backoff::Backoff;
use super::desk::Desk;
use super::error::{Error, Trouble};
use super::frames::Announced;
use super::handler::{Handler, Partial};
use super::jobs::Finished;
use super::link::Link;
use super::options::NodeOptions;
use super::report::Outgoing;
use super::stats::Stats;
use super::stop::{Phase, Stop};
use super::stream::Streams;

/// Most partial texts on their way from handlers to the connection.
const PARTIALS_MAX: usize = 256;

/// Shortest and longest pause between heartbeats, whatever the scheduler says.
const HEARTBEAT_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

/// How far a pause between heartbeats may be off, so that a fleet does not beat in time.
const HEARTBEAT_JITTER: f64 = 0.2;

/// After so many intervals without a word, the scheduler counts as lost.
const SILENT_INTERVALS_MAX: u32 = 3;

/// How long a node that stops waits for the confirmation of its last results.
const CONFIRM_WAIT: Duration = Duration::from_secs(5);

/// Why the node leaves, if nothing is wrong.
const STOPS: &str = "the node stops";

/// Who the node is on its current connection.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) node_id: NodeId,
    pub(super) epoch: Epoch,
    interval: Duration,
}

/// A node at work.
pub(super) struct Worker<H> {
    pub(super) options: Arc<NodeOptions>,
    pub(super) handler: Arc<H>,
    pub(super) desk: Desk,
    pub(super) announced: Option<Announced>,
    pub(super) identity: Option<Identity>,
    pub(super) streams: Streams,
    pub(super) tasks: JoinSet<Finished>,
    pub(super) partials: mpsc::Receiver<Partial>,
    pub(super) partials_in: mpsc::Sender<Partial>,
    pub(super) stats: Stats,
    random: StdRng,
}

impl<H: Handler> Worker<H> {
    pub(super) fn new(options: NodeOptions, handler: Arc<H>, stats: Stats) -> Self {
        let (partials_in, partials) = mpsc::channel(PARTIALS_MAX);
        let random = options.seed.map_or_else(rand::make_rng, StdRng::seed_from_u64);
        Self {
            desk: Desk::new(options.slots, options.health, stats.clone()),
            options: Arc::new(options),
            handler,
            announced: None,
            identity: None,
            streams: Streams::default(),
            tasks: JoinSet::new(),
            partials,
            partials_in,
            stats,
            random,
        }
    }

    /// Works until it is asked to stop, or until no scheduler will have it.
    pub(super) async fn run<F>(mut self, stop: &mut Stop<F>) -> Result<(), Error>
    where
        F: Future<Output = ()>,
    {
        let outcome = self.connect_and_serve(stop).await;
        self.stats.set_connected(false);
        match &outcome {
            Ok(()) => self.desk.cancel_all(STOPS),
            Err(error) => self.desk.cancel_all(&error.to_string()),
        }
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        timeout(self.options.cancel_grace, ending).await.ok();
        outcome
    }

    async fn connect_and_serve<F>(&mut self, stop: &mut Stop<F>) -> Result<(), Error>
    where
        F: Future<Output = ()>,
    {
        let (min, max) = self.options.backoff;
        let mut backoff = Backoff::new(min, max);
        loop {
            let why = match self.one_connection(&mut backoff, stop).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Lost(why)) => why,
            };
            let delay = backoff.next_delay(&mut self.random);
            tracing::warn!(reason = why, retry_ms = delay.as_millis() as u64, "not connected");
            if self.meanwhile(sleep(delay), stop).await.is_none() {
                return Ok(());
            }
        }
    }

    /// Connects and serves; `Ok` means that the node may leave.
    async fn one_connection<F>(
        &mut self,
        backoff: &mut Backoff,
        stop: &mut Stop<F>,
    ) -> Result<(), Trouble>
    where
        F: Future<Output = ()>,
    {
        self.desk.begin_epoch();
        let options = Arc::clone(&self.options);
        let known = self.identity.as_ref().map(|identity| identity.node_id.clone());
        let register = options.register(known.or(options.node_id.clone()), self.desk.health());
        let opening = Box::pin(Link::open(&options, &register));
        let Some(opened) = self.meanwhile(opening, stop).await else { return Ok(()) };
        let (mut link, registered) = opened?;
        let since = Instant::now();
        let served = match self.begin(registered, &link) {
            Ok(()) => self.serve(&mut link, stop).await,
            Err(trouble) => Err(trouble),
        };
        self.stats.set_connected(false);
        backoff.connected_for(since.elapsed());
        if let Some(job) = self.announced.take().and_then(Announced::into_job) {
            // Its audio will not come any more, so it never starts.
            self.desk.release(job);
        }
        for job in self.streams.break_off() {
            self.desk.cancel(job, "the rest of its audio will not come");
        }
        served?;
        link.leave(STOPS).await;
        Ok(())
    }

    /// Takes what a registration was answered with and sends what was left unsaid.
    fn begin(&mut self, registered: Registered, link: &Link) -> Result<(), Trouble> {
        let (shortest, longest) = HEARTBEAT_RANGE;
        let interval = Duration::from_millis(registered.heartbeat_interval_ms);
        let interval = interval.clamp(shortest, longest);
        let Registered { node_id, epoch, .. } = registered;
        tracing::info!(%node_id, %epoch, "registered");
        let again = self.identity.replace(Identity { node_id, epoch, interval }).is_some();
        self.stats.set_connected(true);
        // Texts of the time in between are old by now.
        while self.partials.try_recv().is_ok() {}
        for result in self.desk.kept() {
            link.send(result.clone())?;
        }
        if again {
            self.stats.count_reconnect();
            self.beat(link)?;
        }
        Ok(())
    }

    /// Serves one connection; `Ok` means that the node may leave.
    async fn serve<F>(&mut self, link: &mut Link, stop: &mut Stop<F>) -> Result<(), Trouble>
    where
        F: Future<Output = ()>,
    {
        let interval = self.identity.as_ref().map_or(HEARTBEAT_RANGE.1, |found| found.interval);
        let mut beat_at = Instant::now() + self.jittered(interval);
        let mut heard_by = Instant::now() + interval * SILENT_INTERVALS_MAX;
        while !self.may_leave(stop) {
            tokio::select! {
                received = timeout_at(heard_by, link.next()) => {
                    let received = received
                        .map_err(|_| Trouble::lost("the scheduler has been silent for too long"))?;
                    heard_by = Instant::now() + interval * SILENT_INTERVALS_MAX;
                    self.on_received(received?, link)?;
                }
                () = sleep_until(beat_at) => {
                    beat_at = Instant::now() + self.jittered(interval);
                    self.beat(link)?;
                }
                Some(ended) = self.tasks.join_next() => self.on_ended(ended, Some(link))?,
                Some(partial) = self.partials.recv() => self.on_partial(&partial, link)?,
                phase = stop.next() => {
                    if phase != Phase::Over {
                        self.desk.leave();
                        self.beat(link)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for something else than a connection, while jobs end and the wish to stop may come.
    /// `None` means that the node may leave.
    async fn meanwhile<T, F>(
        &mut self,
        what: impl Future<Output = T>,
        stop: &mut Stop<F>,
    ) -> Option<T>
    where
        F: Future<Output = ()>,
    {
        let mut what = pin!(what);
        while !self.may_leave(stop) {
            tokio::select! {
                out = &mut what => return Some(out),
                // Without a connection there is none that could be lost.
                Some(ended) = self.tasks.join_next() => self.on_ended(ended, None).unwrap_or(()),
                _ = stop.next() => self.desk.leave(),
            }
        }
        None
    }

    fn may_leave<F: Future<Output = ()>>(&self, stop: &mut Stop<F>) -> bool {
        match stop.phase() {
            Phase::Working => false,
            Phase::Over => true,
            Phase::Stopping { .. } => {
                if self.desk.is_quiet() {
                    stop.hurry(CONFIRM_WAIT);
                }
                self.desk.is_clear()
            }
        }
    }

    /// Says that the node is alive and what it does.
    pub(super) fn beat(&self, link: &Link) -> Result<(), Trouble> {
        let identity = self.identity.as_ref();
        link.send(Outgoing::new(&Heartbeat {
            node_id: identity.map(|identity| identity.node_id.clone()),
            epoch: identity.map(|identity| identity.epoch),
            health: Some(self.desk.health()),
            running: Some(self.desk.running()),
            ..Heartbeat::default()
        }))
    }

    fn jittered(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(self.random.random_range(1.0 - HEARTBEAT_JITTER..=1.0 + HEARTBEAT_JITTER))
    }
}
