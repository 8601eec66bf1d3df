//! Jobs, nodes, pools and the cluster as people and tools see them.
//!
//! | file | what it holds |
//! |---|---|
//! | `job.rs` | [`JobView`] with its attempts and timings |
//! | `cluster.rs` | [`ClusterView`], [`NodeView`], [`PoolView`], [`ExplainResponse`] |
//! | `me.rs` | [`MeView`]: who a caller is |
//! | `usage.rs` | [`UsageView`]: what tenants have used |
//! | `update.rs` | [`JobUpdate`] and the other events of `GET /v1/events` |
//!
//! Moments (`created_ms`, `until_ms`) are milliseconds since 1970; durations (`queue_ms`) are
//! milliseconds, too.

mod cluster;
mod job;
mod me;
mod update;
mod usage;

pub use cluster::{
    ClusterView, ExplainResponse, ExplainedNode, InstanceView, LoadView, NODE_POOLS_MAX, NodeList,
    NodeView, PoolCell, PoolList, PoolView, StoreView,
};
pub use job::{AttemptView, JobList, JobView, Timings};
pub use me::{LeftView, LimitsView, MeView};
pub use update::{JobUpdate, JobUpdateKind, LeaderUpdate, NodeUpdate, PoolUpdate};
pub use usage::{DayUsage, EraseResponse, JobCounts, TenantUsage, UsageTotals, UsageView};
