//! Jobs, nodes, pools and the cluster as people and tools see them.
//!
//! | file | what it holds |
//! |---|---|
//! | `job.rs` | [`JobView`] with its attempts and timings |
//! | `node.rs` | [`NodeView`] |
//! | `pool.rs` | [`PoolView`] |
//! | `cluster.rs` | [`ClusterView`] |
//! | `update.rs` | [`JobUpdate`] and the other events of `GET /v1/events` |
//! | `explain.rs` | [`ExplainResponse`]: why each node would or would not be chosen |
//!
//! Moments (`created_ms`, `until_ms`) are milliseconds since 1970; durations (`queue_ms`) are
//! milliseconds, too.

mod cluster;
mod explain;
mod job;
mod node;
mod pool;
mod update;

pub use cluster::{ClusterView, InstanceView, StoreView};
pub use explain::{ExplainResponse, ExplainedNode};
pub use job::{AttemptView, JobList, JobView, Timings};
pub use node::{LoadView, NodeList, NodeView};
pub use pool::{PoolList, PoolView};
pub use update::{JobUpdate, JobUpdateKind, LeaderUpdate, NodeUpdate, PoolUpdate};
