//! Worlds under faults: all rules hold, a seed can be repeated, and every checker has found something.
//!
//! Seeds are spread over several tests so that they run side by side. `cargo xtask sim --seeds N` runs more.

use lingua_sim::world::{self, Batch, Cast, Fault};

/// Seeds of one test.
const SHARE: u64 = 32;

fn holds(cast: Cast, share: u64) {
    let from = 1 + share * SHARE;
    let batch = Batch::run(from..from + SHARE, cast, 1, None, &());
    let reports: Vec<String> = batch.failures.iter().map(world::Outcome::report).collect();
    assert!(reports.is_empty(), "{}", reports.join("\n"));
    assert_eq!(batch.tally.worlds, SHARE);
    for fault in Fault::ALL {
        assert!(batch.tally.faults.contains_key(&fault), "{} never struck", fault.as_str());
    }
    for what in
        ["results", "parts of texts", "resumed at another instance", "missing: INSTANCE_LOST"]
    {
        let is_there = batch.tally.speech.contains_key(what);
        assert_eq!(is_there, cast == Cast::Speakers, "{what}: {:?}", batch.tally.speech);
    }
}

macro_rules! shares {
    ($($name:ident $cast:ident $share:expr,)*) => {
        $(
            #[test]
            fn $name() {
                holds(Cast::$cast, $share);
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
    all_rules_hold_where_people_speak_1 Speakers 0,
    all_rules_hold_where_people_speak_2 Speakers 1,
    all_rules_hold_where_people_speak_3 Speakers 2,
    all_rules_hold_where_people_speak_4 Speakers 3,
}

#[test]
fn the_same_seed_gives_the_same_trace_to_the_byte() {
    for seed in 1..=12 {
        for cast in [Cast::Clients, Cast::Speakers] {
            let (one, other) = (world::run(seed, cast, None), world::run(seed, cast, None));
            assert!(one.trace == other.trace, "seed {seed} gave two traces");
            assert_eq!(one.tally, other.tally);
            assert!(one.trace.len() > 10_000, "seed {seed}: nothing happened");
        }
    }
    assert_ne!(world::run(1, Cast::Clients, None).trace, world::run(2, Cast::Clients, None).trace);
}

/// Each of these broke a rule once; `docs/reliability.md` says how.
#[test]
fn seeds_that_once_broke_a_rule_hold() {
    let once = [
        ("a job that could not be written was run by nobody", 6),
        ("a turn moved and its node was not told", 8),
        ("the age of a job was told by two clocks", 10),
        ("the answer to a new job was lost and nobody ran it", 32),
        ("two segments of a turn were sent together and one moved in silence", 36),
        ("a job was let go of, and then its record was lost", 39),
        ("an order that was overtaken kept its job from a free node", 44),
        ("a job that the store had forgotten was handed in again and ran twice", 54),
        ("another store was noticed only by the next job", 102),
        ("a heartbeat held the slot of a job that had ended", 669),
        ("a heartbeat held a slot whose release was rolled back", 729),
        ("a node's place was forgotten and its registration was not", 6161),
        ("an order to resume did not find a node whose place was forgotten", 6659),
        ("a job whose end the store had forgotten was taken up and ended otherwise", 7940),
    ];
    for (what, seed) in once {
        let outcome = world::run(seed, Cast::Clients, None);
        assert!(outcome.violation.is_none(), "{what}\n{}", outcome.report());
    }
}

/// The same for sessions.
#[test]
fn seeds_that_once_broke_a_rule_of_sessions_hold() {
    let once = [
        ("a session's token was counted for ever", 4),
        ("a record ran out while somebody listened in silence", 5),
        ("segments that were refused were not written, and their numbers given twice", 71),
        ("pieces of sound came out of order from another instance", 177),
        ("a segment was accepted by an instance that had lost the session", 179),
        ("a piece of sound came twice from another instance", 222),
        ("a failover brought back who had the session before", 349),
        ("a segment was accepted after it had been missing", 440),
        ("a session was taken over from a record that had changed meanwhile", 1428),
        ("two instances gave a turn the same number while the store was away", 4374),
    ];
    for (what, seed) in once {
        let outcome = world::run(seed, Cast::Speakers, None);
        assert!(outcome.violation.is_none(), "{what}\n{}", outcome.report());
    }
}
