//! How much of everything a message may carry.
//!
//! Each bound is checked where a message is read, so the rest of the program may rely on it. The
//! core's `LANGS_MAX` and `NMT_PAIRS_MAX` bound the lists of languages and pairs.

/// Longest session id, bind key, trace id or idempotency key, in bytes.
pub const LABEL_BYTES_MAX: usize = 128;

/// Longest text to translate, or partial text, in bytes of UTF-8.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Longest reference to audio that is stored elsewhere, in bytes.
pub const AUDIO_REF_BYTES_MAX: usize = 2048;

/// Most bytes of inline audio: more than a minute of 16 kHz PCM. With the rest of its message it
/// still fits between two instances when it has to be forwarded.
pub const AUDIO_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Longest name of an audio format, in bytes.
pub const AUDIO_FORMAT_BYTES_MAX: usize = 32;

/// Lowest and highest number of samples a second.
pub const SAMPLE_RATE_RANGE: std::ops::RangeInclusive<u32> = 4_000..=384_000;

/// Most earlier texts that go along with a job.
pub const CONTEXT_MAX: usize = 8;

/// Most nodes that a job may exclude.
pub const EXCLUDE_MAX: usize = 100;

/// Most further services that a job may name.
pub const SERVICES_MAX: usize = 16;

/// Most running jobs that a heartbeat may list.
pub const RUNNING_MAX: usize = 2048;

/// Highest priority of a job; the lowest is its negative.
pub const PRIORITY_MAX: i64 = 100;

/// Longest time that a job may wait for a slot, in milliseconds.
pub const WAIT_MS_MAX: u64 = 600_000;

/// Longest deadline of a job, in milliseconds.
pub const DEADLINE_MS_MAX: u64 = 3_600_000;

/// Slots of a node that does not give `max_concurrent_jobs`.
pub const SLOTS_DEFAULT: u64 = 4;

/// Longest version of a node's software, in bytes.
pub const VERSION_BYTES_MAX: usize = 64;

/// Longest reason of a failure, in bytes.
pub const REASON_BYTES_MAX: usize = 128;

/// How much of a bad value an error repeats, in characters.
pub const SHOWN_CHARS_MAX: usize = 64;

/// Longest text of an error, in characters.
pub const DETAIL_CHARS_MAX: usize = 512;
