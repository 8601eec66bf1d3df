//! Labels of nodes, such as `eu` or `region:eu`: what its operator says a node is, or where.
//!
//! Start at [`RequiredLabels`]: a job goes only to nodes that have all of them. A [`LabelSet`] is
//! what a node has.
//!
//! Invariant: both are sorted and have no label twice, so that equal sets are equal values.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::id::{InlineText, NameError, check_name, is_text};

/// Longest label, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// Most labels of a node.
pub const LABELS_MAX: usize = 32;

/// Longest list of labels that a job may require, in bytes, with one between two labels.
pub const REQUIRED_BYTES_MAX: usize = 127;

/// Something that is true of a node. Held inline, so that it copies like a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeLabel(InlineText<{ LABEL_BYTES_MAX + 1 }>);

impl NodeLabel {
    /// Checks the text and takes it as a label: at most [`LABEL_BYTES_MAX`] bytes, otherwise as for
    /// the names of nodes.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_name(text, LABEL_BYTES_MAX)?;
        Ok(Self(InlineText::new(text)))
    }

    /// The label as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

is_text!(NodeLabel, NameError);

/// The labels that a node has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct LabelSet(Box<[NodeLabel]>);

impl LabelSet {
    /// The labels in order.
    pub fn as_slice(&self) -> &[NodeLabel] {
        &self.0
    }

    /// Whether the node has this label.
    pub fn contains(&self, label: NodeLabel) -> bool {
        self.0.binary_search(&label).is_ok()
    }
}

/// A node has too many labels, or a job requires too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum LabelsError {
    /// More than [`LABELS_MAX`].
    #[error("there are {count} labels; a node has at most {LABELS_MAX}")]
    TooMany { count: usize },
    /// More than [`REQUIRED_BYTES_MAX`].
    #[error(
        "the labels have {bytes} bytes with a separator between two; a job requires at most \
         {REQUIRED_BYTES_MAX}"
    )]
    TooLong { bytes: usize },
}

impl LabelSet {
    /// Checks that there are at most [`LABELS_MAX`].
    pub fn new(labels: impl IntoIterator<Item = NodeLabel>) -> Result<Self, LabelsError> {
        let labels = sorted(labels);
        match labels.len() {
            count if count > LABELS_MAX => Err(LabelsError::TooMany { count }),
            _ => Ok(Self(labels.into_boxed_slice())),
        }
    }
}

/// The labels that a node must have for a job. Held inline, because every query has some.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredLabels(InlineText<{ REQUIRED_BYTES_MAX + 1 }>);

impl RequiredLabels {
    /// Any node will do.
    pub const NONE: Self = Self(InlineText::EMPTY);

    /// Checks that they are short enough.
    pub fn new(labels: impl IntoIterator<Item = NodeLabel>) -> Result<Self, LabelsError> {
        let words: Vec<String> = sorted(labels).iter().map(NodeLabel::to_string).collect();
        let text = words.join(" ");
        match text.len() {
            bytes if bytes > REQUIRED_BYTES_MAX => Err(LabelsError::TooLong { bytes }),
            _ => Ok(Self(InlineText::new(&text))),
        }
    }

    /// The labels in order.
    pub fn iter(&self) -> impl Iterator<Item = NodeLabel> {
        let words = self.0.as_str().split_ascii_whitespace();
        words.map(|word| NodeLabel(InlineText::new(word)))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.as_str().is_empty()
    }

    /// The first that is not in this set.
    pub fn missing_from(&self, has: &LabelSet) -> Option<NodeLabel> {
        self.iter().find(|label| !has.contains(*label))
    }

    /// Whether all labels of another list are in this one.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.iter().all(|label| self.iter().any(|own| own == label))
    }
}

impl Default for RequiredLabels {
    fn default() -> Self {
        Self::NONE
    }
}

impl Hash for RequiredLabels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().hash(state);
    }
}

impl fmt::Debug for RequiredLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

fn sorted(labels: impl IntoIterator<Item = NodeLabel>) -> Vec<NodeLabel> {
    let mut labels: Vec<NodeLabel> = labels.into_iter().collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(words: &str) -> Vec<NodeLabel> {
        words.split_whitespace().map(|word| NodeLabel::new(word).unwrap()).collect()
    }

    #[test]
    fn equal_sets_of_labels_are_equal_values() {
        let required = |words| RequiredLabels::new(labels(words)).unwrap();
        assert_eq!(required("gpu eu eu"), required("eu gpu"));
        assert_eq!(required(""), RequiredLabels::NONE);
        assert!(required("eu gpu region:eu").contains_all(&required("region:eu eu")));
        assert!(!required("eu").contains_all(&required("eu gpu")));
        let has = LabelSet::new(labels("gpu eu gpu")).unwrap();
        assert_eq!(has.as_slice(), labels("eu gpu"));
        assert_eq!(required("eu gpu").missing_from(&has), None);
        assert_eq!(required("eu us").missing_from(&has), NodeLabel::new("us").ok());
    }

    #[test]
    fn too_many_and_too_long_labels_are_refused() {
        let long = "x".repeat(LABEL_BYTES_MAX);
        assert!(NodeLabel::new(&long).is_ok() && NodeLabel::new(&(long.clone() + "x")).is_err());
        assert!(NodeLabel::new("a b").is_err() && NodeLabel::new("").is_err());
        let other = "y".repeat(LABEL_BYTES_MAX);
        let two = labels(&format!("{long} {other}"));
        assert_eq!(RequiredLabels::new(two.clone()).unwrap().iter().collect::<Vec<_>>(), two);
        let three = labels(&format!("{long} {other} z"));
        assert_eq!(RequiredLabels::new(three), Err(LabelsError::TooLong { bytes: 129 }));
        let many: Vec<NodeLabel> =
            (0..33).map(|n| NodeLabel::new(&format!("l{n}")).unwrap()).collect();
        assert_eq!(LabelSet::new(many), Err(LabelsError::TooMany { count: 33 }));
    }
}
