//! A client: submits one job and waits for its end.
//!
//! Start at [`run_client`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::Attempt;
use lingua_engine::handle::Waited;
use lingua_engine::request::JobStatus;

use super::World;
use super::checker::{Checker, ObservedEnd};
use super::client_job::ClientJob;
use super::instance::InstanceRun;
use super::network::NetworkEnd;
use super::node::WRONG;
use super::plan::Fault;
use super::rng::SimRng;
use super::trace::Subject;

/// How often a client tries to submit its job.
const SUBMIT_TRIES: u32 = 8;

/// How long a client waits for a reply that was lost.
const REPLY_MS: u64 = 3_000;

/// How long an instance may hold one request for the end.
const WAIT_MS: u64 = 1_500;

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Submits a job and waits for its end.
pub(super) async fn run_client(world: Arc<World>, turn: ClientJob) {
    let mut rng = SimRng::new(world.plan.seed, &format!("client {}", turn.number));
    let about = Subject::job(turn.number);
    let Some(at) = submit(&world, &turn, &mut rng).await else {
        world.note(about, format_args!("{about} was accepted by no instance"));
        return;
    };
    if let Some(ms) = turn.cancel_after_ms {
        let (world, id) = (Arc::clone(&world), turn.request.id);
        world.count_fault(Fault::BadClients);
        tokio::spawn(async move {
            sleep(ms).await;
            world.note(about, format_args!("client cancels {about}"));
            world.call_instance(at, |run| async move { run.engine.cancel(id).await }).await;
        });
    }
    if let Some(ms) = turn.gone_ms {
        world.count_fault(Fault::BadClients);
        sleep(ms).await;
    }
    let view = wait(&world, &turn, &mut rng, at).await;
    record_end(&world, &turn, &view);
}

/// Submits a job; gives the instance that accepted it.
async fn submit(world: &Arc<World>, turn: &ClientJob, rng: &mut SimRng) -> Option<usize> {
    let about = Subject::job(turn.number);
    let mut at = turn.first_at;
    for tried in 0..SUBMIT_TRIES {
        let request = turn.request.clone();
        let call = world.call_instance(at, |run| async move { run.engine.submit(request).await });
        let reply = match turn.hangs_up_ms.filter(|_| tried == 0) {
            // The call is dropped wherever it is, as a server does when the client disconnects.
            Some(ms) => {
                world.count_fault(Fault::BadClients);
                tokio::time::timeout(Duration::from_millis(ms), call).await.ok().flatten()
            }
            None => call.await,
        };
        let refusal = match reply {
            Some(Ok(submitted)) => {
                world.accepted(turn, !submitted.existed);
                let existed = if submitted.existed { " already" } else { "" };
                world.note(about, format_args!("i{at} has accepted {about}{existed}"));
                return Some(at);
            }
            Some(Err(error)) => error.code(),
            None => "no reply",
        };
        world.note(about, format_args!("i{at} has not accepted {about}: {refusal}"));
        sleep(rng.between(100, 600)).await;
        at = other_instance(world, turn, rng, at);
    }
    None
}

fn other_instance(world: &World, turn: &ClientJob, rng: &mut SimRng, at: usize) -> usize {
    let any = rng.between(0, world.plan.instances as u64 - 1) as usize;
    match rng.between(0, 3) {
        0 => any,
        1 => turn.home,
        _ => at,
    }
}

async fn wait(world: &Arc<World>, turn: &ClientJob, rng: &mut SimRng, mut at: usize) -> JobStatus {
    let id = turn.request.id;
    loop {
        let call =
            world.call_instance(at, |run| async move { run.engine.wait_ended(id, WAIT_MS).await });
        match call.await {
            Some(Ok(Waited::Reached(view))) => return view,
            Some(Ok(Waited::NotYet(_))) => {}
            _ => {
                sleep(rng.between(50, 300)).await;
                at = other_instance(world, turn, rng, at);
            }
        }
    }
}

fn record_end(world: &World, turn: &ClientJob, view: &JobStatus) {
    let about = Subject::job(turn.number);
    let progress = &view.progress;
    let ended = progress.ended.as_ref();
    let seen = ObservedEnd {
        state: progress.state,
        attempt: progress.attempt.0,
        result: ended
            .and_then(|ended| Some(ended.result.as_ref()?.as_str().trim_matches('"').to_owned())),
        error: ended.and_then(|ended| ended.error.clone()),
    };
    let shown = seen.result.as_ref().or(seen.error.as_ref()).cloned().unwrap_or_default();
    world.note(about, format_args!("client sees {about} end as {} {shown}", seen.state));
    if let Some(result) = &seen.result {
        // An end that the store lost is written again, in a later attempt if one has begun.
        let is_of = |attempt: u32| {
            let is_end = || world.store_checker.lock().has_ended_in(view.id, Attempt(attempt));
            result.starts_with(&format!("j{} a{attempt} ", turn.number))
                && (attempt == seen.attempt || is_end())
        };
        if result == WRONG || !(1..=seen.attempt).any(is_of) {
            let text = format!("{about} ended in attempt {} with '{result}'", seen.attempt);
            world.fail(Checker::S4, about, text);
        }
    }
    world.client_saw(turn.number, seen);
}

impl World {
    /// Calls an instance over the network; `None` if it is dead or dies, or if a message is lost.
    pub(super) async fn call_instance<T, F, Fut>(&self, at: usize, call: F) -> Option<T>
    where
        F: FnOnce(InstanceRun) -> Fut,
        Fut: Future<Output = T>,
    {
        let Some(there_ms) = self.delay(NetworkEnd::Client, NetworkEnd::Instance(at)) else {
            sleep(REPLY_MS).await;
            return None;
        };
        sleep(there_ms).await;
        let run = self.run(at)?;
        if !run.faults.wait_while_paused().await {
            return None;
        }
        let faults = Arc::clone(&run.faults);
        let reply = tokio::select! {
            biased;
            () = faults.until_dead() => return None,
            reply = call(run) => reply,
        };
        let Some(back_ms) = self.delay(NetworkEnd::Instance(at), NetworkEnd::Client) else {
            sleep(REPLY_MS).await;
            return None;
        };
        sleep(back_ms).await;
        Some(reply)
    }
}
