//! Tables, colours and ages for a terminal.
//!
//! Start at [`TextTable`] and [`field_list`]. They make text; [`print_line`] prints it. Cells and
//! values are cleaned of what would change the terminal.
//!
//! Invariant: text has colours only if the caller asks for them, see [`colours`].

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::LazyLock;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::clean::clean;

/// Whether stdout shows colours: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn colours() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !unwanted
}

/// How a command that is printed as a hint starts this program.
pub(crate) fn program() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let started_as = std::env::args_os().next().unwrap_or_default();
        program_among(&started_as, &std::env::var_os("PATH").unwrap_or_default())
    });
    &PROGRAM
}

/// The bare name if it is on the search path, else the path by which the program was started.
fn program_among(started_as: &OsStr, search_path: &OsStr) -> String {
    const NAME: &str = "lingua";
    let is_there = std::env::split_paths(search_path).any(|folder| folder.join(NAME).is_file());
    let text = started_as.to_string_lossy();
    match is_there || text.is_empty() {
        true => NAME.to_owned(),
        false if text.contains(' ') => format!("'{text}'"),
        false => text.into_owned(),
    }
}

/// Prints a line. A closed pipe (`| head`) is no error.
pub(crate) fn print_line(text: impl Display) {
    print_text(&format!("{text}\n"));
}

/// Prints a text without a line end, and flushes.
pub(crate) fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

/// Overwrites the line that the cursor is in; without a line end.
pub(crate) fn print_over(text: &str) {
    print_text(&format!("\r\x1b[K{text}"));
}

/// The colour for the name of a node's state, a job's state or a verdict.
pub(crate) fn state_colour(state: &str) -> Option<Color> {
    match state.to_ascii_lowercase().as_str() {
        "ready" | "done" | "succeeded" | "chosen" | "yes" => Some(Color::Green),
        "offline" | "failed" | "stale" | "unhealthy" | "no" => Some(Color::Red),
        "draining" | "registering" | "degraded" | "cancelled" | "timed_out" => Some(Color::Yellow),
        _ => None,
    }
}

/// The text with the terminal's codes for a colour of a state.
pub(crate) fn paint(text: &str, colour: Option<Color>, colours: bool) -> String {
    let code = match colour {
        Some(Color::Green) if colours => 32,
        Some(Color::Yellow) if colours => 33,
        Some(Color::Red) if colours => 31,
        _ => return text.to_owned(),
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

pub(crate) fn cell(value: impl Display) -> Cell {
    Cell::new(clean(&value.to_string()))
}

/// A cell that is aligned to the right.
pub(crate) fn number(value: impl Display) -> Cell {
    cell(value).set_alignment(CellAlignment::Right)
}

/// A cell with the name of a state, in its colour.
pub(crate) fn state(name: &str) -> Cell {
    match state_colour(name) {
        Some(colour) => cell(name).fg(colour),
        None => cell(name),
    }
}

/// A table without lines, for people, `grep` and `awk`.
#[derive(Debug)]
pub(crate) struct TextTable {
    table: Table,
    colours: bool,
}

impl TextTable {
    /// A heading for each column; one that starts with `>` is aligned to the right.
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
        Self { table, colours }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.table.add_row(cells);
    }

    /// The table as text, or a sentence if it has no rows.
    pub(crate) fn finish(mut self, if_empty: &str) -> String {
        if self.table.is_empty() {
            return if_empty.to_owned();
        }
        for column in self.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let text = self.table.to_string();
        let mut lines = text.lines().map(str::trim_end);
        let heading = lines.next().unwrap_or_default();
        let heading = match self.colours {
            true => format!("\x1b[1m{heading}\x1b[0m"),
            false => heading.to_owned(),
        };
        lines.fold(heading, |text, line| text + "\n" + line)
    }
}

/// Names and values, one to a line.
pub(crate) fn field_list(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let line = |(name, value): &(&str, String)| {
        let name = format!("{name}:");
        format!("{name:width$}  {}", clean(value)).trim_end().to_owned()
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A duration with about two digits.
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

/// How long ago a moment was; 0 if the clocks of two machines disagree.
pub(crate) fn ago(then_ms: u64, now_ms: u64) -> String {
    format!("{} ago", age(now_ms.saturating_sub(then_ms)))
}

/// A line that says so if the scheduler showed what it saw last, while its store was away.
pub(crate) fn stale_note(as_of_ms: Option<u64>, now_ms: u64) -> String {
    let seen = as_of_ms.map(|then_ms| ago(then_ms, now_ms));
    seen.map_or(String::new(), |seen| format!("\n(The store does not answer; seen {seen}.)"))
}

pub(crate) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The items with blanks between them, or a dash if there are none.
pub(crate) fn words(items: impl IntoIterator<Item = impl Display>) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    or_dash(Some(words.join(" ")).filter(|text| !text.is_empty()))
}

pub(crate) fn yes_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_have_no_trailing_blanks() {
        let mut table = TextTable::new(&["NODE", "STATE", ">USED"], false);
        table.row([cell("a"), state("ready"), number("1/4")]);
        table.row([cell("a-long-name"), state("offline"), number("10/12")]);
        let text = table.finish("none");
        assert_eq!(
            text,
            "NODE         STATE     USED\n\
             a            ready      1/4\n\
             a-long-name  offline  10/12"
        );
    }

    #[test]
    fn colours_need_to_be_asked_for() {
        let text = |colours| {
            let mut table = TextTable::new(&["STATE"], colours);
            table.row([state("ready")]);
            table.finish("none")
        };
        assert!(!text(false).contains('\x1b'));
        assert!(text(true).contains('\x1b'));
        assert_eq!(paint("x", Some(Color::Red), false), "x");
    }

    #[test]
    fn an_empty_table_is_a_sentence() {
        assert_eq!(TextTable::new(&["NODE"], true).finish("no nodes"), "no nodes");
    }

    #[test]
    fn the_values_of_a_list_are_aligned() {
        let text = field_list(&[("id", "n1".into()), ("languages", "zh en".into())]);
        assert_eq!(text, "id:         n1\nlanguages:  zh en");
    }

    #[test]
    fn ages_have_about_two_digits() {
        let shown = [7, 1_500, 12_000, 180_000, 9_000_000, 200_000_000].map(age);
        assert_eq!(shown, ["7 ms", "1.5 s", "12 s", "3 min", "2 h", "2 days"]);
        assert_eq!(ago(10, 5), "0 ms ago");
    }
}
