//! The results as a page that needs nothing but itself.
//!
//! Start at [`ReportPage`]: each result becomes cards, plots and tables, and [`ReportPage::html`]
//! puts them together. `report/plot.rs` draws, `report/page.css` is the style.
//!
//! Invariant: no script, font or image comes from elsewhere; the file can be sent by mail.

use std::fmt::Write;

use crate::compare::{BenchRound, ComparedBroker, Comparison, RATIO_MIN, clients_name};
use crate::fleet::FleetFigures;
use crate::output::shown_ms;
use crate::sessions::SessionFigures;
use crate::stats::{LoadSetup, LoadStats, QUANTILES};

mod plot;

use plot::{PlotGroup, PlotLine, escape};

const STYLE: &str = include_str!("report/page.css");

#[derive(Debug, Default)]
pub(crate) struct ReportPage {
    title: String,
    cards: String,
    body: String,
}

/// A broker's name and statistics; its position is its colour.
type NamedStats<'a> = (&'a str, &'a LoadStats);

impl ReportPage {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    pub(crate) fn of_comparison(compared: &Comparison) -> Self {
        let mut page = Self::new("Comparison");
        for target in compared.targets() {
            page.card(&target.measured, &target.what, Some(target.is_met));
        }
        let (nodes, slots) = (compared.shape.nodes, compared.shape.slots);
        let (rounds, seconds) = (compared.rounds, compared.round.as_secs_f64());
        page.text(&format!(
            "{nodes} nodes with {slots} slots answer at once. All brokers run in processes of \
             their own and are loaded in turn, {rounds} rounds of {seconds:.0} s each; figures are \
             medians. The relay has the scheduler's sockets and messages and does no scheduling."
        ));
        let names: Vec<&str> = compared.brokers.iter().map(ComparedBroker::name).collect();
        page.section("Jobs a second", "Closed loop: every client has one job at a time.");
        let is_target = !compared.targets().is_empty();
        let rates = groups(compared, |round| round.jobs_per_s, is_target);
        page.figure(&names, &plot::bars(&rates, "jobs/s"));
        page.section("CPU time of the broker for each job", "User and system time of its process.");
        page.figure(&names, &plot::bars(&groups(compared, |round| round.cpu_us, false), "µs"));
        let (headings, rows) = compared.closed_rows();
        page.table(&headings, &rows);
        if let Some(warning) = compared.warning() {
            page.text(&warning);
        }
        let stats = compared.brokers.iter();
        let stats = stats.filter_map(|broker| Some((broker.name(), broker.open.as_ref()?)));
        let stats: Vec<NamedStats<'_>> = stats.collect();
        if !stats.is_empty() {
            let rate = compared.rate;
            let about = format!("Open loop, {rate:.0} jobs/s, each from when it should be sent.");
            page.section("Latency", &about);
            page.latencies(&stats);
        }
        page
    }

    pub(crate) fn of_fleet(fleet: &FleetFigures) -> Self {
        let mut page = Self::new(format!("{} nodes at once", fleet.shape.nodes));
        let node_kib = format!("{:.1} KiB", fleet.node_kib());
        page.card(&node_kib, "memory of the scheduler for each node", Some(fleet.is_met()));
        page.card(&format!("{:.0}/s", fleet.heartbeats_per_s), "heartbeats", None);
        page.card(&format!("{:.0}/s", fleet.load.jobs_per_s()), "jobs meanwhile", None);
        page.facts(&fleet.facts());
        page.section("Latency", "While all nodes send heartbeats.");
        page.latencies(&[("scheduler", &fleet.load.stats)]);
        page
    }

    pub(crate) fn of_sessions(sessions: &SessionFigures) -> Self {
        let mut page = Self::new("Talking sessions");
        let p99 = format!("{:.1} ms", sessions.p99_ms());
        page.card(&p99, "added delay, p99", Some(sessions.is_met()));
        page.facts(&sessions.facts());
        page
    }

    pub(crate) fn of_load(stats: &LoadStats, setup: &LoadSetup) -> Self {
        let mut page = Self::new("Jobs through a scheduler");
        page.card(&format!("{:.0}/s", stats.done() as f64 / setup.seconds), "jobs", None);
        for (name, quantile) in QUANTILES {
            page.card(&format!("{} ms", shown_ms(stats.quantile_ms(quantile))), name, None);
        }
        let failed = stats.failed();
        page.card(&failed.to_string(), "failed", Some(failed == 0));
        page.text(&setup.describe());
        page.section("Latency", "");
        page.latencies(&[("scheduler", stats)]);
        page
    }

    /// The whole file, with facts about the machine at the end.
    pub(crate) fn html(&self, machine: &[(&'static str, String)]) -> String {
        let Self { title, cards, body } = self;
        let mut about = Self::default();
        about.section("Where this was measured", "");
        about.facts(machine);
        let about = about.body;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} · lingua-bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <main>\n<header><p class=\"kind\">lingua-bench</p><h1>{title}</h1></header>\n\
             <div class=\"cards\">{cards}</div>\n{body}{about}</main>\n</body>\n</html>\n"
        )
    }

    fn card(&mut self, value: &str, what: &str, is_met: Option<bool>) {
        let class = match is_met {
            Some(true) => "card met",
            Some(false) => "card missed",
            None => "card",
        };
        let (value, what) = (escape(value), escape(what));
        let _ =
            write!(self.cards, "<div class=\"{class}\"><b>{value}</b><span>{what}</span></div>");
    }

    fn text(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    fn section(&mut self, title: &str, about: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(title));
        if !about.is_empty() {
            self.text(about);
        }
    }

    fn figure(&mut self, names: &[&str], svg: &str) {
        let key = |(colour, name): (usize, &&str)| {
            format!("<span class=\"key c{colour}\">{}</span>", escape(name))
        };
        let keys: String = names.iter().enumerate().map(key).collect();
        let _ = writeln!(self.body, "<figure><figcaption>{keys}</figcaption>{svg}</figure>");
    }

    fn facts(&mut self, facts: &[(&'static str, String)]) {
        let line =
            |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value));
        let lines: String = facts.iter().map(line).collect();
        let _ = writeln!(self.body, "<dl>{lines}</dl>");
    }

    /// A table whose rows have the colours of brokers.
    fn table(&mut self, headings: &[&str], rows: &[(usize, Vec<String>)]) {
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_lowercase());
        let head: String = names.map(|name| format!("<th>{name}</th>")).collect();
        let row = |(colour, cells): &(usize, Vec<String>)| {
            let cells: String =
                cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr class=\"c{colour}\">{cells}</tr>")
        };
        let rows: String = rows.iter().map(row).collect();
        let _ = writeln!(
            self.body,
            "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>\
             </table></div>"
        );
    }

    /// The curve of percentiles, latencies over time, and a table.
    fn latencies(&mut self, all: &[NamedStats<'_>]) {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let (mut curves, mut courses, mut rows) = (vec![], vec![], vec![]);
        for (colour, (name, stats)) in all.iter().enumerate() {
            let is_dashed = false;
            curves.push(PlotLine { colour, points: stats.curve(), is_dashed });
            let points = stats.points();
            let p50 = points.iter().map(|point| (point.at_s, point.p50_ms)).collect();
            let p99 = points.iter().map(|point| (point.at_s, point.p99_ms)).collect();
            courses.push(PlotLine { colour, points: p50, is_dashed });
            courses.push(PlotLine { colour, points: p99, is_dashed: true });
            let mut row = vec![(*name).to_owned()];
            row.extend(stats.latency_cells());
            row.extend([stats.done(), stats.failed()].map(|count| count.to_string()));
            rows.push((colour, row));
        }
        self.figure(&names, &plot::percentiles(&curves));
        self.text("Over time: the median as a line, the 99th percentile dashed.");
        self.figure(&names, &plot::over_time(&courses));
        let headings =
            ["broker", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "done", "failed"];
        self.table(&headings, &rows);
    }
}

/// A group of bars for each number of clients.
fn groups(
    compared: &Comparison,
    of: impl Fn(&BenchRound) -> f64,
    has_goal: bool,
) -> Vec<PlotGroup> {
    let levels = compared.brokers.first().map_or(0, |first| first.levels.len());
    let group = |index: usize| {
        let bars = compared.brokers.iter().map(|broker| broker.levels[index].median(&of));
        let bars: Vec<f64> = bars.collect();
        let name = clients_name(compared.brokers[0].levels[index].clients);
        PlotGroup { name, goal: has_goal.then(|| bars[0] * RATIO_MIN), bars }
    };
    (0..levels).map(group).collect()
}
