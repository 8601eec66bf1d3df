//! Lost leases of jobs that do not run here.
//!
//! Start at [`Engine::leases_lost`]. An instance that cleans up a cell, registers a node or
//! notices that one is gone finds lost leases of all instances' jobs. It tells the owners; jobs of
//! a dead owner are found by the instance that takes them over.

use std::collections::BTreeMap;

use lingua_core::{InstanceId, NodeId};
use lingua_store::Store;
use lingua_store::contract::LeaseKey;

use super::message::{AttemptKey, Head, Text};
use crate::{Engine, Timer};

/// Most lost leases that wait for their owner.
const LOST_MAX: usize = 16_384;

/// Lost leases that are handled at a time.
const AT_ONCE: usize = 64;

/// Pause after the store did not answer.
const PAUSE_MS: u64 = 250;

/// A lease, and the node that reported its loss; `None` if the store did.
pub(super) type LostLease = (LeaseKey, Option<NodeId>);

impl<S: Store, T: Timer> Engine<S, T> {
    /// Tells the owners of these leases that they are lost, as the store says.
    pub(crate) fn leases_lost(&self, keys: impl IntoIterator<Item = LeaseKey>) {
        self.tell_lost(keys, None);
    }

    /// Tells the owners that a node has these attempts without a lease. Attempts of other nodes go
    /// on: a node speaks for itself only.
    pub(crate) fn leases_lost_by(&self, node: &NodeId, keys: impl IntoIterator<Item = LeaseKey>) {
        self.tell_lost(keys, Some(node));
    }

    fn tell_lost(&self, keys: impl IntoIterator<Item = LeaseKey>, node: Option<&NodeId>) {
        for key in keys {
            if self.live.send_node_lost(key.job, key.attempt, node) {
                continue;
            }
            let mut lost = self.bus.lost_leases.lock();
            if lost.len() >= LOST_MAX {
                lost.pop_front();
                self.metrics.bus.count("dropped");
            }
            lost.push_back((key, node.cloned()));
            drop(lost);
            self.bus.lost_leases_added.notify_one();
        }
    }

    /// Tells other instances about their lost leases, for ever.
    pub(crate) async fn report_lost_leases(&self) {
        loop {
            let keys: Vec<LostLease> = {
                let mut lost = self.bus.lost_leases.lock();
                let count = lost.len().min(AT_ONCE);
                lost.drain(..count).collect()
            };
            if keys.is_empty() {
                self.bus.lost_leases_added.notified().await;
                continue;
            }
            let mut by_owner: BTreeMap<(InstanceId, _), Vec<AttemptKey>> = BTreeMap::new();
            for (at, (key, node)) in keys.iter().enumerate() {
                match self.other_owner(*key).await {
                    Ok(Some(owner)) => {
                        by_owner.entry((owner, node.clone())).or_default().push((*key).into());
                    }
                    Ok(None) => {}
                    Err(_) => {
                        let unreported = keys[at..].iter().rev().cloned();
                        unreported.for_each(|key| self.bus.lost_leases.lock().push_front(key));
                        self.timer.sleep(PAUSE_MS).await;
                        break;
                    }
                }
            }
            for ((owner, node), keys) in by_owner {
                let node = node.map(Text);
                self.send_and_wait(&owner, Head::LeasesLost { keys, node }).await;
            }
        }
    }

    /// The other instance that runs the job of this lease, if the job is open.
    async fn other_owner(&self, key: LeaseKey) -> lingua_store::Result<Option<InstanceId>> {
        let Some(record) = self.store.job(key.job).await? else { return Ok(None) };
        let is_open = !record.stage.state.is_terminal();
        let is_elsewhere = record.owner != self.options.instance;
        Ok((is_open && is_elsewhere).then_some(record.owner))
    }
}
