//! The names and numbers that identify things.
//!
//! Start at [`NodeId`] for names that people choose (bounded, checked once, cheap to clone) and at
//! [`JobId`] for ids that Lingua makes. The numbers ([`Epoch`], [`Fence`], [`Attempt`], [`Term`])
//! are separate types so that the compiler refuses to compare a fence with an epoch.
//!
//! Invariant: a value of these types is well-formed; nothing downstream checks it again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name of a node or an instance, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Longest name of a tenant, in bytes.
pub const TENANT_BYTES_MAX: usize = 63;

/// Most nodes in one cell. A cell's sets are 128-bit masks, see [`SlotSet`](crate::SlotSet).
pub const CELL_NODES_MAX: usize = 100;

/// Most cells in one fleet.
pub const CELLS_MAX: usize = 1000;

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum NameError {
    /// The text is empty.
    #[error("the name is empty; give at least one character")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`], or than a tenant or a label may be.
    #[error("the name has {bytes} bytes; at most {max} are allowed")]
    TooLong { bytes: usize, max: usize },
    /// A character that would need escaping in a URL, a log line or a store key.
    #[error(
        "the name has {found:?} at byte {at}; use letters, digits, '-', '_', '.', ':' and '@' only"
    )]
    BadCharacter { found: char, at: usize },
    /// `.` and `..` are steps of a path, not names.
    #[error("the name is only dots, which a URL would leave out; add a letter or a digit")]
    OnlyDots,
}

pub(crate) fn check_name(text: &str, max: usize) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > max {
        return Err(NameError::TooLong { bytes: text.len(), max });
    }
    if matches!(text, "." | "..") {
        return Err(NameError::OnlyDots);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    match text.char_indices().find(|&(_, c)| !allowed(c)) {
        Some((at, found)) => Err(NameError::BadCharacter { found, at }),
        None => Ok(()),
    }
}

/// Reads and prints a type as its text, in debug output too.
macro_rules! is_text {
    ($Type:ident, $Error:ident) => {
        impl std::str::FromStr for $Type {
            type Err = $Error;
            fn from_str(text: &str) -> Result<Self, $Error> {
                Self::new(text)
            }
        }

        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use is_text;

macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name(Arc<str>);

        impl $Name {
            /// Checks the text and takes it as a name.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check_name(text, NAME_BYTES_MAX)?;
                Ok(Self(Arc::from(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        is_text!($Name, NameError);
    };
}

name!(
    /// The name of a machine that does jobs.
    NodeId
);
name!(
    /// The name of a scheduler process.
    InstanceId
);
name!(
    /// The name of a token. Node ids belong to it.
    TokenName
);

/// A text of less than `N` bytes that copies like a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InlineText<const N: usize> {
    // Zero-padded, and the length last: comparing the array compares the texts.
    bytes: [u8; N],
}

impl<const N: usize> InlineText<N> {
    pub(crate) const EMPTY: Self = Self { bytes: [0; N] };

    pub(crate) fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[N - 1] = text.len() as u8;
        Self { bytes }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.bytes[N - 1])]).unwrap_or_default()
    }
}

/// Who owns jobs, nodes and keys. Held inline, because every query has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(InlineText<{ TENANT_BYTES_MAX + 1 }>);

impl Tenant {
    /// The tenant of everybody whose token names none.
    pub const DEFAULT: &'static str = "default";

    /// Checks the text and takes it as a name: at most [`TENANT_BYTES_MAX`] bytes, otherwise as for
    /// nodes.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_name(text, TENANT_BYTES_MAX)?;
        Ok(Self(InlineText::new(text)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Default for Tenant {
    fn default() -> Self {
        Self(InlineText::new(Self::DEFAULT))
    }
}

is_text!(Tenant, NameError);

/// Identifies one utterance to translate in one direction. Lingua makes these, so they have a fixed
/// size; a client's idempotency key is hashed into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    const PREFIX: &'static str = "job-";

    /// The job with this number (a time-ordered UUID, or the hash of an idempotency key).
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The id as 128 bits, as stores and the bus write it.
    pub const fn number(self) -> u128 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:032x}", Self::PREFIX, self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not `job-` and 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job id is 'job-' and 32 lower-case hexadecimal digits")]
pub struct JobIdError;

impl FromStr for JobId {
    type Err = JobIdError;

    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let digits = text.strip_prefix(Self::PREFIX).ok_or(JobIdError)?;
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 32 || !digits.bytes().all(is_digit) {
            return Err(JobIdError);
        }
        u128::from_str_radix(digits, 16).map(Self).map_err(|_| JobIdError)
    }
}

/// 32 lower-case hexadecimal digits, for keys of stores.
pub fn hex(number: u128) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|i| DIGITS[(number >> (124 - 4 * i)) as usize & 15])
}

macro_rules! number {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $Name(pub u64);

        impl $Name {
            /// The next number. It follows the clock, so that a number is not given twice even
            /// when the store forgets its last writes in a failover.
            #[must_use]
            pub fn after(self, now: u64) -> Self {
                Self(now.max(self.0 + 1))
            }
        }

    };
}

number!(
    /// Number of a node's incarnation: a new registration of the same id raises it, old leases die.
    Epoch
);
number!(
    /// Ever-rising number given with each lease; the node refuses one older than it has seen.
    Fence
);
number!(
    /// Number of a leadership: each election raises it.
    Term
);

/// One try of a job on one node, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first attempt of every job.
    pub const FIRST: Self = Self(1);

    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of a cell: at most [`CELL_NODES_MAX`] nodes that share one atomic unit of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u16);

impl CellId {
    /// The cell with this number, if it is one of the [`CELLS_MAX`].
    pub fn new(number: usize) -> Option<Self> {
        (number < CELLS_MAX).then_some(Self(number as u16))
    }

    /// The number, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A node's position in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// The position with this number, if a cell has it.
    pub fn new(number: usize) -> Option<Self> {
        (number < CELL_NODES_MAX).then_some(Self(number as u8))
    }

    /// The number, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

macro_rules! shown_as_number {
    ($($Name:ident),*) => {
        $(impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })*
    };
}

shown_as_number!(Epoch, Fence, Term, Attempt, Slot);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused_with_what_is_wrong() {
        assert_eq!(NodeId::new(""), Err(NameError::Empty));
        let huge = "n".repeat(10 * 1024 * 1024);
        assert_eq!(
            NodeId::new(&huge),
            Err(NameError::TooLong { bytes: huge.len(), max: NAME_BYTES_MAX })
        );
        assert_eq!(NodeId::new(".."), Err(NameError::OnlyDots));
        assert!(NodeId::new("...").is_ok() && NodeId::new(".a").is_ok());
        assert_eq!(NodeId::new("a b"), Err(NameError::BadCharacter { found: ' ', at: 1 }));
        assert_eq!(NodeId::new("节点"), Err(NameError::BadCharacter { found: '节', at: 0 }));
        assert_eq!(NodeId::new("node-A1B2C3D4").unwrap().as_str(), "node-A1B2C3D4");
        assert!(NodeId::new(&"n".repeat(NAME_BYTES_MAX)).is_ok());
    }

    #[test]
    fn a_job_id_reads_back_as_it_was_written() {
        for number in [0, 1, u128::MAX, 0x0192_1f3e << 80] {
            let id = JobId::new(number);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "job-", "job-1", "JOB-00000000000000000000000000000001"] {
            assert_eq!(bad.parse::<JobId>(), Err(JobIdError));
        }
        assert!("job-+0000000000000000000000000000001".parse::<JobId>().is_err());
        assert!("job-0000000000000000000000000000000A".parse::<JobId>().is_err());
    }

    #[test]
    fn rising_numbers_follow_the_clock_but_never_fall_back() {
        assert_eq!(Epoch(5).after(1000), Epoch(1000));
        assert_eq!(Epoch(1000).after(1000), Epoch(1001));
        assert_eq!(Epoch(2000).after(1000), Epoch(2001));
    }

    #[test]
    fn cells_and_slots_are_bounded() {
        assert!(CellId::new(CELLS_MAX).is_none() && CellId::new(CELLS_MAX - 1).is_some());
        assert!(Slot::new(CELL_NODES_MAX).is_none() && Slot::new(CELL_NODES_MAX - 1).is_some());
    }
}
