//! Lost leases of jobs that do not run here.
//!
//! Start at [`EngineState::leases_lost`]. Whoever cleans up a cell, registers a node or notices that one is gone finds leases of
//! everybody's jobs. Their owners are told; jobs whose owner is dead are found by its heir.

use std::sync::Arc;

use lingua_core::InstanceId;
use lingua_store::Store;
use lingua_store::contract::LeaseKey;

use super::message::{Head, Key};
use crate::clock::Timer;
use crate::state::EngineState;

/// Lost leases that wait to be told.
const STRAYS_MAX: usize = 16_384;

/// Told in one go.
const AT_ONCE: usize = 64;

/// How long to wait after the store did not answer.
const PAUSE_MS: u64 = 250;

impl<S: Store, T: Timer> EngineState<S, T> {
    /// Tells the owners of these leases that they are gone.
    pub(crate) fn leases_lost(&self, lost: impl IntoIterator<Item = LeaseKey>) {
        for key in lost {
            if self.live.send_node_lost(key.job, key.attempt) {
                continue;
            }
            let mut strays = self.bus.strays.lock();
            if strays.len() >= STRAYS_MAX {
                strays.pop_front();
                self.metrics.bus.count("dropped");
            }
            strays.push_back(key);
            drop(strays);
            self.bus.stray_bell.notify_one();
        }
    }

    /// Tells other instances of their lost leases, for ever.
    pub(crate) async fn tell_strays(self: &Arc<Self>) {
        loop {
            let some: Vec<LeaseKey> = {
                let mut strays = self.bus.strays.lock();
                let count = strays.len().min(AT_ONCE);
                strays.drain(..count).collect()
            };
            if some.is_empty() {
                self.bus.stray_bell.notified().await;
                continue;
            }
            let mut told: Vec<(InstanceId, Vec<Key>)> = vec![];
            for (at, &key) in some.iter().enumerate() {
                match self.owner_of(key).await {
                    Ok(Some(owner)) => match told.iter_mut().find(|(to, _)| *to == owner) {
                        Some((_, keys)) => keys.push(key.into()),
                        None => told.push((owner, vec![key.into()])),
                    },
                    Ok(None) => {}
                    Err(_) => {
                        self.put_back(&some[at..]);
                        self.timer.sleep(PAUSE_MS).await;
                        break;
                    }
                }
            }
            for (to, keys) in told {
                self.tell_owner(&to, Head::Lost { keys }).await;
            }
        }
    }

    fn put_back(&self, untold: &[LeaseKey]) {
        let mut strays = self.bus.strays.lock();
        untold.iter().rev().for_each(|&key| strays.push_front(key));
    }

    /// The other instance that wants to know of this lease.
    async fn owner_of(&self, key: LeaseKey) -> lingua_store::Result<Option<InstanceId>> {
        let Some(record) = self.store.job(key.job).await? else { return Ok(None) };
        let is_open = !record.stage.state.is_terminal();
        let is_elsewhere = record.owner != self.options.instance;
        Ok((is_open && is_elsewhere).then_some(record.owner))
    }
}
