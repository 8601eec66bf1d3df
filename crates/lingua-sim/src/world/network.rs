//! The ways between nodes, clients and instances.
//!
//! Start at [`Network::fate`]: what becomes of one message. Messages are delayed each on their own, so they
//! overtake each other in bad times; then they are also lost, doubled or very late.

use super::luck::Luck;

/// One end of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Node(usize),
    Instance(usize),
    Client,
}

/// How long a message takes in good times.
const GOOD_MS: u64 = 2;

/// How late it is at most in bad times if nothing happens to it.
const USUAL_MS: u64 = 4;

/// How late it is at most in bad ones.
const LATE_MS: u64 = 6_500;

#[derive(Debug)]
pub(super) struct Network {
    luck: Luck,
    blocked: Vec<(End, End, u64)>,
    bad_until_ms: u64,
    /// Out of a thousand, in bad times.
    lost: u32,
    doubled: u32,
    late: u32,
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        let mut luck = Luck::new(seed, "network");
        let (lost, doubled, late) =
            (luck.between(0, 150) as u32, luck.between(0, 150) as u32, luck.between(0, 150) as u32);
        Self { luck, blocked: vec![], bad_until_ms: 0, lost, doubled, late }
    }

    /// Nothing gets from one end to the other until then.
    pub(super) fn block(&mut self, from: End, to: End, until_ms: u64) {
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

    /// When each copy of a message arrives, counted from now; none if it is lost.
    pub(super) fn fate(&mut self, from: End, to: End, now_ms: u64) -> Vec<u64> {
        self.blocked.retain(|block| block.2 > now_ms);
        // Drawn whatever comes of it, so that a block shifts nobody's luck.
        let (usual_ms, late_ms) = (self.luck.between(1, USUAL_MS), self.luck.between(1, LATE_MS));
        let (lost, doubled, late) = (
            self.luck.permille(self.lost),
            self.luck.permille(self.doubled),
            self.luck.permille(self.late),
        );
        if self.blocked.iter().any(|block| (block.0, block.1) == (from, to)) {
            return vec![];
        }
        if now_ms >= self.bad_until_ms {
            // A connection keeps the order of what is sent on it.
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
