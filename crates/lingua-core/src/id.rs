//! The names and numbers that identify things.
//!
//! Start at [`NodeId`] for names that people choose (bounded, checked once, cheap to clone) and at
//! [`JobId`] for names that we make. The numbers ([`Epoch`], [`Fence`], [`Attempt`], [`Term`]) are
//! separate types so that the compiler refuses to compare a fence with an epoch.
//!
//! Invariant: a value of these types is well-formed; nothing downstream checks it again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name of a node or an instance, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Most nodes in one cell. A cell's sets are 128-bit masks, see [`SlotSet`](crate::SlotSet).
pub const CELL_NODES_MAX: usize = 100;

/// Most cells in one fleet.
pub const CELLS_MAX: usize = 1000;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("the name is empty; give 1 to {NAME_BYTES_MAX} characters")]
    Empty,
    /// Longer than [`NAME_BYTES_MAX`].
    #[error("the name has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A character that would need escaping in a URL, a log line or a store key.
    #[error(
        "the name has {found:?} at byte {at}; use letters, digits, '-', '_', '.', ':' and '@' only"
    )]
    BadCharacter {
        /// The character.
        found: char,
        /// Where it stands.
        at: usize,
    },
}

impl NameError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "INVALID_REQUEST"
    }
}

fn check_name(text: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { bytes: text.len() });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    match text.char_indices().find(|&(_, c)| !allowed(c)) {
        Some((at, found)) => Err(NameError::BadCharacter { found, at }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $Name(Arc<str>);

        impl $Name {
            /// Checks the text and takes it as a name.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check_name(text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $Name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A machine that does jobs.
    NodeId
);
name!(
    /// One scheduler process.
    InstanceId
);

/// One utterance to translate in one direction. We make these, so they have a fixed size; a client's
/// idempotency key is hashed into one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u128);

impl JobId {
    const PREFIX: &'static str = "job-";

    /// The job with this number (a time-ordered UUID, or the hash of an idempotency key).
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The number, for stores that keep it as bytes.
    pub const fn number(self) -> u128 {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 36];
        text[..4].copy_from_slice(Self::PREFIX.as_bytes());
        text[4..].copy_from_slice(&hex(self.0));
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
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
        if digits.len() != 32 {
            return Err(JobIdError);
        }
        let mut halves = [0; 2];
        let mut seen = 0;
        for (half, digits) in halves.iter_mut().zip(digits.as_bytes().chunks(16)) {
            for &digit in digits {
                let value = HEX_VALUES[usize::from(digit)];
                seen |= value;
                *half = (*half << 4) | u64::from(value & 15);
            }
        }
        match seen & NO_DIGIT {
            0 => Ok(Self((u128::from(halves[0]) << 64) | u128::from(halves[1]))),
            _ => Err(JobIdError),
        }
    }
}

/// 32 lower-case hexadecimal digits. Every job is written and read by name several times, and the
/// formatting of the standard library takes the long way round for 128 bits.
pub fn hex(number: u128) -> [u8; 32] {
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair[0] = HEX_DIGITS[usize::from(byte >> 4)];
        pair[1] = HEX_DIGITS[usize::from(byte & 15)];
    }
    digits
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Marks what is no digit in [`HEX_VALUES`].
const NO_DIGIT: u8 = 128;

/// The value of each lower-case hexadecimal digit.
const HEX_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < HEX_DIGITS.len() {
        values[HEX_DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

macro_rules! number {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $Name(pub u64);

        impl $Name {
            /// The next number for something that must rise strictly and must not be given twice
            /// even when the store forgets its last writes (a failover): it follows the clock, so
            /// a number that was lost is not reached again.
            #[must_use]
            pub fn after(self, now: u64) -> Self {
                Self(now.max(self.0 + 1))
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
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
    /// Number of a leader's reign.
    Term
);

/// One try of a job on one node, numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The first try.
    pub const FIRST: Self = Self(1);

    /// The try after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// At most [`CELL_NODES_MAX`] nodes that share one atomic unit of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u16);

impl CellId {
    /// The cell with this number, if it is one of the [`CELLS_MAX`].
    pub fn new(number: usize) -> Option<Self> {
        (number < CELLS_MAX).then_some(Self(number as u16))
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// A node's place in its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// The place with this number, if a cell has it.
    pub fn new(number: usize) -> Option<Self> {
        (number < CELL_NODES_MAX).then_some(Self(number as u8))
    }

    /// Its number.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused_with_what_is_wrong() {
        assert_eq!(NodeId::new(""), Err(NameError::Empty));
        let huge = "n".repeat(10 * 1024 * 1024);
        assert_eq!(NodeId::new(&huge), Err(NameError::TooLong { bytes: huge.len() }));
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
