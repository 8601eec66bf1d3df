//! Tables, lists of facts and the progress bar on the terminal.

use comfy_table::{Cell, CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

/// A table without lines. Columns whose heading starts with `>` are aligned to the right.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    let align = |(text, heading): (&str, &&str)| match heading.starts_with('>') {
        true => Cell::new(text).set_alignment(CellAlignment::Right),
        false => Cell::new(text),
    };
    let names = headings.iter().map(|heading| heading.trim_start_matches('>'));
    table.set_header(names.zip(headings).map(align));
    for row in rows {
        table.add_row(row.iter().map(String::as_str).zip(headings).map(align));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Names and values, one to a line.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| format!("{:width$}  {value}", format!("{name}:"));
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `met` or `missed`.
pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Milliseconds with as many digits as a reader needs.
pub(crate) fn shown_ms(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

/// A progress bar. It moves between measurements only: drawing costs CPU time, too.
#[derive(Debug)]
pub(crate) struct BenchProgress(ProgressBar);

impl BenchProgress {
    pub(crate) fn new(is_hidden: bool) -> Self {
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(crate) fn set_total(&self, steps: u64) {
        self.0.set_length(steps);
    }

    pub(crate) fn set_done(&self, steps: u64) {
        self.0.set_position(steps);
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    pub(crate) fn show(&self, what: String) {
        self.0.set_message(what);
        self.0.tick();
    }

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let rows = [vec!["a".to_owned(), "7".to_owned()], vec!["bb".to_owned(), "12".to_owned()]];
        assert_eq!(table(&["NAME", ">N"], &rows), "NAME   N\na      7\nbb    12");
    }

    #[test]
    fn the_values_of_facts_stand_below_each_other() {
        assert_eq!(facts(&[("a", "1".into()), ("bcd", "2".into())]), "a:    1\nbcd:  2");
    }
}
