//! For fuzzing: reads any bytes as records of the scripts.

use lingua_core::{JobId, SemanticRule};

use crate::cell::{profile, view};
use crate::cluster::read_change;
use crate::jobs::head::read_head;
use crate::usage::read_counts;

/// Reads bytes as the records of a job, a node, a lease and a tenant's usage, as a node's
/// capabilities and as a change. Capabilities that can be read are the same when they are written
/// and read again.
///
/// A bar separates the packed part of a record from its text, if there is one.
pub fn read_records(input: &[u8]) {
    read_head(JobId::new(1), input).ok();
    read_counts(input).ok();
    let bar = input.iter().position(|byte| *byte == b'|').unwrap_or(input.len());
    let (packed, text) = input.split_at(bar);
    view::read_any(packed, text);
    let text = String::from_utf8_lossy(input);
    read_change(&text).ok();
    let capabilities = format!("{}{text}", profile::VERSION);
    if let Ok(read) = profile::decode(&capabilities, 1) {
        let again = profile::decode(&profile::encode(&read, SemanticRule::Source), 1);
        assert_eq!(again.ok(), Some(read));
    }
}
