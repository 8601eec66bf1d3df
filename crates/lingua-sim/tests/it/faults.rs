//! Worlds under faults: all rules hold, and a seed gives the same trace every time.
//!
//! Seeds are spread over several tests, which run in parallel. `cargo xtask sim --seeds N` runs
//! more.

use lingua_sim::world::{self, Fault, WorldBatch, WorldKind};

/// Seeds in each test.
const SHARE: u64 = 32;

fn all_rules_hold(kind: WorldKind, share: u64) {
    let from = 1 + share * SHARE;
    let batch = WorldBatch::run(from..from + SHARE, kind, 1, None, &());
    let reports: Vec<String> = batch.failures.iter().map(world::WorldOutcome::report).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    assert_eq!(batch.tally.worlds, SHARE);
    let of_fleets = Fault::OF_FLEETS.into_iter().filter(|_| kind == WorldKind::Fleets);
    for fault in Fault::ALL.into_iter().chain(of_fleets) {
        assert!(batch.tally.faults.contains_key(&fault), "{} was never injected", fault.as_str());
    }
    for what in
        ["results", "partial texts", "resumed at another instance", "missing: INSTANCE_LOST"]
    {
        let is_there = batch.tally.speech.contains_key(what);
        // Few fleets have speakers.
        let is_right = is_there == (kind == WorldKind::Speakers) || kind == WorldKind::Fleets;
        assert!(is_right, "{what}: {:?}", batch.tally.speech);
    }
}

macro_rules! shares {
    ($($name:ident $kind:ident $share:expr,)*) => {
        $(
            #[test]
            fn $name() {
                all_rules_hold(WorldKind::$kind, $share);
            }
        )*
    };
}

shares! {
    all_rules_hold_in_every_world_1 Clients 0,
    all_rules_hold_in_every_world_2 Clients 1,
    all_rules_hold_in_every_world_3 Clients 2,
    all_rules_hold_in_every_world_4 Clients 3,
    all_rules_hold_in_every_world_5 Clients 4,
    all_rules_hold_in_every_world_6 Clients 5,
    all_rules_hold_in_every_world_7 Clients 6,
    all_rules_hold_in_every_world_8 Clients 7,
    all_rules_hold_with_speakers_1 Speakers 0,
    all_rules_hold_with_speakers_2 Speakers 1,
    all_rules_hold_with_speakers_3 Speakers 2,
    all_rules_hold_with_speakers_4 Speakers 3,
    all_rules_hold_in_fleets_1 Fleets 0,
    all_rules_hold_in_fleets_2 Fleets 1,
}

#[test]
fn the_same_seed_gives_the_same_trace_to_the_byte() {
    for seed in 1..=12 {
        for kind in [WorldKind::Clients, WorldKind::Speakers, WorldKind::Fleets] {
            let (one, other) = (world::run(seed, kind, None), world::run(seed, kind, None));
            assert!(one.trace == other.trace, "seed {seed} gave two traces");
            assert_eq!(one.tally, other.tally);
            assert!(one.trace.len() > 10_000, "seed {seed}: nothing happened");
        }
    }
    assert_ne!(
        world::run(1, WorldKind::Clients, None).trace,
        world::run(2, WorldKind::Clients, None).trace
    );
}
