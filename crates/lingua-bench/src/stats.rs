//! Counts and latencies of a load.
//!
//! Start at [`LoadStats`].

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::output::{self, shown_ms};
use crate::raw_client::LoadMode;
use crate::timeline::{Timeline, TimelinePoint};

/// Longer latencies count as this: two minutes, in microseconds.
pub(crate) const LATENCY_US_MAX: u64 = 120_000_000;

/// Significant digits of the latencies.
const DIGITS: u8 = 3;

/// Error codes that are counted separately; the rest counts as `OTHER`.
const ERRORS_MAX: usize = 32;

/// With a larger share of late jobs the table warns that the load did not keep its rate.
const LATE_MAX: f64 = 0.01;

/// Points of the curve of percentiles for each factor of ten.
const CURVE_STEPS: f64 = 12.0;

/// The latencies that tables show.
pub(crate) const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// How a load was made.
#[derive(Debug)]
pub(crate) struct LoadSetup {
    pub(crate) mode: LoadMode,
    pub(crate) seconds: f64,
    pub(crate) nodes: u32,
}

impl LoadSetup {
    pub(crate) fn describe(&self) -> String {
        let mode = match self.mode {
            LoadMode::Closed { clients } => format!("closed loop, {clients} clients"),
            LoadMode::Open { per_s } => format!("open loop, {per_s} jobs/s"),
        };
        format!("{mode}, {} nodes, {:.1} s", self.nodes, self.seconds)
    }
}

#[derive(Debug)]
pub(crate) struct LoadStats {
    latency_us: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    /// Jobs of the open loop that were sent too late.
    late: u64,
    timeline: Timeline,
}

impl LoadStats {
    /// Empty, for a load of this length.
    pub(crate) fn lasting(length: Duration) -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
            .context("the histogram of times does not accept its bounds")?;
        let (errors, timeline) = (BTreeMap::new(), Timeline::lasting(length));
        Ok(Self { latency_us, errors, late: 0, timeline })
    }

    /// Takes the content and leaves it empty.
    pub(crate) fn take(&mut self) -> anyhow::Result<Self> {
        Ok(std::mem::replace(self, Self::lasting(Duration::ZERO)?))
    }

    /// Appends another load of the same length.
    pub(crate) fn append(&mut self, next: Self) {
        // Cannot fail: both have the same bounds.
        self.latency_us.add(&next.latency_us).ok();
        for (code, count) in next.errors {
            *self.errors.entry(code).or_default() += count;
        }
        self.late += next.late;
        self.timeline.append(next.timeline);
    }

    /// Counts a job that ended at a time since the start and took so long.
    pub(crate) fn count_done(&mut self, since: Duration, took: Duration) {
        let took_us = took.as_micros() as u64;
        self.latency_us.saturating_record(took_us);
        // Only the plot needs it.
        self.timeline.record(since, took_us).ok();
    }

    pub(crate) fn count_error(&mut self, code: &str) {
        let is_known = self.errors.contains_key(code);
        let code = if is_known || self.errors.len() < ERRORS_MAX { code } else { "OTHER" };
        *self.errors.entry(code.to_owned()).or_default() += 1;
    }

    pub(crate) fn count_late(&mut self) {
        self.late += 1;
    }

    pub(crate) fn done(&self) -> u64 {
        self.latency_us.len()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.latency_us.max() as f64 / 1000.0
    }

    pub(crate) fn points(&self) -> Vec<TimelinePoint> {
        self.timeline.points()
    }

    /// Latencies by how rare they are: one job in `x` took at least `y` milliseconds.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let done = self.done() as f64;
        let rarities = (0..).map(|step| 10_f64.powf(f64::from(step) / CURVE_STEPS));
        let known = rarities.take_while(|one_in| *one_in <= done);
        known.map(|one_in| (one_in, self.quantile_ms(1.0 - 1.0 / one_in))).collect()
    }

    pub(crate) fn most_frequent_error(&self) -> Option<&str> {
        self.errors.iter().max_by_key(|(_, count)| **count).map(|(code, _)| code.as_str())
    }

    /// A warning if the open loop did not keep its rate.
    pub(crate) fn late_warning(&self) -> Option<String> {
        let share = self.late as f64 / (self.done() + self.failed()).max(1) as f64;
        (share > LATE_MAX).then(|| {
            format!(
                "The load did not keep its rate: {:.0} % of the jobs were sent late, because all \
                 connections were busy or the load's core was full. The latencies include that \
                 wait; give a lower --rate or more --slots.",
                share * 100.0
            )
        })
    }

    /// p50, p90, p99, p99.9 and the maximum, for a table.
    pub(crate) fn latency_cells(&self) -> Vec<String> {
        let quantiles = QUANTILES.iter().map(|(_, quantile)| self.quantile_ms(*quantile));
        quantiles.chain([self.max_ms()]).map(shown_ms).collect()
    }

    /// Latencies by name, in milliseconds.
    pub(crate) fn latency_ms(&self) -> BTreeMap<&'static str, f64> {
        let named = QUANTILES.iter().map(|&(name, quantile)| (name, self.quantile_ms(quantile)));
        named.chain([("max", self.max_ms())]).collect()
    }

    fn jobs_per_s(&self, setup: &LoadSetup) -> f64 {
        self.done() as f64 / setup.seconds.max(f64::MIN_POSITIVE)
    }

    pub(crate) fn table(&self, setup: &LoadSetup) -> String {
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
        let mut row = vec![format!("{:.0}", self.jobs_per_s(setup))];
        row.extend(self.latency_cells());
        row.extend([self.done(), self.failed()].map(|count| count.to_string()));
        let mut parts = vec![setup.describe(), output::table(&headings, &[row])];
        if !self.errors.is_empty() {
            let rows =
                self.errors.iter().map(|(code, count)| vec![code.clone(), count.to_string()]);
            parts.push(output::table(&["ERROR", ">COUNT"], &rows.collect::<Vec<_>>()));
        }
        parts.extend(self.late_warning());
        parts.join("\n\n")
    }

    pub(crate) fn json(&self, setup: &LoadSetup) -> Value {
        let (clients, rate) = match setup.mode {
            LoadMode::Closed { clients } => (Some(clients), None),
            LoadMode::Open { per_s } => (None, Some(per_s)),
        };
        json!({
            "concurrency": clients,
            "rate": rate,
            "seconds": setup.seconds,
            "nodes": setup.nodes,
            "done": self.done(),
            "failed": self.failed(),
            "late": self.late,
            "jobs_per_s": self.jobs_per_s(setup),
            "latency_ms": self.latency_ms(),
            "errors": self.errors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> LoadStats {
        let mut stats = LoadStats::lasting(Duration::from_secs(2)).unwrap();
        for ms in 1..=1000 {
            stats.count_done(Duration::from_millis(ms), Duration::from_millis(ms));
        }
        stats.count_error("RATE_LIMITED");
        stats
    }

    const SETUP: LoadSetup =
        LoadSetup { mode: LoadMode::Closed { clients: 9 }, seconds: 2.0, nodes: 3 };

    #[test]
    fn the_table_shows_rate_latencies_and_errors() {
        let text = stats().table(&SETUP);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "closed loop, 9 clients, 3 nodes, 2.0 s");
        let cells: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!((cells[0], cells[6], cells[7]), ("500", "1000", "1"));
        assert!(text.ends_with("RATE_LIMITED      1"), "{text}");
    }

    #[test]
    fn the_json_shows_the_same() {
        let value = stats().json(&SETUP);
        assert_eq!(value["jobs_per_s"], 500.0);
        let p50 = value["latency_ms"]["p50"].as_f64().unwrap();
        assert!((499.0..=501.5).contains(&p50), "{p50}");
        assert_eq!(value["errors"]["RATE_LIMITED"], 1);
        assert_eq!(value["rate"], Value::Null);
    }

    #[test]
    fn more_than_one_late_job_in_a_hundred_is_a_warning() {
        let mut stats = stats();
        for _ in 0..10 {
            stats.count_late();
        }
        assert_eq!(stats.late_warning(), None);
        stats.count_late();
        let text = stats.table(&SETUP);
        assert!(text.contains("The load did not keep its rate: 1 % of the jobs"), "{text}");
    }

    #[test]
    fn the_number_of_error_codes_is_bounded() {
        let mut stats = LoadStats::lasting(Duration::ZERO).unwrap();
        for number in 0..1000 {
            stats.count_error(&format!("E{number}"));
        }
        assert_eq!(stats.errors.len(), ERRORS_MAX + 1);
        assert_eq!(stats.failed(), 1000);
    }

    #[test]
    fn appended_loads_add_up() {
        let mut sum = stats();
        sum.append(stats());
        assert_eq!((sum.done(), sum.failed()), (2000, 2));
        assert_eq!(sum.most_frequent_error(), Some("RATE_LIMITED"));
        assert!((499.0..=501.5).contains(&sum.quantile_ms(0.5)));
    }
}
