//! Simpler ways to choose a node, and one that knows everything.
//!
//! Start at [`Baseline::pick`]. The first three are what earlier schedulers did; the last is the
//! best that a work-conserving dispatcher can be expected to do, and no dispatcher over a network
//! can be: it sees every node as it is and needs no randomness against herds.
//!
//! Invariant: what is picked has a free slot.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::cells::QualityCellReply;
use super::machine::SimMachine;

/// Nodes in a group of the two-level choice.
const POOL_NODES: usize = 100;

/// Nodes in a sample.
const SAMPLE_NODES: usize = 20;

/// A way to choose that is not the core's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Baseline {
    /// A random hundred, then a random node of it, one try.
    TwoLevelRandom,
    /// A random node, one try.
    RandomNode,
    /// 20 random members, one try after the other until one has a free slot.
    SerialSample,
    /// The node with a free slot and the least expected delay, by perfect knowledge.
    LeastDelay,
}

impl Baseline {
    /// Chooses among the nodes that can do the job.
    pub fn pick(
        self,
        machines: &[SimMachine],
        capable: &[usize],
        luck: &mut ChaCha8Rng,
    ) -> QualityCellReply {
        match self {
            Self::TwoLevelRandom => {
                let pools = capable.len().div_ceil(POOL_NODES);
                let pool = capable.chunks(POOL_NODES).nth(luck.random_range(0..pools));
                let pool = pool.expect("a number below the number of chunks");
                one_try(machines, pool[luck.random_range(0..pool.len())])
            }
            Self::RandomNode => one_try(machines, capable[luck.random_range(0..capable.len())]),
            Self::SerialSample => serial_sample(machines, capable, luck),
            Self::LeastDelay => {
                QualityCellReply { node: least_delay(machines, capable, luck), tries: 1 }
            }
        }
    }
}

fn one_try(machines: &[SimMachine], node: usize) -> QualityCellReply {
    QualityCellReply { node: (!machines[node].is_full()).then_some(node), tries: 1 }
}

fn serial_sample(
    machines: &[SimMachine],
    capable: &[usize],
    luck: &mut ChaCha8Rng,
) -> QualityCellReply {
    let mut members = capable.to_vec();
    let tries_max = SAMPLE_NODES.min(members.len());
    for i in 0..tries_max {
        members.swap(i, luck.random_range(i..capable.len()));
        if !machines[members[i]].is_full() {
            return QualityCellReply { node: Some(members[i]), tries: i as u32 + 1 };
        }
    }
    QualityCellReply { node: None, tries: tries_max as u32 }
}

/// The best node, a random one of those that are exactly as good.
fn least_delay(machines: &[SimMachine], capable: &[usize], luck: &mut ChaCha8Rng) -> Option<usize> {
    let (mut best, mut best_s, mut equals) = (None, f64::INFINITY, 0);
    for &node in capable.iter().filter(|&&node| !machines[node].is_full()) {
        let delay_s = machines[node].delay_s();
        if delay_s < best_s {
            (best, best_s, equals) = (Some(node), delay_s, 1);
        } else if delay_s == best_s {
            equals += 1;
            if luck.random_range(0..equals) == 0 {
                best = Some(node);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::super::fleet::NodeSpec;
    use super::super::workload::Arrival;
    use super::*;

    fn machines(speeds: &[f64]) -> Vec<SimMachine> {
        speeds
            .iter()
            .map(|&speed| SimMachine::new(NodeSpec { speed, slots: 1, class: 0 }))
            .collect()
    }

    fn occupy(machine: &mut SimMachine) {
        machine.start(Arrival { at_s: 0.0, work_s: 1.0, pair: 0, session: 0 }, true, 0.0);
    }

    #[test]
    fn least_delay_takes_the_fastest_free_node() {
        let mut machines = machines(&[1.0, 2.0, 0.5, 1.0]);
        occupy(&mut machines[1]);
        let mut luck = ChaCha8Rng::seed_from_u64(7);
        let mut picked = [false; 4];
        for _ in 0..100 {
            let reply = Baseline::LeastDelay.pick(&machines, &[0, 1, 2, 3], &mut luck);
            picked[reply.node.unwrap()] = true;
        }
        assert_eq!(picked, [true, false, false, true]);
    }

    #[test]
    fn a_serial_sample_counts_every_try_and_gives_up_after_twenty() {
        let mut machines = machines(&[1.0; 100]);
        machines.iter_mut().for_each(occupy);
        let capable: Vec<usize> = (0..100).collect();
        let mut luck = ChaCha8Rng::seed_from_u64(7);
        let all = Baseline::SerialSample.pick(&machines, &capable, &mut luck);
        assert_eq!((all.node, all.tries), (None, 20));
        let few = Baseline::SerialSample.pick(&machines, &capable[..7], &mut luck);
        assert_eq!((few.node, few.tries), (None, 7));
    }
}
