//! Kills and pauses `lingua serve` processes, a real Redis and nodes while clients send jobs.
//!
//! Start at [`run`]. The seed decides which faults are injected and when. It does not decide how
//! the processes react, so a seed repeats the faults and not the run.
//!
//! | file | holds |
//! |---|---|
//! | `process.rs` | Redis and instances as processes that are killed, paused and restarted |
//! | `fleet.rs` | nodes that count their jobs, each behind a proxy of its own |
//! | `client.rs` | clients that repeat a request at any other instance until it succeeds |
//! | `faults.rs` | the faults and their schedule |
//! | `report.rs` | timeline, recovery times, broken rules |
//! | `http.rs` | HTTP requests with a time limit |
//!
//! Invariant: the rules are checked from outside, by what nodes and clients see.

mod client;
mod faults;
mod fleet;
mod http;
mod process;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use client::Clients;
use fleet::ChaosFleet;
use process::{ChaosInstance, ChaosRedis};
use report::ChaosLog;
pub use report::ChaosReport;

const INSTANCES: usize = 3;

/// The longest lease: how long a slot may stay in use after the last job.
const RUN_LEASE_MS: u64 = 5_000;

/// How long clients may wait for their last jobs after the last fault.
const LAST_JOBS: Duration = Duration::from_secs(60);

/// How many jobs, nodes and faults a run has.
#[derive(Debug, Clone)]
pub struct ChaosOptions {
    /// The path of the `lingua` program.
    pub program: PathBuf,
    /// Decides which faults are injected and when.
    pub seed: u64,
    /// The number of jobs.
    pub jobs: usize,
    /// The number of nodes.
    pub nodes: usize,
    /// Jobs per second.
    pub rate: f64,
    /// Mean time between two faults, in milliseconds.
    pub fault_every_ms: u64,
}

/// All parts of a run.
struct ChaosRun {
    started: Instant,
    instances: Vec<ChaosInstance>,
    redis: ChaosRedis,
    fleet: ChaosFleet,
    clients: Clients,
    log: Mutex<ChaosLog>,
}

impl ChaosRun {
    fn note(&self, what: impl Into<String>) {
        let at_ms = self.started.elapsed().as_millis() as u64;
        self.log.lock().note(at_ms, what.into());
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn report_violation(&self, rule: String) {
        self.note(format!("*** {rule}"));
        self.log.lock().add_violation(rule);
    }
}

/// The random numbers of one actor.
fn rng(seed: u64, actor: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(actor))
}

/// Runs the jobs and faults, then checks the rules.
pub async fn run(options: &ChaosOptions) -> anyhow::Result<ChaosReport> {
    let redis = ChaosRedis::start().await.context("starting redis-server")?;
    let mut instances = vec![];
    for n in 0..INSTANCES {
        let instance = ChaosInstance::new(n, &options.program, &redis.url())?;
        instance.start().await.with_context(|| format!("starting instance i{n}"))?;
        instances.push(instance);
    }
    let addresses: Arc<[String]> =
        instances.iter().map(|instance| instance.address()).collect::<Vec<_>>().into();
    let fleet = ChaosFleet::new(options.seed, options.nodes, &addresses).await?;
    let clients = Clients::new(options.seed, options.jobs, &addresses);
    let started = Instant::now();
    let log = Mutex::new(ChaosLog::default());
    let run = Arc::new(ChaosRun { started, instances, redis, fleet, clients, log });
    run.fleet.start_all();
    run.fleet.until_ready(&addresses[0]).await?;
    run.note(format!(
        "{} nodes are ready; the faults of seed {} begin",
        options.nodes, options.seed
    ));
    let traffic = tokio::spawn(client::send_jobs(Arc::clone(&run), options.rate));
    faults::inject_all(&run, options, &traffic).await;
    faults::heal_all(&run).await;
    let healed = Instant::now();
    run.note("all faults are over");
    if tokio::time::timeout(LAST_JOBS, traffic).await.is_err() {
        run.report_violation("clients still wait for their jobs".to_owned());
    }
    run.note(format!("all jobs ended {:.1} s later", healed.elapsed().as_secs_f64()));
    check_slots_are_free(&run).await;
    run.clients.check(&run).await;
    run.fleet.check(&run);
    Ok(ChaosReport::of(&run))
}

/// After the last job every slot is free within the longest lease.
async fn check_slots_are_free(run: &ChaosRun) {
    let start = Instant::now();
    let limit = Duration::from_millis(RUN_LEASE_MS);
    loop {
        let used = run.fleet.used(&run.instances[0].address()).await;
        let took = start.elapsed();
        match used {
            Some(0) => {
                run.note(format!("every slot was free {:.1} s later", took.as_secs_f64()));
                return;
            }
            used if took > limit => {
                return run
                    .report_violation(format!("slots are still in use after {took:?}: {used:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
