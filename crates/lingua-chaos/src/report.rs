//! What came of a storm: a timeline, recovery times, a verdict.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use comfy_table::{Table, presets};

use crate::World;
use crate::client::Facts;
use crate::storm::Fault;

/// What is written down while the storm goes on.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: Vec<(u64, String)>,
    pub(crate) faults: Vec<(Fault, u64, u64)>,
    broken: Vec<String>,
}

impl Notes {
    pub(crate) fn note(&mut self, at_ms: u64, what: String) {
        self.lines.push((at_ms, what));
    }

    pub(crate) fn broke(&mut self, rule: String) {
        self.broken.push(rule);
    }
}

/// What came of a storm.
#[derive(Debug, Clone)]
pub struct Report {
    /// Rules that were broken; none if all is well.
    pub broken: Vec<String>,
    /// Jobs that were accepted.
    pub accepted: usize,
    /// Jobs that were done.
    pub done: usize,
    /// Faults that struck.
    pub faults: usize,
    text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn sheet(head: &[&str]) -> Table {
    let mut sheet = Table::new();
    sheet.load_style(presets::UTF8_FULL_CONDENSED);
    sheet.set_header(head.to_vec());
    sheet
}

impl Report {
    pub(crate) fn of(world: &World) -> Self {
        let notes = world.notes.lock();
        let facts: Vec<Facts> =
            world.clients.facts.iter().map(|facts| facts.lock().clone()).collect();
        let mut text = String::new();
        for (at_ms, line) in &notes.lines {
            // Writing to a text does not fail.
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
        let mut table = sheet(&["jobs", "count"]);
        for (outcome, count) in &outcomes {
            table.add_row([outcome.clone(), count.to_string()]);
        }
        let again: usize = facts
            .iter()
            .filter_map(|facts| facts.seen.as_ref())
            .filter(|seen| seen.attempt > 1)
            .count();
        writeln!(text, "\n{}\n{table}", recovery(&notes.faults, &facts)).ok();
        writeln!(
            text,
            "{} nodes with {} slots; {again} jobs took more than one attempt; nodes refused {} orders",
            world.fleet.len(),
            world.fleet.slots(),
            world.fleet.refusals()
        )
        .ok();
        match notes.broken.len() {
            0 => writeln!(text, "every rule held").ok(),
            count => writeln!(text, "{count} times a rule was broken:").ok(),
        };
        for rule in notes.broken.iter().take(20) {
            writeln!(text, "  {rule}").ok();
        }
        let (broken, faults) = (notes.broken.clone(), notes.faults.len());
        Self { broken, accepted, done, faults, text }
    }
}

/// For each kind of fault: how soon after it a new job was done, and when all jobs that it met had ended.
fn recovery(faults: &[(Fault, u64, u64)], facts: &[Facts]) -> Table {
    let mut kinds: BTreeMap<&str, (usize, Vec<u64>, u64)> = BTreeMap::new();
    for &(fault, at_ms, healed_ms) in faults {
        let (count, firsts, last_ms) = kinds.entry(fault.kind()).or_default();
        *count += 1;
        let is_done = |facts: &&Facts| facts.seen.as_ref().is_some_and(|s| s.state == "DONE");
        let new = facts.iter().filter(is_done).filter(|facts| facts.asked_ms >= healed_ms);
        firsts.extend(new.filter_map(|facts| Some(facts.ended_ms? - healed_ms)).min());
        let met = facts.iter().filter(|facts| facts.asked_ms <= at_ms);
        let ends = met.filter_map(|facts| facts.ended_ms).filter(|ended_ms| *ended_ms > at_ms);
        *last_ms = (*last_ms).max(ends.max().map_or(0, |ended_ms| ended_ms - at_ms));
    }
    let mut table = sheet(&[
        "fault",
        "times",
        "a new job was done after it, median",
        "longest",
        "all jobs that it met had ended after",
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
