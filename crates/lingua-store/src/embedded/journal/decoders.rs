//! For fuzzing: reads any bytes as rows of the journal.

use lingua_core::JobId;

use super::record::{
    RECORD_VERSION, binding_key, read_binding, read_job, read_placement, write_binding,
    write_placement, write_spec, write_step,
};

/// Reads bytes as rows of this version. What can be read is the same when it is written and read
/// again.
///
/// A NUL separates the parts of a record: the rows of a job, a row's key from the row.
pub fn read_journal_rows(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let row = |part: &[u8]| [&[RECORD_VERSION], part].concat();
    let id = JobId::new(1);
    if let Some(job) = read_job(id, &row(first), &row(second)) {
        let rows = (write_spec(&job.record), write_step(&job.record, job.last_token));
        assert_eq!(read_job(id, &rows.0, &rows.1), Some(job));
    }
    let key = String::from_utf8_lossy(first);
    if let Some((owned, kept)) = read_binding(&key, &row(second)) {
        let again = read_binding(&binding_key(&owned), &write_binding(&kept));
        assert!(again.is_some_and(|(key, _)| key == owned));
    }
    if let Some((node, placement)) = read_placement(&key, &row(second)) {
        let again = read_placement(node.as_str(), &write_placement(&placement));
        assert!(again.is_some_and(|(_, again)| again.place == placement.place));
    }
    read_job(id, first, second);
}
