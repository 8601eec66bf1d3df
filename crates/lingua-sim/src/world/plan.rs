//! What a seed decides before anything happens: how large the world is and what goes wrong in it.
//!
//! Start at [`Plan::of`].

use lingua_core::session::SegmentRules;
use lingua_engine::session::SessionOptions;

use super::luck::Luck;

/// How long faults are injected, in milliseconds.
pub(super) const CHAOS_MS: u64 = 30_000;

/// The directions that are spoken: one for each instance that can be a home.
pub(super) const GROUPS: [[&str; 2]; 3] = [["zh", "en"], ["ja", "fr"], ["de", "es"]];

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// An instance dies and another life of it starts later.
    InstanceCrash,
    /// An instance is stopped as a signal does, and started again.
    InstanceStop,
    /// An instance does nothing for a while and then goes on as if nothing had been.
    InstancePause,
    /// The store cannot be reached, by one instance or by all.
    StoreCut,
    /// The store is slow for one instance.
    StoreSlow,
    /// The store's answers get lost, before or after the operation was carried out.
    StoreTimeouts,
    /// The store forgets its last writes, as a failover does.
    Rollback,
    /// A node dies, its connection noticed or not, and comes back later.
    NodeCrash,
    /// A node does nothing for a while.
    NodePause,
    /// A second process registers with a node's name.
    Takeover,
    /// An operator drains a node and resumes it.
    Drain,
    /// Messages between a node and its instance get through in one direction only, or in none.
    Partition,
    /// Messages are lost, doubled, late and out of order.
    BadNetwork,
    /// So are those between instances, although the store has taken them.
    BadBus,
    /// Nodes answer late, twice, for the wrong attempt, with the wrong fence, or never.
    BadNodes,
    /// Clients hang up, come back elsewhere, and call off what they asked for.
    BadClients,
}

impl Fault {
    /// All of them.
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

    /// The name in tables and timelines.
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
        }
    }

    /// Whether it can keep a job from ending in time: what the store or the owner cannot do, nobody can.
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

/// A node that the world has.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodePlan {
    /// The instance that it connects to if it can.
    pub(super) home: usize,
    pub(super) slots: u16,
}

/// Who lives in a world. The same seed has the same nodes, jobs and faults in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cast {
    /// Clients that ask for jobs.
    Clients,
    /// People who speak in sessions, too.
    Speakers,
}

/// People who speak.
#[derive(Debug, Clone)]
pub(super) struct Speech {
    pub(super) speakers: usize,
    pub(super) options: SessionOptions,
    /// Which nodes listen along.
    pub(super) listeners: Vec<bool>,
}

impl Speech {
    fn of(seed: u64, nodes: usize) -> Self {
        let mut luck = Luck::new(seed, "speech");
        let segments = SegmentRules {
            pause_ms: luck.between(300, 800),
            segment_max_ms: luck.between(800, 2_500),
            ..SessionOptions::default().segments
        };
        let options = SessionOptions {
            segments,
            deadline_ms: luck.between(2_000, 6_000),
            resume_ms: luck.between(3_000, 8_000),
            idle_ms: 20_000,
            open_segments_max: *luck.pick(&[2, 8, 32]),
            per_token_max: 16,
            ..SessionOptions::default()
        };
        let share = *luck.pick(&[0, 500, 1000]);
        let listeners = (0..nodes).map(|_| luck.permille(share)).collect();
        Self { speakers: luck.between(1, 4) as usize, options, listeners }
    }
}

/// The world of a seed.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// If anybody speaks.
    pub(super) speech: Option<Speech>,
    pub(super) instances: usize,
    pub(super) nodes: Vec<NodePlan>,
    /// How far each instance's clock is off, in milliseconds.
    pub(super) skew_ms: Vec<i64>,
    /// What goes wrong.
    pub(super) faults: Vec<Fault>,
    /// Mean time between two faults.
    pub(super) fault_every_ms: u64,
    /// Mean time between two jobs.
    pub(super) job_every_ms: u64,
}

const HOUR_MS: i64 = 3_600_000;

impl Plan {
    /// The plan of a seed.
    pub(super) fn of(seed: u64, cast: Cast) -> Self {
        let mut luck = Luck::new(seed, "plan");
        let instances = luck.between(1, GROUPS.len() as u64) as usize;
        let mut nodes = vec![];
        for home in 0..instances {
            for _ in 0..luck.between(1, 4) {
                nodes.push(NodePlan { home, slots: luck.between(1, 4) as u16 });
            }
        }
        let skewed = luck.permille(500);
        let skew_ms = (0..instances)
            .map(|_| luck.between(0, 2 * HOUR_MS as u64) as i64 - HOUR_MS)
            .map(|skew_ms| if skewed { skew_ms } else { 0 })
            .collect();
        let share = *luck.pick(&[150, 350, 700]);
        let mut faults: Vec<Fault> =
            Fault::ALL.into_iter().filter(|_| luck.permille(share)).collect();
        if faults.is_empty() {
            faults.push(*luck.pick(&Fault::ALL));
        }
        let fault_every_ms = luck.between(400, 3_000);
        let job_every_ms = luck.between(60, 400);
        let speech = (cast == Cast::Speakers).then(|| Speech::of(seed, nodes.len()));
        Self { seed, speech, instances, nodes, skew_ms, faults, fault_every_ms, job_every_ms }
    }

    /// The same world with all clocks right.
    pub(super) fn without_skew(mut self) -> Self {
        self.skew_ms.iter_mut().for_each(|skew_ms| *skew_ms = 0);
        self
    }

    /// Whether any clock is off.
    pub(super) fn is_skewed(&self) -> bool {
        self.skew_ms.iter().any(|&skew_ms| skew_ms != 0)
    }

    /// How people speak; by default, if nobody does.
    pub(super) fn session_options(&self) -> SessionOptions {
        self.speech.as_ref().map(|speech| speech.options).unwrap_or_default()
    }

    /// Whether a node listens along. Without speakers it does not matter.
    pub(super) fn listens(&self, node: usize) -> bool {
        self.speech.as_ref().is_none_or(|speech| speech.listeners[node])
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}
