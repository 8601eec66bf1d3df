//! Talking sessions: the delay that the scheduler adds, and what each session costs it.
//!
//! Start at [`run`]. Every session sends audio at real time, in frames of 20 ms; nodes answer at
//! once, so that what is measured lies between the end of a turn and its result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use lingua_core::NodeId;
use lingua_sdk::session::SessionEvent;
use lingua_sdk::{Failure, Handler, Job, Node, NodeOptions, Output, Session, SessionSettings};
use lingua_wire::session::SessionStart;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::broker::{Broker, BrokerSpec, SchedulerSpec};
use crate::fleet::raise_file_limit;
use crate::output::{self, verdict};
use crate::report::ReportPage;
use crate::stats::LATENCY_US_MAX;
use crate::store_cost::http_get;
use crate::{BenchContext, BenchResult};

/// Frames of 20 ms in a turn.
const TURN_FRAMES: u32 = 100;
const FRAME: Duration = Duration::from_millis(20);

/// From the result of a turn to the next turn.
const PAUSE: Duration = Duration::from_secs(1);

/// Long enough for all sessions to start, one after the other.
const WARM_UP: Duration = Duration::from_secs(4);

/// How much delay the scheduler may add.
const ADDED_MS_MAX: f64 = 20.0;

const NODES: u16 = 8;
const SLOTS: u16 = 256;

/// How long the nodes may take to register, and how often to look.
const REGISTERED_MAX: Duration = Duration::from_secs(10);
const REGISTERED_POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct SessionFigures {
    sessions: u32,
    seconds: f64,
    added_us: Histogram<u64>,
    missing: u64,
    cpu: Duration,
    /// Memory of the scheduler before the sessions and at the end.
    resident_kib: [u64; 2],
}

/// What the sessions measure.
struct Delays {
    added_us: Histogram<u64>,
    missing: u64,
    count_from: Instant,
}

/// A node that answers at once, when all audio has arrived.
struct InstantNode;

impl Handler for InstantNode {
    async fn handle(&self, job: Job, _: lingua_sdk::Context) -> Result<Output, Failure> {
        if let Some(stream) = &job.stream {
            while stream.next().await.is_some() {}
        }
        Ok(Output::translated("a translation").with_asr("some speech"))
    }
}

pub(crate) async fn run(
    sessions: u32,
    length: Duration,
    scheduler: SchedulerSpec,
    context: &BenchContext,
) -> anyhow::Result<SessionFigures> {
    raise_file_limit(sessions)?;
    context.progress.set_total(1);
    let spec = BrokerSpec::Scheduler(scheduler);
    let broker = Broker::start(&spec, context.pins.as_ref()).await?;
    let address = broker.endpoint(0).address;
    let mut nodes = JoinSet::new();
    for number in 0..NODES {
        let languages = ["zh", "en"];
        let options = NodeOptions::new(format!("ws://{address}/v1/node/ws"))
            .node_id(NodeId::new(&format!("n{number}")).context("a node id")?)
            .languages(&languages, &languages, &languages)
            .slots(SLOTS);
        nodes.spawn(Node::new(options, InstantNode).run(std::future::pending()));
    }
    let registering = async {
        while http_get(address, "/v1/nodes").await?.matches("\"node_id\"").count() < NODES.into() {
            sleep(REGISTERED_POLL).await;
        }
        anyhow::Ok(())
    };
    timeout(REGISTERED_MAX, registering).await.context("the nodes did not register in time")??;
    let before_kib = broker.resident_kib()?;
    let delays = Arc::new(Mutex::new(Delays {
        added_us: Histogram::new_with_max(LATENCY_US_MAX, 3).context("a histogram")?,
        missing: 0,
        count_from: Instant::now() + WARM_UP,
    }));
    let mut speakers = JoinSet::new();
    for number in 0..sessions {
        let (url, delays) = (format!("ws://{address}/v1/session/ws"), Arc::clone(&delays));
        // Spread over a turn, so that they do not all speak at the same time.
        let share = f64::from(number) / f64::from(sessions);
        let delay = (PAUSE + FRAME * TURN_FRAMES).mul_f64(share);
        speakers.spawn(async move {
            sleep(delay).await;
            speak(&url, &delays).await
        });
    }
    let seconds = (WARM_UP + length).as_secs_f64();
    context.progress.show(format!("{sessions} sessions for {seconds:.0} s"));
    sleep(WARM_UP).await;
    let cpu = broker.cpu()?;
    // Sessions never end, so one that does has met an error.
    if let Ok(Some(ended)) = timeout(length, speakers.join_next()).await {
        ended.context("a session's task failed")?.context("a session ended")?;
    }
    let (cpu, after_kib) = (broker.cpu()?.saturating_sub(cpu), broker.resident_kib()?);
    context.progress.step();
    speakers.shutdown().await;
    nodes.shutdown().await;
    broker.stop().await;
    let delays = delays.lock();
    let added_us = delays.added_us.clone();
    ensure!(!added_us.is_empty(), "no turn ended in that time; measure for longer");
    let resident_kib = [before_kib, after_kib];
    let (missing, seconds) = (delays.missing, length.as_secs_f64());
    Ok(SessionFigures { sessions, seconds, added_us, missing, cpu, resident_kib })
}

/// Speaks at real time, for ever.
async fn speak(url: &str, delays: &Mutex<Delays>) -> anyhow::Result<()> {
    let start = SessionStart {
        src_lang: Some("zh".into()),
        tgt_lang: Some("en".into()),
        ..SessionStart::default()
    };
    let mut session = Session::start(SessionSettings::new(url), &start).await?;
    let frame = bytes::Bytes::from(0x1000_i16.to_le_bytes().repeat(320));
    let mut ticks = interval(FRAME);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.reset();
        // When the turn should end: if the load itself is late, that counts, too.
        let turn_end = Instant::now() + FRAME * TURN_FRAMES;
        for _ in 0..TURN_FRAMES {
            ticks.tick().await;
            session.audio(frame.clone()).await;
        }
        session.turn_end().await;
        loop {
            let is_result = match session.next().await?.context("the session ended")? {
                SessionEvent::Result(_) => true,
                SessionEvent::Missing(_) => false,
                _ => continue,
            };
            let mut delays = delays.lock();
            if Instant::now() >= delays.count_from {
                delays.missing += u64::from(!is_result);
                delays.added_us.saturating_record(turn_end.elapsed().as_micros() as u64);
            }
            break;
        }
        sleep(PAUSE).await;
    }
}

impl SessionFigures {
    fn ms(&self, quantile: f64) -> f64 {
        self.added_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.seconds
    }

    fn session_kib(&self) -> f64 {
        let [before, after] = self.resident_kib;
        after.saturating_sub(before) as f64 / f64::from(self.sessions.max(1))
    }

    pub(crate) fn is_met(&self) -> bool {
        self.p99_ms() <= ADDED_MS_MAX && self.missing == 0
    }

    pub(crate) fn p99_ms(&self) -> f64 {
        self.ms(0.99)
    }

    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let percent = self.cpu_share() * 100.0;
        let each = self.cpu_share() * 1e6 / f64::from(self.sessions.max(1));
        let (turns, seconds, missing) = (self.added_us.len(), self.seconds, self.missing);
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantile| self.ms(quantile));
        vec![
            ("sessions", format!("{}, each speaks 2 of 3 s at real time", self.sessions)),
            ("turns", format!("{turns} in {seconds:.0} s, {missing} missing")),
            ("added delay", format!("p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")),
            ("cpu", format!("{percent:.0} % of a core, {each:.0} µs a second for each session")),
            ("memory", format!("{:.0} KiB for each session", self.session_kib())),
        ]
    }

    pub(crate) fn result(&self) -> BenchResult {
        let target = format!("p99 of at most {ADDED_MS_MAX:.0} ms {}", verdict(self.is_met()));
        let facts = [self.facts(), vec![("target", target)]].concat();
        let page = ReportPage::of_sessions(self);
        BenchResult { text: output::facts(&facts), json: self.json(), page }
    }

    fn json(&self) -> Value {
        let [before, after] = self.resident_kib;
        json!({
            "sessions": self.sessions,
            "seconds": self.seconds,
            "turns": self.added_us.len(),
            "missing": self.missing,
            "added_ms": {"p50": self.ms(0.5), "p99": self.ms(0.99), "max": self.ms(1.0)},
            "cpu_share": self.cpu_share(),
            "session_kib": self.session_kib(),
            "resident_kib": {"before": before, "after": after},
            "met": self.is_met(),
        })
    }
}
