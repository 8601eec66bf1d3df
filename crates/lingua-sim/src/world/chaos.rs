//! Makes things go wrong, one fault after the other, until it is told to stop.
//!
//! Start at [`rage`].

use std::sync::Arc;
use std::time::Duration;

use lingua_store::embedded::LostWrites;

use super::World;
use super::client_job::node_id;
use super::conn::Heard;
use super::luck::Luck;
use super::network::End;
use super::plan::{CHAOS_MS, Fault};
use super::trace::About;

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Injects the faults of the plan for as long as they are to last.
pub(super) async fn rage(world: &Arc<World>) {
    let mut luck = Luck::new(world.plan.seed, "chaos");
    let until_ms = world.now_ms() + CHAOS_MS;
    loop {
        let mean_ms = world.plan.fault_every_ms;
        let pause_ms = luck.between(mean_ms / 4, 2 * mean_ms);
        let left_ms = until_ms.saturating_sub(world.now_ms());
        sleep(pause_ms.min(left_ms)).await;
        if world.now_ms() >= until_ms || world.has_failed() {
            return;
        }
        let fault = *luck.pick(&world.plan.faults);
        strike(world, fault, &mut luck);
    }
}

fn strike(world: &Arc<World>, fault: Fault, luck: &mut Luck) {
    let instance = luck.between(0, world.plan.instances as u64 - 1) as usize;
    let node = luck.between(0, world.plan.nodes.len() as u64 - 1) as usize;
    match fault {
        Fault::InstanceCrash | Fault::InstanceStop | Fault::InstancePause => {
            instance_fault(world, fault, instance, luck);
        }
        Fault::StoreCut | Fault::StoreSlow | Fault::StoreTimeouts | Fault::Rollback => {
            store_fault(world, fault, instance, luck);
        }
        Fault::BadBus => {
            let until_ms = world.now_ms() + luck.between(1_000, 8_000);
            let share = luck.between(50, 400) as u32;
            for life in world.lives() {
                life.gate.change_way(|way| way.bad_bus_ms = (until_ms, share));
            }
            world.note(About::default(), format_args!("! the bus is bad"));
            world.struck(fault, until_ms);
        }
        Fault::NodeCrash | Fault::NodePause | Fault::Takeover | Fault::Drain => {
            node_fault(world, fault, node, luck);
        }
        Fault::Partition => {
            let until_ms = world.now_ms() + luck.between(500, 18_000);
            let (a, b) = (End::Node(node), End::Instance(instance));
            let (there, back) = *luck.pick(&[(true, false), (false, true), (true, true)]);
            let mut network = world.network.lock();
            if there {
                network.block(a, b, until_ms);
            }
            if back {
                network.block(b, a, until_ms);
            }
            drop(network);
            let what = format_args!("! n{node} to i{instance}: {there}, back: {back} blocked");
            world.note(About::default(), what);
            world.struck(fault, until_ms);
        }
        Fault::BadNetwork => {
            let until_ms = world.now_ms() + luck.between(1_000, 8_000);
            world.network.lock().be_bad_until(until_ms);
            world.note(About::default(), format_args!("! the network is bad"));
            world.struck(fault, until_ms);
        }
        // These are in the nature of nodes and clients.
        Fault::BadNodes | Fault::BadClients => {}
    }
}

fn instance_fault(world: &Arc<World>, fault: Fault, index: usize, luck: &mut Luck) {
    let (away_ms, same_name) = (luck.between(100, 14_000), luck.permille(700));
    let now_ms = world.now_ms();
    let again = move |world: Arc<World>| async move {
        let until_ms = world.now_ms() + away_ms;
        while world.now_ms() < until_ms && !world.is_quiet() {
            sleep(100).await;
        }
        world.start_instance(index, same_name);
    };
    match fault {
        Fault::InstanceCrash => {
            if world.kill_instance(index) {
                world.struck(fault, now_ms + away_ms);
                tokio::spawn(again(Arc::clone(world)));
            }
        }
        Fault::InstanceStop => {
            world.struck(fault, now_ms + away_ms);
            let world = Arc::clone(world);
            tokio::spawn(async move {
                if world.stop_instance(index).await {
                    again(world).await;
                }
            });
        }
        _ => {
            if let Some(life) = world.life(index) {
                life.gate.pause_until(now_ms + away_ms);
                let what = format_args!("! i{index} does nothing for {away_ms} ms");
                world.note(About::default(), what);
                world.struck(fault, now_ms + away_ms);
            }
        }
    }
}

fn store_fault(world: &Arc<World>, fault: Fault, index: usize, luck: &mut Luck) {
    let now_ms = world.now_ms();
    let (for_ms, all) = (luck.between(100, 13_000), luck.permille(500));
    let until_ms = now_ms + for_ms;
    let (slow_by_ms, lossy) = (luck.between(20, 700), luck.between(50, 400) as u32);
    if fault == Fault::Rollback {
        let lost = *luck.pick(&[
            LostWrites::Everything,
            LostWrites::Everything,
            LostWrites::Cells,
            LostWrites::Jobs,
            LostWrites::Cluster,
        ]);
        tokio::spawn(roll_back(Arc::clone(world), luck.between(50, 3_000), lost));
        return;
    }
    let lives = match (all, world.life(index)) {
        (true, _) => world.lives(),
        (false, life) => life.into_iter().collect(),
    };
    for life in lives {
        life.gate.change_way(|way| match fault {
            Fault::StoreCut => way.cut_ms = (now_ms, until_ms.max(way.cut_ms.1)),
            Fault::StoreSlow => way.slow_ms = (until_ms, slow_by_ms),
            _ => way.lossy_ms = (until_ms, lossy),
        });
        let (i, what) = (life.index, fault.as_str());
        world.note(About::default(), format_args!("! {what} for i{i}, {for_ms} ms"));
    }
    world.struck(fault, until_ms);
}

/// Forgets the writes of the last while, as a failover does.
async fn roll_back(world: Arc<World>, lost_ms: u64, lost: LostWrites) {
    let (snapshot, from_ms) = (world.store.snapshot(), world.now_ms());
    sleep(lost_ms).await;
    if world.is_quiet() {
        return;
    }
    world.store.roll_back(&snapshot, lost);
    let jobs = world.facts();
    let was_told = |job: lingua_core::JobId| jobs[job.number() as usize].1.seen.is_some();
    world.oracle.lock().rolled_back(was_told);
    world.note(About::default(), format_args!("! the store forgot {lost_ms} ms: {lost:?}"));
    world.rollbacks.lock().push((from_ms, world.now_ms(), lost));
    world.struck(Fault::Rollback, world.now_ms());
}

fn node_fault(world: &Arc<World>, fault: Fault, node: usize, luck: &mut Luck) {
    let (away_ms, loudly) = (luck.between(50, 12_000), luck.permille(500));
    let process = world.processes.lock().present[node].clone();
    let Some(process) = process else { return };
    world.struck(fault, world.now_ms() + away_ms);
    let about = About::node(node);
    let world = Arc::clone(world);
    match fault {
        Fault::NodeCrash => {
            world.note(about, format_args!("! n{node} dies, loudly: {loudly}"));
            process.to.try_send(Heard::Die { loudly }).ok();
            tokio::spawn(async move {
                sleep(away_ms).await;
                if world.processes.lock().present[node].is_none() {
                    world.start_node(node);
                }
            });
        }
        Fault::NodePause => drop(process.to.try_send(Heard::Pause(world.now_ms() + away_ms))),
        Fault::Takeover => {
            world.note(about, format_args!("! n{node} is taken over"));
            world.start_node(node);
        }
        _ => {
            let at = world.plan.nodes[node].home;
            tokio::spawn(async move {
                world.note(about, format_args!("! n{node} is to drain"));
                let id = node_id(node);
                world.ask(at, |life| async move { life.engine.order(&id, true).await }).await;
                sleep(away_ms).await;
                world.resume(node).await;
            });
        }
    }
}

impl World {
    /// Tells a node to take jobs again, until somebody has heard it.
    pub(super) async fn resume(&self, node: usize) {
        let at = self.plan.nodes[node].home;
        for _ in 0..RESUME_TRIES {
            let id = node_id(node);
            let told =
                self.ask(at, |life| async move { life.engine.order(&id, false).await }).await;
            // Between two registrations nobody knows the node.
            if matches!(told, Some(Ok(Some(_)))) {
                return;
            }
            sleep(500).await;
        }
    }
}

/// How often a resume is tried.
const RESUME_TRIES: u32 = 40;
