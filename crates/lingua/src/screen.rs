//! How things look in a terminal: tables, colours, ages.
//!
//! Start at [`Sheet`] and [`card`]. What is made here is text; [`say`] prints it.
//!
//! Invariant: there are colours only where the caller says so, see [`colours`].

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

/// Whether stdout shows colours: it is a terminal, and nobody asked for none.
pub(crate) fn colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !unwanted
}

/// Prints a line. Whoever closed the pipe (`| head`) has seen enough: that is no error.
pub(crate) fn say(text: impl Display) {
    put(&format!("{text}\n"));
}

/// Prints a text as it is, at once.
pub(crate) fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// How a value feels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Good,
    Busy,
    Bad,
    Plain,
}

impl Mood {
    /// Of the name of a state, be it a node's, a job's or a verdict.
    pub(crate) fn of_state(state: &str) -> Self {
        match state.to_ascii_lowercase().as_str() {
            "ready" | "done" | "succeeded" | "chosen" | "yes" => Self::Good,
            "offline" | "failed" | "stale" | "unhealthy" | "no" => Self::Bad,
            "draining" | "registering" | "degraded" | "cancelled" | "timed_out" => Self::Busy,
            _ => Self::Plain,
        }
    }

    fn colour(self) -> Option<Color> {
        match self {
            Self::Good => Some(Color::Green),
            Self::Busy => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
            Self::Plain => None,
        }
    }

    /// The text in its colour, as a terminal understands it.
    pub(crate) fn paint(self, text: &str, colours: bool) -> String {
        let code = match self {
            _ if !colours => return text.to_owned(),
            Self::Good => 32,
            Self::Busy => 33,
            Self::Bad => 31,
            Self::Plain => return text.to_owned(),
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A cell of a table.
pub(crate) fn cell(value: impl Display) -> Cell {
    Cell::new(value)
}

/// A cell with a number: digits below digits.
pub(crate) fn number(value: impl Display) -> Cell {
    Cell::new(value).set_alignment(CellAlignment::Right)
}

/// A cell with the name of a state.
pub(crate) fn state(name: &str) -> Cell {
    match Mood::of_state(name).colour() {
        Some(colour) => Cell::new(name).fg(colour),
        None => Cell::new(name),
    }
}

/// A table without lines, made for eyes, `grep` and `awk` alike.
#[derive(Debug)]
pub(crate) struct Sheet {
    table: Table,
    colours: bool,
    rows: usize,
}

impl Sheet {
    /// A table with a heading for each column; one that starts with `>` stands on the right.
    pub(crate) fn new(headings: &[&str], colours: bool) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.force_no_tty();
        if colours {
            table.enforce_styling();
        }
        table.set_header(headings.iter().map(|heading| match heading.strip_prefix('>') {
            Some(heading) => number(heading),
            None => cell(heading),
        }));
        Self { table, colours, rows: 0 }
    }

    /// Adds a line.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.table.add_row(cells);
        self.rows += 1;
    }

    /// The table as text, or a sentence if it has no lines.
    pub(crate) fn finish(mut self, if_empty: &str) -> String {
        if self.rows == 0 {
            return if_empty.to_owned();
        }
        for column in self.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let text = self.table.to_string();
        let Some((heading, rest)) = text.split_once('\n') else { return text };
        let heading = match self.colours {
            true => format!("\x1b[1m{}\x1b[0m", heading.trim_end()),
            false => heading.trim_end().to_owned(),
        };
        let lines = rest.lines().map(str::trim_end);
        std::iter::once(heading.as_str()).chain(lines).collect::<Vec<_>>().join("\n")
    }
}

/// One thing with all its fields, one to a line.
pub(crate) fn card(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let line = |(name, value): &(&str, String)| {
        let name = format!("{name}:");
        format!("{name:width$}  {value}").trim_end().to_owned()
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// How long ago, or how long: two digits are enough to judge it.
pub(crate) fn age(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..10 => format!("{:.1} s", ms as f64 / 1000.0),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// How long ago a moment was; clocks of two machines may differ by a little.
pub(crate) fn ago(then_ms: u64, now_ms: u64) -> String {
    format!("{} ago", age(now_ms.saturating_sub(then_ms)))
}

/// A value, or a dash.
pub(crate) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `yes` or `no`.
pub(crate) fn yes_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_have_no_trailing_blanks() {
        let mut sheet = Sheet::new(&["NODE", "STATE", ">USED"], false);
        sheet.row([cell("a"), state("ready"), number("1/4")]);
        sheet.row([cell("a-long-name"), state("offline"), number("10/12")]);
        let text = sheet.finish("none");
        assert_eq!(
            text,
            "NODE         STATE     USED\n\
             a            ready      1/4\n\
             a-long-name  offline  10/12"
        );
    }

    #[test]
    fn colours_only_where_they_are_asked_for() {
        let text = |colours| {
            let mut sheet = Sheet::new(&["STATE"], colours);
            sheet.row([state("ready")]);
            sheet.finish("none")
        };
        assert!(!text(false).contains('\x1b'));
        assert!(text(true).contains('\x1b'));
        assert_eq!(Mood::Bad.paint("x", false), "x");
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        assert_eq!(Sheet::new(&["NODE"], true).finish("no nodes"), "no nodes");
    }

    #[test]
    fn cards_line_up_their_values() {
        let text = card(&[("id", "n1".into()), ("languages", "zh en".into())]);
        assert_eq!(text, "id:         n1\nlanguages:  zh en");
    }

    #[test]
    fn ages_keep_to_two_digits() {
        let shown = [7, 1_500, 12_000, 180_000, 9_000_000, 200_000_000].map(age);
        assert_eq!(shown, ["7 ms", "1.5 s", "12 s", "3 min", "2 h", "2 days"]);
        assert_eq!(ago(10, 5), "0 ms ago");
    }
}
