//! Fleets as users run them: what their nodes say of themselves, and who owns nodes and jobs.
//!
//! Start at [`WorldFleet::of`]. Nodes were written from the documents, not with the SDK: most send
//! a heartbeat seldom and do not list what they run. They belong to three tenants of different
//! weight, and cells are small, so that a search has to ask several of them.

use lingua_core::job::JobSpec;
use lingua_core::{CELL_NODES_MAX, Profile, Tenant, TenantRules, TokenName};
use lingua_engine::tenants::TenantTable;

use super::plan::{Fault, NodePlan};
use super::rng::SimRng;

/// The names of the tenants. A token is called after its tenant.
const TENANTS: [&str; 3] = ["ant", "bee", "cat"];

/// The token of somebody who owns no node.
const INTRUDER: &str = "intruder";

/// What a node says, and where it connects.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeHabits {
    /// The shortest and the longest time between two heartbeats.
    pub(super) heartbeat_ms: (u64, u64),
    /// Its heartbeats name its epoch, its health, and what it runs.
    pub(super) lists_running: bool,
    /// It sends `register` again on its open connection, this often.
    pub(super) registers_every_ms: Option<u64>,
    /// It stays at whichever instance it reached.
    pub(super) roams: bool,
    /// The scheduler pings it, and it answers.
    pub(super) is_pinged: bool,
}

impl NodeHabits {
    /// A node made with the SDK. Its heartbeats are so frequent that pings do not matter.
    pub(super) const SDK: Self = Self {
        heartbeat_ms: (5_000, 5_000),
        lists_running: true,
        registers_every_ms: None,
        roams: false,
        is_pinged: false,
    };

    fn of(rng: &mut SimRng) -> Self {
        let (is_quiet, is_bare) = (rng.permille(600), rng.permille(500));
        let registers_every_ms = Some(rng.between(1_000, 15_000)).filter(|_| rng.permille(150));
        let heartbeat_ms = if is_quiet { (20_000, 60_000) } else { (5_000, 5_000) };
        let (lists_running, is_pinged) = (!is_quiet && !is_bare, true);
        let roams = rng.permille(500);
        Self { heartbeat_ms, lists_running, registers_every_ms, roams, is_pinged }
    }
}

/// A node of a fleet.
#[derive(Debug, Clone, Copy)]
struct FleetNode {
    habits: NodeHabits,
    tenant: usize,
    /// It takes jobs of its own tenant only.
    is_private: bool,
}

/// What a fleet has beside the nodes of any other world.
#[derive(Debug, Clone)]
pub(super) struct WorldFleet {
    /// Most nodes of a cell.
    pub(super) cell_nodes: usize,
    weights: [u32; TENANTS.len()],
    nodes: Vec<FleetNode>,
}

impl WorldFleet {
    /// The fleet of a seed; adds nodes to those that the world has.
    pub(super) fn of(seed: u64, instances: usize, nodes: &mut Vec<NodePlan>) -> Self {
        let mut rng = SimRng::new(seed, "fleet");
        let cell_nodes = *rng.pick(&[2, 2, 4, CELL_NODES_MAX]);
        for home in 0..instances {
            for _ in 0..rng.between(0, 3) {
                nodes.push(NodePlan { home, slots: rng.between(1, 4) as u16 });
            }
        }
        let weights = TENANTS.map(|_| *rng.pick(&[1, 1, 2, 4]));
        let mut has_public = vec![false; instances];
        let nodes = nodes.iter().map(|node| {
            let habits = NodeHabits::of(&mut rng);
            let (tenant, wants_private) = (rng.between(0, 2) as usize, rng.permille(300));
            // The first node of each language group takes public jobs, so that these can be done.
            let is_private = wants_private && has_public[node.home];
            has_public[node.home] = true;
            FleetNode { habits, tenant, is_private }
        });
        Self { cell_nodes, weights, nodes: nodes.collect() }
    }

    /// The faults that only fleets have.
    pub(super) fn faults(seed: u64) -> impl Iterator<Item = Fault> {
        let mut rng = SimRng::new(seed, "fleet faults");
        Fault::OF_FLEETS.into_iter().filter(move |_| rng.permille(500))
    }

    pub(super) fn habits(&self, node: usize) -> NodeHabits {
        self.nodes[node].habits
    }

    /// The profile of a node, with its owner.
    pub(super) fn own(&self, node: usize, profile: Profile) -> Profile {
        let FleetNode { tenant, is_private, .. } = self.nodes[node];
        let caps = profile.capabilities().clone();
        let profile = Profile::new(caps, profile.slots_max().into(), !is_private);
        let token = TokenName::new(TENANTS[tenant]).expect("a name of a token");
        let profile = profile.expect("as many slots as before");
        profile.owned_by(self.tenant(tenant)).registered_by(Some(token))
    }

    pub(super) fn tenant(&self, number: usize) -> Tenant {
        Tenant::new(TENANTS[number % TENANTS.len()]).expect("a name of a tenant")
    }

    /// The rules of the tenants.
    pub(super) fn tenants(&self) -> TenantTable {
        let rules = |weight| TenantRules { weight, ..TenantRules::default() };
        let weights = self.weights.into_iter().enumerate();
        TenantTable::new(weights.map(|(number, weight)| (self.tenant(number), rules(weight))))
    }

    /// Gives a job an owner, and makes some jobs private and some strict about their node.
    pub(super) fn own_job(&self, spec: &mut JobSpec, rng: &mut SimRng) {
        spec.tenant = self.tenant(rng.between(0, 2) as usize);
        spec.public = !rng.permille(250);
        spec.strict = spec.preferred.is_some() && rng.permille(500);
    }

    /// Whose a job is that this node takes: `None` for a public one.
    pub(super) fn private_to(&self, node: usize, number: usize) -> Option<Tenant> {
        let FleetNode { tenant, is_private, .. } = self.nodes[node];
        (is_private || number.is_multiple_of(3)).then(|| self.tenant(tenant))
    }
}

/// The token of somebody who owns no node.
pub(super) fn intruder() -> TokenName {
    TokenName::new(INTRUDER).expect("a name of a token")
}
