//! A seeded storm over the real thing: `lingua serve` processes over a real Redis, nodes and clients in this process.
//!
//! Start at [`run`]. What goes wrong and when comes from a seed; how the processes take it does not, so a seed repeats the storm and not the run.
//!
//! | file | what |
//! |---|---|
//! | `process.rs` | Redis and instances: started, killed, paused, started again |
//! | `fleet.rs` | nodes that count what they do, each behind a cable of its own |
//! | `client.rs` | clients that do not give up: they ask any other instance |
//! | `storm.rs` | what goes wrong |
//! | `report.rs` | timeline, recovery times, verdict |
//! | `http.rs` | plain requests |
//!
//! Invariant: everything is judged from the outside, by what nodes and clients see.

mod client;
mod fleet;
mod http;
mod process;
mod report;
mod storm;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use client::Clients;
use fleet::Fleet;
use process::{Instance, Redis};
use report::Notes;
pub use report::Report;

/// Instances.
const INSTANCES: usize = 3;

/// The longest lease: how long after the storm a slot may stay taken.
const RUN_LEASE_MS: u64 = 5_000;

/// How long clients may wait for their last jobs after the storm.
const LAST_JOBS: Duration = Duration::from_secs(60);

/// How large the storm is.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// What goes wrong and when.
    pub seed: u64,
    /// How many jobs are asked for.
    pub jobs: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many jobs are asked for in a second.
    pub rate: f64,
    /// Mean time between two faults, in milliseconds.
    pub fault_every_ms: u64,
}

/// What everybody in the storm knows.
struct World {
    started: Instant,
    instances: Vec<Instance>,
    redis: Redis,
    fleet: Fleet,
    clients: Clients,
    notes: Mutex<Notes>,
}

impl World {
    fn note(&self, what: impl Into<String>) {
        let at_ms = self.started.elapsed().as_millis() as u64;
        self.notes.lock().note(at_ms, what.into());
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn broke(&self, rule: String) {
        self.note(format!("*** {rule}"));
        self.notes.lock().broke(rule);
    }
}

/// Luck of one actor.
fn luck(seed: u64, actor: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(actor))
}

/// Lives through a storm and judges what was seen.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let redis = Redis::start().await.context("starting redis-server")?;
    let mut instances = vec![];
    for n in 0..INSTANCES {
        let instance = Instance::new(n, &options.program, &redis.url())?;
        instance.start().await.with_context(|| format!("starting instance i{n}"))?;
        instances.push(instance);
    }
    let addresses: Arc<[String]> =
        instances.iter().map(|instance| instance.address()).collect::<Vec<_>>().into();
    let fleet = Fleet::new(options.seed, options.nodes, &addresses).await?;
    let clients = Clients::new(options.seed, options.jobs, &addresses);
    let started = Instant::now();
    let notes = Mutex::new(Notes::default());
    let world = Arc::new(World { started, instances, redis, fleet, clients, notes });
    world.fleet.start_all();
    world.fleet.all_are_there(&addresses[0]).await?;
    world.note(format!(
        "{} nodes are there; the storm of seed {} begins",
        options.nodes, options.seed
    ));
    let speaking = tokio::spawn(client::speak(Arc::clone(&world), options.rate));
    storm::rage(&world, options, &speaking).await;
    storm::calm(&world).await;
    let calm = Instant::now();
    world.note("the storm is over");
    if tokio::time::timeout(LAST_JOBS, speaking).await.is_err() {
        world.broke("clients still wait for their jobs".to_owned());
    }
    world.note(format!("all jobs have ended {:.1} s after", calm.elapsed().as_secs_f64()));
    settles(&world).await;
    world.clients.judge(&world).await;
    world.fleet.judge(&world);
    Ok(Report::of(&world))
}

/// After the last job every slot is free within the longest lease.
async fn settles(world: &World) {
    let quiet = Instant::now();
    let limit = Duration::from_millis(RUN_LEASE_MS);
    loop {
        let used = world.fleet.used(&world.instances[0].address()).await;
        let took = quiet.elapsed();
        match used {
            Some(0) => {
                world.note(format!("every slot is free {:.1} s after", took.as_secs_f64()));
                return;
            }
            used if took > limit => {
                return world.broke(format!("slots are still taken after {took:?}: {used:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
