//! Reads and writes records as the scripts pack them: little endian, without gaps.
//!
//! Invariant: a record that is too short is `StoreError::Corrupt`, never a panic.

use lingua_store::Result;

use crate::reply::corrupt;

/// The unread rest of a record.
pub(crate) struct RecordReader<'a>(pub(crate) &'a [u8]);

impl<'a> RecordReader<'a> {
    fn take(&mut self, bytes: usize) -> Result<[u8; 8]> {
        let mut padded = [0; 8];
        padded[..bytes].copy_from_slice(self.bytes(bytes)?);
        Ok(padded)
    }

    /// The next `bytes` bytes.
    pub(crate) fn bytes(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let Some((field, rest)) = self.0.split_at_checked(bytes) else {
            return Err(corrupt("a record that is too short"));
        };
        self.0 = rest;
        Ok(field)
    }

    /// A whole number of up to eight bytes.
    pub(crate) fn number(&mut self, bytes: usize) -> Result<u64> {
        self.take(bytes).map(u64::from_le_bytes)
    }

    /// A whole number that is stored as a double, which is the only kind that scripts have.
    pub(crate) fn double(&mut self) -> Result<u64> {
        self.signed().map(|number| number as u64)
    }

    /// The same, negative or not.
    pub(crate) fn signed(&mut self) -> Result<i64> {
        self.take(8).map(|bytes| f64::from_le_bytes(bytes) as i64)
    }

    /// Everything that is left, as text.
    pub(crate) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.0).map_err(|_| corrupt("a text that is not UTF-8"))
    }
}

/// A record that is being written.
#[derive(Default)]
pub(crate) struct RecordWriter(pub(crate) Vec<u8>);

impl RecordWriter {
    pub(crate) fn small(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    pub(crate) fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// A number below 2^53, as a double.
    pub(crate) fn double(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&(number as f64).to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}
