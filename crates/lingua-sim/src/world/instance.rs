//! Instances: the real engine, in one life after the other.
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
use super::gate::{Gate, SkewedTimer};
use super::luck::Luck;
use super::store::FaultyStore;
use super::trace::About;

/// The engine as it runs here.
pub(super) type Engine = Handle<FaultyStore, SkewedTimer>;

/// One life of an instance.
#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) index: usize,
    pub(super) number: u32,
    pub(super) engine: Engine,
    pub(super) sessions: Sessions<FaultyStore, SkewedTimer>,
    pub(super) gate: Arc<Gate>,
}

/// An instance and its present life.
#[derive(Debug, Default)]
pub(super) struct Instance {
    lives: u32,
    present: Option<Present>,
}

#[derive(Debug)]
struct Present {
    life: Life,
    stop: Option<oneshot::Sender<()>>,
    running: tokio::task::JoinHandle<()>,
}

impl World {
    /// Begins a life of an instance, unless it has one. A new name makes it a stranger to its former self.
    pub(super) fn start_instance(self: &Arc<Self>, index: usize, same_name: bool) {
        let mut instances = self.instances.lock();
        let instance = &mut instances[index];
        if instance.present.is_some() {
            return;
        }
        instance.lives += 1;
        let number = instance.lives;
        let name = if same_name { format!("i{index}") } else { format!("i{index}-{number}") };
        let mut luck = Luck::new(self.plan.seed, &format!("instance {index} {number}"));
        let name = InstanceId::new(&name).expect("a name of an instance");
        let mut options = EngineOptions::new(name, luck.number());
        options.times.drain_ms = 2_000;
        let gate = Gate::new(self.clock.clone());
        let store = FaultyStore {
            world: Arc::clone(self),
            instance: index,
            gate: Arc::clone(&gate),
            luck: Mutex::new(luck),
            born: self.store.identity(),
        };
        let timer = SkewedTimer { skew_ms: self.plan.skew_ms[index], gate: Arc::clone(&gate) };
        let service = EngineService::new(options, store, timer, &mut Registry::default());
        let (engine, world) = (service.handle(), Arc::downgrade(self));
        // Without a strong reference: sessions are a part of the world.
        let job_ids = JobIdSource::new(move || {
            JobId::new(world.upgrade().map_or(0, |world| world.next_segment()) as u128)
        });
        let session_options = self.plan.session_options();
        let sessions = Sessions::new(engine.clone(), session_options, job_ids, Gauge::default());
        self.sessions.lock().push(sessions.clone());
        let life = Life { index, number, engine, sessions, gate: Arc::clone(&gate) };
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            service.run(async move { drop(stopped.await) }).await;
            // A process that has left the service ends, whatever its tasks still wanted to do.
            gate.kill();
        });
        self.note(About::default(), format_args!("i{index} starts, life {number}"));
        instance.present = Some(Present { life, stop: Some(stop), running });
    }

    /// The present life of an instance, if it has one.
    pub(super) fn life(&self, index: usize) -> Option<Life> {
        let instances = self.instances.lock();
        let present = instances.get(index)?.present.as_ref()?;
        (!present.life.gate.is_dead()).then(|| present.life.clone())
    }

    /// All instances that live.
    pub(super) fn lives(&self) -> Vec<Life> {
        (0..self.plan.instances).filter_map(|index| self.life(index)).collect()
    }

    /// Ends a life as a power cut does.
    pub(super) fn kill_instance(&self, index: usize) -> bool {
        let Some(present) = self.instances.lock()[index].present.take() else { return false };
        present.life.gate.kill();
        present.running.abort();
        let number = present.life.number;
        self.note(About::default(), format_args!("i{index} is dead, life {number}"));
        self.deaths.lock().push((index, self.now_ms()));
        true
    }

    /// Ends a life as a signal does; waits until it has left.
    pub(super) async fn stop_instance(&self, index: usize) -> bool {
        let Some(life) = self.life(index) else { return false };
        let stop = match self.instances.lock()[index].present.as_mut() {
            Some(present) => present.stop.take(),
            None => None,
        };
        if stop.is_none() {
            return false;
        }
        self.note(About::default(), format_args!("i{index} is told to stop"));
        drop(stop);
        life.gate.died().await;
        let mut instances = self.instances.lock();
        let is_it = |present: &Present| present.life.number == life.number;
        if instances[index].present.as_ref().is_some_and(is_it) {
            instances[index].present = None;
            drop(instances);
            self.note(About::default(), format_args!("i{index} has left"));
            self.deaths.lock().push((index, self.now_ms()));
        }
        true
    }
}
