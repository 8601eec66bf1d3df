//! What came of a load: how many, how fast, what went wrong.
//!
//! Start at [`Score`]; [`Score::table`] is for people, [`Score::json`] for machines.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::load::Mode;
use super::timeline::{Point, Timeline};
use crate::screen::{Sheet, cell, number};

/// Longest latency that is told from longer ones: two minutes, in microseconds.
pub(super) const LATENCY_US_MAX: u64 = 120_000_000;

/// Digits that latencies are kept with.
const DIGITS: u8 = 3;

/// Most different errors that are told apart.
const ERRORS_MAX: usize = 32;

/// Share of jobs that may be sent late before the figures are doubted.
const LATE_MAX: f64 = 0.01;

/// Points of the curve of percentiles for each factor of ten.
const CURVE_STEPS: f64 = 12.0;

/// Which latencies are shown.
pub(super) const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// What was measured, and for how long.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) mode: Mode,
    pub(super) seconds: f64,
    pub(super) nodes: u32,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Score {
    latency_us: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    /// Jobs of the open loop that were not sent at their time.
    late: u64,
    timeline: Timeline,
}

impl Score {
    /// Of a load of this length.
    pub(super) fn lasting(length: Duration) -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
            .context("cannot make a histogram")?;
        let (errors, timeline) = (BTreeMap::new(), Timeline::lasting(length));
        Ok(Self { latency_us, errors, late: 0, timeline })
    }

    /// Takes what is there and leaves an empty one.
    pub(super) fn take(&mut self) -> anyhow::Result<Self> {
        Ok(std::mem::replace(self, Self::lasting(Duration::ZERO)?))
    }

    /// Adds what came of another load of the same length, as if it had followed this one.
    pub(super) fn append(&mut self, next: Self) {
        // Both have the same bounds, so that nothing is left out.
        self.latency_us.add(&next.latency_us).ok();
        for (code, count) in next.errors {
            *self.errors.entry(code).or_default() += count;
        }
        self.late += next.late;
        self.timeline.append(next.timeline);
    }

    /// Counts a job that took so long, at a time since counting began.
    pub(super) fn count_done(&mut self, since: Duration, took: Duration) {
        let took_us = took.as_micros() as u64;
        self.latency_us.saturating_record(took_us);
        // Without room for a slice the plot has a gap; the figures do not.
        self.timeline.record(since, took_us).ok();
    }

    pub(super) fn count_error(&mut self, code: &str) {
        let is_known = self.errors.contains_key(code);
        let code = if is_known || self.errors.len() < ERRORS_MAX { code } else { "OTHER" };
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    /// Counts a job that was sent too late for its time.
    pub(super) fn count_late(&mut self) {
        self.late += 1;
    }

    pub(super) fn done(&self) -> u64 {
        self.latency_us.len()
    }

    pub(super) fn failed(&self) -> u64 {
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

    pub(super) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub(super) fn max_ms(&self) -> f64 {
        self.latency_us.max() as f64 / 1000.0
    }

    /// Latencies over time.
    pub(super) fn points(&self) -> Vec<Point> {
        self.timeline.points()
    }

    /// Latencies by how rare they are: one job in `x` took at least `y` milliseconds.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        let done = self.done() as f64;
        let rarities = (0..).map(|step| 10_f64.powf(f64::from(step) / CURVE_STEPS));
        let known = rarities.take_while(|one_in| *one_in <= done);
        known.map(|one_in| (one_in, self.quantile_ms(1.0 - 1.0 / one_in))).collect()
    }

    /// The most frequent error.
    pub(super) fn worst_error(&self) -> Option<&str> {
        self.errors.iter().max_by_key(|(_, count)| **count).map(|(code, _)| code.as_str())
    }

    /// A warning if the open loop could not keep its rate.
    pub(super) fn lateness(&self) -> Option<String> {
        let share = self.late as f64 / (self.done() + self.failed()).max(1) as f64;
        (share > LATE_MAX).then(|| {
            format!(
                "The load did not keep its rate: {:.0} % of the jobs were sent late, because every connection waited \
                 for an answer or the load's own core was full. Latencies have that wait in them; ask for a lower \
                 --rate, or give more --slots.",
                share * 100.0
            )
        })
    }

    /// Latencies by their names, in milliseconds.
    pub(super) fn latency_ms(&self) -> BTreeMap<&'static str, f64> {
        let named = QUANTILES.iter().map(|&(name, q)| (name, self.quantile_ms(q)));
        named.chain([("max", self.max_ms())]).collect()
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
        if let Some(lateness) = self.lateness() {
            out.push_str("\n\n");
            out.push_str(&lateness);
        }
        out
    }

    /// For machines.
    pub(super) fn json(&self, setup: &Setup) -> Value {
        let (clients, rate) = match setup.mode {
            Mode::Closed { clients } => (Some(clients), None),
            Mode::Open { per_s } => (None, Some(per_s)),
        };
        json!({
            "concurrency": clients,
            "rate": rate,
            "seconds": setup.seconds,
            "nodes": setup.nodes,
            "done": self.done(),
            "failed": self.failed(),
            "late": self.late,
            "jobs_per_s": self.per_s(setup),
            "latency_ms": self.latency_ms(),
            "errors": self.errors,
        })
    }
}

pub(super) fn shown_ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score() -> Score {
        let mut score = Score::lasting(Duration::from_secs(2)).unwrap();
        for ms in 1..=1000 {
            score.count_done(Duration::from_millis(ms), Duration::from_millis(ms));
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
        let value = score().json(&SETUP);
        assert_eq!(value["jobs_per_s"], 500.0);
        let p50 = value["latency_ms"]["p50"].as_f64().unwrap();
        assert!((499.0..=501.5).contains(&p50), "{p50}");
        assert_eq!(value["errors"]["RATE_LIMITED"], 1);
        assert_eq!(value["rate"], Value::Null);
    }

    #[test]
    fn a_load_that_does_not_keep_its_rate_is_told() {
        let mut score = score();
        for _ in 0..10 {
            score.count_late();
        }
        assert_eq!(score.lateness(), None, "one in a hundred is chance");
        score.count_late();
        let text = score.table(&SETUP, false);
        assert!(text.contains("The load did not keep its rate: 1 % of the jobs"), "{text}");
    }

    #[test]
    fn different_errors_are_bounded() {
        let mut score = Score::lasting(Duration::ZERO).unwrap();
        for number in 0..1000 {
            score.count_error(&format!("E{number}"));
        }
        assert_eq!(score.errors.len(), ERRORS_MAX + 1);
        assert_eq!(score.failed(), 1000);
    }

    #[test]
    fn a_latency_beyond_the_longest_still_counts() {
        let mut score = score();
        score.count_done(Duration::ZERO, Duration::from_secs(100_000));
        assert_eq!(score.done(), 1001);
    }

    #[test]
    fn loads_add_up() {
        let mut sum = score();
        sum.append(score());
        assert_eq!((sum.done(), sum.failed()), (2000, 2));
        assert_eq!(sum.worst_error(), Some("RATE_LIMITED"));
        assert!((499.0..=501.5).contains(&sum.quantile_ms(0.5)));
    }
}
