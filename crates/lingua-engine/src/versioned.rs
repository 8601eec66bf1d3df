//! Records as they are stored: a byte with the version of their form, then JSON.

use serde::{Deserialize, Serialize};

/// Most records are not longer.
const USUAL_BYTES: usize = 256;

/// Why the bytes of a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("the record has version {found}, and this scheduler reads only version {known}")]
    OtherVersion { found: u8, known: u8 },
    #[error("the record cannot be read: {0}")]
    Malformed(String),
}

pub(crate) fn encode(version: u8, record: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(version);
    serde_json::to_writer(&mut bytes, record).expect("texts and numbers can be written");
    bytes
}

pub(crate) fn decode<'a, R: Deserialize<'a>>(known: u8, bytes: &'a [u8]) -> Result<R, RecordError> {
    match bytes.split_first() {
        Some((&found, json)) if found == known => serde_json::from_slice(json).map_err(malformed),
        Some((&found, _)) => Err(RecordError::OtherVersion { found, known }),
        None => Err(RecordError::Malformed("it is empty".to_owned())),
    }
}

pub(crate) fn malformed(error: impl ToString) -> RecordError {
    RecordError::Malformed(error.to_string())
}
