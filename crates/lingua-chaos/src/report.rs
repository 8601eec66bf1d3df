//! The report of a chaos run: timeline, recovery times, broken rules.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use comfy_table::{Table, presets};

use crate::ChaosRun;
use crate::client::ChaosJob;
use crate::faults::ChaosFault;

/// What is logged during the run.
#[derive(Debug, Default)]
pub(crate) struct ChaosLog {
    lines: Vec<(u64, String)>,
    /// Each fault with the times of its begin and end, in milliseconds.
    pub(crate) faults: Vec<(ChaosFault, u64, u64)>,
    violations: Vec<String>,
}

impl ChaosLog {
    pub(crate) fn note(&mut self, at_ms: u64, what: String) {
        self.lines.push((at_ms, what));
    }

    pub(crate) fn add_violation(&mut self, rule: String) {
        self.violations.push(rule);
    }
}

/// The result of a chaos run; `Display` shows all of it.
#[derive(Debug, Clone)]
pub struct ChaosReport {
    /// The rules that were broken.
    pub violations: Vec<String>,
    /// Accepted jobs.
    pub accepted: usize,
    /// Jobs that ended as DONE.
    pub done: usize,
    /// Injected faults.
    pub faults: usize,
    text: String,
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(head.to_vec());
    table
}

impl ChaosReport {
    pub(crate) fn of(run: &ChaosRun) -> Self {
        let log = run.log.lock();
        let facts: Vec<ChaosJob> =
            run.clients.facts.iter().map(|facts| facts.lock().clone()).collect();
        let mut text = String::new();
        for (at_ms, line) in &log.lines {
            // Writing to a string does not fail.
            writeln!(text, "{:>8}  {line}", seconds(*at_ms)).ok();
        }
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for facts in &facts {
            let outcome = match &facts.seen {
                Some(seen) => match &seen.error {
                    Some(error) => format!("{} {error}", seen.state),
                    None => seen.state.clone(),
                },
                None if facts.id.is_some() => "accepted, end not seen".to_owned(),
                None => "not accepted".to_owned(),
            };
            *outcomes.entry(outcome).or_default() += 1;
        }
        let accepted = facts.iter().filter(|facts| facts.id.is_some()).count();
        let done = outcomes.get("DONE").copied().unwrap_or(0);
        let mut table = table(&["jobs", "count"]);
        for (outcome, count) in &outcomes {
            table.add_row([outcome.clone(), count.to_string()]);
        }
        let again: usize = facts
            .iter()
            .filter_map(|facts| facts.seen.as_ref())
            .filter(|seen| seen.attempt > 1)
            .count();
        writeln!(text, "\n{}\n{table}", recovery(&log.faults, &facts)).ok();
        writeln!(
            text,
            "{} nodes with {} slots; {again} jobs needed a retry; nodes refused {} jobs",
            run.fleet.len(),
            run.fleet.slots(),
            run.fleet.refusals()
        )
        .ok();
        match log.violations.len() {
            0 => writeln!(text, "every rule held").ok(),
            count => writeln!(text, "{count} violations:").ok(),
        };
        for rule in log.violations.iter().take(20) {
            writeln!(text, "  {rule}").ok();
        }
        let (violations, faults) = (log.violations.clone(), log.faults.len());
        Self { violations, accepted, done, faults, text }
    }
}

/// For each kind of fault: how soon a new job was done, and when all jobs that were open had ended.
fn recovery(faults: &[(ChaosFault, u64, u64)], facts: &[ChaosJob]) -> Table {
    let mut kinds: BTreeMap<&str, (usize, Vec<u64>, u64)> = BTreeMap::new();
    for &(fault, at_ms, healed_ms) in faults {
        let (count, firsts, last_ms) = kinds.entry(fault.kind()).or_default();
        *count += 1;
        let is_done = |facts: &&ChaosJob| facts.seen.as_ref().is_some_and(|s| s.state == "DONE");
        let new = facts.iter().filter(is_done).filter(|facts| facts.sent_ms >= healed_ms);
        firsts.extend(new.filter_map(|facts| Some(facts.ended_ms? - healed_ms)).min());
        let open = facts.iter().filter(|facts| facts.sent_ms <= at_ms);
        let ends = open.filter_map(|facts| facts.ended_ms).filter(|ended_ms| *ended_ms > at_ms);
        *last_ms = (*last_ms).max(ends.max().map_or(0, |ended_ms| ended_ms - at_ms));
    }
    let mut table = table(&[
        "fault",
        "count",
        "new job done after, median",
        "longest",
        "all open jobs ended after",
    ]);
    for (kind, (count, mut firsts, last_ms)) in kinds {
        firsts.sort_unstable();
        let middle = firsts
            .get(firsts.len() / 2)
            .map_or("–".to_owned(), |ms| format!("{} s", seconds(*ms)));
        let longest = firsts.last().map_or("–".to_owned(), |ms| format!("{} s", seconds(*ms)));
        let last = format!("{} s", seconds(last_ms));
        table.add_row([kind.to_owned(), count.to_string(), middle, longest, last]);
    }
    table
}
