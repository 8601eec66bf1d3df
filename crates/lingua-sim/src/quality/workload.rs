//! The jobs: time of arrival, pair, work and session.
//!
//! Start at [`Workload::new`]; a workload is an endless iterator over [`Arrival`]s.
//!
//! Invariant: every arrival takes the same number of draws from a stream that is used for nothing
//! else, so that scenarios with one seed have the same jobs whoever places them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::fleet::PAIRS;
use super::scenario::{Languages, Scenario, Shape};

/// How many sessions the jobs belong to.
pub const SESSIONS: usize = 20;

/// Share of the jobs for each pair when languages overlap.
const DEMAND: [f64; PAIRS] = [0.60, 0.25, 0.15];

/// An arriving job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrival {
    /// Seconds since the start.
    pub at_s: f64,
    /// How long it takes alone on a node of speed 1.
    pub work_s: f64,
    /// The number of its pair.
    pub pair: usize,
    /// The number of its session.
    pub session: usize,
}

/// An endless sequence of jobs.
#[derive(Debug, Clone)]
pub struct Workload {
    rng: ChaCha8Rng,
    at_s: f64,
    rate_per_s: f64,
    work_s: f64,
    sigma: f64,
    shape: Shape,
    languages: Languages,
}

impl Workload {
    /// The jobs of a scenario whose fleet has this capacity: load × capacity / mean work of them
    /// in a second.
    pub fn new(scenario: &Scenario, capacity: f64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(scenario.seed),
            at_s: 0.0,
            rate_per_s: scenario.load() * capacity * 1000.0 / f64::from(scenario.work_ms),
            work_s: f64::from(scenario.work_ms) / 1000.0,
            sigma: f64::from(scenario.sigma_percent) / 100.0,
            shape: scenario.shape,
            languages: scenario.languages,
        }
    }

    fn pair(&self, lot: f64) -> usize {
        match self.languages {
            Languages::One => 0,
            Languages::Overlapping if lot < DEMAND[0] => 0,
            Languages::Overlapping if lot < DEMAND[0] + DEMAND[1] => 1,
            Languages::Overlapping => 2,
        }
    }
}

impl Iterator for Workload {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let lots: [f64; 4] = std::array::from_fn(|_| self.rng.random());
        let session = self.rng.random_range(0..SESSIONS);
        self.at_s += exponential(lots[0]) / self.rate_per_s;
        let work_s = match self.shape {
            Shape::Theory => exponential(lots[1]),
            Shape::Equal | Shape::Unequal => lognormal(lots[1], lots[2], self.sigma),
        };
        let work_s = self.work_s * work_s;
        Some(Arrival { at_s: self.at_s, work_s, pair: self.pair(lots[3]), session })
    }
}

/// Exponential with mean 1. A lot is in [0, 1), so the logarithm is finite.
fn exponential(lot: f64) -> f64 {
    -(1.0 - lot).ln()
}

/// Lognormal with mean 1, by Box and Muller.
pub(super) fn lognormal(lot: f64, angle: f64, sigma: f64) -> f64 {
    let normal = (2.0 * exponential(lot)).sqrt() * (std::f64::consts::TAU * angle).cos();
    (sigma * normal - sigma * sigma / 2.0).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: usize = 100_000;

    fn arrivals(scenario: Scenario) -> Vec<Arrival> {
        Workload::new(&scenario, 100.0).take(JOBS).collect()
    }

    #[test]
    fn work_has_a_mean_of_one_second_and_arrivals_follow_the_load() {
        for shape in [Shape::Unequal, Shape::Theory] {
            let jobs = arrivals(Scenario { shape, ..Scenario::default() });
            let mean_s = jobs.iter().map(|job| job.work_s).sum::<f64>() / JOBS as f64;
            assert!((mean_s - 1.0).abs() < 0.02, "{mean_s}");
            let rate_per_s = JOBS as f64 / jobs[JOBS - 1].at_s;
            assert!((rate_per_s / 90.0 - 1.0).abs() < 0.02, "{rate_per_s}");
        }
    }

    #[test]
    fn demand_has_its_shares() {
        let languages = Languages::Overlapping;
        let jobs = arrivals(Scenario { languages, ..Scenario::default() });
        for (pair, share) in DEMAND.into_iter().enumerate() {
            let count = jobs.iter().filter(|job| job.pair == pair).count();
            assert!((count as f64 / JOBS as f64 - share).abs() < 0.01);
        }
    }

    #[test]
    fn who_places_the_jobs_does_not_change_them() {
        let known = Scenario::default();
        let learned = Scenario { costs: super::super::scenario::Costs::Learned, ..known };
        assert_eq!(arrivals(known)[..100], arrivals(learned)[..100]);
        assert_ne!(arrivals(known)[..100], arrivals(known.seeded(2))[..100]);
    }
}
