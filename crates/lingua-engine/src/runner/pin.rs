//! Certain nodes: the one that the client prefers, and the one that the job's key is bound to.
//!
//! Start at [`Runner::ask_pinned_node`] and [`Runner::bind`]. A preferred node must exist and be
//! able to do the job. If it cannot take the job now, another node gets it, unless the job is
//! strict: then every attempt goes to that node or waits for it.
//!
//! Invariant: a job that is sent to another node than the one of its key has the mark `moved`.

use std::sync::Arc;

use lingua_core::job::{Grant, JobFailure};
use lingua_core::planted::{self, Bug};
use lingua_core::{MissingCapability, NodeId, RejectReason, Service};
use lingua_store::Store;
use lingua_store::contract::{BindReply, BindRequest, BindingRecord, Pin, Place, ReserveOutcome};

use super::Runner;
use super::slot::{Found, NoSlot};
use crate::clock::Timer;

/// How long a binding is kept after its last job.
const BINDING_MS: u64 = 3_600_000;

/// How often a job binds its key anew while others of the key do so at the same time.
const BINDS_MAX: usize = 8;

/// The nodes that a job is pinned to, as far as its runner knows them.
#[derive(Debug, Default)]
pub(super) struct PinState {
    /// Why the preferred node could not be used at the last search.
    lost: Option<RejectReason>,
    /// Where the job's key is bound, as far as this runner knows.
    bound: Option<BindingRecord>,
    /// The store did not say whether it bound the key.
    is_unsure: bool,
    /// An attempt went to another node than the one that the key was bound to. That node may have
    /// refused it, so it knows as little of the key as any other.
    pub(super) has_moved: bool,
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// Asks the node that the client prefers, then the one that the job's key is bound to.
    pub(super) async fn ask_pinned_node(&mut self) -> Result<Option<Found>, NoSlot> {
        if let Some(found) = self.ask_preferred_node().await? {
            return Ok(Some(found));
        }
        match self.is_strict() {
            true => Ok(None),
            false => self.ask_bound_node().await,
        }
    }

    /// Whether no other node than the preferred one may get the job.
    pub(super) fn is_strict(&self) -> bool {
        self.spec.strict && self.spec.preferred.is_some()
    }

    /// Whether the preferred node wants the speech as a whole.
    pub(super) fn prefers_whole_speech(&self) -> bool {
        let streaming = MissingCapability::Service(Service::Streaming);
        self.pin.lost == Some(RejectReason::Lacks(streaming))
    }

    /// The failure of a job that got no slot in time.
    pub(super) fn no_slot(&self) -> NoSlot {
        let detail = match (&self.spec.preferred, self.pin.lost) {
            (Some(node), Some(why)) if self.is_strict() => Some(format!(
                "{node} did not take the job in time ({why}), and strict allows no other"
            )),
            _ => None,
        };
        NoSlot::Failed(JobFailure::NoSlot, detail)
    }

    async fn ask_preferred_node(&mut self) -> Result<Option<Found>, NoSlot> {
        let spec = Arc::clone(&self.spec);
        let Some(node) = &spec.preferred else { return Ok(None) };
        // A node that has failed the job is not preferred any longer, unless no other may get it.
        if !spec.strict && !self.machine.tried().is_empty() {
            return Ok(None);
        }
        let Some(place) = self.engine.store.locate(node).await? else {
            if self.may_nodes_return() {
                self.preferred_lost(node, RejectReason::NoNode);
                return Ok(None);
            }
            return Err(no_such_node(node));
        };
        let why = match self.ask_node(place).await? {
            Ok(found) => {
                self.pin.lost = None;
                return Ok(Some(found));
            }
            // It serves one direction of a two-way job only.
            Err(RejectReason::Excluded) if !spec.exclude.contains(node) && spec.two_way => {
                let what = format!("{} in both directions", spec.pair);
                return Err(not_capable(format!("the preferred node {node} cannot serve {what}")));
            }
            Err(why) => why,
        };
        self.preferred_lost(node, why);
        // The record of a node that is registered may be missing after a failover of the store.
        let is_incapable = why.is_incapable() && why != RejectReason::NoNode;
        if matches!(why, RejectReason::OtherTenant | RejectReason::PrivateOnly) {
            return Err(no_such_node(node));
        }
        if is_incapable && !self.prefers_whole_speech() {
            let pair = spec.pair;
            return Err(not_capable(format!(
                "the preferred node {node} cannot serve {pair}: {why}"
            )));
        }
        Ok(None)
    }

    /// Notes why the preferred node is not used. A job that waits says it once.
    fn preferred_lost(&mut self, node: &NodeId, why: RejectReason) {
        if self.pin.lost.replace(why) != Some(why) {
            let strict = self.spec.strict;
            tracing::info!(node_id = %node, reason = %why, strict, "preferred node not used");
        }
    }

    async fn ask_bound_node(&mut self) -> Result<Option<Found>, NoSlot> {
        let spec = Arc::clone(&self.spec);
        let Some(key) = &spec.bind_key else { return Ok(None) };
        self.pin.bound = self.engine.store.binding(spec.tenant, key).await?;
        let Some(BindingRecord { node, place }) = self.pin.bound.clone() else { return Ok(None) };
        let tried = self.machine.tried().to_vec();
        let has_failed = |place: Place| tried.contains(&(place.cell, place.slot));
        if has_failed(place) {
            return Ok(None);
        }
        match self.ask_node(place).await? {
            Ok(found) => return Ok(Some(found)),
            // It has registered anew since, or another node has its slot.
            Err(RejectReason::Superseded | RejectReason::NoNode) => {}
            Err(_) => return Ok(None),
        }
        match self.engine.store.locate(&node).await? {
            Some(now) if now != place && !has_failed(now) => Ok(self.ask_node(now).await?.ok()),
            _ => Ok(None),
        }
    }

    /// Asks for a slot on this very node, for the best tags that it registered.
    async fn ask_node(&mut self, place: Place) -> Result<Result<Found, RejectReason>, NoSlot> {
        let mut why = RejectReason::NoNode;
        let two_way = self.spec.two_way;
        // A node that serves one direction only of a two-way job is excluded.
        let is_lack = |why: RejectReason| match why {
            RejectReason::Excluded => two_way,
            RejectReason::Lacks(_) => true,
            _ => false,
        };
        for served in self.spec.pair.lookups() {
            self.served = served;
            why = match self.ask_node_as_served(place).await? {
                Ok(found) => return Ok(Ok(found)),
                // The last reason is about the shortest tags.
                Err(why) if is_lack(why) => why,
                Err(why) => return Ok(Err(why)),
            };
        }
        Ok(Err(why))
    }

    async fn ask_node_as_served(
        &self,
        place: Place,
    ) -> Result<Result<Found, RejectReason>, NoSlot> {
        let Place { cell, slot, epoch } = place;
        let exclude = self.excluded_in(cell).await?;
        let pin = Pin { slot, epoch, strict: true };
        Ok(match self.reserve(cell, exclude, Some(pin), false).await? {
            Ok(found) => Ok(found),
            Err(ReserveOutcome::PinLost(why)) => Err(why),
            Err(_) => Err(RejectReason::NoNode),
        })
    }

    /// Binds the job's key to this node, if it has one. Says whether the key was bound to another
    /// node, and how it was bound before; an error if the store does not reply.
    pub(super) async fn bind(
        &mut self,
        grant: &Grant,
    ) -> lingua_store::Result<(bool, Option<BindingRecord>)> {
        let Some(key) = self.spec.bind_key.clone() else { return Ok((false, None)) };
        let place = Place { cell: grant.cell, slot: grant.slot, epoch: grant.epoch };
        let to = BindingRecord { node: grant.node.clone(), place };
        for _ in 0..BINDS_MAX {
            let before = self.pin.bound.take();
            let replaces = before.as_ref().map(|before| before.node.clone());
            match self.write_binding(&key, replaces.clone(), to.clone()).await? {
                BindReply::Bound => {
                    let is_other = replaces.is_some_and(|before| before != grant.node);
                    let moved = is_other || self.pin.is_unsure || self.pin.has_moved;
                    return Ok((moved && !planted::is(Bug::MoveNotTold), before));
                }
                BindReply::Conflict(present) => self.pin.bound = present,
            }
        }
        // Others of the key are sent to many nodes: whichever has the context, this one may not.
        Ok((true, None))
    }

    /// Binds the key to its former node again, after the job could not be sent.
    pub(super) async fn unbind(&mut self, grant: &Grant, before: Option<BindingRecord>) {
        let (Some(key), Some(before)) = (self.spec.bind_key.clone(), before) else { return };
        if before.node != grant.node {
            // If the store does not reply, the next attempt says that the key has moved.
            self.write_binding(&key, Some(grant.node.clone()), before).await.ok();
        }
    }

    async fn write_binding(
        &mut self,
        key: &Arc<str>,
        replaces: Option<NodeId>,
        to: BindingRecord,
    ) -> lingua_store::Result<BindReply> {
        let (tenant, key) = (self.spec.tenant, Arc::clone(key));
        let request = BindRequest { tenant, key, replaces, to, keep_ms: BINDING_MS };
        let reply = self.engine.store.bind(request).await;
        self.pin.is_unsure |= reply.is_err();
        reply
    }
}

/// Does not say whether the node exists: that is its tenant's business.
fn no_such_node(node: &NodeId) -> NoSlot {
    not_capable(format!(
        "the preferred node {node} is not registered, or takes private jobs of its own tenant only"
    ))
}

fn not_capable(detail: String) -> NoSlot {
    NoSlot::Failed(JobFailure::PreferredNotCapable, Some(detail))
}
