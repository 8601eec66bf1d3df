//! What tenants have used, counted by day.

use lingua_core::Tenant;

use super::Incarnation;

/// For how many days, the present one included, counts are kept.
pub const USAGE_DAYS: u64 = 92;

/// Most tenants in one batch.
pub const USAGE_TENANTS_MAX: usize = 1000;

/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;

/// How many numbers [`UsageCounts`] has.
pub const USAGE_COUNTS: usize = 7;

/// What a tenant has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageCounts {
    /// Jobs that ended as done.
    pub done: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Milliseconds of audio that was sent, of jobs that are done.
    pub audio_in_ms: u64,
    /// Milliseconds of speech that was made for them.
    pub audio_out_ms: u64,
    /// Characters that were recognised or sent as text.
    pub chars_source: u64,
    /// Characters of their translations.
    pub chars_translated: u64,
}

impl UsageCounts {
    /// All numbers, in the order of the fields.
    pub fn numbers(self) -> [u64; USAGE_COUNTS] {
        let Self { done, failed, cancelled, audio_in_ms, audio_out_ms, .. } = self;
        let [source, translated] = [self.chars_source, self.chars_translated];
        [done, failed, cancelled, audio_in_ms, audio_out_ms, source, translated]
    }

    /// From all numbers.
    pub fn of(numbers: [u64; USAGE_COUNTS]) -> Self {
        let [done, failed, cancelled, audio_in_ms, audio_out_ms, chars_source, chars_translated] =
            numbers;
        Self { done, failed, cancelled, audio_in_ms, audio_out_ms, chars_source, chars_translated }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        let mut sum = self.numbers();
        sum.iter_mut().zip(other.numbers()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        *self = Self::of(sum);
    }
}

/// What an instance has counted since its last batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageBatch {
    /// The instance that counted.
    pub incarnation: Incarnation,
    /// The number of the batch, from 1.
    pub sequence: u64,
    /// At most [`USAGE_TENANTS_MAX`], each tenant once. They count for the store's present day.
    pub counts: Vec<(Tenant, UsageCounts)>,
}

/// What a tenant has used on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageRecord {
    /// Days since 1970-01-01, in UTC.
    pub day: u64,
    /// The tenant whose usage this is.
    pub tenant: Tenant,
    /// The sums of that day.
    pub counts: UsageCounts,
}
