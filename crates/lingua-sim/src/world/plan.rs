//! What a seed decides in advance: the size of the world and its faults.
//!
//! Start at [`WorldPlan::of`].

use lingua_core::session::SegmentRules;
use lingua_engine::session::SessionOptions;
use serde::{Deserialize, Serialize};

use super::fleet::{NodeHabits, WorldFleet};
use super::rng::SimRng;

/// How long faults are injected, in milliseconds.
pub(super) const CHAOS_MS: u64 = 30_000;

/// The languages of each home instance.
pub(super) const GROUPS: [[&str; 2]; 3] = [["zh", "en"], ["ja", "fr"], ["de", "es"]];

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fault {
    /// An instance is killed and started again later.
    InstanceCrash,
    /// An instance is stopped with a signal and started again later.
    InstanceStop,
    /// An instance is paused and resumed.
    InstancePause,
    /// One instance or all of them cannot reach the store.
    StoreCut,
    /// The store is slow for one instance.
    StoreSlow,
    /// Calls to the store are lost, before or after the operation was carried out.
    StoreTimeouts,
    /// The store loses its last writes, as in a failover.
    Rollback,
    /// A node is killed, its broken connection noticed or not, and started again later.
    NodeCrash,
    /// A node is paused and resumed.
    NodePause,
    /// A second process registers with the id of a node.
    Takeover,
    /// An operator drains a node and resumes it.
    Drain,
    /// Messages between a node and an instance are blocked in one direction or both.
    Partition,
    /// Messages are lost, repeated, late and out of order.
    BadNetwork,
    /// Bus messages between instances are lost, repeated and late, although the store accepted
    /// them.
    BadBus,
    /// Nodes report late, twice, for the wrong attempt, with the wrong fence, or never.
    BadNodes,
    /// Clients disconnect, come back at another instance, and cancel their jobs.
    BadClients,
    /// Somebody with another token registers and uses the id of a node.
    Intruder,
}

impl Fault {
    /// Those that only fleets have.
    pub const OF_FLEETS: [Self; 1] = [Self::Intruder];

    /// Those that every world may have.
    pub const ALL: [Self; 16] = [
        Self::InstanceCrash,
        Self::InstanceStop,
        Self::InstancePause,
        Self::StoreCut,
        Self::StoreSlow,
        Self::StoreTimeouts,
        Self::Rollback,
        Self::NodeCrash,
        Self::NodePause,
        Self::Takeover,
        Self::Drain,
        Self::Partition,
        Self::BadNetwork,
        Self::BadBus,
        Self::BadNodes,
        Self::BadClients,
    ];

    /// The name in tables and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstanceCrash => "instance crash",
            Self::InstanceStop => "instance stop",
            Self::InstancePause => "instance pause",
            Self::StoreCut => "store unreachable",
            Self::StoreSlow => "store slow",
            Self::StoreTimeouts => "store timeouts",
            Self::Rollback => "store rollback",
            Self::NodeCrash => "node crash",
            Self::NodePause => "node pause",
            Self::Takeover => "node takeover",
            Self::Drain => "node drain",
            Self::Partition => "partition",
            Self::BadNetwork => "bad network",
            Self::BadBus => "bad bus",
            Self::BadNodes => "bad node answers",
            Self::BadClients => "client hangs up",
            Self::Intruder => "foreign token",
        }
    }

    /// Whether it may delay the end of a job beyond its deadline.
    pub(super) fn delays_ends(self) -> bool {
        matches!(
            self,
            Self::InstanceCrash
                | Self::InstanceStop
                | Self::InstancePause
                | Self::StoreCut
                | Self::StoreSlow
                | Self::StoreTimeouts
                | Self::Rollback
        )
    }
}

/// A node of the world.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePlan {
    /// The instance that the node prefers.
    pub(super) home: usize,
    pub(super) slots: u16,
}

/// What a world has. With and without speakers a seed has the same nodes, jobs and faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldKind {
    /// Only clients that submit jobs.
    Clients,
    /// Also speakers in sessions.
    Speakers,
    /// Only clients, several instances, and a store that fails over every other second.
    Failovers,
    /// Clients and now and then speakers of several tenants, nodes that say little, small cells.
    Fleets,
}

impl WorldKind {
    /// The option that selects it.
    pub(super) fn as_option(self) -> &'static str {
        match self {
            Self::Clients => "",
            Self::Speakers => " --speakers",
            Self::Failovers => " --failovers",
            Self::Fleets => " --fleets",
        }
    }
}

/// The sessions of a world.
#[derive(Debug, Clone)]
pub(super) struct SpeechPlan {
    pub(super) speakers: usize,
    pub(super) options: SessionOptions,
    /// Which nodes take streamed audio.
    pub(super) listeners: Vec<bool>,
}

impl SpeechPlan {
    fn of(seed: u64, nodes: usize) -> Self {
        let mut rng = SimRng::new(seed, "speech");
        let segments = SegmentRules {
            pause_ms: rng.between(300, 800),
            segment_max_ms: rng.between(800, 2_500),
            ..SessionOptions::default().segments
        };
        let options = SessionOptions {
            segments,
            deadline_ms: rng.between(2_000, 6_000),
            resume_ms: rng.between(3_000, 8_000),
            idle_ms: 20_000,
            open_segments_max: *rng.pick(&[2, 8, 32]),
            per_token_max: 16,
            ..SessionOptions::default()
        };
        let share = *rng.pick(&[0, 500, 1000]);
        let listeners = (0..nodes).map(|_| rng.permille(share)).collect();
        Self { speakers: rng.between(1, 4) as usize, options, listeners }
    }
}

/// The plan of a world.
#[derive(Debug, Clone)]
pub(super) struct WorldPlan {
    pub(super) seed: u64,
    pub(super) kind: WorldKind,
    /// The sessions, if the world has speakers.
    pub(super) speech: Option<SpeechPlan>,
    /// What the nodes say and whose they are, if the world has a fleet.
    pub(super) fleet: Option<WorldFleet>,
    pub(super) instances: usize,
    pub(super) nodes: Vec<NodePlan>,
    /// The clock skew of each instance.
    pub(super) skew_ms: Vec<i64>,
    /// The kinds of faults that are injected.
    pub(super) faults: Vec<Fault>,
    /// Mean time between two faults.
    pub(super) fault_every_ms: u64,
    /// Mean time between two jobs.
    pub(super) job_every_ms: u64,
}

const HOUR_MS: i64 = 3_600_000;

impl WorldPlan {
    /// The plan of a seed.
    pub(super) fn of(seed: u64, kind: WorldKind) -> Self {
        let mut rng = SimRng::new(seed, "plan");
        let fewest = if kind == WorldKind::Failovers { 2 } else { 1 };
        let instances = rng.between(fewest, GROUPS.len() as u64) as usize;
        let mut nodes = vec![];
        for home in 0..instances {
            for _ in 0..rng.between(1, 4) {
                nodes.push(NodePlan { home, slots: rng.between(1, 4) as u16 });
            }
        }
        let skewed = rng.permille(500);
        let skew_ms = (0..instances)
            .map(|_| rng.between(0, 2 * HOUR_MS as u64) as i64 - HOUR_MS)
            .map(|skew_ms| if skewed { skew_ms } else { 0 })
            .collect();
        let share = *rng.pick(&[150, 350, 700]);
        let mut faults: Vec<Fault> =
            Fault::ALL.into_iter().filter(|_| rng.permille(share)).collect();
        if faults.is_empty() {
            faults.push(*rng.pick(&Fault::ALL));
        }
        let mut fault_every_ms = rng.between(400, 3_000);
        if kind == WorldKind::Failovers {
            faults = vec![Fault::Rollback, Fault::StoreTimeouts];
            faults.extend(rng.permille(500).then_some(Fault::InstancePause));
            fault_every_ms = rng.between(400, 800);
        }
        let job_every_ms = rng.between(60, 400);
        let is_fleet = kind == WorldKind::Fleets;
        let fleet = is_fleet.then(|| WorldFleet::of(seed, instances, &mut nodes));
        if is_fleet {
            faults.extend(WorldFleet::faults(seed));
        }
        let has_speakers = kind == WorldKind::Speakers || is_fleet && seed.is_multiple_of(4);
        let speech = has_speakers.then(|| SpeechPlan::of(seed, nodes.len()));
        Self {
            seed,
            kind,
            speech,
            fleet,
            instances,
            nodes,
            skew_ms,
            faults,
            fault_every_ms,
            job_every_ms,
        }
    }

    /// The same world with correct clocks.
    pub(super) fn without_skew(mut self) -> Self {
        self.skew_ms.iter_mut().for_each(|skew_ms| *skew_ms = 0);
        self
    }

    /// Whether any clock is skewed.
    pub(super) fn is_skewed(&self) -> bool {
        self.skew_ms.iter().any(|&skew_ms| skew_ms != 0)
    }

    /// The settings of sessions.
    pub(super) fn session_options(&self) -> SessionOptions {
        self.speech.as_ref().map(|speech| speech.options).unwrap_or_default()
    }

    /// Whether a node takes streamed audio.
    pub(super) fn listens(&self, node: usize) -> bool {
        self.speech.as_ref().is_none_or(|speech| speech.listeners[node])
    }

    /// What a node says of itself, and where it connects.
    pub(super) fn habits(&self, node: usize) -> NodeHabits {
        self.fleet.as_ref().map_or(NodeHabits::SDK, |fleet| fleet.habits(node))
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}
