//! The comparison as tables for people and as JSON for machines.

use serde_json::{Map, Value, json};

use super::{Comparison, Contestant, Level, Round};
use crate::bench::broker::Kind;
use crate::bench::score::{QUANTILES, shown_ms};
use crate::screen::{Mood, Sheet, cell, number};

/// What the scheduler has to reach of the relay's jobs/s.
const RATIO_MIN: f64 = 0.6;

/// What it may add to the relay's median latency.
const ADDED_US_MAX: f64 = 200.0;

/// How busy the load generator may be before it is the one that is measured.
const GENERATOR_BUSY_MAX: f64 = 0.97;

/// A figure that was promised.
#[derive(Debug)]
pub(in crate::bench) struct Target {
    pub(in crate::bench) what: String,
    pub(in crate::bench) measured: String,
    pub(in crate::bench) is_met: bool,
}

impl Comparison {
    /// What was promised, and what came of it.
    pub(in crate::bench) fn targets(&self) -> Vec<Target> {
        let levels = self.find(Kind::Scheduler).map_or(&[][..], |scheduler| &scheduler.levels);
        let mut targets = vec![];
        for (index, level) in levels.iter().enumerate() {
            let clients = clients_name(level.clients);
            if let Some(ratio) = self.ratio(Kind::Scheduler, index, |round| round.jobs_per_s) {
                targets.push(Target {
                    what: format!(
                        "{clients}: at least {:.0} % of the relay's jobs/s",
                        RATIO_MIN * 100.0
                    ),
                    measured: format!("{:.0} %", ratio * 100.0),
                    is_met: ratio >= RATIO_MIN,
                });
            }
        }
        if let Some(added) = self.added_p50_us() {
            targets.push(Target {
                what: format!(
                    "median latency at {:.0} jobs/s: at most {ADDED_US_MAX:.0} µs over the relay's",
                    self.rate
                ),
                measured: format!("{added:.0} µs"),
                is_met: added <= ADDED_US_MAX,
            });
        }
        targets
    }

    /// For people.
    pub(in crate::bench) fn table(&self, colours: bool) -> String {
        let paint = |target: Target| {
            let (word, mood) =
                if target.is_met { ("met", Mood::Good) } else { ("missed", Mood::Bad) };
            format!("{}: {} ({})", target.what, target.measured, mood.paint(word, colours))
        };
        let mut parts = vec![
            format!(
                "{} nodes with {} slots, {} rounds of {:.0} s in turn, medians",
                self.shape.nodes,
                self.shape.slots,
                self.rounds,
                self.round.as_secs_f64()
            ),
            self.closed_table(colours),
            format!("open loop, {:.0} jobs/s for each:\n\n{}", self.rate, self.open_table(colours)),
            self.targets().into_iter().map(paint).collect::<Vec<_>>().join("\n"),
        ];
        parts.extend(self.caveat());
        parts.join("\n\n")
    }

    fn closed_table(&self, colours: bool) -> String {
        let headings = [
            ">CLIENTS",
            "BROKER",
            ">JOBS/S",
            ">OF RELAY",
            ">P50 MS",
            ">P99 MS",
            ">CPU µS/JOB",
            ">LOAD BUSY",
            ">FAILED",
        ];
        let mut sheet = Sheet::new(&headings, colours);
        let levels = self.contestants.first().map_or(0, |contestant| contestant.levels.len());
        for index in 0..levels {
            for contestant in &self.contestants {
                let level = &contestant.levels[index];
                let ratio = self.ratio(contestant.kind, index, |round| round.jobs_per_s);
                sheet.row([
                    number(level.clients),
                    cell(contestant.kind),
                    number(format!("{:.0}", level.median(|round| round.jobs_per_s))),
                    number(ratio.map_or("-".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0))),
                    number(shown_ms(level.median(|round| round.p50_ms))),
                    number(shown_ms(level.median(|round| round.p99_ms))),
                    number(format!("{:.1}", level.median(|round| round.cpu_us))),
                    number(format!("{:.0} %", level.median(|round| round.generator_busy) * 100.0)),
                    number(level.failed()),
                ]);
            }
        }
        sheet.finish("")
    }

    fn open_table(&self, colours: bool) -> String {
        let headings = [
            "BROKER",
            ">P50 MS",
            ">P90 MS",
            ">P99 MS",
            ">P99.9 MS",
            ">MAX MS",
            ">CPU µS/JOB",
            ">FAILED",
        ];
        let mut sheet = Sheet::new(&headings, colours);
        for contestant in &self.contestants {
            let Some(score) = &contestant.open.score else { continue };
            let [p50, p90, p99, p999] =
                QUANTILES.map(|(_, q)| number(shown_ms(score.quantile_ms(q))));
            let cpu = super::median(contestant.open.rounds.iter().map(|round| round.cpu_us));
            let max = number(shown_ms(score.max_ms()));
            let (cpu, failed) = (number(format!("{cpu:.1}")), number(score.failed()));
            sheet.row([cell(contestant.kind), p50, p90, p99, p999, max, cpu, failed]);
        }
        sheet.finish("")
    }

    /// What to think of the figures when it was the load generator that had no more to give.
    pub(in crate::bench) fn caveat(&self) -> Option<String> {
        let levels = &self.find(Kind::Relay)?.levels;
        let is_full =
            |level: &&Level| level.median(|round| round.generator_busy) > GENERATOR_BUSY_MAX;
        let clients: Vec<String> =
            levels.iter().filter(is_full).map(|level| level.clients.to_string()).collect();
        (!clients.is_empty()).then(|| {
            format!(
                "With {} clients the load generator was as busy as it can be while it loaded the relay: the \
                 relay may carry more than it shows there. The CPU times for each job do not depend on that.",
                clients.join(", ")
            )
        })
    }

    /// For machines.
    pub(in crate::bench) fn json(&self) -> Value {
        let levels = self.contestants.first().map_or(0, |contestant| contestant.levels.len());
        let closed: Vec<Value> = (0..levels).map(|index| self.level_json(index)).collect();
        let mut open = Map::new();
        for contestant in &self.contestants {
            open.insert(contestant.kind.to_string(), open_json(contestant));
        }
        let target = |target: Target| json!({"what": target.what, "measured": target.measured, "met": target.is_met});
        json!({
            "nodes": self.shape.nodes,
            "slots": self.shape.slots,
            "rounds": self.rounds,
            "seconds": self.round.as_secs_f64(),
            "closed": closed,
            "open": {"rate": self.rate, "added_p50_us": self.added_p50_us(), "brokers": open},
            "targets": self.targets().into_iter().map(target).collect::<Vec<_>>(),
            "caveat": self.caveat(),
        })
    }

    fn level_json(&self, index: usize) -> Value {
        let mut brokers = Map::new();
        let mut clients = 0;
        for contestant in &self.contestants {
            let level = &contestant.levels[index];
            clients = level.clients;
            brokers.insert(contestant.kind.to_string(), level_json(level));
        }
        json!({
            "clients": clients,
            "ratio": self.ratio(Kind::Scheduler, index, |round| round.jobs_per_s),
            "cpu_ratio": self.ratio(Kind::Scheduler, index, |round| round.cpu_us),
            "brokers": brokers,
        })
    }
}

/// So many clients, in words.
pub(in crate::bench) fn clients_name(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

fn level_json(level: &Level) -> Value {
    let median = |of: fn(&Round) -> f64| level.median(of);
    json!({
        "jobs_per_s": median(|round| round.jobs_per_s),
        "p50_ms": median(|round| round.p50_ms),
        "p99_ms": median(|round| round.p99_ms),
        "cpu_us_per_job": median(|round| round.cpu_us),
        "generator_busy": median(|round| round.generator_busy),
        "failed": level.failed(),
        "jobs_per_s_of_rounds": level.rounds.iter().map(|round| round.jobs_per_s).collect::<Vec<_>>(),
    })
}

fn open_json(contestant: &Contestant) -> Value {
    let rounds = &contestant.open.rounds;
    json!({
        "latency_ms": contestant.open.score.as_ref().map(|score| score.latency_ms()),
        "p50_ms_of_rounds": rounds.iter().map(|round| round.p50_ms).collect::<Vec<_>>(),
        "cpu_us_per_job": super::median(rounds.iter().map(|round| round.cpu_us)),
        "failed": rounds.iter().map(|round| round.failed).sum::<u64>(),
    })
}
