//! A client: asks for one job and waits until it has seen the end.
//!
//! Start at [`speak`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lingua_engine::handle::Waited;
use lingua_engine::request::JobStatus;

use super::World;
use super::checker::{Checker, Seen};
use super::client_job::ClientJob;
use super::instance::Life;
use super::luck::Luck;
use super::network::End;
use super::node::WRONG;
use super::plan::Fault;
use super::trace::About;

/// How often a client tries to hand in its job.
const SUBMIT_TRIES: u32 = 8;

/// How long a client waits for an answer that got lost.
const PATIENCE_MS: u64 = 3_000;

/// How long it asks to be kept waiting at a time.
const WAIT_MS: u64 = 1_500;

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Asks for a job and waits for its end.
pub(super) async fn speak(world: Arc<World>, turn: ClientJob) {
    let mut luck = Luck::new(world.plan.seed, &format!("client {}", turn.number));
    let about = About::job(turn.number);
    let Some(at) = submit(&world, &turn, &mut luck).await else {
        world.note(about, format_args!("{about} was accepted by nobody"));
        return;
    };
    if let Some(ms) = turn.cancel_after_ms {
        let (world, id) = (Arc::clone(&world), turn.request.id);
        world.count_fault(Fault::BadClients);
        tokio::spawn(async move {
            sleep(ms).await;
            world.note(about, format_args!("client calls {about} off"));
            world.ask(at, |life| async move { life.engine.cancel(id).await }).await;
        });
    }
    if let Some(ms) = turn.gone_ms {
        world.count_fault(Fault::BadClients);
        sleep(ms).await;
    }
    let view = wait(&world, &turn, &mut luck, at).await;
    saw(&world, &turn, &view);
}

/// Hands a job in; says where it was accepted.
async fn submit(world: &Arc<World>, turn: &ClientJob, luck: &mut Luck) -> Option<usize> {
    let about = About::job(turn.number);
    let mut at = turn.first_at;
    for tried in 0..SUBMIT_TRIES {
        let request = turn.request.clone();
        let asked = world.ask(at, |life| async move { life.engine.submit(request).await });
        let answer = match turn.hangs_up_ms.filter(|_| tried == 0) {
            // What was asked is dropped wherever it stands, as a server does with a caller that is gone.
            Some(ms) => {
                world.count_fault(Fault::BadClients);
                tokio::time::timeout(Duration::from_millis(ms), asked).await.ok().flatten()
            }
            None => asked.await,
        };
        let said = match answer {
            Some(Ok(submitted)) => {
                world.accepted(turn, !submitted.existed);
                let existed = if submitted.existed { " already" } else { "" };
                world.note(about, format_args!("i{at} has accepted {about}{existed}"));
                return Some(at);
            }
            Some(Err(error)) => error.code(),
            None => "no answer",
        };
        world.note(about, format_args!("i{at} has not accepted {about}: {said}"));
        sleep(luck.between(100, 600)).await;
        at = elsewhere(world, turn, luck, at);
    }
    None
}

fn elsewhere(world: &World, turn: &ClientJob, luck: &mut Luck, at: usize) -> usize {
    let any = luck.between(0, world.plan.instances as u64 - 1) as usize;
    match luck.between(0, 3) {
        0 => any,
        1 => turn.home,
        _ => at,
    }
}

async fn wait(world: &Arc<World>, turn: &ClientJob, luck: &mut Luck, mut at: usize) -> JobStatus {
    let id = turn.request.id;
    loop {
        let asked = world.ask(at, |life| async move { life.engine.wait_ended(id, WAIT_MS).await });
        match asked.await {
            Some(Ok(Waited::Reached(view))) => return view,
            Some(Ok(Waited::NotYet(_))) => {}
            _ => {
                sleep(luck.between(50, 300)).await;
                at = elsewhere(world, turn, luck, at);
            }
        }
    }
}

fn saw(world: &World, turn: &ClientJob, view: &JobStatus) {
    let about = About::job(turn.number);
    let progress = &view.progress;
    let ended = progress.ended.as_ref();
    let seen = Seen {
        state: progress.state,
        attempt: progress.attempt.0,
        result: ended
            .and_then(|ended| Some(ended.result.as_ref()?.as_str().trim_matches('"').to_owned())),
        error: ended.and_then(|ended| ended.error.clone()),
    };
    let shown = seen.result.as_ref().or(seen.error.as_ref()).cloned().unwrap_or_default();
    world.note(about, format_args!("client sees {about} end as {} {shown}", seen.state));
    if let Some(result) = &seen.result {
        let mine = format!("j{} a{} ", turn.number, seen.attempt);
        if result == WRONG || !result.starts_with(&mine) {
            let text = format!("{about} ended in attempt {} with '{result}'", seen.attempt);
            world.fail(Checker::S4, about, text);
        }
    }
    world.saw(turn.number, seen);
}

impl World {
    /// Asks an instance something over the network. No answer if it is dead or dies, or if the question or the
    /// answer is lost.
    pub(super) async fn ask<T, F, Fut>(&self, at: usize, question: F) -> Option<T>
    where
        F: FnOnce(Life) -> Fut,
        Fut: Future<Output = T>,
    {
        let Some(there_ms) = self.first_fate(End::Client, End::Instance(at)) else {
            sleep(PATIENCE_MS).await;
            return None;
        };
        sleep(there_ms).await;
        let life = self.life(at)?;
        if !life.gate.pass().await {
            return None;
        }
        let gate = Arc::clone(&life.gate);
        let answer = tokio::select! {
            biased;
            () = gate.died() => return None,
            answer = question(life) => answer,
        };
        let Some(back_ms) = self.first_fate(End::Instance(at), End::Client) else {
            sleep(PATIENCE_MS).await;
            return None;
        };
        sleep(back_ms).await;
        Some(answer)
    }
}
