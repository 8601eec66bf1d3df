//! What tenants have used.

use crate::wire_types::wire_types;

wire_types! {
    /// The response of `DELETE /v1/jobs` and `DELETE /v1/jobs/{id}`.
    #[derive(Copy)]
    pub struct EraseResponse {
        /// Always true.
        pub ok: bool,
        /// How many jobs were erased.
        pub erased: u64,
        /// Whether there may be more: send the request again.
        pub more: bool,
    }

    /// How many jobs ended in which way.
    #[derive(Copy, Default)]
    pub struct JobCounts {
        /// Jobs that ended with a result.
        pub done: u64,
        /// Jobs that failed or ran out of time.
        pub failed: u64,
        /// Jobs that a client or an operator cancelled.
        pub cancelled: u64,
    }
}

wire_types! {
    without Eq;

    /// The response of `GET /v1/usage`.
    pub struct UsageView {
        /// The first day that is counted, such as `2026-11-18`, in UTC.
        pub since: String,
        /// The last day that is counted.
        pub until: String,
        /// Every tenant that has used anything, by name.
        pub tenants: Vec<TenantUsage>,
    }

    /// What a tenant has used.
    pub struct TenantUsage {
        /// The name of the tenant.
        pub tenant: String,
        /// All days together.
        pub total: UsageTotals,
        /// Each day, if they were asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub days: Vec<DayUsage>,
    }

    /// What a tenant has used on one day.
    pub struct DayUsage {
        /// The day, such as `2026-11-18`, in UTC.
        pub day: String,
        /// What was used on it.
        pub total: UsageTotals,
    }

    /// Jobs, and the audio and the characters of those that are done.
    #[derive(Copy, Default)]
    pub struct UsageTotals {
        /// How many jobs ended in which way.
        pub jobs: JobCounts,
        /// Seconds of audio that was sent.
        pub audio_in_seconds: f64,
        /// Seconds of speech that was made.
        pub audio_out_seconds: f64,
        /// Characters that were recognised or sent as text.
        pub chars_source: u64,
        /// Characters of the translations.
        pub chars_translated: u64,
    }
}
