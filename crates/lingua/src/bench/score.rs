//! What came of a load: how many, how fast, what went wrong.
//!
//! Start at [`Score`]; [`Score::table`] is for people, [`Score::json`] for machines.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::json;

use super::load::Mode;
use crate::screen::{Sheet, cell, number};

/// Longest latency that is told from longer ones: two minutes, in microseconds.
const LATENCY_US_MAX: u64 = 120_000_000;

/// Digits that latencies are kept with.
const DIGITS: u8 = 3;

/// Most different errors that are told apart.
const ERRORS_MAX: usize = 32;

/// Which latencies are shown.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// What was measured, and for how long.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) mode: Mode,
    pub(super) seconds: f64,
    pub(super) nodes: u16,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Score {
    latency_us: Histogram<u64>,
    errors: BTreeMap<String, u64>,
}

impl Score {
    pub(super) fn new() -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
            .context("cannot make a histogram")?;
        Ok(Self { latency_us, errors: BTreeMap::new() })
    }

    /// Takes what is there and leaves an empty one.
    pub(super) fn take(&mut self) -> anyhow::Result<Self> {
        Ok(std::mem::replace(self, Self::new()?))
    }

    pub(super) fn count_done(&mut self, took: Duration) {
        self.latency_us.saturating_record(took.as_micros() as u64);
    }

    pub(super) fn count_error(&mut self, code: &str) {
        let is_known = self.errors.contains_key(code);
        let code = if is_known || self.errors.len() < ERRORS_MAX { code } else { "OTHER" };
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    pub(super) fn done(&self) -> u64 {
        self.latency_us.len()
    }

    fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// For the progress bar.
    pub(super) fn progress(&self) -> String {
        match (self.done(), self.failed()) {
            (0, 0) => "warming up".to_owned(),
            (done, 0) => format!("{done} done"),
            (done, failed) => format!("{done} done, {failed} failed"),
        }
    }

    fn per_s(&self, setup: &Setup) -> f64 {
        self.done() as f64 / setup.seconds.max(f64::MIN_POSITIVE)
    }

    fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn max_ms(&self) -> f64 {
        self.latency_us.max() as f64 / 1000.0
    }

    /// For people.
    pub(super) fn table(&self, setup: &Setup, colours: bool) -> String {
        let Setup { mode, seconds, nodes } = setup;
        let how = match mode {
            Mode::Closed { clients } => format!("closed loop, {clients} clients"),
            Mode::Open { per_s } => format!("open loop, {per_s} jobs/s asked for"),
        };
        let headings = [
            ">JOBS/S",
            ">P50 MS",
            ">P90 MS",
            ">P99 MS",
            ">P99.9 MS",
            ">MAX MS",
            ">DONE",
            ">FAILED",
        ];
        let mut sheet = Sheet::new(&headings, colours);
        let [p50, p90, p99, p999] = QUANTILES.map(|(_, q)| number(shown_ms(self.quantile_ms(q))));
        let per_s = number(format!("{:.0}", self.per_s(setup)));
        let (done, failed) = (number(self.done()), number(self.failed()));
        sheet.row([per_s, p50, p90, p99, p999, number(shown_ms(self.max_ms())), done, failed]);
        let mut out = format!("{how}, {nodes} nodes, {seconds:.1} s\n\n{}", sheet.finish(""));
        if !self.errors.is_empty() {
            let mut sheet = Sheet::new(&["ERROR", ">COUNT"], colours);
            for (code, count) in &self.errors {
                sheet.row([cell(code), number(count)]);
            }
            out.push_str("\n\n");
            out.push_str(&sheet.finish(""));
        }
        out
    }

    /// For machines.
    pub(super) fn json(&self, setup: &Setup) -> String {
        let (clients, rate) = match setup.mode {
            Mode::Closed { clients } => (Some(clients), None),
            Mode::Open { per_s } => (None, Some(per_s)),
        };
        let mut latency: BTreeMap<&str, f64> =
            QUANTILES.iter().map(|&(name, q)| (name, self.quantile_ms(q))).collect();
        latency.insert("max", self.max_ms());
        json!({
            "concurrency": clients,
            "rate": rate,
            "seconds": setup.seconds,
            "nodes": setup.nodes,
            "done": self.done(),
            "failed": self.failed(),
            "jobs_per_s": self.per_s(setup),
            "latency_ms": latency,
            "errors": self.errors,
        })
        .to_string()
    }
}

fn shown_ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score() -> Score {
        let mut score = Score::new().unwrap();
        for ms in 1..=1000 {
            score.count_done(Duration::from_millis(ms));
        }
        score.count_error("RATE_LIMITED");
        score
    }

    const SETUP: Setup = Setup { mode: Mode::Closed { clients: 9 }, seconds: 2.0, nodes: 3 };

    #[test]
    fn people_see_speed_latencies_and_errors() {
        let text = score().table(&SETUP, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "closed loop, 9 clients, 3 nodes, 2.0 s");
        let words: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!((words[0], words[6], words[7]), ("500", "1000", "1"));
        assert!(text.ends_with("RATE_LIMITED      1"), "{text}");
    }

    #[test]
    fn machines_see_the_same() {
        let value: serde_json::Value = serde_json::from_str(&score().json(&SETUP)).unwrap();
        assert_eq!(value["jobs_per_s"], 500.0);
        let p50 = value["latency_ms"]["p50"].as_f64().unwrap();
        assert!((499.0..=501.5).contains(&p50), "{p50}");
        assert_eq!(value["errors"]["RATE_LIMITED"], 1);
        assert_eq!(value["rate"], serde_json::Value::Null);
    }

    #[test]
    fn different_errors_are_bounded() {
        let mut score = Score::new().unwrap();
        for number in 0..1000 {
            score.count_error(&format!("E{number}"));
        }
        assert_eq!(score.errors.len(), ERRORS_MAX + 1);
        assert_eq!(score.failed(), 1000);
    }

    #[test]
    fn a_latency_beyond_the_longest_still_counts() {
        let mut score = Score::new().unwrap();
        score.count_done(Duration::from_secs(100_000));
        assert_eq!(score.done(), 1);
    }
}
