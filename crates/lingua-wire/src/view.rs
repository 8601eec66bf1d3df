//! What people and tools are shown: jobs, nodes, pools, the cluster, explanations.
//!
//! | file | what |
//! |---|---|
//! | `job.rs` | [`JobView`] with its attempts and timings |
//! | `node.rs` | [`NodeView`] |
//! | `pool.rs` | [`PoolView`] |
//! | `cluster.rs` | [`ClusterView`] |
//! | `event.rs` | what `GET /v1/events` tells |
//! | `explain.rs` | [`ExplainResponse`]: why each node would or would not be chosen |
//!
//! Times are milliseconds since the epoch; names that end in `_ms` and say how long are lengths.

mod cluster;
mod event;
mod explain;
mod job;
mod node;
mod pool;

pub use cluster::{ClusterView, InstanceView, StoreView};
pub use event::{JobUpdate, JobUpdateKind, LeaderUpdate, NodeUpdate, PoolUpdate};
pub use explain::{ExplainResponse, ExplainedNode};
pub use job::{AttemptView, JobList, JobView, Timings};
pub use node::{LoadView, NodeList, NodeView};
pub use pool::{PoolList, PoolView};
