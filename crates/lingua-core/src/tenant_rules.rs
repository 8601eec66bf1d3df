//! What a tenant may use, and how much of it.
//!
//! Start at [`TenantRules`]. A token has [`UsageLimits`] of its own, which can only lower those of
//! its tenant.

use crate::with_defaults;

/// How much a tenant or a token may use at one instance. What is `None` has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageLimits {
    /// Requests in a second.
    pub requests_per_second: Option<u32>,
    /// Jobs that run or wait.
    pub open_jobs: Option<usize>,
    /// Bytes of those jobs, with their audio.
    pub open_bytes: Option<usize>,
    /// Bytes of those that wait for a slot, with their audio.
    pub waiting_bytes: Option<usize>,
    /// Sessions at a time.
    pub sessions: Option<usize>,
    /// Streams of `/v1/events` at a time.
    pub event_streams: Option<usize>,
    /// Highest priority of a job.
    pub priority_max: Option<i32>,
}

impl UsageLimits {
    /// The lower of both, limit by limit.
    pub fn lowered_by(self, other: Self) -> Self {
        fn lower<N: Ord>(a: Option<N>, b: Option<N>) -> Option<N> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Self {
            requests_per_second: lower(self.requests_per_second, other.requests_per_second),
            open_jobs: lower(self.open_jobs, other.open_jobs),
            open_bytes: lower(self.open_bytes, other.open_bytes),
            waiting_bytes: lower(self.waiting_bytes, other.waiting_bytes),
            sessions: lower(self.sessions, other.sessions),
            event_streams: lower(self.event_streams, other.event_streams),
            priority_max: lower(self.priority_max, other.priority_max),
        }
    }
}

with_defaults! {
    /// What holds for one tenant.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct TenantRules {
        /// Its share when slots are scarce, relative to others; at least 1.
        pub weight: u32 = 1,
        /// How much it may use at each instance.
        pub limits: UsageLimits = UsageLimits::default(),
        /// Most node ids that it may register through each instance.
        pub nodes_max: Option<usize> = None,
        /// Whether the text of ended jobs is kept.
        pub keep_text: bool = true,
        /// How long its ended jobs are kept, if not as long as all.
        pub retention_ms: Option<u64> = None,
        /// Whether its jobs may go to nodes of others if they do not say.
        pub public: bool = true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_token_only_lower_those_of_its_tenant() {
        let tenant = UsageLimits { open_jobs: Some(10), sessions: Some(5), ..Default::default() };
        let token = UsageLimits { open_jobs: Some(20), priority_max: Some(3), ..tenant };
        let both = tenant.lowered_by(token);
        assert_eq!((both.open_jobs, both.sessions), (Some(10), Some(5)));
        assert_eq!((both.priority_max, both.open_bytes), (Some(3), None));
    }
}
