//! `lingua metrics docs`: the reference of all metrics.
//!
//! It is made from what `/metrics` shows, so that it cannot name a metric that is not there.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Subcommand;

use crate::screen::print_text;

#[derive(Debug, Subcommand)]
pub(crate) enum MetricsCommand {
    /// Print the reference of all metrics: type, labels, meaning (Markdown).
    Docs,
}

pub(crate) fn run(MetricsCommand::Docs: MetricsCommand) -> anyhow::Result<()> {
    print_text(&docs(&lingua_server::metrics::example()?));
    Ok(())
}

const INTRODUCTION: &str = "\
# Metrics

`lingua metrics docs` wrote this page; `cargo xtask docs` writes it again.

`GET /metrics` shows them in the format of Prometheus (OpenMetrics); with tokens it needs one of
the role `admin`. Durations are in seconds. A histogram also has `_bucket`, `_sum` and `_count`.

The values of labels are bounded: `pair` is a pair of the pool table, or one that had nodes within
the last hour, else `other`; `route` is a route of the API, else `none`.
`lingua_nodes`, `lingua_nodes_overloaded`, `lingua_node_used_slots` and `lingua_node_max_slots` are
about the whole fleet and are kept up to date by the leader; those about jobs and connections are
about the instance.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// Label values that are listed; more are left to the reader.
const VALUES_MAX: usize = 10;

/// Labels whose values are made at run time.
const OPEN_LABELS: [&str; 5] = ["pair", "route", "method", "status", "version"];

type Labels<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn docs(exposition: &str) -> String {
    let mut out = INTRODUCTION.to_owned();
    for block in exposition.split("# HELP ").skip(1) {
        let mut lines = block.lines();
        let (name, help) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
        let kind = block.lines().find_map(|line| line.strip_prefix("# TYPE "));
        let kind = kind.and_then(|line| line.split_once(' ')).map_or("", |(_, kind)| kind);
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels = label_text(&labels(block));
        let help = help.trim_end_matches('.');
        writeln!(out, "| `{name}{suffix}` | {kind} | {labels} | {help} |").ok();
    }
    out
}

/// The labels of all lines of a metric, with their values.
fn labels(block: &str) -> Labels<'_> {
    let mut found = Labels::new();
    let samples = block.lines().filter(|line| !line.starts_with('#'));
    for list in samples.filter_map(|line| Some(line.split_once('{')?.1.rsplit_once('}')?.0)) {
        for (name, value) in list.split("\",").filter_map(|label| label.split_once("=\"")) {
            let values = found.entry(name).or_default();
            let value = value.trim_end_matches('"');
            if name != "le" && !values.contains(&value) {
                values.push(value);
            }
        }
    }
    found.remove("le");
    found
}

fn label_text(labels: &Labels<'_>) -> String {
    let text = |(name, values): (&&str, &Vec<&str>)| match OPEN_LABELS.contains(name) {
        true => format!("`{name}`"),
        false => {
            let mut values = values.clone();
            values.sort_unstable();
            let more = if values.len() > VALUES_MAX { ", …" } else { "" };
            values.truncate(VALUES_MAX);
            format!("`{name}`: {}{more}", values.join(", "))
        }
    };
    labels.iter().map(text).collect::<Vec<_>>().join("; ")
}
