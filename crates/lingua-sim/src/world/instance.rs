//! Instances of the real engine, which are killed, stopped and started again.
//!
//! Start at [`World::start_instance`].

use std::sync::Arc;

use lingua_core::{InstanceId, JobId};
use lingua_engine::options::EngineOptions;
use lingua_engine::session::{JobIdSource, Sessions};
use lingua_engine::{EngineService, Handle};
use lingua_store::Store;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;

use super::World;
use super::instance_faults::{InstanceFaults, SkewedTimer};
use super::rng::SimRng;
use super::store::FaultyStore;
use super::trace::Subject;

/// One run of an instance, from its start to its end.
#[derive(Debug, Clone)]
pub(super) struct InstanceRun {
    pub(super) index: usize,
    pub(super) number: u32,
    pub(super) engine: Handle<FaultyStore, SkewedTimer>,
    pub(super) sessions: Sessions<FaultyStore, SkewedTimer>,
    pub(super) faults: Arc<InstanceFaults>,
}

/// An instance and its current run.
#[derive(Debug, Default)]
pub(super) struct SimInstance {
    lives: u32,
    present: Option<Present>,
}

#[derive(Debug)]
struct Present {
    run: InstanceRun,
    stop: Option<oneshot::Sender<()>>,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    /// Starts an instance, unless it runs. With a new name, the others take it for a new instance.
    pub(super) fn start_instance(self: &Arc<Self>, index: usize, same_name: bool) {
        let mut instances = self.instances.lock();
        let instance = &mut instances[index];
        if instance.present.is_some() {
            return;
        }
        instance.lives += 1;
        let number = instance.lives;
        let name = if same_name { format!("i{index}") } else { format!("i{index}-{number}") };
        let mut rng = SimRng::new(self.plan.seed, &format!("instance {index} {number}"));
        let name = InstanceId::new(&name).expect("a name of an instance");
        let mut options = EngineOptions::new(name, rng.number());
        options.times.drain_ms = 2_000;
        if let Some(fleet) = &self.plan.fleet {
            options.tenants = fleet.tenants();
        }
        let faults = InstanceFaults::new(self.clock.clone());
        let store = FaultyStore {
            world: Arc::clone(self),
            instance: index,
            run: number,
            faults: Arc::clone(&faults),
            rng: Mutex::new(rng),
            born: self.store.identity(),
        };
        let timer = SkewedTimer { skew_ms: self.plan.skew_ms[index], faults: Arc::clone(&faults) };
        let service = EngineService::new(options, store, timer, &mut Registry::default());
        let (engine, world) = (service.handle(), Arc::downgrade(self));
        // Without a strong reference: sessions are a part of the world.
        let job_ids = JobIdSource::new(move || {
            JobId::new(world.upgrade().map_or(0, |world| world.next_segment()) as u128)
        });
        let session_options = self.plan.session_options();
        let sessions = Sessions::new(engine.clone(), session_options, job_ids, Gauge::default());
        self.sessions.lock().push(sessions.clone());
        let run = InstanceRun { index, number, engine, sessions, faults: Arc::clone(&faults) };
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            service.run(async move { drop(stopped.await) }).await;
            // The process ends with the service, whatever its tasks still do.
            faults.kill();
        });
        self.note(Subject::default(), format_args!("i{index} starts, run {number}"));
        instance.present = Some(Present { run, stop: Some(stop), running });
    }

    /// The current run of an instance, if it is alive.
    pub(super) fn run(&self, index: usize) -> Option<InstanceRun> {
        let instances = self.instances.lock();
        let present = instances.get(index)?.present.as_ref()?;
        (!present.run.faults.is_dead()).then(|| present.run.clone())
    }

    /// The runs of all living instances.
    pub(super) fn runs(&self) -> Vec<InstanceRun> {
        (0..self.plan.instances).filter_map(|index| self.run(index)).collect()
    }

    /// Kills an instance; whether it was running.
    pub(super) fn kill_instance(&self, index: usize) -> bool {
        let Some(present) = self.instances.lock()[index].present.take() else { return false };
        present.run.faults.kill();
        present.running.abort();
        let number = present.run.number;
        self.note(Subject::default(), format_args!("i{index} is dead, run {number}"));
        self.deaths.lock().push((index, self.now_ms()));
        true
    }

    /// Stops an instance with a signal and waits for its end; whether it was running.
    pub(super) async fn stop_instance(&self, index: usize) -> bool {
        let Some(run) = self.run(index) else { return false };
        let stop = match self.instances.lock()[index].present.as_mut() {
            Some(present) => present.stop.take(),
            None => None,
        };
        if stop.is_none() {
            return false;
        }
        self.note(Subject::default(), format_args!("i{index} is told to stop"));
        drop(stop);
        run.faults.until_dead().await;
        let mut instances = self.instances.lock();
        let is_it = |present: &Present| present.run.number == run.number;
        if instances[index].present.as_ref().is_some_and(is_it) {
            instances[index].present = None;
            drop(instances);
            self.note(Subject::default(), format_args!("i{index} has left"));
            self.deaths.lock().push((index, self.now_ms()));
        }
        true
    }
}
