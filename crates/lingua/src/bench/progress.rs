//! A bar on the terminal, for whoever waits.
//!
//! It moves between measurements only: drawing during one would be measured, too.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or nothing where nobody sees it.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(is_hidden: bool) -> Self {
        let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// So many steps are to come.
    pub(super) fn expect(&self, steps: u64) {
        self.bar.set_length(steps);
    }

    /// A step is done.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// So many steps are done.
    pub(super) fn at(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// What is being done.
    pub(super) fn say(&self, what: String) {
        self.bar.set_message(what);
        self.bar.tick();
    }

    /// Gone from the screen.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
