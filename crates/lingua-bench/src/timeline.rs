//! Latencies over time.
//!
//! Start at [`Timeline::record`]. Invariant: there are at most [`SLICES`] slices for each run.

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;

use crate::stats::LATENCY_US_MAX;

const SLICES: u32 = 20;

/// Significant digits of the latencies: enough for a plot.
const DIGITS: u8 = 2;

/// Latencies in slices of time.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    slice: Duration,
    slices: Vec<Histogram<u64>>,
    /// How many of the slices are of earlier runs.
    earlier: usize,
}

/// The latencies of one slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimelinePoint {
    pub(crate) at_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Timeline {
    /// For a run of this length.
    pub(crate) fn lasting(length: Duration) -> Self {
        let slice = (length / SLICES).max(Duration::from_millis(1));
        Self { slice, slices: vec![], earlier: 0 }
    }

    /// Records a latency at a time since the start of the run.
    pub(crate) fn record(&mut self, since: Duration, took_us: u64) -> anyhow::Result<()> {
        let last = SLICES as usize - 1;
        let slice = (since.as_nanos() / self.slice.as_nanos()) as usize;
        let slice = self.earlier + slice.min(last);
        while self.slices.len() <= slice {
            let empty = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS);
            self.slices.push(empty.context("the histogram of times does not accept its bounds")?);
        }
        self.slices[slice].saturating_record(took_us);
        Ok(())
    }

    /// Appends another run of the same length.
    pub(crate) fn append(&mut self, next: Self) {
        self.slices.extend(next.slices);
        self.earlier = self.slices.len();
    }

    pub(crate) fn points(&self) -> Vec<TimelinePoint> {
        let point = |(number, slice): (usize, &Histogram<u64>)| {
            let ms = |quantile| slice.value_at_quantile(quantile) as f64 / 1000.0;
            let at_s = (number as f64 + 0.5) * self.slice.as_secs_f64();
            (!slice.is_empty()).then(|| TimelinePoint { at_s, p50_ms: ms(0.5), p99_ms: ms(0.99) })
        };
        self.slices.iter().enumerate().filter_map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_put_in_slices_and_runs_are_appended() {
        let mut first = Timeline::lasting(Duration::from_secs(20));
        first.record(Duration::from_millis(2500), 1000).unwrap();
        first.record(Duration::from_secs(4000), 9000).unwrap();
        let mut second = Timeline::lasting(Duration::from_secs(20));
        second.record(Duration::ZERO, 5000).unwrap();
        first.append(second);
        let points = first.points();
        let at: Vec<f64> = points.iter().map(|point| point.at_s).collect();
        assert_eq!(at, [2.5, 19.5, 20.5]);
        assert!((points[2].p50_ms - 5.0).abs() < 0.1);
    }
}
