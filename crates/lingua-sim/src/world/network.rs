//! The network between nodes, clients and instances.
//!
//! Start at [`Network::delays`]. While the network is bad, messages are lost, repeated and late,
//! and they overtake each other.

use super::rng::SimRng;

/// A sender or receiver of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkEnd {
    Node(usize),
    Instance(usize),
    Client,
}

/// The delay of a message in a good network.
const GOOD_MS: u64 = 2;

/// The largest usual delay in a bad network.
const USUAL_MS: u64 = 4;

/// The largest delay in a bad network.
const LATE_MS: u64 = 6_500;

#[derive(Debug)]
pub(super) struct Network {
    rng: SimRng,
    blocked: Vec<(NetworkEnd, NetworkEnd, u64)>,
    bad_until_ms: u64,
    /// Shares of messages in a bad network, in thousandths.
    lost: u32,
    doubled: u32,
    late: u32,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SimRng::new(seed, "network");
        let (lost, doubled, late) =
            (rng.between(0, 150) as u32, rng.between(0, 150) as u32, rng.between(0, 150) as u32);
        Self { rng, blocked: vec![], bad_until_ms: 0, lost, doubled, late }
    }

    /// Blocks messages in this direction until `until_ms`.
    pub(super) fn block(&mut self, from: NetworkEnd, to: NetworkEnd, until_ms: u64) {
        self.blocked.push((from, to, until_ms));
    }

    pub(super) fn be_bad_until(&mut self, ms: u64) {
        self.bad_until_ms = self.bad_until_ms.max(ms);
    }

    pub(super) fn is_bad(&self, now_ms: u64) -> bool {
        now_ms < self.bad_until_ms
    }

    pub(super) fn heal(&mut self) {
        self.blocked.clear();
        self.bad_until_ms = 0;
    }

    /// The delay of each copy of a message; empty if the message is lost.
    pub(super) fn delays(&mut self, from: NetworkEnd, to: NetworkEnd, now_ms: u64) -> Vec<u64> {
        self.blocked.retain(|block| block.2 > now_ms);
        // Drawn in any case, so that a block does not change later draws.
        let (usual_ms, late_ms) = (self.rng.between(1, USUAL_MS), self.rng.between(1, LATE_MS));
        let (lost, doubled, late) = (
            self.rng.permille(self.lost),
            self.rng.permille(self.doubled),
            self.rng.permille(self.late),
        );
        if self.blocked.iter().any(|block| (block.0, block.1) == (from, to)) {
            return vec![];
        }
        if now_ms >= self.bad_until_ms {
            // Equal delays keep the order of messages.
            return vec![GOOD_MS];
        }
        match (lost, doubled, late) {
            (true, _, _) => vec![],
            (_, true, _) => vec![usual_ms, late_ms],
            (_, _, true) => vec![late_ms],
            _ => vec![usual_ms],
        }
    }
}
