//! What was measured, as a page that needs nothing but itself.
//!
//! Start at [`Page`]: a comparison, a fleet or a single load becomes cards, plots and tables, and
//! [`Page::html`] puts them together. `report/plot.rs` draws, `report/page.css` says how it looks.
//!
//! Invariant: no script, no font, no image comes from elsewhere; the file can be mailed.

use std::fmt::Write;

use super::broker::Kind;
use super::compare::{Comparison, Contestant, Level, Round, clients_name};
use super::fleet::Fleet;
use super::load::Mode;
use super::score::{QUANTILES, Score, Setup, shown_ms};
use super::talk::Talk;

mod plot;

use plot::{Bar, Group, Line, escape};

const STYLE: &str = include_str!("report/page.css");

/// A page in parts.
#[derive(Debug, Default)]
pub(super) struct Page {
    title: String,
    cards: String,
    body: String,
}

impl Page {
    /// A comparison.
    pub(super) fn of_comparison(compared: &Comparison) -> Self {
        let mut page = Self { title: "Scheduler and bare relay".to_owned(), ..Self::default() };
        for target in compared.targets() {
            page.card(&target.measured, &target.what, Some(target.is_met));
        }
        let lead = format!(
            "{} nodes with {} slots answer at once. Scheduler, relay and peers run in processes of their \
             own and are loaded in turn, {} rounds of {:.0} s each; figures are medians. The relay has the same \
             sockets and messages as the scheduler and does no scheduling.",
            compared.shape.nodes,
            compared.shape.slots,
            compared.rounds,
            compared.round.as_secs_f64()
        );
        page.text(&lead);
        page.section(
            "Jobs a second",
            "Closed loop: every client has one job at a time. The mark is 60 % of the relay.",
        );
        page.figure(
            &kinds(compared),
            &plot::bars(&groups(compared, |round| round.jobs_per_s, true), "jobs/s"),
        );
        page.section(
            "CPU time of the broker for each job",
            "User and system time of its process: the figure that depends least on what else the machine does.",
        );
        page.figure(
            &kinds(compared),
            &plot::bars(&groups(compared, |round| round.cpu_us, false), "µs"),
        );
        page.closed_table(compared);
        if let Some(caveat) = compared.caveat() {
            page.text(&caveat);
        }
        let open = format!(
            "Open loop: {:.0} jobs/s for each, half of what the scheduler can carry, every latency from the \
             moment at which the job should have been sent.",
            compared.rate
        );
        page.section("Latency", &open);
        let scores: Vec<(Kind, &Score)> = compared
            .contestants
            .iter()
            .filter_map(|contestant| Some((contestant.kind, contestant.open.score.as_ref()?)))
            .collect();
        page.latencies(&scores);
        page
    }

    /// Many nodes.
    pub(super) fn of_fleet(fleet: &Fleet) -> Self {
        let title = format!("{} nodes at once", fleet.shape.nodes);
        let mut page = Self { title, ..Self::default() };
        page.card(
            &format!("{:.1} KiB", fleet.node_kib()),
            "memory of the scheduler for each node",
            Some(fleet.is_met()),
        );
        page.card(&format!("{:.0}/s", fleet.beats_per_s), "heartbeats", None);
        page.card(&format!("{:.0}/s", fleet.outcome.jobs_per_s()), "jobs meanwhile", None);
        page.facts(&fleet.facts());
        page.section("Latency", "While all nodes send heartbeats; from the moment at which each job should have been sent.");
        page.latencies(&[(Kind::Scheduler, &fleet.outcome.score)]);
        page
    }

    /// People who talk.
    pub(super) fn of_talk(talk: &Talk) -> Self {
        let mut page = Self { title: "Talking sessions".to_owned(), ..Self::default() };
        let p99 = format!("{:.1} ms", talk.p99_ms());
        page.card(&p99, "added, p99", Some(talk.is_met()));
        page.facts(&talk.facts());
        page
    }

    /// One load.
    pub(super) fn of_load(score: &Score, setup: &Setup) -> Self {
        let how = match setup.mode {
            Mode::Closed { clients } => format!("closed loop, {clients} clients"),
            Mode::Open { per_s } => format!("open loop, {per_s} jobs/s asked for"),
        };
        let mut page = Self { title: "Jobs through a scheduler".to_owned(), ..Self::default() };
        page.card(&format!("{:.0}/s", score.done() as f64 / setup.seconds), "jobs", None);
        for (name, quantile) in QUANTILES {
            page.card(&format!("{} ms", shown_ms(score.quantile_ms(quantile))), name, None);
        }
        let failed = score.failed();
        page.card(&failed.to_string(), "failed", Some(failed == 0));
        page.text(&format!("{how}, {} nodes, {:.0} s", setup.nodes, setup.seconds));
        page.section("Latency", "");
        page.latencies(&[(Kind::Scheduler, score)]);
        page
    }

    /// The whole file.
    pub(super) fn html(&self, facts: &[(&'static str, String)]) -> String {
        let Self { title, cards, body } = self;
        let mut machine = Self::default();
        machine.section("Where this was measured", "");
        machine.facts(facts);
        let machine = machine.body;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title} · lingua bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <header><p class=\"kind\">lingua bench</p><h1>{title}</h1></header>\n\
             <div class=\"cards\">{cards}</div>\n{body}{machine}</main>\n</body>\n</html>\n"
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

    fn figure(&mut self, legend: &[(Kind, &str)], svg: &str) {
        let mark =
            |(kind, name): &(Kind, &str)| format!("<span class=\"key {kind}\">{name}</span>");
        let keys: String = legend.iter().map(mark).collect();
        let _ = writeln!(self.body, "<figure><figcaption>{keys}</figcaption>{svg}</figure>");
    }

    fn facts(&mut self, facts: &[(&'static str, String)]) {
        let line =
            |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value));
        let lines: String = facts.iter().map(line).collect();
        let _ = writeln!(self.body, "<dl>{lines}</dl>");
    }

    fn table(&mut self, headings: &[&str], rows: &[(Kind, Vec<String>)]) {
        let heading: String =
            headings.iter().map(|heading| format!("<th>{heading}</th>")).collect();
        let row = |(kind, cells): &(Kind, Vec<String>)| {
            let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr class=\"{kind}\">{cells}</tr>")
        };
        let rows: String = rows.iter().map(row).collect();
        let _ = writeln!(
            self.body,
            "<div class=\"wide\"><table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table></div>"
        );
    }

    fn closed_table(&mut self, compared: &Comparison) {
        let mut rows = vec![];
        let levels = compared.contestants.first().map_or(0, |first| first.levels.len());
        for index in 0..levels {
            for Contestant { kind, levels, .. } in &compared.contestants {
                let level = &levels[index];
                let ratio = compared.ratio(*kind, index, |round| round.jobs_per_s);
                rows.push((*kind, closed_row(*kind, level, ratio)));
            }
        }
        let headings = [
            "clients",
            "broker",
            "jobs/s",
            "of relay",
            "p50 ms",
            "p99 ms",
            "CPU µs",
            "load busy",
            "failed",
        ];
        self.table(&headings, &rows);
    }

    /// A curve of percentiles, their course over time, and a table.
    fn latencies(&mut self, scores: &[(Kind, &Score)]) {
        let legend: Vec<(Kind, &str)> =
            scores.iter().map(|(kind, _)| (*kind, kind.name())).collect();
        let curve = |(kind, score): &(Kind, &Score)| Line::solid(*kind, score.curve());
        self.figure(&legend, &plot::percentiles(&scores.iter().map(curve).collect::<Vec<_>>()));
        let mut lines = vec![];
        for (kind, score) in scores {
            let points = score.points();
            lines.push(Line::solid(*kind, points.iter().map(|p| (p.at_s, p.p50_ms)).collect()));
            lines.push(Line::dashed(*kind, points.iter().map(|p| (p.at_s, p.p99_ms)).collect()));
        }
        self.text("Over time: the median as a line, the 99th percentile dashed.");
        self.figure(&legend, &plot::over_time(&lines));
        let row = |(kind, score): &(Kind, &Score)| {
            let mut cells = vec![kind.to_string()];
            cells.extend(QUANTILES.map(|(_, quantile)| shown_ms(score.quantile_ms(quantile))));
            cells.extend([
                shown_ms(score.max_ms()),
                score.done().to_string(),
                score.failed().to_string(),
            ]);
            (*kind, cells)
        };
        let headings =
            ["broker", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "done", "failed"];
        self.table(&headings, &scores.iter().map(row).collect::<Vec<_>>());
    }
}

fn kinds(compared: &Comparison) -> Vec<(Kind, &'static str)> {
    compared
        .contestants
        .iter()
        .map(|contestant| (contestant.kind, contestant.kind.name()))
        .collect()
}

fn closed_row(kind: Kind, level: &Level, ratio: Option<f64>) -> Vec<String> {
    vec![
        level.clients.to_string(),
        kind.to_string(),
        format!("{:.0}", level.median(|round| round.jobs_per_s)),
        ratio.map_or("-".to_owned(), |ratio| format!("{:.0} %", ratio * 100.0)),
        shown_ms(level.median(|round| round.p50_ms)),
        shown_ms(level.median(|round| round.p99_ms)),
        format!("{:.1}", level.median(|round| round.cpu_us)),
        format!("{:.0} %", level.median(|round| round.generator_busy) * 100.0),
        level.failed().to_string(),
    ]
}

/// A group of bars for each number of clients.
fn groups(compared: &Comparison, of: fn(&Round) -> f64, has_goal: bool) -> Vec<Group> {
    let levels = compared.contestants.first().map_or(0, |first| first.levels.len());
    let group = |index: usize| {
        let bar = |contestant: &Contestant| Bar {
            kind: contestant.kind,
            value: contestant.levels[index].median(of),
        };
        let bars: Vec<Bar> = compared.contestants.iter().map(bar).collect();
        let relay = bars.iter().find(|bar| bar.kind == Kind::Relay).map(|bar| bar.value);
        let name = clients_name(compared.contestants[0].levels[index].clients);
        Group { name, bars, goal: relay.filter(|_| has_goal).map(|value| value * 0.6) }
    };
    (0..levels).map(group).collect()
}
