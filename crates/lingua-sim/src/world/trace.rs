//! The trace of a world, as text.
//!
//! Start at [`Trace::note`]. Two runs of a seed are compared by their traces, so a trace holds
//! nothing that differs between machines: no addresses, no wall time, no order of a hash map.

use std::fmt::{self, Write as _};

/// The job and node that a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Subject {
    /// A job, by its number.
    pub(super) job: Option<usize>,
    /// A node, by its number.
    pub(super) node: Option<usize>,
}

impl Subject {
    pub(super) fn job(job: usize) -> Self {
        Self { job: Some(job), node: None }
    }

    pub(super) fn node(node: usize) -> Self {
        Self { job: None, node: Some(node) }
    }

    pub(super) fn both(job: usize, node: usize) -> Self {
        Self { job: Some(job), node: Some(node) }
    }

    /// Whether a line belongs to the timeline of `self`.
    fn wants(self, line: Self) -> bool {
        let same = |a: Option<usize>, b: Option<usize>| a.is_some() && a == b;
        line == Self::default() || same(self.job, line.job) || same(self.node, line.node)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.job, self.node) {
            (Some(job), _) => write!(f, "j{job}"),
            (None, Some(node)) => write!(f, "n{node}"),
            (None, None) => f.write_str("the world"),
        }
    }
}

/// The trace so far.
#[derive(Debug, Default)]
pub(super) struct Trace {
    text: String,
    lines: Vec<(usize, Subject)>,
}

impl Trace {
    /// Adds a line.
    pub(super) fn note(&mut self, at_ms: u64, about: Subject, what: fmt::Arguments<'_>) {
        self.lines.push((self.text.len(), about));
        // Writing to a string cannot fail.
        writeln!(self.text, "{:>7}.{:03} {what}", at_ms / 1000, at_ms % 1000).ok();
    }

    /// The last lines about this job or node.
    pub(super) fn timeline(&self, about: Subject, most: usize) -> String {
        let wanted: Vec<usize> =
            (0..self.lines.len()).filter(|&i| about.wants(self.lines[i].1)).collect();
        let from = wanted.len().saturating_sub(most);
        wanted[from..].iter().map(|&i| self.line(i)).collect()
    }

    fn line(&self, i: usize) -> &str {
        let end = self.lines.get(i + 1).map_or(self.text.len(), |next| next.0);
        &self.text[self.lines[i].0..end]
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
