//! The demo's clients: they ask for translations at a rate that follows the fleet.
//!
//! Start at [`run`]. [`Tally`] is what came of it.
//!
//! Invariant: at most [`IN_FLIGHT_MAX`] requests are open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lingua_wire::client::{Dispatch, DispatchOptions};
use lingua_wire::to_json;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::api::Api;
use crate::simulated::Quit;

/// Most requests that are open at once.
const IN_FLIGHT_MAX: usize = 400;

/// What latencies and speeds are computed from.
const WINDOW: Duration = Duration::from_secs(10);

/// Most answers that are remembered.
const RECENT_MAX: usize = 20_000;

/// How busy the fleet should be.
const BUSY_GOAL: f64 = 0.6;

/// How strongly the rate follows, and where it stays.
const GAIN: f64 = 0.15;
const RATE_RANGE: (f64, f64) = (2.0, 200.0);

/// What is said: direction, sentence, and how many times it goes into the hat.
const SAID: [(&str, &str, &str, usize); 7] = [
    ("zh", "en", "你好，今天天气很好。", 5),
    ("en", "zh", "Where is the nearest station?", 5),
    ("en", "ja", "Could we have the bill, please?", 2),
    ("ja", "en", "会議は何時に始まりますか。", 2),
    ("fr", "en", "Le train a dix minutes de retard.", 2),
    ("en", "de", "The second talk starts at noon.", 2),
    ("de", "fr", "Können Sie das bitte wiederholen?", 1),
];

/// What came of the requests.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) open: u64,
    /// Requests a second.
    rate: f64,
    last_error: Option<String>,
    recent: VecDeque<(Instant, Duration)>,
}

/// Speed and latency of the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pace {
    pub(super) jobs_per_s: f64,
    pub(super) p50_ms: u64,
    pub(super) p95_ms: u64,
}

impl Tally {
    /// Starts with a rate.
    pub(super) fn new(rate: f64) -> Self {
        let recent = VecDeque::new();
        Self { done: 0, failed: 0, open: 0, rate, last_error: None, recent }
    }

    /// Why the last job failed.
    pub(super) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Asks more if the fleet is idle, less if it is busy.
    pub(super) fn follow(&mut self, busy: f64) {
        let (min, max) = RATE_RANGE;
        self.rate = (self.rate * (1.0 + GAIN * (BUSY_GOAL - busy))).clamp(min, max);
    }

    /// How it goes at the moment.
    pub(super) fn pace(&mut self, now: Instant, since_start: Duration) -> Pace {
        while let Some((at, _)) = self.recent.front()
            && now.duration_since(*at) > WINDOW
        {
            self.recent.pop_front();
        }
        let mut took: Vec<Duration> = self.recent.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        let Some(last) = took.len().checked_sub(1) else { return Pace::default() };
        let at = |part: f64| took[(last as f64 * part).round() as usize].as_millis() as u64;
        let seconds = WINDOW.min(since_start).as_secs_f64().max(0.5);
        Pace { jobs_per_s: took.len() as f64 / seconds, p50_ms: at(0.5), p95_ms: at(0.95) }
    }

    fn note(&mut self, now: Instant, took: Duration, error: Option<String>) {
        self.open -= 1;
        if error.is_some() {
            self.failed += 1;
            self.last_error = error;
            return;
        }
        self.done += 1;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, took));
    }
}

/// Asks until `quit`.
pub(super) async fn run(api: Api, tally: Arc<Mutex<Tally>>, quit: Quit) {
    tokio::select! {
        () = ask_on(api, tally) => {}
        () = quit.wait() => {}
    }
}

async fn ask_on(api: Api, tally: Arc<Mutex<Tally>>) {
    let mut luck = StdRng::seed_from_u64(7);
    let bodies: Vec<Bytes> = SAID
        .iter()
        .flat_map(|&(src, tgt, text, times)| std::iter::repeat_n(body(src, tgt, text), times))
        .collect();
    let room = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    loop {
        let rate = tally.lock().rate;
        // Clients do not know of each other: the gaps are exponential.
        let gap = -(1.0 - luck.random::<f64>()).ln() / rate;
        sleep(Duration::from_secs_f64(gap)).await;
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let body = bodies[luck.random_range(0..bodies.len())].clone();
        let (api, tally) = (api.clone(), Arc::clone(&tally));
        tally.lock().open += 1;
        tokio::spawn(async move {
            let start = Instant::now();
            let answer = api.post("/v1/translate", body).await;
            let (now, error) = (Instant::now(), answer.err());
            tally.lock().note(now, now - start, error.map(|error| error.code().to_owned()));
            drop(place);
        });
    }
}

fn body(src: &str, tgt: &str, text: &str) -> Bytes {
    let options = DispatchOptions { require_tts: Some(true), ..DispatchOptions::default() };
    Bytes::from(to_json(&Dispatch {
        session_id: Some("demo".into()),
        src_lang: src.into(),
        tgt_lang: tgt.into(),
        text: Some(text.into()),
        options: Some(options),
        ..Dispatch::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_seconds() {
        let (start, mut tally) = (Instant::now(), Tally::new(10.0));
        let now = start + WINDOW * 2;
        tally.open = 101;
        tally.note(start, Duration::from_secs(9), None);
        for ms in 1..=100 {
            tally.note(now, Duration::from_millis(ms), None);
        }
        let pace = tally.pace(now, WINDOW * 2);
        assert_eq!(pace, Pace { jobs_per_s: 10.0, p50_ms: 51, p95_ms: 95 });
        assert_eq!((tally.done, tally.open), (101, 0));
    }

    #[test]
    fn failures_count_but_do_not_look_fast() {
        let (now, mut tally) = (Instant::now(), Tally::new(10.0));
        tally.open = 1;
        tally.note(now, Duration::ZERO, Some("NO_CAPABLE_NODE".into()));
        assert_eq!(tally.pace(now, WINDOW), Pace::default());
        assert_eq!((tally.failed, tally.last_error()), (1, Some("NO_CAPABLE_NODE")));
    }

    #[test]
    fn the_rate_follows_the_fleet_within_bounds() {
        let mut tally = Tally::new(10.0);
        tally.follow(0.0);
        assert!(tally.rate > 10.0);
        for _ in 0..1000 {
            tally.follow(1.0);
        }
        assert_eq!(tally.rate, RATE_RANGE.0);
    }
}
