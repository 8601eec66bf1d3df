//! What is there again after a restart, and what rises.

use lingua_core::job::{Grant, JobState};
use lingua_core::{Attempt, Epoch, Fence, JobId, Rules, Term};
use lingua_store::conformance::fixture::{instance, key, node, profile};
use lingua_store::conformance::{START_MS, World};
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, ClaimKeyReply, ClaimKeyRequest, CreateReply, ElectReply,
    ElectRequest, Incarnation, KeyRecord, NodeCommand, Place,
};
use lingua_store::{Embedded, ManualClock, Store, StoreLimits};
use tempfile::TempDir;

use super::{all_jobs, new_job, open, owner, stage, step, write_job};

/// A life of a store in this directory, whose clock starts here.
fn life(dir: &TempDir, now_ms: u64) -> World<Embedded<ManualClock>> {
    let clock = ManualClock::at(now_ms);
    let rules = Rules::default();
    let store = Embedded::open(rules, StoreLimits::default(), clock.clone(), dir.path());
    World { store: store.expect("a store"), clock, rules }
}

#[tokio::test]
async fn every_answered_job_is_there_and_equal() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..40 {
        write_job(&store, n, (n % 4) as usize).await;
    }
    // One with a slot and an outcome, moved in one go.
    let place = World::<Embedded<_>> {
        store: store.clone(),
        clock: ManualClock::default(),
        rules: Rules::default(),
    }
    .assign(1, 1, 0)
    .await;
    let Place { cell, slot, epoch } = place;
    let via = instance(2);
    let grant = Grant { node: node(1), cell, slot, epoch, fence: Fence(77), via };
    write_job(&store, 40, 1).await;
    let reserved = step(40, JobState::Selecting, JobState::Reserved, 1).with_grant(Some(grant));
    let reserved = reserved.with_outcome(&b"so far"[..]);
    store.advance_job(reserved).await.unwrap();
    let before = all_jobs(&store).await;
    assert_eq!(before.len(), 41);
    drop(store);

    let store = open(dir.path());
    assert_eq!(all_jobs(&store).await, before);
    assert!(matches!(store.create_job(new_job(5)).await, Ok(CreateReply::Exists(_))), "one job");
}

#[tokio::test]
async fn a_key_stands_for_its_job_after_a_restart_until_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let claim = |job| ClaimKeyRequest { key: [1; 32], body: [2; 32], job, replaces: None };
    let (first, second) = (JobId::new(1), JobId::new(2));
    let w = life(&dir, START_MS);
    assert_eq!(w.store.claim_key(claim(first)).await, Ok(ClaimKeyReply::Claimed));
    drop(w);
    let w = life(&dir, START_MS + 1_000);
    let taken = ClaimKeyReply::Taken(KeyRecord { job: first, body: [2; 32] });
    assert_eq!(w.store.claim_key(claim(second)).await, Ok(taken));
    w.clock.advance(3_600_000);
    let third = ClaimKeyRequest { key: [9; 32], ..claim(second) };
    assert_eq!(w.store.claim_key(third).await, Ok(ClaimKeyReply::Claimed));
    drop(w);
    let w = life(&dir, START_MS);
    assert_eq!(w.store.claim_key(claim(second)).await, Ok(ClaimKeyReply::Claimed), "dropped");
}

#[tokio::test]
async fn jobs_go_on_where_they_stood() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    write_job(&store, 1, 2).await;
    write_job(&store, 2, 1).await;
    drop(store);

    let store = open(dir.path());
    let again = step(1, JobState::Selecting, JobState::Reserved, 7);
    let reply = store.advance_job(again).await;
    assert_eq!(reply, Ok(AdvanceReply::Advanced), "repeated after the restart, by its token");
    let rival = step(1, JobState::Selecting, JobState::Reserved, 8);
    assert!(matches!(store.advance_job(rival).await, Ok(AdvanceReply::Conflict { .. })));
    let on = step(1, JobState::Reserved, JobState::Failed, 9);
    assert_eq!(store.advance_job(on).await, Ok(AdvanceReply::Advanced));
    let heir = instance(1);
    let claimed = store.claim_orphans(&heir, 10).await.unwrap();
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [JobId::new(2)]);
    drop(store);

    let store = open(dir.path());
    let record = store.job(JobId::new(2)).await.unwrap().unwrap();
    assert_eq!(record.owner, heir, "a claim is kept");
    let from = stage(JobState::Selecting);
    let mut to = stage(JobState::Retrying);
    to.attempt = Attempt(2);
    let late = AdvanceRequest::new(record.id, owner(), from, to, 1).unwrap();
    assert!(matches!(store.advance_job(late).await, Ok(AdvanceReply::Conflict { .. })));
}

#[tokio::test]
async fn numbers_rise_over_restarts_whatever_the_clock_does() {
    let dir = tempfile::tempdir().unwrap();
    let (mut epoch, mut fence, mut term) = (Epoch(0), Fence(0), Term(0));
    // It stands still, goes back by a day, then by a year, and goes on.
    let day_ms = 86_400_000;
    let clocks = [START_MS, START_MS, START_MS - day_ms, START_MS - 365 * day_ms, START_MS + 1];
    for (life_number, now_ms) in clocks.into_iter().enumerate() {
        let w = life(&dir, now_ms);
        for n in 0..3 {
            let place = w.assign(n, 100 * life_number as u64 + n as u64, 0).await;
            assert!(place.epoch > epoch, "{} after {epoch}, life {life_number}", place.epoch);
            epoch = place.epoch;
            w.register(n, place, profile("zh en", 4)).await.expect("a fresh place");
            for job in 0..4 {
                let key = key((life_number * 100 + n * 10 + job) as u128);
                let next = w.take(place.cell, key).await.fence;
                assert!(next > fence, "{next} after {fence}, life {life_number}");
                fence = next;
            }
        }
        let candidate =
            ElectRequest { instance: owner(), incarnation: Incarnation(1), lease_ms: 9_000 };
        let ElectReply::Leading { term: next, .. } = w.store.elect(candidate).await.unwrap() else {
            panic!("the lease of a former life is over")
        };
        assert!(next > term, "{next} after {term}, life {life_number}");
        term = next;
    }
}

#[tokio::test]
async fn fences_rise_although_the_clock_ran_far_in_the_life_before() {
    let dir = tempfile::tempdir().unwrap();
    let w = life(&dir, START_MS);
    let place = w.join(0, "zh en", 4).await;
    w.clock.advance(3_600_000);
    write_job(&w.store, 1, 0).await;
    w.heartbeat(place, vec![]).await;
    let before = w.take(place.cell, key(1)).await.fence;
    drop(w);
    let w = life(&dir, START_MS);
    let place = w.join(0, "zh en", 4).await;
    assert!(w.take(place.cell, key(2)).await.fence > before);
}

#[tokio::test]
async fn an_old_incarnation_is_never_taken_for_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let w = life(&dir, START_MS);
    let old = w.assign(0, 1, 0).await;
    let new = w.assign(0, 2, 0).await;
    let gone = w.assign(1, 1, 0).await;
    assert_eq!(w.store.release(&node(1), gone.epoch).await, Ok(true));
    drop(w);

    let w = life(&dir, START_MS);
    assert_eq!(w.store.locate(&node(0)).await, Ok(Some(new)));
    assert_eq!(w.store.locate(&node(1)).await, Ok(None), "a release is kept");
    assert_eq!(w.register(0, old, profile("zh en", 4)).await, None, "superseded");
    assert_eq!(w.register(1, gone, profile("zh en", 4)).await, None, "its place is not its own");
    assert_eq!(w.assign(0, 2, 0).await, new, "the same incarnation has the same place");
    assert_eq!(w.register(0, new, profile("zh en", 4)).await, Some(vec![]), "and may take it");
    let next = w.assign(1, 1, 0).await;
    assert_eq!((next.cell, next.slot), (gone.cell, gone.slot), "the free place is found");
    assert!(next.epoch > new.epoch && next.epoch > gone.epoch);
    assert_eq!(w.register(1, next, profile("zh en", 4)).await, Some(vec![]));
}

#[tokio::test]
async fn an_order_to_drain_outlives_a_restart_until_it_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let is_drained = async |w: &World<Embedded<ManualClock>>, n: usize| {
        let place = w.store.locate(&node(n)).await.unwrap().expect("a place");
        let view = w.store.view(place.cell).await.unwrap();
        view.nodes.iter().find(|known| known.node == node(n)).map(|known| known.drain_ordered)
    };
    let w = life(&dir, START_MS);
    for n in 0..4 {
        let place = w.join(n, "zh en", 4).await;
        if n < 3 {
            w.store.set_state(place, NodeCommand::Drain).await.unwrap();
        }
        if n == 1 {
            w.store.set_state(place, NodeCommand::Resume).await.unwrap();
        }
    }
    let gone = w.store.locate(&node(2)).await.unwrap().expect("a place");
    w.store.set_state(gone, NodeCommand::Retire).await.unwrap();
    assert_eq!(w.store.release(&node(2), gone.epoch).await, Ok(true));
    drop(w);

    // Also over a life in which the node did not come back.
    drop(life(&dir, START_MS));
    let w = life(&dir, START_MS);
    assert_eq!(is_drained(&w, 0).await, None, "it is not back yet");
    for n in 0..4 {
        let place = w.assign(n, 2, 0).await;
        w.register(n, place, profile("zh en", 4)).await.expect("a fresh place");
    }
    assert_eq!(is_drained(&w, 0).await, Some(true), "ordered");
    assert_eq!(is_drained(&w, 1).await, Some(false), "taken back");
    assert_eq!(is_drained(&w, 2).await, Some(false), "another node with an old name");
    assert_eq!(is_drained(&w, 3).await, Some(false), "never ordered");
    let place = w.store.locate(&node(0)).await.unwrap().expect("a place");
    w.store.set_state(place, NodeCommand::Resume).await.unwrap();
    drop(w);

    let w = life(&dir, START_MS);
    let place = w.assign(0, 3, 0).await;
    w.register(0, place, profile("zh en", 4)).await.expect("a fresh place");
    assert_eq!(is_drained(&w, 0).await, Some(false), "taken back after a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn racing_ends_leave_one_end_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..20 {
        write_job(&store, n, 1).await;
    }
    let mut rivals = tokio::task::JoinSet::new();
    for rival in 0..8_u64 {
        let store = store.clone();
        rivals.spawn(async move {
            let mut won = vec![];
            for n in 0..20 {
                let end = [JobState::Failed, JobState::Cancelled][rival as usize % 2];
                let outcome = rival.to_le_bytes().to_vec();
                let step = step(n, JobState::Selecting, end, rival).with_outcome(outcome);
                if store.advance_job(step).await == Ok(AdvanceReply::Advanced) {
                    won.push((n, rival));
                }
            }
            won
        });
    }
    let mut won = rivals.join_all().await.concat();
    won.sort_unstable();
    assert_eq!(won.iter().map(|&(n, _)| n).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    drop(store);
    let store = open(dir.path());
    for (n, rival) in won {
        let record = store.job(JobId::new(n)).await.unwrap().unwrap();
        assert!(record.stage.state.is_terminal());
        assert_eq!(record.outcome.as_deref(), Some(&rival.to_le_bytes()[..]), "the winner's end");
    }
}
