//! Counts and latencies of a load, as a table and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::screen::{TextTable, cell, number};

/// Longer latencies count as two minutes.
const LATENCY_US_MAX: u64 = 120_000_000;

/// Error codes that are counted separately; the rest counts as `OTHER`.
const ERRORS_MAX: usize = 32;

/// How the load was made.
#[derive(Debug)]
pub(crate) struct StatsSetup {
    pub(crate) clients: u32,
    /// Jobs a second; absent if each client sends one job at a time.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) nodes: u32,
}

#[derive(Debug)]
pub(crate) struct ClientStats {
    latency_us: Histogram<u64>,
    errors: BTreeMap<String, u64>,
}

impl ClientStats {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let latency_us = Histogram::new_with_max(LATENCY_US_MAX, 3).context("no histogram")?;
        Ok(Self { latency_us, errors: BTreeMap::new() })
    }

    pub(crate) fn count_done(&mut self, took: Duration) {
        self.latency_us.saturating_record(took.as_micros() as u64);
    }

    pub(crate) fn count_error(&mut self, code: &str) {
        let has_room = self.errors.len() < ERRORS_MAX || self.errors.contains_key(code);
        *self.errors.entry(if has_room { code } else { "OTHER" }.to_owned()).or_default() += 1;
    }

    pub(crate) fn done(&self) -> u64 {
        self.latency_us.len()
    }

    fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// For the progress bar.
    pub(crate) fn progress(&self) -> String {
        match (self.done(), self.failed()) {
            (0, 0) => "warming up".to_owned(),
            (done, 0) => format!("{done} done"),
            (done, failed) => format!("{done} done, {failed} failed"),
        }
    }

    fn jobs_per_s(&self, setup: &StatsSetup) -> f64 {
        self.done() as f64 / setup.seconds.max(f64::MIN_POSITIVE)
    }

    /// Latencies in milliseconds.
    fn latencies(&self) -> [(&'static str, f64); 5] {
        let quantiles = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
        quantiles.map(|(name, q)| (name, self.latency_us.value_at_quantile(q) as f64 / 1000.0))
    }

    pub(crate) fn table(&self, setup: &StatsSetup, colours: bool) -> String {
        let mode = match setup.rate {
            None => format!("{} clients, each one job at a time", setup.clients),
            Some(per_s) => format!("{per_s} jobs/s"),
        };
        let names = self.latencies().map(|(name, _)| format!(">{} MS", name.to_uppercase()));
        let [p50, p90, p99, p999, max] = names.each_ref().map(String::as_str);
        let headings = [">JOBS/S", p50, p90, p99, p999, max, ">DONE", ">FAILED"];
        let mut rows = TextTable::new(&headings, colours);
        let [p50, p90, p99, p999, max] = self.latencies().map(|(_, ms)| number(format!("{ms:.2}")));
        let per_s = number(format!("{:.0}", self.jobs_per_s(setup)));
        rows.row([per_s, p50, p90, p99, p999, max, number(self.done()), number(self.failed())]);
        let (nodes, seconds) = (setup.nodes, setup.seconds);
        let mut out = format!("{mode}, {nodes} nodes, {seconds:.1} s\n\n{}", rows.finish(""));
        if !self.errors.is_empty() {
            let mut rows = TextTable::new(&["ERROR", ">COUNT"], colours);
            for (code, count) in &self.errors {
                rows.row([cell(code), number(count)]);
            }
            out = format!("{out}\n\n{}", rows.finish(""));
        }
        out
    }

    pub(crate) fn json(&self, setup: &StatsSetup) -> Value {
        let StatsSetup { clients, rate, seconds, nodes } = setup;
        let (done, failed) = (self.done(), self.failed());
        json!({
            "concurrency": rate.is_none().then_some(clients), "rate": rate,
            "seconds": seconds, "nodes": nodes, "done": done, "failed": failed,
            "jobs_per_s": self.jobs_per_s(setup), "errors": self.errors,
            "latency_ms": BTreeMap::from(self.latencies()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETUP: StatsSetup = StatsSetup { clients: 9, rate: None, seconds: 2.0, nodes: 3 };

    fn stats() -> ClientStats {
        let mut stats = ClientStats::new().unwrap();
        (1..=1000).for_each(|ms| stats.count_done(Duration::from_millis(ms)));
        stats.count_error("RATE_LIMITED");
        stats
    }

    #[test]
    fn table_and_json_show_rate_latencies_and_errors() {
        let text = stats().table(&SETUP, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "9 clients, each one job at a time, 3 nodes, 2.0 s");
        let cells: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!((cells[0], cells[6], cells[7]), ("500", "1000", "1"));
        assert!(text.ends_with("RATE_LIMITED      1"), "{text}");
        let value = stats().json(&SETUP);
        assert_eq!((&value["jobs_per_s"], &value["rate"]), (&json!(500.0), &Value::Null));
        let p50 = value["latency_ms"]["p50"].as_f64().unwrap();
        assert!((499.0..=501.5).contains(&p50), "{p50}");
        assert_eq!(value["errors"]["RATE_LIMITED"], 1);
    }

    #[test]
    fn the_number_of_error_codes_is_bounded() {
        let mut stats = ClientStats::new().unwrap();
        (0..1000).for_each(|number| stats.count_error(&format!("E{number}")));
        assert_eq!((stats.errors.len(), stats.failed()), (ERRORS_MAX + 1, 1000));
    }
}
