//! What a job asks of cells, what selection thinks of each node, and why no node can do a job.
//!
//! Start at [`Engine::query`]: reservations and explanations are made from the same query, so that
//! they cannot disagree.

use std::collections::BTreeMap;

use lingua_core::job::JobSpec;
use lingua_core::roster::NodeVerdict;
use lingua_core::{LangPair, MissingCapability, NodeId, Query, RejectReason, SlotSet};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, NodeRecord};

use crate::clock::Timer;
use crate::error::SubmitError;
use crate::state::Engine;

/// Most cells that are read to find why no node can do a job.
const CELLS_READ_MAX: usize = 8;

/// Most reasons that are listed.
const REASONS_MAX: usize = 5;

/// What selection thinks of a node.
#[derive(Debug, Clone)]
pub struct NodeExplanation {
    /// The node as the store sees it.
    pub node: NodeRecord,
    /// Whether it would be chosen, and if not, why.
    pub verdict: NodeVerdict,
}

/// What would become of a job now.
#[derive(Debug, Clone)]
pub struct JobExplanation {
    /// The verdict about each node.
    pub nodes: Vec<NodeExplanation>,
    /// The pair that it would be served as: its own, or one with fewer subtags.
    pub served_as: Option<LangPair>,
    /// The node that would get the job.
    pub chosen: Option<NodeId>,
    /// How many nodes can do it, busy or not, those that have just gone included.
    pub capable: u32,
    /// How many slots it could use now.
    pub free: u32,
    /// The code of the failure if no node would get it.
    pub error: Option<&'static str>,
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// What a job that is served as this pair asks of a cell.
    pub(crate) fn query(
        &self,
        spec: &JobSpec,
        pair: LangPair,
        exclude: SlotSet,
        keep_last: bool,
    ) -> Query {
        let JobSpec { needs, public, tenant, .. } = *spec;
        let policy = self.options.policy;
        Query { pair, needs, public, tenant, exclude, policy, keep_last }
    }

    /// Says what would become of this job now, and why each node would or would not get it. No slot
    /// is taken.
    pub async fn explain(&self, spec: &JobSpec) -> Result<JobExplanation, SubmitError> {
        let mut explained = JobExplanation {
            nodes: vec![],
            served_as: None,
            chosen: None,
            capable: 0,
            free: 0,
            error: None,
        };
        let mut preferred = (Err(RejectReason::NoNode), spec.pair);
        let cells = self.cells().await?;
        for pair in spec.pair.lookups() {
            for cell in &cells {
                // Each node is asked for the best tags that it serves.
                let mut cell = cell.clone();
                cell.nodes.retain(|node| self.served_pair(spec, node).unwrap_or(spec.pair) == pair);
                let told = self.explain_cell(spec, pair, cell, &mut explained);
                preferred = told.unwrap_or(preferred);
            }
        }
        if let Some(node) = &spec.preferred {
            explained.prefer(node, preferred, spec.strict);
        }
        if explained.chosen.is_none() && explained.error.is_none() {
            explained.error = Some(match explained.capable {
                0 => "NO_CAPABLE_NODE",
                _ => "ALL_CANDIDATES_FULL_OR_FAILED",
            });
        }
        Ok(explained)
    }

    /// Adds what becomes of a job that is served as this pair in this cell; says whether the
    /// preferred node would take it, and in which tags, if that is here.
    fn explain_cell(
        &self,
        spec: &JobSpec,
        pair: LangPair,
        cell: CellRecord,
        explained: &mut JobExplanation,
    ) -> Option<(Result<(), RejectReason>, LangPair)> {
        let mut preferred = None;
        let lack_back = |node: &NodeRecord| self.lack_of_way_back(spec, pair, node);
        let is_excluded =
            |node: &&NodeRecord| spec.exclude.contains(&node.node) || lack_back(node).is_some();
        let excluded = cell.nodes.iter().filter(is_excluded).map(|node| node.place.slot).collect();
        let keep_last = self.options.keep_last.applies(spec.wait_ms > Some(0));
        let query = self.query(spec, pair, excluded, keep_last);
        let roster = cell.roster(self.options.rules);
        let told = roster.explain(&query, cell.now_ms, self.random());
        explained.capable += u32::from(told.choice.capable);
        explained.free += told.choice.free;
        for (node, (slot, verdict)) in cell.nodes.into_iter().zip(told.verdicts) {
            let registered = node.profile.capabilities().registered(pair);
            if spec.preferred.as_ref() == Some(&node.node) {
                preferred = Some((roster.admits(slot, &query, cell.now_ms), registered));
            }
            let verdict = match (verdict, lack_back(&node)) {
                (NodeVerdict::Refused(RejectReason::Excluded), Some(lack)) => {
                    NodeVerdict::Refused(RejectReason::Lacks(lack))
                }
                // A job goes to one cell: here the first that has a slot.
                (NodeVerdict::Chosen { score }, _) if explained.chosen.is_some() => {
                    NodeVerdict::AsGood { score }
                }
                (verdict, _) => verdict,
            };
            if matches!(verdict, NodeVerdict::Chosen { .. }) {
                let chosen = (Some(node.node.clone()), Some(registered));
                (explained.chosen, explained.served_as) = chosen;
            }
            explained.nodes.push(NodeExplanation { node, verdict });
        }
        preferred
    }

    /// The best pair that this node can serve the job as: the job's own, or one with fewer subtags.
    pub(crate) fn served_pair(&self, spec: &JobSpec, node: &NodeRecord) -> Option<LangPair> {
        let (caps, rule) = (node.profile.capabilities(), self.options.rules.semantic);
        spec.pair.lookups().find(|pair| {
            caps.missing(*pair, spec.needs, rule).is_none()
                && self.lack_of_way_back(spec, *pair, node).is_none()
        })
    }

    /// What the node lacks for the opposite direction of a two-way job.
    fn lack_of_way_back(
        &self,
        spec: &JobSpec,
        pair: LangPair,
        node: &NodeRecord,
    ) -> Option<MissingCapability> {
        let (back, rule) = (pair.reversed().filter(|_| spec.two_way)?, self.options.rules.semantic);
        node.profile.capabilities().missing(back, spec.needs, rule)
    }

    /// For people: why no node can do the job. What a node lacks is named only if no node has all
    /// that is needed. `None` if the store has cells that this instance did not know: ask them.
    pub(crate) async fn why_no_node(&self, spec: &JobSpec) -> Option<String> {
        let (mut able, mut lacks) = (vec![], BTreeMap::<String, usize>::new());
        let cells = self.store.cells().await.unwrap_or_default();
        if self.routes.learn(&cells) {
            return None;
        }
        for cell in cells.into_iter().take(CELLS_READ_MAX) {
            let Ok(view) = self.store.view(cell).await else { continue };
            self.note_reasons(spec, &view, &mut able, &mut lacks);
        }
        if !able.is_empty() {
            able.truncate(REASONS_MAX);
            return Some(able.join(", "));
        }
        let lacks = lacks.into_iter().take(REASONS_MAX).map(|(lack, nodes)| match nodes {
            1 => lack,
            _ => format!("{lack} on {nodes} nodes"),
        });
        Some(match lacks.collect::<Vec<_>>() {
            lacks if lacks.is_empty() => "no node is registered".to_owned(),
            lacks => lacks.join(", "),
        })
    }

    fn note_reasons(
        &self,
        spec: &JobSpec,
        view: &CellRecord,
        able: &mut Vec<String>,
        lacks: &mut BTreeMap<String, usize>,
    ) {
        let rules = self.options.rules;
        let roster = view.roster(rules);
        for node in &view.nodes {
            let pair = self.served_pair(spec, node).unwrap_or(spec.pair);
            let query = self.query(spec, pair, SlotSet::EMPTY, false);
            let lack = node.profile.capabilities().missing(pair, spec.needs, rules.semantic);
            let is_own = node.profile.tenant() == spec.tenant;
            // Private nodes of other tenants are not shown.
            if !is_own && !node.profile.accepts_public() {
                continue;
            }
            match lack.or_else(|| self.lack_of_way_back(spec, pair, node)) {
                Some(lack) => *lacks.entry(lack.to_string()).or_default() += 1,
                None => match roster.admits(node.place.slot, &query, view.now_ms) {
                    Err(why) => able.push(format!("{} can, but: {why}", node.node)),
                    // It came back in this moment.
                    Ok(()) => able.push(format!("{} can, from now on", node.node)),
                },
            }
        }
    }
}

impl JobExplanation {
    /// Applies the client's preference for this node, which would take the job as this pair or not.
    fn prefer(
        &mut self,
        node: &NodeId,
        (admitted, pair): (Result<(), RejectReason>, LangPair),
        strict: bool,
    ) {
        match admitted {
            Ok(()) => {
                for NodeExplanation { node: known, verdict } in &mut self.nodes {
                    *verdict = match *verdict {
                        NodeVerdict::Eligible { score } | NodeVerdict::AsGood { score }
                            if known.node == *node =>
                        {
                            NodeVerdict::Chosen { score }
                        }
                        // The last slot is not kept from a job that asks for the node.
                        NodeVerdict::Refused(_) if known.node == *node => {
                            NodeVerdict::Chosen { score: 0 }
                        }
                        NodeVerdict::Chosen { score } if known.node != *node => {
                            NodeVerdict::AsGood { score }
                        }
                        verdict => verdict,
                    };
                }
                (self.chosen, self.served_as) = (Some(node.clone()), Some(pair));
            }
            Err(why) if why.is_incapable() => {
                (self.chosen, self.error) = (None, Some("PREFERRED_NODE_NOT_CAPABLE"));
            }
            Err(_) if strict => {
                (self.chosen, self.error) = (None, Some("ALL_CANDIDATES_FULL_OR_FAILED"));
            }
            Err(_) => return,
        }
        if self.chosen.is_none() {
            self.served_as = None;
            for NodeExplanation { verdict, .. } in &mut self.nodes {
                if let NodeVerdict::Chosen { score } = *verdict {
                    *verdict = NodeVerdict::Eligible { score };
                }
            }
        }
    }
}
