//! The display of the demo: a bar for each node, and counts of jobs.
//!
//! Start at [`DemoView::draw`]. [`DemoTerminal`] shows it without flicker.

use comfy_table::Color;

use super::conversation::ConversationStats;
use super::traffic::TrafficRate;
use crate::screen::{paint, print_text, program, state_colour};

/// Longest bar, in characters; each is a slot.
const BAR_MAX: u32 = 12;

#[derive(Debug, Clone)]
pub(super) struct NodeBar {
    pub(super) name: String,
    pub(super) languages: String,
    pub(super) state: String,
    pub(super) used: u32,
    pub(super) max: u32,
    pub(super) note: String,
}

#[derive(Debug, Clone, Default)]
pub(super) struct DemoView {
    pub(super) url: String,
    pub(super) seconds: u64,
    pub(super) bars: Vec<NodeBar>,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) last_error: Option<String>,
    pub(super) retried: u64,
    pub(super) open: u64,
    pub(super) queued: u64,
    pub(super) sessions: u64,
    pub(super) conversations: ConversationStats,
    pub(super) rate: TrafficRate,
}

impl DemoView {
    /// Share of used slots of the nodes that take jobs, from 0 to 1.
    pub(super) fn busy(&self) -> f64 {
        let ready = self.bars.iter().filter(|bar| bar.state == "ready");
        let (used, max) = ready.fold((0, 0), |(used, max), bar| (used + bar.used, max + bar.max));
        f64::from(used) / f64::from(max.max(1))
    }

    /// One line, for output that is no terminal.
    pub(super) fn line(&self) -> String {
        let Self { seconds, done, failed, retried, queued, rate, .. } = self;
        let TrafficRate { jobs_per_s, p50_ms, p95_ms } = rate;
        let busy = self.busy() * 100.0;
        format!(
            "{seconds} s: {done} done, {failed} failed, {retried} retried, {queued} waiting, \
             {jobs_per_s:.1} jobs/s, p50 {p50_ms} ms, p95 {p95_ms} ms, {busy:.0} % busy, {}",
            self.sessions_line()
        )
    }

    /// The whole display.
    pub(super) fn draw(&self, colours: bool) -> String {
        let Self { url, seconds, done, failed, retried, open, queued, rate, .. } = self;
        let TrafficRate { jobs_per_s, p50_ms, p95_ms } = rate;
        let bars: String = self.bars.iter().map(|bar| bar.draw(colours) + "\n").collect();
        let colour = Some(Color::Red).filter(|_| *failed > 0);
        let failed = paint(&format!("{failed} failed"), colour, colours);
        let why = self.last_error.as_ref().map(|code| format!(" (last: {code})"));
        let why = why.unwrap_or_default();
        format!(
            "Lingua demo at {url}, {seconds} s\n\n{bars}\n  \
             jobs     {done} done   {failed}{why}   {retried} retried\n  \
             now      {open} open   {queued} waiting for a slot   fleet {:.0} % busy\n  \
             speed    {jobs_per_s:.1} jobs/s   p50 {p50_ms} ms   p95 {p95_ms} ms\n  \
             talk     {}\n           {}\n\n{}\n",
            self.busy() * 100.0,
            self.sessions_line(),
            self.conversations.latest,
            self.hints(),
        )
    }

    /// Counts of the sessions.
    fn sessions_line(&self) -> String {
        let ConversationStats { results, missing, out_of_order, .. } = &self.conversations;
        let order = match out_of_order {
            0 => "in order".to_owned(),
            wrong => format!("{wrong} OUT OF ORDER"),
        };
        format!("{} sessions, {results} results {order}, {missing} missing", self.sessions)
    }

    /// Commands to try in another terminal.
    pub(super) fn hints(&self) -> String {
        let (url, lingua) = (&self.url, program());
        let body = r#"{"src_lang":"zh","tgt_lang":"en","text":"你好"}"#;
        format!(
            "  Try, in another terminal:\n    curl -s {url}/v1/translate -d '{body}'\n    \
             {lingua} explain --src zh --tgt en --url {url}\n    \
             {lingua} say --from zh --to en --text 你好 --url {url}\n    \
             {lingua} drain fast --url {url}\n  Ctrl-C ends it."
        )
    }
}

impl NodeBar {
    fn draw(&self, colours: bool) -> String {
        let Self { name, languages, state, used, max, note } = self;
        let shown = (*max).min(BAR_MAX);
        let full = (used * shown).div_ceil(*max.max(&1)).min(shown);
        let bar = "█".repeat(full as usize) + &"░".repeat((shown - full) as usize);
        let colour = state_colour(state);
        let gap = " ".repeat((BAR_MAX - shown) as usize);
        let state = paint(&format!("{state:<9}"), colour, colours);
        let bar = paint(&bar, colour, colours);
        let text =
            format!("  {name:<8} {languages:<12} {state} {bar}{gap} {used:>2}/{max:<2}  {note}");
        text.trim_end().to_owned()
    }
}

/// The terminal of the display; it is restored when this is dropped.
#[derive(Debug)]
pub(super) struct DemoTerminal;

impl DemoTerminal {
    /// Switches to the alternate screen and hides the cursor.
    pub(super) fn open() -> Self {
        print_text("\x1b[?1049h\x1b[?25l\x1b[2J");
        Self
    }

    /// Replaces what is shown.
    pub(super) fn show(&self, view: &str) {
        print_text(&format!("\x1b[H{}\x1b[J", view.replace('\n', "\x1b[K\n")));
    }
}

impl Drop for DemoTerminal {
    fn drop(&mut self) {
        print_text("\x1b[?25h\x1b[?1049l");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(used: u32, max: u32, state: &str) -> NodeBar {
        let (name, languages) = ("fast".to_owned(), "zh en".to_owned());
        NodeBar { name, languages, state: state.to_owned(), used, max, note: String::new() }
    }

    #[test]
    fn a_bar_has_a_character_for_each_slot() {
        let text = bar(3, 4, "ready").draw(false);
        assert_eq!(text, "  fast     zh en        ready     ███░          3/4");
        let text = bar(30, 60, "ready").draw(false);
        assert!(text.contains(&("█".repeat(6) + &"░".repeat(6))), "{text}");
        assert!(bar(0, 0, "gone").draw(false).contains(" 0/0"));
    }

    #[test]
    fn only_nodes_that_take_jobs_count_as_busy() {
        let bars = vec![bar(3, 4, "ready"), bar(4, 4, "offline")];
        let view = DemoView { bars, ..DemoView::default() };
        assert!((view.busy() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn the_view_has_colours_only_if_asked_and_shows_commands() {
        let bars = vec![bar(3, 4, "ready")];
        let view = DemoView { bars, url: "http://h:1".into(), failed: 1, ..DemoView::default() };
        assert!(!view.draw(false).contains('\x1b'));
        assert!(view.draw(true).contains('\x1b'));
        assert!(view.draw(false).contains("curl -s http://h:1/v1/translate"));
        assert!(view.line().contains("75 % busy"));
    }
}
