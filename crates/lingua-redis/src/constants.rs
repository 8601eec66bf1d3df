//! The constants of the scripts. They are defined here, once; a script has their names.
//!
//! Start at [`inline`]: it writes the values into the text of a script. As local variables they
//! would cost 8 % of a reservation, because every function that uses one has to capture it.
//!
//! Invariant: a name in capitals in a script is one of these, or it is `KEYS` or `ARGV`.

use lingua_core::job::JobState;
use lingua_core::node::SLOTS_MAX;

#[cfg(test)]
mod tests;

macro_rules! numbers {
    ($($(#[$doc:meta])* $NAME:ident = $value:expr;)*) => {
        $($(#[$doc])* pub(crate) const $NAME: u64 = $value as u64;)*

        const NUMBERS: &[(&str, u64)] = &[$((stringify!($NAME), $NAME),)*];
    };
}

numbers! {
    // From the core and the contract.
    BAND = lingua_core::roster::BAND_PERCENT;
    BINDING_REFRESH_PART = lingua_store::contract::BINDING_REFRESH_PART;
    CELLS_MAX = lingua_core::CELLS_MAX;
    CELL_NODES_MAX = lingua_core::CELL_NODES_MAX;
    CONTENTION = lingua_core::roster::CONTENTION_PERCENT;
    COST_MS_MAX = lingua_core::node::COST_MS_MAX;
    FIRST_END = first_end();
    DAY_MS = lingua_store::contract::DAY_MS;
    USAGE_COUNTS = lingua_store::contract::USAGE_COUNTS;
    USAGE_DAYS = lingua_store::contract::USAGE_DAYS;
    FLEXIBLE_FROM = lingua_core::roster::FLEXIBLE_FROM;
    KEPT_PERCENT = lingua_core::roster::KEPT_PERCENT;
    CELL_NODES_USUAL = lingua_store::contract::CELL_NODES_USUAL;
    LIMIT_NEW = lingua_core::roster::LIMIT_NEW;
    RANDOM_FACTOR = lingua_core::roster::RANDOM_FACTOR;
    RANDOM_MODULUS = lingua_core::roster::RANDOM_MODULUS;
    REAP_BATCH = lingua_store::contract::REAP_BATCH;
    SHARE_UNIT = lingua_core::roster::SHARE_UNIT;
    SPARED_PERCENT = lingua_core::roster::SPARED_PERCENT;
    SPREAD_FROM = lingua_store::contract::SPREAD_FROM;
    WEIGHT_UNIT = lingua_core::roster::WEIGHT_UNIT;

    /// `hot`: one time, then three doubles (cost, weight, room) for each slot.
    HOT_HEAD = 8;
    HOT_BYTES = 24;
    /// Where weight and room are in these.
    HOT_WEIGHT = 8;
    HOT_ROOM = 16;

    /// `room` = free slots × FREE_UNIT + limit × LIMIT_UNIT + slots × MAX_UNIT + flexibility.
    FLEXIBILITY_BELOW = 1 << 8;
    MAX_UNIT = FLEXIBILITY_BELOW;
    MAX_BELOW = 1 << 11;
    LIMIT_UNIT = MAX_UNIT * MAX_BELOW;
    FREE_UNIT = LIMIT_UNIT * MAX_BELOW;

    /// A candidate's code while it is scored: see `reserve.lua`.
    CODE_AT_LIMIT = FLEXIBILITY_BELOW;
    CODE_SLOT = 2 * CODE_AT_LIMIT;

    /// How an attempt ended, for `finish`; the third is [`UNKNOWN`].
    SUCCEEDED = 1;
    FAILED = 2;

    COLD_BYTES = 37;
    /// Where the gate is in a cold record, from 1.
    COLD_GATE_AT = 27;
    FRESH_BYTES = 8;

    PHASE_RESERVED = 0;
    PHASE_COMMITTED = 1;

    /// A node's gate is its state × STATE_UNIT + one bit for each resource that is exhausted.
    STATE_UNIT = 8;
    READY = 0;
    REGISTERING = 1;
    DEGRADED = 2;
    DRAINING = 3;
    OFFLINE = 4;

    BALANCED = 0;
    SAMPLE = 1;
    LEAST_LOADED = 2;

    /// No slot is pinned.
    SLOT_NONE = 255;
    /// `finish` replies slot + FREED_USED × used + FREED_MAX × slots.
    FREED_USED = 128;
    FREED_MAX = FREED_USED * MAX_BELOW;

    /// Positions in a job's head, see `scripts/prelude/jobs.lua`. Those after the owner count from
    /// the owner's end.
    OWNER_LENGTH_AT = 6;
    CREATED_AT = 17;
    /// Until when an ended job is kept.
    KEPT_AT = 25;
    FLAGS_AT = 49;
    /// The flag of a job with an outcome; the lower one is [`RECOVERABLE`].
    HAS_OUTCOME = 2;
    /// Hexadecimal digits of a job's id.
    ID_BYTES = 32;
    /// Bytes of a job's id in the record of an idempotency key.
    KEY_JOB_BYTES = 16;

    /// Bytes that an ended job counts beside its specification and outcome.
    RECORD_BYTES = lingua_store::contract::JOB_RECORD_BYTES;
    /// Ended jobs that one step drops at most.
    DROP_BATCH = 64;
    /// Changes that one clean-up publishes at most.
    UNPUBLISHED_MAX = 64;
    /// Lua's `unpack` has a bound.
    SETS_AT_ONCE = 500;
    /// A set has a bit for each slot; it is read as four words.
    SET_BYTES = 16;
    /// A byte of a set in which every slot is taken.
    FULL_BYTE = u8::MAX;
    WORD_BELOW = 1_u64 << 32;
    /// A lease: slot, phase, attempt, fence.
    LEASE_BYTES = 14_u64;
    /// The largest whole number that a double holds exactly.
    NEVER = (1_u64 << 53) - 1;
}

/// The flag of a job that another instance can continue.
pub(crate) const RECOVERABLE: u64 = 1;
/// The end of an attempt that says nothing about its node; scripts treat it as the rest.
pub(crate) const UNKNOWN: u64 = 0;
/// The policy that takes any node; scripts treat it as the rest.
pub(crate) const RANDOM: u64 = 3;

/// The field of `leases` that is not a lease: the last fence, and a time before which none expires.
pub(crate) const LEASES_HEAD: &str = "#";

/// An entry of hashes and sorted sets that is longer than what Redis keeps in its compact form (64
/// bytes by default), in which every look-up reads all entries before the wanted one.
pub(crate) const FILLER: &str =
    "the entry that makes Redis look the others up by hash, not one by one";
const _: () = assert!(FILLER.len() > 64);

const TEXTS: &[(&str, &str)] = &[
    ("COUNTS", "'<ddddddd'"),
    ("COLD", "'<ddI2I2I2I4BBBBBI4I2'"),
    ("ENDED", "'<ddI4'"),
    ("LEASE", "'<BBI4d'"),
    ("FILLER", "'the entry that makes Redis look the others up by hash, not one by one'"),
    ("LEASES_HEAD", "'#'"),
    ("WORDS", "'<I4I4I4I4'"),
];

const _: () = assert!((SLOTS_MAX as u64) < MAX_BELOW && MAX_BELOW * FREE_UNIT < NEVER);

/// The state of a job is its position in [`JobState::ALL`]; from this one on it has ended.
const fn first_end() -> usize {
    let mut state = 0;
    while !JobState::ALL[state].is_terminal() {
        state += 1;
    }
    state
}

/// The script with values in place of names, and without comments.
pub(crate) fn inline(script: &str) -> String {
    let mut inlined = String::with_capacity(script.len());
    for line in script.lines() {
        for token in tokens(line) {
            let number = NUMBERS.iter().find(|(name, _)| *name == token);
            let text = TEXTS.iter().find(|(name, _)| *name == token);
            match (number, text) {
                (Some((_, number)), _) => inlined.push_str(&number.to_string()),
                (None, Some((_, text))) => inlined.push_str(text),
                (None, None) => inlined.push_str(token),
            }
        }
        inlined.push('\n');
    }
    inlined
}

/// The words and other pieces of a line of Lua, without its comment. A quoted text is one piece.
fn tokens(line: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next().filter(|_| !rest.starts_with("--"))?;
        let end = match first {
            '\'' => rest[1..].find('\'').map_or(rest.len(), |end| end + 2),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, tail) = rest.split_at(end);
        rest = tail;
        Some(token)
    })
}
