//! What came of a job, as bytes that are made when somebody reads them, and where they are wanted.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Bytes;

/// Something that can be kept as bytes.
pub trait Keep: Send + Sync {
    /// The bytes, always the same.
    fn bytes(&self) -> &[u8];

    /// How many there are at most, without making them.
    fn bytes_max(&self) -> usize;

    /// Writes them behind what is there already.
    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes());
    }
}

/// What came of a job: bytes, or what they are made from.
#[derive(Clone)]
pub struct Outcome(Form);

#[derive(Clone)]
enum Form {
    Bytes(Bytes),
    Later(Arc<dyn Keep>),
}

impl Outcome {
    /// Made into bytes when somebody reads them.
    pub fn later(kept: Arc<dyn Keep>) -> Self {
        Self(Form::Later(kept))
    }

    /// Writes its bytes behind what is there already.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Form::Bytes(bytes) => out.extend_from_slice(bytes),
            Form::Later(kept) => kept.write_to(out),
        }
    }

    /// How many bytes it has at most, without making them.
    pub fn bytes_max(&self) -> usize {
        match &self.0 {
            Form::Bytes(bytes) => bytes.len(),
            Form::Later(kept) => kept.bytes_max(),
        }
    }
}

impl Deref for Outcome {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Bytes(bytes) => bytes,
            Form::Later(kept) => kept.bytes(),
        }
    }
}

impl<B: Into<Bytes>> From<B> for Outcome {
    fn from(bytes: B) -> Self {
        Self(Form::Bytes(bytes.into()))
    }
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Outcome {}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outcome").field(&String::from_utf8_lossy(self)).finish()
    }
}
