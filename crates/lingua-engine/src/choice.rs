//! What a job asks of cells, what selection thinks of each node, and why nobody can do a job.
//!
//! Start at [`Engine::query`]: reservations and explanations are made from the same query, so that
//! they cannot disagree.

use std::collections::BTreeMap;

use lingua_core::job::JobSpec;
use lingua_core::roster::NodeVerdict;
use lingua_core::{LangPair, MissingCapability, NodeId, Query, RejectReason, SlotSet, Source};
use lingua_store::Store;
use lingua_store::contract::{CellRecord, NodeRecord};

use crate::clock::Timer;
use crate::error::SubmitError;
use crate::state::Engine;

/// Most cells that are read to say why nobody can do a job.
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
    /// What a job asks of a cell.
    pub(crate) fn query(&self, spec: &JobSpec, exclude: SlotSet, keep_last: bool) -> Query {
        let JobSpec { pair, needs, public, tenant, .. } = *spec;
        let policy = self.options.policy;
        Query { pair, needs, public, tenant, exclude, policy, keep_last }
    }

    /// Says what would become of this job now, and why each node would or would not get it. No slot
    /// is taken.
    pub async fn explain(&self, spec: &JobSpec) -> Result<JobExplanation, SubmitError> {
        let mut explained =
            JobExplanation { nodes: vec![], chosen: None, capable: 0, free: 0, error: None };
        let keep_last = self.options.keep_last.applies(spec.wait_ms > Some(0));
        let mut preferred = Err(RejectReason::NoNode);
        for cell in self.cells().await? {
            let is_excluded = |node: &&NodeRecord| {
                spec.exclude.contains(&node.node) || self.lack_of_way_back(spec, node).is_some()
            };
            let excluded = cell.nodes.iter().filter(is_excluded);
            let query = self.query(spec, excluded.map(|node| node.place.slot).collect(), keep_last);
            let roster = cell.roster(self.options.rules);
            let told = roster.explain(&query, cell.now_ms, self.random());
            explained.capable += u32::from(told.choice.capable);
            explained.free += told.choice.free;
            for (node, (slot, verdict)) in cell.nodes.into_iter().zip(told.verdicts) {
                if spec.preferred.as_ref() == Some(&node.node) {
                    preferred = roster.admits(slot, &query, cell.now_ms);
                }
                let verdict = match (verdict, self.lack_of_way_back(spec, &node)) {
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
                    explained.chosen = Some(node.node.clone());
                }
                explained.nodes.push(NodeExplanation { node, verdict });
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

    /// What the node lacks for the opposite direction of a two-way job.
    fn lack_of_way_back(&self, spec: &JobSpec, node: &NodeRecord) -> Option<MissingCapability> {
        let LangPair { src: Source::Known(src), tgt } = spec.pair else { return None };
        let (back, rule) = (LangPair::known(tgt, src), self.options.rules.semantic);
        spec.two_way.then(|| node.profile.capabilities().missing(back, spec.needs, rule)).flatten()
    }

    /// For people: why no node can do the job. What a node lacks is told only if no node has all
    /// that is needed.
    pub(crate) async fn why_nobody(&self, spec: &JobSpec) -> String {
        let (mut able, mut lacks) = (vec![], BTreeMap::<String, usize>::new());
        let cells = self.store.cells().await.unwrap_or_default();
        for cell in cells.into_iter().take(CELLS_READ_MAX) {
            let Ok(view) = self.store.view(cell).await else { continue };
            self.note_reasons(spec, &view, &mut able, &mut lacks);
        }
        if !able.is_empty() {
            able.truncate(REASONS_MAX);
            return able.join(", ");
        }
        let lacks = lacks.into_iter().take(REASONS_MAX).map(|(lack, nodes)| match nodes {
            1 => lack,
            _ => format!("{lack} on {nodes} nodes"),
        });
        match lacks.collect::<Vec<_>>() {
            lacks if lacks.is_empty() => "no node is registered".to_owned(),
            lacks => lacks.join(", "),
        }
    }

    fn note_reasons(
        &self,
        spec: &JobSpec,
        view: &CellRecord,
        able: &mut Vec<String>,
        lacks: &mut BTreeMap<String, usize>,
    ) {
        let rules = self.options.rules;
        let query = self.query(spec, SlotSet::EMPTY, false);
        let roster = view.roster(rules);
        for node in &view.nodes {
            let caps = node.profile.capabilities();
            let lack = caps.missing(spec.pair, spec.needs, rules.semantic);
            let is_own = node.profile.tenant() == spec.tenant;
            // Other tenants' private nodes are nobody's business.
            if !is_own && !node.profile.accepts_public() {
                continue;
            }
            match lack.or_else(|| self.lack_of_way_back(spec, node)) {
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
    /// Applies the client's preference for this node, which would take the job or not.
    fn prefer(&mut self, node: &NodeId, admitted: Result<(), RejectReason>, strict: bool) {
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
                self.chosen = Some(node.clone());
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
            for NodeExplanation { verdict, .. } in &mut self.nodes {
                if let NodeVerdict::Chosen { score } = *verdict {
                    *verdict = NodeVerdict::Eligible { score };
                }
            }
        }
    }
}
