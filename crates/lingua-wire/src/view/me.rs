//! Who a caller is.

use crate::wire_types::wire_types;

wire_types! {
    /// Who the caller is, as `GET /v1/me` tells it.
    pub struct MeView {
        /// The name of its token, or key and subject of its grant; empty if it has no name.
        pub name: String,
        /// `node`, `client`, `viewer`, `admin`, or `grant`.
        pub role: String,
        /// To whom belongs what it makes.
        pub tenant: String,
        /// When its token or grant expires.
        pub expires_ms: Option<u64>,
        /// What it may use at one instance; what is absent has no limit of its own.
        pub limits: LimitsView,
        /// What is left of its limits now.
        pub left: LeftView,
    }

    /// How much a caller may use.
    #[derive(Default)]
    pub struct LimitsView {
        /// Requests in a second.
        pub requests_per_second: Option<u32>,
        /// Jobs that run or wait.
        pub open_jobs: Option<u64>,
        /// Bytes of those jobs.
        pub open_bytes: Option<u64>,
        /// Sessions at a time.
        pub sessions: Option<u64>,
        /// Streams of `/v1/events`.
        pub event_streams: Option<u64>,
        /// Highest priority of a job.
        pub priority_max: Option<i32>,
        /// Node ids, those of nodes that are gone for less than an hour included.
        pub nodes_max: Option<u64>,
    }

    /// What is left of limits.
    #[derive(Default)]
    pub struct LeftView {
        /// Requests that it may send at once.
        pub requests: Option<u32>,
        /// Jobs that run or wait.
        pub open_jobs: Option<u64>,
        /// Bytes of those jobs.
        pub open_bytes: Option<u64>,
        /// Sessions at a time.
        pub sessions: Option<u64>,
        /// Streams of `/v1/events`.
        pub event_streams: Option<u64>,
        /// Node ids that it may still register; at most a second old.
        pub nodes: Option<u64>,
    }
}
