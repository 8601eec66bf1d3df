//! The comparison as tables and as JSON.

use serde_json::{Map, Value, json};

use super::{BenchRound, ClientLevel, ComparedBroker, Comparison, median};
use crate::BenchResult;
use crate::broker::BrokerSpec;
use crate::output::{self, shown_ms, verdict};
use crate::report::ReportPage;

/// What the scheduler has to reach of the relay's jobs/s.
pub(crate) const RATIO_MIN: f64 = 0.6;

/// What it may add to the relay's median latency.
const ADDED_US_MAX: f64 = 200.0;

/// If this process is busier than this, the load is the bottleneck.
const GENERATOR_BUSY_MAX: f64 = 0.97;

/// A target of the comparison with the relay.
#[derive(Debug)]
pub(crate) struct BenchTarget {
    pub(crate) what: String,
    pub(crate) measured: String,
    pub(crate) is_met: bool,
}

impl Comparison {
    pub(crate) fn result(&self) -> BenchResult {
        let page = ReportPage::of_comparison(self);
        BenchResult { text: self.table(), json: self.json(), page }
    }

    pub(crate) fn targets(&self) -> Vec<BenchTarget> {
        let Some((_, scheduler)) = self.relay_and_scheduler() else { return vec![] };
        let mut targets = vec![];
        for (index, level) in scheduler.levels.iter().enumerate() {
            let ratio = self.ratio(scheduler, index, |round| round.jobs_per_s);
            let (clients, percent) = (clients_name(level.clients), RATIO_MIN * 100.0);
            targets.push(BenchTarget {
                what: format!("{clients}: at least {percent:.0} % of the relay's jobs/s"),
                measured: format!("{:.0} %", ratio * 100.0),
                is_met: ratio >= RATIO_MIN,
            });
        }
        if let Some(added) = self.added_p50_us() {
            let rate = self.rate;
            targets.push(BenchTarget {
                what: format!(
                    "p50 at {rate:.0} jobs/s: at most {ADDED_US_MAX:.0} µs over the relay"
                ),
                measured: format!("{added:.0} µs"),
                is_met: added <= ADDED_US_MAX,
            });
        }
        targets
    }

    fn table(&self) -> String {
        let (nodes, slots, rounds) = (self.shape.nodes, self.shape.slots, self.rounds);
        let seconds = self.round.as_secs_f64();
        let mut parts = vec![
            format!("{nodes} nodes with {slots} slots, {rounds} rounds of {seconds:.0} s, medians"),
            self.closed_table(),
        ];
        let named = self.brokers.iter().filter_map(|broker| match &broker.spec {
            BrokerSpec::Scheduler(spec) => Some((spec.name.as_str(), &spec.program)),
            _ => None,
        });
        let named = named.map(|(name, program)| format!("{name} is {}", program.display()));
        parts.insert(1, named.collect::<Vec<_>>().join("\n"));
        if self.rate > 0.0 {
            parts.push(format!("open loop, {:.0} jobs/s:\n\n{}", self.rate, self.open_table()));
        }
        let line = |target: BenchTarget| {
            format!("{}: {} ({})", target.what, target.measured, verdict(target.is_met))
        };
        let targets: Vec<String> = self.targets().into_iter().map(line).collect();
        parts.extend((!targets.is_empty()).then(|| targets.join("\n")));
        parts.extend(self.warning());
        parts.join("\n\n")
    }

    /// The headings and rows of the closed loop.
    pub(crate) fn closed_rows(&self) -> (Vec<&'static str>, Vec<(usize, Vec<String>)>) {
        let mut headings = vec![
            ">CLIENTS",
            "BROKER",
            ">JOBS/S",
            ">OF FIRST",
            ">P50 MS",
            ">P99 MS",
            ">CPU µS/JOB",
            ">OF FIRST",
        ];
        let is_shared = self.brokers.iter().any(|broker| broker.has_store());
        if is_shared {
            headings.extend([">STORE µS/JOB", ">OF FIRST"]);
        }
        headings.extend([">BUSY", ">LOAD BUSY", ">FAILED"]);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut rows = vec![];
        for index in 0..self.brokers.first().map_or(0, |broker| broker.levels.len()) {
            for (number, broker) in self.brokers.iter().enumerate() {
                let level = &broker.levels[index];
                let ratio = |of: fn(&BenchRound) -> f64| match self.ratio(broker, index, of) {
                    ratio if ratio.is_finite() => percent(ratio),
                    _ => "-".to_owned(),
                };
                let mut row = vec![
                    level.clients.to_string(),
                    broker.name().to_owned(),
                    format!("{:.0}", level.median(|round| round.jobs_per_s)),
                    ratio(|round| round.jobs_per_s),
                    shown_ms(level.median(|round| round.p50_ms)),
                    shown_ms(level.median(|round| round.p99_ms)),
                    format!("{:.1}", level.median(|round| round.cpu_us)),
                    ratio(|round| round.cpu_us),
                ];
                if is_shared {
                    row.push(format!("{:.1}", level.median(|round| round.store_us)));
                    row.push(ratio(|round| round.store_us));
                }
                row.push(percent(level.median(|round| round.broker_busy)));
                row.push(percent(level.median(|round| round.generator_busy)));
                row.push(level.failed().to_string());
                rows.push((number, row));
            }
        }
        (headings, rows)
    }

    fn closed_table(&self) -> String {
        let (headings, rows) = self.closed_rows();
        let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row).collect();
        output::table(&headings, &rows)
    }

    fn open_table(&self) -> String {
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
        let row = |broker: &ComparedBroker| {
            let stats = broker.open.as_ref()?;
            let cpu = median(broker.open_rounds.iter().map(|round| round.cpu_us));
            let mut row = vec![broker.name().to_owned()];
            row.extend(stats.latency_cells());
            row.extend([format!("{cpu:.1}"), stats.failed().to_string()]);
            Some(row)
        };
        output::table(&headings, &self.brokers.iter().filter_map(row).collect::<Vec<_>>())
    }

    /// A warning if the load was the bottleneck for the first broker.
    pub(crate) fn warning(&self) -> Option<String> {
        let first = self.brokers.first()?;
        let is_full =
            |level: &&ClientLevel| level.median(|round| round.generator_busy) > GENERATOR_BUSY_MAX;
        let clients = first.levels.iter().filter(is_full).map(|level| level.clients.to_string());
        let clients = clients.collect::<Vec<_>>().join(", ");
        (!clients.is_empty()).then(|| {
            format!(
                "With {clients} clients the load itself was as busy as it can be on {}, which may \
                 carry more than it shows. The CPU times for each job do not depend on that.",
                first.name()
            )
        })
    }

    fn json(&self) -> Value {
        let levels = self.brokers.first().map_or(0, |broker| broker.levels.len());
        let closed: Vec<Value> = (0..levels).map(|index| self.level_json(index)).collect();
        let open: Map<String, Value> = self
            .brokers
            .iter()
            .map(|broker| (broker.name().to_owned(), open_json(broker)))
            .collect();
        let target = |target: BenchTarget| {
            let BenchTarget { what, measured, is_met } = target;
            json!({"what": what, "measured": measured, "met": is_met})
        };
        json!({
            "nodes": self.shape.nodes,
            "slots": self.shape.slots,
            "rounds": self.rounds,
            "seconds": self.round.as_secs_f64(),
            "closed": closed,
            "open": {"rate": self.rate, "added_p50_us": self.added_p50_us(), "brokers": open},
            "targets": self.targets().into_iter().map(target).collect::<Vec<_>>(),
            "warning": self.warning(),
        })
    }

    fn level_json(&self, index: usize) -> Value {
        let mut brokers = Map::new();
        for broker in &self.brokers {
            let level = &broker.levels[index];
            let ratio = |of: fn(&BenchRound) -> f64| self.ratio(broker, index, of);
            let figures = json!({
                "jobs_per_s": level.median(|round| round.jobs_per_s),
                "p50_ms": level.median(|round| round.p50_ms),
                "p99_ms": level.median(|round| round.p99_ms),
                "cpu_us_per_job": level.median(|round| round.cpu_us),
                "store_cpu_us_per_job": level.median(|round| round.store_us),
                "generator_busy": level.median(|round| round.generator_busy),
                "failed": level.failed(),
                "ratio": ratio(|round| round.jobs_per_s),
                "cpu_ratio": ratio(|round| round.cpu_us),
                "store_cpu_ratio": ratio(|round| round.store_us),
                "rounds": level.rounds.iter().map(round_json).collect::<Vec<_>>(),
            });
            brokers.insert(broker.name().to_owned(), figures);
        }
        json!({"clients": self.brokers[0].levels[index].clients, "brokers": brokers})
    }
}

impl ComparedBroker {
    fn has_store(&self) -> bool {
        self.levels.iter().any(|level| level.median(|round| round.store_us).is_finite())
    }
}

pub(crate) fn clients_name(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

fn round_json(round: &BenchRound) -> Value {
    json!({
        "jobs_per_s": round.jobs_per_s,
        "cpu_us_per_job": round.cpu_us,
        "broker_busy": round.broker_busy,
        "generator_busy": round.generator_busy,
        "p50_ms": round.p50_ms,
        "p99_ms": round.p99_ms,
    })
}

fn open_json(broker: &ComparedBroker) -> Value {
    json!({
        "latency_ms": broker.open.as_ref().map(|stats| stats.latency_ms()),
        "cpu_us_per_job": median(broker.open_rounds.iter().map(|round| round.cpu_us)),
        "failed": broker.open_rounds.iter().map(|round| round.failed).sum::<u64>(),
        "rounds": broker.open_rounds.iter().map(round_json).collect::<Vec<_>>(),
    })
}
