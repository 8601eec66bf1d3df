//! Bindings: which node the jobs of one key go to.

use std::sync::Arc;

use lingua_core::{NodeId, Tenant};

use super::Place;
use crate::error::{Result, StoreError};

/// Most bytes of a bind key.
pub const BIND_KEY_BYTES_MAX: usize = 512;

/// A binding that stays as it is is written again only after this part of its time, so that a busy
/// key does not cost a write for each job.
pub const BINDING_REFRESH_PART: u64 = 60;

/// Where the jobs of a key go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingRecord {
    /// The node that later jobs with this key prefer.
    pub node: NodeId,
    /// Where the node was when it got the last job. It may have registered anew since.
    pub place: Place,
}

/// Binds a key to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// Who owns the key.
    pub tenant: Tenant,
    /// The key, at most [`BIND_KEY_BYTES_MAX`].
    pub key: Arc<str>,
    /// The node that the key is bound to now, as the caller knows it.
    pub replaces: Option<NodeId>,
    /// The new binding.
    pub to: BindingRecord,
    /// How long the binding is kept.
    pub keep_ms: u64,
}

impl BindRequest {
    /// Checks the sizes; every store does this first.
    pub fn check(&self) -> Result<()> {
        StoreError::check_limit("a bind key in bytes", self.key.len(), BIND_KEY_BYTES_MAX)
    }

    /// Whether a binding to the same node and place that ends then can stay as it is.
    pub fn is_fresh(&self, until_ms: u64, now_ms: u64) -> bool {
        until_ms >= now_ms.saturating_add(self.keep_ms - self.keep_ms / BINDING_REFRESH_PART)
    }
}

/// The reply to [`BindRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindReply {
    /// The key is bound to the node, by this call or by an earlier one.
    Bound,
    /// The key is bound to another node than the caller knows; nothing was changed.
    Conflict(Option<BindingRecord>),
}
