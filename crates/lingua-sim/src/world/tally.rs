//! Counts of what happened in one world or in many.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use serde::{Deserialize, Serialize};

use super::plan::Fault;

/// Counts that are summed over worlds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldTally {
    /// Worlds.
    pub worlds: u64,
    /// Simulated time.
    pub sim_ms: u64,
    /// How often each fault was injected.
    pub faults: BTreeMap<Fault, u64>,
    /// The longest time from a fault until every job that was open then had ended, with the seed.
    pub worst_ms: BTreeMap<Fault, (u64, u64)>,
    /// Jobs by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Outcomes of sessions and segments.
    pub speech: BTreeMap<String, u64>,
    /// Store operations, each of them checked.
    pub operations: u64,
}

impl WorldTally {
    /// Adds the counts of other worlds.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.sim_ms += other.sim_ms;
        self.operations += other.operations;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
        for (fault, worst) in &other.worst_ms {
            let known = self.worst_ms.entry(*fault).or_default();
            *known = (*known).max(*worst);
        }
        for (outcome, count) in &other.outcomes {
            *self.outcomes.entry(outcome.clone()).or_default() += count;
        }
        for (what, count) in &other.speech {
            *self.speech.entry(what.clone()).or_default() += count;
        }
    }

    /// The number of jobs.
    pub fn jobs(&self) -> u64 {
        self.outcomes.values().sum()
    }

    pub(super) fn outlived(&mut self, fault: Fault, ms: u64, seed: u64) {
        let known = self.worst_ms.entry(fault).or_default();
        *known = (*known).max((ms, seed));
    }

    /// The counts as tables.
    pub fn table(&self) -> String {
        let mut faults = Table::new();
        faults.load_style(presets::UTF8_FULL_CONDENSED);
        faults.set_header(["fault", "injected", "all jobs it met ended after", "seed"]);
        for fault in Fault::ALL.into_iter().chain(Fault::OF_FLEETS) {
            let count = self.faults.get(&fault).copied().unwrap_or(0);
            let (worst_ms, seed) = self.worst_ms.get(&fault).copied().unwrap_or_default();
            // Bad nodes and clients act at no certain time.
            let (worst, seed) = match worst_ms {
                0 => ("–".to_owned(), "–".to_owned()),
                ms => (format!("{:.1} s", ms as f64 / 1000.0), seed.to_string()),
            };
            faults.add_row([fault.as_str().to_owned(), count.to_string(), worst, seed]);
        }
        let counted = |what: &str, counts: &BTreeMap<String, u64>| {
            let mut table = Table::new();
            table.load_style(presets::UTF8_FULL_CONDENSED);
            table.set_header([what, "count"]);
            for (what, count) in counts {
                table.add_row([what.clone(), count.to_string()]);
            }
            table
        };
        let jobs = counted("jobs", &self.outcomes);
        match self.speech.is_empty() {
            true => format!("{faults}\n{jobs}"),
            false => format!("{faults}\n{jobs}\n{}", counted("sessions", &self.speech)),
        }
    }
}
