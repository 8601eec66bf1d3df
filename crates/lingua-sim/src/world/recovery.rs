//! The end of a world: after the faults nothing may be leaked and every job must be done.
//!
//! Start at [`check_recovery`]. It ends all faults, waits longer than the longest lease, looks for
//! leaks, and sends more jobs than there are slots, which must all be done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lingua_core::Tenant;
use lingua_core::job::JobState;
use lingua_store::Store;
use lingua_store::contract::JobFilter;

use super::World;
use super::checker::Checker;
use super::client::run_client;
use super::client_job::{ClientJob, JobOwner, LAST_MS};
use super::trace::Subject;

/// The longest lease (15 s) and ten seconds more.
const SETTLE_MS: u64 = 25_000;

/// How long a slot may stay free while a job waits for it.
const IDLE_MS: u64 = 1_500;

const STEP_MS: u64 = 100;

/// The largest delay of a request to drain.
const LATE_ORDER_MS: u64 = 15_000;

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Ends all faults and checks the world.
pub(super) async fn check_recovery(world: &Arc<World>) {
    heal(world);
    for node in 0..world.plan.nodes.len() {
        let world = Arc::clone(world);
        tokio::spawn(async move {
            world.resume(node).await;
            // A request to drain may still arrive.
            sleep(LATE_ORDER_MS).await;
            world.resume(node).await;
        });
    }
    for _ in 0..SETTLE_MS / STEP_MS {
        sleep(STEP_MS).await;
        start_nodes(world);
        if world.has_failed() {
            return;
        }
    }
    look_for_leaks(world, "when faults had stopped").await;
    if world.has_failed() {
        return;
    }
    all_gets_done(world).await;
    if world.has_failed() {
        return;
    }
    sleep(1_000).await;
    look_for_leaks(world, "at the end").await;
    ends_are_final(world).await;
    records_run_out(world).await;
}

/// Session records of dead instances expire, too.
async fn records_run_out(world: &World) {
    let Some(speech) = &world.plan.speech else { return };
    let keep_ms = speech.options.idle_ms + speech.options.resume_ms;
    sleep(keep_ms.saturating_sub(SETTLE_MS)).await;
    let sessions = world.session_checkers.lock().len();
    for session in 0..sessions {
        if let Ok(Some(_)) = world.store.session(&format!("s{session}")).await {
            let text = format!("the store still knew s{session} at the end");
            world.fail(Checker::S5, Subject::default(), text);
        }
    }
}

fn heal(world: &Arc<World>) {
    world.note(Subject::default(), format_args!("! all faults stop"));
    world.begin_quiet();
    world.network.lock().heal();
    for run in world.runs() {
        run.faults.heal();
    }
    for index in 0..world.plan.instances {
        world.start_instance(index, true);
    }
    start_nodes(world);
}

/// Starts every node that has no process; a late message may have ended one.
fn start_nodes(world: &Arc<World>) {
    for node in 0..world.plan.nodes.len() {
        if world.processes.lock().present[node].is_none() {
            world.start_node(node);
        }
    }
}

async fn look_for_leaks(world: &World, when: &str) {
    let store = &world.store;
    let leaked = |about: Subject, what: String| {
        world.fail(Checker::S5, about, format!("{when} {what}"));
    };
    for cell in store.cells().await.unwrap_or_default() {
        let Ok(view) = store.view(cell).await else { continue };
        if let Some(lease) = view.leases.first() {
            let about = world.about(lease.key.job);
            leaked(about, format!("{about} still had a lease: {lease:?}"));
        }
    }
    let mut after = None;
    loop {
        let filter = JobFilter { after, limit: usize::MAX, ..JobFilter::default() };
        let page = store.jobs(filter).await.unwrap_or_default();
        for record in page.jobs.into_iter().filter(|job| !job.stage.state.is_terminal()) {
            let about = world.about(record.id);
            let (stage, owner) = (record.stage, record.owner);
            leaked(about, format!("{about} was still {stage}, owned by {owner}"));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    for run in world.runs() {
        let open = run.engine.open_jobs();
        if open > 0 {
            leaked(Subject::default(), format!("i{} still had {open} open jobs", run.index));
        }
    }
    for checker in world.session_checkers.lock().iter().filter(|checker| !checker.is_over) {
        leaked(Subject::default(), format!("{} had not ended", checker.name));
    }
    for run in world.runs() {
        let (sessions, tokens) = (run.sessions.len(), run.sessions.tokens());
        if sessions + tokens > 0 {
            let text = format!("i{} still had {sessions} sessions of {tokens} tokens", run.index);
            leaked(Subject::default(), text);
        }
    }
    for (node, process) in world.present() {
        let running = process.running.load(Ordering::Relaxed);
        if running > 0 {
            leaked(Subject::node(node), format!("n{node} still ran {running} jobs"));
        }
        if !process.at_home.load(Ordering::Relaxed) {
            leaked(Subject::node(node), format!("n{node} was not connected"));
        }
    }
}

/// Sends more jobs than there are slots; all of them must be done.
async fn all_gets_done(world: &Arc<World>) {
    let mut waiting = vec![];
    for home in 0..world.plan.instances {
        let owners = owners_of_last_jobs(world, home);
        waiting.push(owners.into_iter().map(|owner| send_last(world, home, owner)).collect());
    }
    let mut waiting: Vec<Vec<(usize, JobOwner)>> = waiting;
    let mut idle_ms = vec![0; waiting.len()];
    for _ in 0..(LAST_MS + 2_000) / STEP_MS {
        sleep(STEP_MS).await;
        for (home, jobs) in waiting.iter_mut().enumerate() {
            jobs.retain(|&(job, _)| !world.has_begun(job));
            let owners: Vec<JobOwner> = jobs.iter().map(|&(_, owner)| owner).collect();
            let free = world.free_slots(home, &owners);
            idle_ms[home] = if free > 0 && !jobs.is_empty() { idle_ms[home] + STEP_MS } else { 0 };
            if idle_ms[home] > IDLE_MS {
                let (job, count) = (jobs[0].0, jobs.len());
                show_nodes(world).await;
                let text = format!("{count} jobs of i{home} wait although {free} slots are free");
                return world.fail(Checker::S5, Subject::job(job), text);
            }
        }
        if world.has_failed() || world.all_seen() {
            break;
        }
    }
    for (job, facts) in world.facts().into_iter().filter(|(job, _)| world.is_last(*job)) {
        let about = Subject::job(job);
        match facts.seen {
            Some(seen) if seen.state == JobState::Done => {}
            Some(seen) => {
                show_nodes(world).await;
                let text = format!("{about} could be done and was not: {seen:?}");
                return world.fail(Checker::S5, about, text);
            }
            None => {
                return world.fail(
                    Checker::S5,
                    about,
                    format!("{about} could be done and did not end"),
                );
            }
        }
    }
}

/// Whose the jobs of a language group are, `None` for public ones: two for each slot, and two more.
fn owners_of_last_jobs(world: &World, home: usize) -> Vec<Option<Tenant>> {
    let nodes = world.plan.nodes.iter().enumerate().filter(|(_, node)| node.home == home);
    let jobs = nodes.flat_map(|(node, plan)| (0..2 * plan.slots).map(move |number| (node, number)));
    let owner = |(node, number)| {
        let fleet = world.plan.fleet.as_ref()?;
        fleet.private_to(node, usize::from(number))
    };
    jobs.map(owner).chain([None; 2]).collect()
}

/// Sends one of the last jobs.
fn send_last(world: &Arc<World>, home: usize, private_to: Option<Tenant>) -> (usize, JobOwner) {
    let number = world.next_job();
    let job = ClientJob::last(&world.plan, number, home, private_to);
    let owner = job.owner();
    tokio::spawn(run_client(Arc::clone(world), job));
    (number, owner)
}

/// Writes the store's view of every node into the trace.
async fn show_nodes(world: &World) {
    for cell in world.store.cells().await.unwrap_or_default() {
        let Ok(view) = world.store.view(cell).await else { continue };
        for node in view.nodes {
            let (id, state, used) = (node.node, node.state, node.used);
            let left_ms = node.fresh_until_ms as i64 - view.now_ms as i64;
            let what = format_args!("{cell} {id}: {state}, {used} used, fresh for {left_ms} ms");
            world.note(Subject::default(), what);
        }
    }
}

/// The store still has the end that each client saw.
async fn ends_are_final(world: &World) {
    for (job, facts) in world.facts() {
        let Some(seen) = &facts.seen else { continue };
        let id = lingua_core::JobId::new(job as u128);
        let record = world.store.job(id).await.ok().flatten();
        let stage = record.as_ref().map(|record| record.stage);
        let same =
            stage.is_some_and(|stage| (stage.state, stage.attempt.0) == (seen.state, seen.attempt));
        if !same && !world.may_be_lost(&facts) {
            let about = Subject::job(job);
            let (state, attempt) = (seen.state, seen.attempt);
            let text = format!(
                "the client saw {about} end as {state} in attempt {attempt}; \
                 the store has {stage:?}"
            );
            world.fail(Checker::S3, about, text);
        }
    }
}
