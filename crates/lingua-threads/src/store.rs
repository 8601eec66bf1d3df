//! Races on the embedded store.
//!
//! Start at [`racing_jobs_never_oversell`]. A new store has a thousand cells, which costs more than
//! a race; so one store serves `ROUNDS` races, and each of them leaves it as it found it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lingua_core::job::{JobState, Stage};
use lingua_core::{Attempt, CellId, JobId, Rules};
use lingua_store::ManualClock;
use lingua_store::conformance::World;
use lingua_store::conformance::fixture::{ACK_MS, RUN_MS, heartbeat, instance, key, reserve};
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, AnnounceRequest, AttemptOutcome, Bytes, CommitReply, CreateReply,
    ExpiredLease, HeartbeatReply, Incarnation, LeaseKey, NewJob, Place, ReserveOutcome, Store,
};
use shuttle::future::block_on;
use shuttle::thread;

use crate::embedded::{Embedded, StoreLimits};
use crate::race;

/// Races on one store.
const ROUNDS: usize = 20;
/// Slots of the only node: fewer than jobs.
const SLOTS: u64 = 2;
/// Jobs that race for them.
const JOBS: u128 = 3;
/// Longer than any lease: after it every lease has expired.
const FOREVER_MS: u64 = 60_000;

type SharedStore = Arc<World<Embedded<ManualClock>>>;

fn world() -> SharedStore {
    let factory = async |rules, clock| Embedded::new(rules, StoreLimits::default(), clock);
    Arc::new(block_on(World::new(factory, Rules::default())))
}

/// Runs `schedules` races, `ROUNDS` of them on each store; `round` gets a number of its own.
fn rounds(schedules: usize, round: fn(&SharedStore, u128)) {
    race(schedules / ROUNDS, move || {
        let world = world();
        (0..ROUNDS as u128).for_each(|n| round(&world, n));
    });
}

fn spawn(
    world: &SharedStore,
    body: impl FnOnce(&SharedStore) + Send + 'static,
) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || body(&world))
}

fn join_all(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("a thread failed"));
}

/// The only node. It registers in the first round and exists already in the others.
fn the_node(world: &SharedStore) -> Place {
    block_on(world.join(0, "zh en", SLOTS))
}

/// Asserts what must hold at any moment.
fn assert_sound(world: &SharedStore, cell: CellId) {
    let view = block_on(world.store.view(cell)).expect("a view");
    assert!(view.leases.len() as u64 <= SLOTS, "oversold: {:?}", view.leases);
    assert_eq!(usize::from(view.nodes[0].used), view.leases.len(), "used is the number of leases");
}

fn assert_empty(world: &SharedStore, cell: CellId) {
    let view = block_on(world.store.view(cell)).expect("a view");
    assert_eq!((view.leases.len(), view.nodes[0].used), (0, 0), "nothing is held at the end");
}

/// Three jobs reserve, commit and finish on a node with two slots, which sends a heartbeat while a
/// clean-up runs. The node never has more than two jobs, no lease is lost, none is left at the end.
pub fn racing_jobs_never_oversell(schedules: usize) {
    rounds(schedules, |world, round| {
        let place = the_node(world);
        let running = Arc::new(AtomicU64::new(0));
        let mut threads: Vec<_> = (0..JOBS)
            .map(|n| {
                let (key, running) = (key(round * JOBS + n), Arc::clone(&running));
                spawn(world, move |world| run_job(world, place.cell, key, &running))
            })
            .collect();
        threads.push(spawn(world, move |world| {
            let reply = block_on(world.store.heartbeat(heartbeat(place, vec![]))).expect("a reply");
            assert!(matches!(reply, HeartbeatReply::Accepted { .. }));
            let reaped = block_on(world.store.reap(place.cell, 10)).expect("a reply");
            assert!(reaped.expired.is_empty(), "the time stands still");
            assert_sound(world, place.cell);
        }));
        join_all(threads);
        assert_empty(world, place.cell);
    });
}

fn run_job(world: &SharedStore, cell: CellId, key: LeaseKey, running: &AtomicU64) {
    let reply = block_on(world.store.reserve(cell, reserve(key))).expect("a reply");
    let grant = match reply.outcome {
        ReserveOutcome::Granted { grant, .. } => grant,
        ReserveOutcome::Full { .. } => return,
        other => panic!("{other:?}"),
    };
    let at_once = running.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(at_once <= SLOTS, "the node runs {at_once}");
    let commit = block_on(world.store.commit(cell, key, RUN_MS)).expect("a reply");
    assert_eq!(commit, CommitReply::Committed(grant.fence));
    running.fetch_sub(1, Ordering::SeqCst);
    let freed =
        block_on(world.store.finish(cell, key, AttemptOutcome::Succeeded)).expect("a reply");
    assert!(freed.is_some(), "its lease was there");
}

/// As before, while time passes and leases expire: each granted lease ends exactly once, by its
/// finish or by a clean-up.
pub fn a_lease_ends_once_whoever_ends_it(schedules: usize) {
    rounds(schedules, |world, round| {
        let place = the_node(world);
        let (granted, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut threads: Vec<_> = (0..JOBS)
            .map(|n| {
                let key = key(round * JOBS + n);
                let (granted, ended) = (Arc::clone(&granted), Arc::clone(&ended));
                spawn(world, move |world| {
                    let reply = block_on(world.store.reserve(place.cell, reserve(key)));
                    let reply = reply.expect("a reply");
                    count(&ended, &reply.expired);
                    if !matches!(reply.outcome, ReserveOutcome::Granted { .. }) {
                        return;
                    }
                    granted.fetch_add(1, Ordering::SeqCst);
                    assert_sound(world, place.cell);
                    block_on(world.store.commit(place.cell, key, RUN_MS)).expect("a reply");
                    let freed =
                        block_on(world.store.finish(place.cell, key, AttemptOutcome::Succeeded))
                            .expect("a reply");
                    ended.fetch_add(u64::from(freed.is_some()), Ordering::SeqCst);
                })
            })
            .collect();
        let reaper_ended = Arc::clone(&ended);
        threads.push(spawn(world, move |world| {
            world.clock.advance(ACK_MS + 1);
            let reaped = block_on(world.store.reap(place.cell, 10)).expect("a reply");
            count(&reaper_ended, &reaped.expired);
        }));
        join_all(threads);
        world.clock.advance(FOREVER_MS);
        let reaped = block_on(world.store.reap(place.cell, 10)).expect("a reply");
        assert!(reaped.expired.is_empty(), "every job had ended its lease or lost it");
        assert_eq!(granted.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        assert_empty(world, place.cell);
    });
}

fn count(ended: &AtomicU64, expired: &[ExpiredLease]) {
    ended.fetch_add(expired.len() as u64, Ordering::SeqCst);
}

/// Two threads create the same job and three end it in three ways: one creates it, one ends it, and
/// the record says so.
pub fn a_job_is_created_once_and_ends_once(schedules: usize) {
    rounds(schedules, |world, round| {
        let id = JobId::new(round);
        let created = Arc::new(AtomicU64::new(0));
        let winner = Arc::new(AtomicU64::new(0));
        let mut threads = vec![];
        for _ in 0..2 {
            let created = Arc::clone(&created);
            threads.push(spawn(world, move |world| {
                let (owner, spec) = (instance(0), Bytes::new());
                let job =
                    NewJob { id, owner, spec, deadline_ms: None, recoverable: true, label: 0 };
                let reply = block_on(world.store.create_job(job)).expect("a reply");
                let is_new = u64::from(reply == CreateReply::Created);
                created.fetch_add(is_new, Ordering::SeqCst);
            }));
        }
        for token in 1..=3 {
            let winner = Arc::clone(&winner);
            threads.push(spawn(world, move |world| {
                let reply = block_on(world.store.advance_job(end(id, token))).expect("a reply");
                if reply == AdvanceReply::Advanced {
                    assert_eq!(winner.swap(token, Ordering::SeqCst), 0, "it ended twice");
                    let again = block_on(world.store.advance_job(end(id, token)));
                    assert_eq!(again.expect("a reply"), AdvanceReply::Advanced, "a repeat");
                }
            }));
        }
        join_all(threads);
        assert_eq!(created.load(Ordering::SeqCst), 1, "created once");
        let record = block_on(world.store.job(id)).expect("a reply").expect("the job");
        let winner = winner.load(Ordering::SeqCst);
        let outcome = record.outcome.map_or(0, |outcome| u64::from(outcome[0]));
        assert_eq!(outcome, winner, "the record is the winner's, or nobody's");
        assert_eq!(record.stage.state.is_terminal(), winner != 0);
    });
}

/// An end of the job whose outcome is its token.
fn end(id: JobId, token: u64) -> AdvanceRequest {
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let state = if token == 1 { JobState::Cancelled } else { JobState::Failed };
    AdvanceRequest::new(id, instance(0), stage(JobState::New), stage(state), token)
        .expect("an open job may end")
        .with_outcome(vec![token as u8])
}

/// Two threads send and one receives until it has both messages: it misses neither.
pub fn no_message_is_missed(schedules: usize) {
    rounds(schedules, |world, round| {
        let presence = AnnounceRequest {
            instance: instance(round as usize),
            incarnation: Incarnation(1),
            address: String::new(),
            lease_ms: FOREVER_MS,
        };
        let me = presence.instance.clone();
        block_on(world.store.announce(presence)).expect("a reply");
        let mut threads: Vec<_> = (0..2u8)
            .map(|n| {
                let to = me.clone();
                spawn(world, move |world| {
                    block_on(world.store.send(&to, vec![n].into())).expect("sent");
                })
            })
            .collect();
        threads.push(spawn(world, move |world| {
            let (mut after, mut seen) = (0, vec![]);
            while seen.len() < 2 {
                let mail = block_on(world.store.receive(&me, after, 10)).expect("mail");
                after = mail.last().map_or(after, |envelope| envelope.seq);
                seen.extend(mail.into_iter().map(|envelope| envelope.message[0]));
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1]);
        }));
        join_all(threads);
    });
}
