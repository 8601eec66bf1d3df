//! The demo's clients: they send jobs at a rate that keeps the nodes busy.
//!
//! Start at [`run`]. [`TrafficStats`] has the counts.
//!
//! Invariant: at most [`OPEN_MAX`] requests are open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lingua_sdk::Client;
use lingua_wire::client::{Dispatch, DispatchOptions};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

const OPEN_MAX: usize = 400;

/// Period over which rate and latencies are computed.
const WINDOW: Duration = Duration::from_secs(10);

/// Most latencies that are kept.
const RECENT_MAX: usize = 20_000;

/// How busy the nodes should be.
const BUSY_GOAL: f64 = 0.6;

/// How strongly the rate adapts, and its bounds.
const GAIN: f64 = 0.15;
const RATE_RANGE: (f64, f64) = (2.0, 200.0);

/// Languages, sentence and weight.
const SENTENCES: [(&str, &str, &str, usize); 7] = [
    ("zh", "en", "你好，今天天气很好。", 5),
    ("en", "zh", "Where is the nearest station?", 5),
    ("en", "ja", "Could we have the bill, please?", 2),
    ("ja", "en", "会議は何時に始まりますか。", 2),
    ("fr", "en", "Le train a dix minutes de retard.", 2),
    ("en", "de", "The second talk starts at noon.", 2),
    ("de", "fr", "Können Sie das bitte wiederholen?", 1),
];

#[derive(Debug)]
pub(super) struct TrafficStats {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) open: u64,
    /// Jobs a second to send.
    target_rate: f64,
    /// Error code of the last job that failed.
    pub(super) last_error: Option<String>,
    recent: VecDeque<(Instant, Duration)>,
}

/// Rate and latencies of the last seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TrafficRate {
    pub(super) jobs_per_s: f64,
    pub(super) p50_ms: u64,
    pub(super) p95_ms: u64,
}

impl TrafficStats {
    pub(super) fn new(target_rate: f64) -> Self {
        let recent = VecDeque::new();
        Self { done: 0, failed: 0, open: 0, target_rate, last_error: None, recent }
    }

    /// Raises the rate if the nodes are idle, lowers it if they are busy.
    pub(super) fn adapt_rate(&mut self, busy: f64) {
        let (min, max) = RATE_RANGE;
        self.target_rate = (self.target_rate * (1.0 + GAIN * (BUSY_GOAL - busy))).clamp(min, max);
    }

    /// The figures of the last seconds.
    pub(super) fn rate(&mut self, now: Instant, since_start: Duration) -> TrafficRate {
        while let Some((at, _)) = self.recent.front()
            && now.duration_since(*at) > WINDOW
        {
            self.recent.pop_front();
        }
        let mut took: Vec<Duration> = self.recent.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        let Some(last) = took.len().checked_sub(1) else { return TrafficRate::default() };
        let at = |part: f64| took[(last as f64 * part).round() as usize].as_millis() as u64;
        let seconds = WINDOW.min(since_start).as_secs_f64().max(0.5);
        TrafficRate { jobs_per_s: took.len() as f64 / seconds, p50_ms: at(0.5), p95_ms: at(0.95) }
    }

    fn count(&mut self, now: Instant, took: Duration, error: Option<String>) {
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

/// Sends jobs, for ever.
pub(super) async fn run(client: &Client, stats: &Arc<Mutex<TrafficStats>>) {
    let mut rng = StdRng::seed_from_u64(7);
    let permits = Arc::new(Semaphore::new(OPEN_MAX));
    loop {
        let rate = stats.lock().target_rate;
        // Independent clients: the pauses are exponential.
        let pause_s = -(1.0 - rng.random::<f64>()).ln() / rate;
        sleep(Duration::from_secs_f64(pause_s)).await;
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let sentence = SENTENCES.choose_weighted(&mut rng, |(.., weight)| *weight);
        let &(src, tgt, text, _) = sentence.expect("the weights are positive");
        let (client, stats) = (client.clone(), Arc::clone(stats));
        stats.lock().open += 1;
        tokio::spawn(async move {
            let start = Instant::now();
            let reply = client.translate(&job(src, tgt, text)).await;
            let (now, error) = (Instant::now(), reply.err());
            stats.lock().count(now, now - start, error.map(|error| error.code().to_owned()));
            drop(permit);
        });
    }
}

fn job(src: &'static str, tgt: &'static str, text: &'static str) -> Dispatch<'static> {
    let options = DispatchOptions { require_tts: Some(true), ..DispatchOptions::default() };
    Dispatch {
        session_id: Some("demo".into()),
        src_lang: src.into(),
        tgt_lang: tgt.into(),
        text: Some(text.into()),
        options: Some(options),
        ..Dispatch::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let (start, mut stats) = (Instant::now(), TrafficStats::new(10.0));
        let now = start + WINDOW * 2;
        stats.open = 101;
        stats.count(start, Duration::from_secs(9), None);
        for ms in 1..=100 {
            stats.count(now, Duration::from_millis(ms), None);
        }
        let rate = stats.rate(now, WINDOW * 2);
        assert_eq!(rate, TrafficRate { jobs_per_s: 10.0, p50_ms: 51, p95_ms: 95 });
        assert_eq!((stats.done, stats.open), (101, 0));
    }

    #[test]
    fn failures_are_counted_without_a_latency() {
        let (now, mut stats) = (Instant::now(), TrafficStats::new(10.0));
        stats.open = 1;
        stats.count(now, Duration::ZERO, Some("NO_CAPABLE_NODE".into()));
        assert_eq!(stats.rate(now, WINDOW), TrafficRate::default());
        assert_eq!((stats.failed, stats.last_error.as_deref()), (1, Some("NO_CAPABLE_NODE")));
    }

    #[test]
    fn the_rate_adapts_within_bounds() {
        let mut stats = TrafficStats::new(10.0);
        stats.adapt_rate(0.0);
        assert!(stats.target_rate > 10.0);
        for _ in 0..1000 {
            stats.adapt_rate(1.0);
        }
        assert_eq!(stats.target_rate, RATE_RANGE.0);
    }
}
