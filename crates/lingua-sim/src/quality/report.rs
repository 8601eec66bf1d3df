//! The results, as tables for people and as JSON for programs.
//!
//! Start at [`QualityReport`]. It is the only file that knows what the output looks like.

use std::fmt::{self, Write};

use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

use super::QualityOptions;
use super::batch::QualityBatch;
use super::goals::GoalVerdict;
use super::sections::Section;
use super::tally::QualityOutcome;

/// The results of all sections and goals.
#[derive(Debug, Clone)]
pub struct QualityReport {
    options: QualityOptions,
    sections: Vec<Section>,
    batch: QualityBatch,
    verdicts: Vec<GoalVerdict>,
}

impl QualityReport {
    /// Builds the report from the runs of the sections and the results of the goals.
    pub fn new(
        options: QualityOptions,
        sections: Vec<Section>,
        batch: QualityBatch,
        verdicts: Vec<GoalVerdict>,
    ) -> Self {
        Self { options, sections, batch, verdicts }
    }

    /// The result of each goal.
    pub fn verdicts(&self) -> &[GoalVerdict] {
        &self.verdicts
    }

    /// Whether every goal holds.
    pub fn all_goals_met(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.passed)
    }

    /// One JSON object: options, sections with the numbers of every run, goals.
    pub fn to_json(&self) -> String {
        let seeds = self.options.seeds().map(|seed| seed.to_string());
        let sections = self.sections.iter().map(|section| self.section_json(section));
        let goals = self.verdicts.iter().map(verdict_json);
        object([
            ("jobs", self.options.jobs.to_string()),
            ("seeds", array(seeds)),
            ("sections", array(sections)),
            ("goals", array(goals)),
        ])
    }

    fn outcome(&self, section: &Section, row: usize, load_percent: u16) -> &QualityOutcome {
        let scenario = section.rows[row].scenario.at(load_percent);
        let scenario = scenario.seeded(self.options.seed).with_jobs(self.options.jobs);
        self.batch.outcome(&scenario)
    }

    fn section_json(&self, section: &Section) -> String {
        let runs = (0..section.rows.len()).flat_map(|row| {
            section.loads.iter().map(move |&load_percent| {
                let label = &section.rows[row].label;
                outcome_json(label, load_percent, self.outcome(section, row, load_percent))
            })
        });
        object([("title", string(section.title)), ("runs", array(runs))])
    }

    fn section_table(&self, section: &Section) -> Table {
        let loads =
            section.loads.iter().map(|&load| format!("load {:.2}", f64::from(load) / 100.0));
        let header: Vec<String> = [String::new()].into_iter().chain(loads).collect();
        let mut table = table(header);
        for (i, row) in section.rows.iter().enumerate() {
            let show = |&load| (section.show)(self.outcome(section, i, load));
            let cells: Vec<String> =
                [row.label.clone()].into_iter().chain(section.loads.iter().map(show)).collect();
            table.add_row(cells);
        }
        table
    }

    fn goals_table(&self) -> Table {
        let mut table = table(["goal", "measured", "limit", ""].map(String::from).to_vec());
        for verdict in &self.verdicts {
            let GoalVerdict { what, measured, limit, unit, passed } = verdict;
            table.add_row([
                what.clone(),
                format!("{} {unit}", short(*measured)),
                format!("{} {} {unit}", limit.sign(), limit.value()),
                if *passed { "pass" } else { "FAIL" }.to_owned(),
            ]);
        }
        table
    }
}

impl fmt::Display for QualityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for section in &self.sections {
            writeln!(
                f,
                "{}\n{}\n{}\n",
                section.title,
                section.legend,
                self.section_table(section)
            )?;
        }
        let seeds: Vec<String> = self.options.seeds().map(|seed| seed.to_string()).collect();
        writeln!(f, "Goals: the worst of seeds {} (theory: their mean)", seeds.join(", "))?;
        writeln!(f, "{}\n", self.goals_table())?;
        let failed = self.verdicts.iter().filter(|verdict| !verdict.passed).count();
        let (goals, runs, jobs) = (self.verdicts.len(), self.batch.len(), self.options.jobs);
        write!(f, "{} of {goals} goals met; {runs} runs of {jobs} jobs", goals - failed)
    }
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    table
}

/// A number with as many decimals as it needs to be told from its limit.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn verdict_json(verdict: &GoalVerdict) -> String {
    object([
        ("goal", string(&verdict.what)),
        ("measured", verdict.measured.to_string()),
        ("limit", verdict.limit.value().to_string()),
        ("must_be", string(verdict.limit.sign())),
        ("unit", string(verdict.unit)),
        ("passed", verdict.passed.to_string()),
    ])
}

fn outcome_json(label: &str, load_percent: u16, outcome: &QualityOutcome) -> String {
    object([
        ("who", string(label)),
        ("load_percent", load_percent.to_string()),
        ("arrived", array(outcome.arrived.iter().map(u64::to_string))),
        ("rejected", array(outcome.rejected.iter().map(u64::to_string))),
        ("wait_mean_s", outcome.wait_mean_s.to_string()),
        ("wait_p99_s", outcome.wait_p99_s.to_string()),
        ("response_mean_s", outcome.response_mean_s.to_string()),
        ("response_p99_s", outcome.response_p99_s.to_string()),
        ("tries_mean", outcome.tries_mean.to_string()),
        ("spread_min", outcome.spread_min.to_string()),
        ("same_node_share", outcome.same_node_share.to_string()),
    ])
}

fn object<const N: usize>(fields: [(&str, String); N]) -> String {
    let fields = fields.map(|(name, value)| format!("{}:{value}", string(name)));
    format!("{{{}}}", fields.join(","))
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("a String takes everything");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_strings_are_quoted() {
        assert_eq!(string("a \"b\" \\ ≤ \n"), r#""a \"b\" \\ ≤ \u000a""#);
    }

    #[test]
    fn numbers_are_short_but_tell() {
        assert_eq!([0.0, 123.456, 1.234, 0.01234].map(short), ["0", "123.5", "1.23", "0.0123"]);
    }
}
