//! Injects one fault after the other, until the time of faults is over.
//!
//! Start at [`inject_faults`].

use std::sync::Arc;
use std::time::Duration;

use lingua_core::Profile;
use lingua_engine::handle::NodeRegistration;
use lingua_store::embedded::LostWrites;
use tokio::sync::mpsc;

use super::World;
use super::checker::Checker;
use super::client_job::node_id;
use super::connection::ProcessEvent;
use super::fleet::intruder;
use super::network::NetworkEnd;
use super::plan::{CHAOS_MS, Fault};
use super::planted::NodeBug;
use super::rng::SimRng;
use super::trace::Subject;

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Injects faults of the plan for [`CHAOS_MS`].
pub(super) async fn inject_faults(world: &Arc<World>) {
    let mut rng = SimRng::new(world.plan.seed, "chaos");
    let until_ms = world.now_ms() + CHAOS_MS;
    loop {
        let mean_ms = world.plan.fault_every_ms;
        let pause_ms = rng.between(mean_ms / 4, 2 * mean_ms);
        let left_ms = until_ms.saturating_sub(world.now_ms());
        sleep(pause_ms.min(left_ms)).await;
        if world.now_ms() >= until_ms || world.has_failed() {
            return;
        }
        let fault = *rng.pick(&world.plan.faults);
        inject(world, fault, &mut rng);
    }
}

fn inject(world: &Arc<World>, fault: Fault, rng: &mut SimRng) {
    let instance = rng.between(0, world.plan.instances as u64 - 1) as usize;
    let node = rng.between(0, world.plan.nodes.len() as u64 - 1) as usize;
    match fault {
        Fault::InstanceCrash | Fault::InstanceStop | Fault::InstancePause => {
            instance_fault(world, fault, instance, rng);
        }
        Fault::StoreCut | Fault::StoreSlow | Fault::StoreTimeouts | Fault::Rollback => {
            store_fault(world, fault, instance, rng);
        }
        Fault::BadBus => {
            let until_ms = world.now_ms() + rng.between(1_000, 8_000);
            let share = rng.between(50, 400) as u32;
            for run in world.runs() {
                run.faults.change_store_link(|link| link.bad_bus_ms = (until_ms, share));
            }
            world.note(Subject::default(), format_args!("! the bus is bad"));
            world.fault_injected(fault, until_ms);
        }
        Fault::NodeCrash | Fault::NodePause | Fault::Takeover | Fault::Drain => {
            node_fault(world, fault, node, rng);
        }
        Fault::Intruder => {
            world.fault_injected(fault, world.now_ms());
            tokio::spawn(intrude(Arc::clone(world), node, instance));
        }
        Fault::Partition => {
            let until_ms = world.now_ms() + rng.between(500, 18_000);
            let (a, b) = (NetworkEnd::Node(node), NetworkEnd::Instance(instance));
            let (there, back) = *rng.pick(&[(true, false), (false, true), (true, true)]);
            let mut network = world.network.lock();
            if there {
                network.block(a, b, until_ms);
            }
            if back {
                network.block(b, a, until_ms);
            }
            drop(network);
            let what = format_args!("! n{node} to i{instance}: {there}, back: {back} blocked");
            world.note(Subject::default(), what);
            world.fault_injected(fault, until_ms);
        }
        Fault::BadNetwork => {
            let until_ms = world.now_ms() + rng.between(1_000, 8_000);
            world.network.lock().be_bad_until(until_ms);
            world.note(Subject::default(), format_args!("! the network is bad"));
            world.fault_injected(fault, until_ms);
        }
        // Nodes and clients misbehave on their own; see `node.rs` and `client.rs`.
        Fault::BadNodes | Fault::BadClients => {}
    }
}

fn instance_fault(world: &Arc<World>, fault: Fault, index: usize, rng: &mut SimRng) {
    let (away_ms, same_name) = (rng.between(100, 14_000), rng.permille(700));
    let now_ms = world.now_ms();
    let restart = move |world: Arc<World>| async move {
        let until_ms = world.now_ms() + away_ms;
        while world.now_ms() < until_ms && !world.is_quiet() {
            sleep(100).await;
        }
        world.start_instance(index, same_name);
    };
    match fault {
        Fault::InstanceCrash => {
            if world.kill_instance(index) {
                world.fault_injected(fault, now_ms + away_ms);
                tokio::spawn(restart(Arc::clone(world)));
            }
        }
        Fault::InstanceStop => {
            world.fault_injected(fault, now_ms + away_ms);
            let world = Arc::clone(world);
            tokio::spawn(async move {
                if world.stop_instance(index).await {
                    restart(world).await;
                }
            });
        }
        _ => {
            if let Some(run) = world.run(index) {
                run.faults.pause_until(now_ms + away_ms);
                let what = format_args!("! i{index} does nothing for {away_ms} ms");
                world.note(Subject::default(), what);
                world.fault_injected(fault, now_ms + away_ms);
            }
        }
    }
}

fn store_fault(world: &Arc<World>, fault: Fault, index: usize, rng: &mut SimRng) {
    let now_ms = world.now_ms();
    let (for_ms, all) = (rng.between(100, 13_000), rng.permille(500));
    let until_ms = now_ms + for_ms;
    let (slow_by_ms, lossy) = (rng.between(20, 700), rng.between(50, 400) as u32);
    if fault == Fault::Rollback {
        let lost = *rng.pick(&[
            LostWrites::Everything,
            LostWrites::Everything,
            LostWrites::Cells,
            LostWrites::Jobs,
            LostWrites::Cluster,
        ]);
        tokio::spawn(roll_back(Arc::clone(world), rng.between(50, 3_000), lost));
        return;
    }
    let lives = match (all, world.run(index)) {
        (true, _) => world.runs(),
        (false, run) => run.into_iter().collect(),
    };
    for run in lives {
        run.faults.change_store_link(|link| match fault {
            Fault::StoreCut => link.cut_ms = (now_ms, until_ms.max(link.cut_ms.1)),
            Fault::StoreSlow => link.slow_ms = (until_ms, slow_by_ms),
            _ => link.lossy_ms = (until_ms, lossy),
        });
        let (i, what) = (run.index, fault.as_str());
        world.note(Subject::default(), format_args!("! {what} for i{i}, {for_ms} ms"));
    }
    world.fault_injected(fault, until_ms);
}

/// Loses the writes of the last `lost_ms`, as a failover does.
async fn roll_back(world: Arc<World>, lost_ms: u64, lost: LostWrites) {
    let (snapshot, from_ms) = (world.store.snapshot(), world.now_ms());
    sleep(lost_ms).await;
    if world.is_quiet() {
        return;
    }
    world.store.roll_back(&snapshot, lost);
    let jobs = world.facts();
    let was_told = |job: lingua_core::JobId| jobs[job.number() as usize].1.seen.is_some();
    world.store_checker.lock().rolled_back(was_told);
    world.note(Subject::default(), format_args!("! the store forgot {lost_ms} ms: {lost:?}"));
    world.rollbacks.lock().push((from_ms, world.now_ms(), lost));
    world.fault_injected(Fault::Rollback, world.now_ms());
}

fn node_fault(world: &Arc<World>, fault: Fault, node: usize, rng: &mut SimRng) {
    let (away_ms, loudly) = (rng.between(50, 12_000), rng.permille(500));
    let process = world.processes.lock().present[node].clone();
    let Some(process) = process else { return };
    world.fault_injected(fault, world.now_ms() + away_ms);
    let about = Subject::node(node);
    let world = Arc::clone(world);
    match fault {
        Fault::NodeCrash => {
            world.note(about, format_args!("! n{node} dies, loudly: {loudly}"));
            process.to.try_send(ProcessEvent::Kill { loudly }).ok();
            tokio::spawn(async move {
                sleep(away_ms).await;
                if world.processes.lock().present[node].is_none() {
                    world.start_node(node);
                }
            });
        }
        Fault::NodePause => {
            drop(process.to.try_send(ProcessEvent::Pause(world.now_ms() + away_ms)))
        }
        Fault::Takeover => {
            world.note(about, format_args!("! n{node} is taken over"));
            world.start_node(node);
        }
        _ => {
            let at = world.plan.nodes[node].home;
            tokio::spawn(async move {
                world.note(about, format_args!("! n{node} is to drain"));
                let id = node_id(node);
                world
                    .call_instance(at, |run| async move { run.engine.set_drain(&id, true).await })
                    .await;
                sleep(away_ms).await;
                world.resume(node).await;
            });
        }
    }
}

/// Somebody with another token takes the id of a node for their own.
async fn intrude(world: Arc<World>, node: usize, at: usize) {
    let about = Subject::node(node);
    world.note(about, format_args!("! somebody else says to be n{node} at i{at}"));
    let (id, profile) = (node_id(node), Profile::clone(&world.profile(node)));
    let token = match world.has_bug(NodeBug::StolenToken) {
        true => profile.token().cloned(),
        false => Some(intruder()),
    };
    let profile = Arc::new(profile.registered_by(token.clone()));
    let tried = world.call_instance(at, |run| async move {
        // In the name of a node that is forgotten it could speak.
        let is_caller = run.engine.check_caller(&id, token.as_ref()).await.is_ok();
        let outbox = mpsc::channel(1).0;
        let registered = run.engine.register(NodeRegistration::new(id, profile, outbox)).await;
        is_caller || registered.is_ok()
    });
    if tried.await == Some(true) {
        let text = format!("n{node} answers to a token that is not its own");
        world.fail(Checker::S11, about, text);
    }
}

impl World {
    /// Resumes a node; repeats the request until it succeeds.
    pub(super) async fn resume(&self, node: usize) {
        let at = self.plan.nodes[node].home;
        for _ in 0..RESUME_TRIES {
            let id = node_id(node);
            let reply = self
                .call_instance(at, |run| async move { run.engine.set_drain(&id, false).await })
                .await;
            // Between two registrations the node is unknown.
            if matches!(reply, Some(Ok(Some(_)))) {
                return;
            }
            sleep(500).await;
        }
    }
}

/// How often the request to resume is repeated.
const RESUME_TRIES: u32 = 40;
