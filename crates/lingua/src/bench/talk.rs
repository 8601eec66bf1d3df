//! Talking sessions: how much a scheduler adds to what people hear, and what each session costs it.
//!
//! Start at [`run`]. Every session speaks at real time, in frames of 20 ms; nodes answer at once, so that what is measured lies between the
//! end of a turn and its result.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use lingua_core::NodeId;
use lingua_sdk::session::Event;
use lingua_sdk::{Node, NodeOptions, Session, SessionOptions};
use lingua_wire::session::SessionStart;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::broker::{Broker, Kind, State};
use super::fleet::raise_files;
use super::machine::Pins;
use super::progress::Progress;
use crate::api::Api;
use crate::screen::{Mood, card};
use crate::simulated::{Quit, Simulated, node_url, socket_url, until_registered};

/// Frames of 20 ms in a turn.
const FRAMES: u32 = 100;

/// From the end of a turn to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What is not counted: sessions begin one after the other.
const WARM_UP: Duration = Duration::from_secs(4);

/// How much the scheduler may add.
const ADDED_MS_MAX: f64 = 20.0;

/// Longer is not told apart.
const LONGEST_US: u64 = 60_000_000;

/// Nodes and their slots.
const NODES: u16 = 8;
const SLOTS: u16 = 256;

/// Files of a process besides its connections.
const FILES_BESIDES: u64 = 256;

/// What came of it.
#[derive(Debug)]
pub(super) struct Talk {
    sessions: u32,
    seconds: f64,
    added_us: Histogram<u64>,
    missing: u64,
    cpu: Duration,
    resident_kib: [u64; 2],
}

/// What the sessions hear.
struct Heard {
    added_us: Histogram<u64>,
    missing: u64,
    counts_from: Instant,
}

/// Lets people talk, and measures.
pub(super) async fn run(
    sessions: u32,
    length: Duration,
    state: &State,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Talk> {
    raise_files(u64::from(sessions) + FILES_BESIDES)?;
    progress.expect(1);
    let broker = Broker::start(Kind::Scheduler, state, pins).await?;
    let url = format!("http://{}", broker.door(0).address);
    let (quit, mut nodes) = (Quit::new(), JoinSet::new());
    for n in 0..NODES {
        let languages = ["zh", "en"];
        let options = NodeOptions::new(node_url(&url))
            .node_id(NodeId::new(&format!("n{n}")).context("a name")?)
            .languages(&languages, &languages, &languages)
            .slots(SLOTS);
        nodes.spawn(Node::new(options, Simulated::new(0, 0.0, n.into())).run(quit.wait()));
    }
    until_registered(&Api::new(&url, None)?, NODES.into(), |_| true).await?;
    let before = broker.resident_kib()?;
    let heard = Arc::new(Mutex::new(Heard {
        added_us: Histogram::new_with_max(LONGEST_US, 3).context("a histogram")?,
        missing: 0,
        counts_from: Instant::now() + WARM_UP,
    }));
    let mut people = JoinSet::new();
    for n in 0..sessions {
        let (url, heard) = (socket_url(&url, "/v1/session/ws"), Arc::clone(&heard));
        // Spread over the first turn, so that they do not speak in time.
        let delay = (PAUSE + Duration::from_millis(20) * FRAMES)
            .mul_f64(f64::from(n) / f64::from(sessions));
        people.spawn(async move {
            sleep(delay).await;
            talk(&url, &heard).await
        });
    }
    progress.say(format!("{sessions} sessions for {:.0} s", (WARM_UP + length).as_secs_f64()));
    sleep(WARM_UP).await;
    let cpu = broker.cpu()?;
    let talking = async {
        match people.join_next().await {
            Some(ended) => ended.context("a session's task failed").flatten(),
            None => Ok(()),
        }
    };
    if let Ok(ended) = timeout(length, talking).await {
        ended.context("a session ended")?;
    }
    let (cpu, after) = (broker.cpu()?.saturating_sub(cpu), broker.resident_kib()?);
    progress.step();
    people.shutdown().await;
    quit.now();
    broker.stop().await;
    let heard = heard.lock();
    let added_us = heard.added_us.clone();
    ensure!(!added_us.is_empty(), "nobody heard anything; measure for longer");
    let (missing, seconds) = (heard.missing, length.as_secs_f64());
    Ok(Talk { sessions, seconds, added_us, missing, cpu, resident_kib: [before, after] })
}

/// Speaks at real time, for ever.
async fn talk(url: &str, heard: &Mutex<Heard>) -> anyhow::Result<()> {
    let start = SessionStart {
        src_lang: Some("zh".into()),
        tgt_lang: Some("en".into()),
        ..SessionStart::default()
    };
    let mut session = Session::start(SessionOptions::new(url), &start).await?;
    let frame = bytes::Bytes::from(0x1000_i16.to_le_bytes().repeat(320));
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.reset();
        // When the turn should end: if the load itself is late, that counts, too.
        let ends = Instant::now() + Duration::from_millis(20) * FRAMES;
        for _ in 0..FRAMES {
            ticks.tick().await;
            session.audio(frame.clone()).await;
        }
        session.turn_end().await;
        loop {
            let is_result = match session.next().await?.context("the session ended")? {
                Event::Result(_) => true,
                Event::Missing(_) => false,
                _ => continue,
            };
            let mut heard = heard.lock();
            if Instant::now() >= heard.counts_from {
                heard.missing += u64::from(!is_result);
                heard.added_us.saturating_record(ends.elapsed().as_micros() as u64);
            }
            break;
        }
        sleep(PAUSE).await;
    }
}

impl Talk {
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

    pub(super) fn is_met(&self) -> bool {
        self.ms(0.99) <= ADDED_MS_MAX && self.missing == 0
    }

    pub(super) fn p99_ms(&self) -> f64 {
        self.ms(0.99)
    }

    /// Names and values, for people.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let share = self.cpu_share();
        let each = share * 1e6 / f64::from(self.sessions.max(1));
        let count = self.added_us.len();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| self.ms(q));
        vec![
            ("sessions", format!("{}, each speaks 2 of 3 s at real time", self.sessions)),
            ("turns", format!("{count} in {:.0} s, {} missing", self.seconds, self.missing)),
            ("added", format!("p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")),
            (
                "cpu",
                format!("{:.0} % of a core, {each:.0} µs a second for each session", share * 100.0),
            ),
            ("memory", format!("{:.0} KiB for each session", self.session_kib())),
        ]
    }

    /// For people.
    pub(super) fn table(&self, colours: bool) -> String {
        let (word, mood) = if self.is_met() { ("met", Mood::Good) } else { ("missed", Mood::Bad) };
        let word = mood.paint(word, colours);
        format!("{}\ntarget:    p99 of at most {ADDED_MS_MAX:.0} ms {word}", card(&self.facts()))
    }

    /// For machines.
    pub(super) fn json(&self) -> Value {
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
