//! Clients that repeat their request at any other instance until it succeeds.
//!
//! Start at [`send_jobs`]. A job counts as accepted when an instance has returned its id.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fleet::PAIRS;
use crate::http::request;
use crate::{ChaosRun, rng};

/// How long a response may take before the client tries another instance; longer than [`WAIT_MS`].
const RESPONSE_LIMIT: Duration = Duration::from_secs(4);

/// How long an instance may hold a request for the end of a job.
const WAIT_MS: u64 = 2_000;

/// For how long all instances may answer 404 for an accepted job.
const UNKNOWN_MS: u64 = 10_000;

/// Parallel requests of the final check.
const CHECKERS: usize = 16;

/// What a client knows of its job.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChaosJob {
    pub(crate) id: Option<String>,
    pub(crate) sent_ms: u64,
    pub(crate) accepted_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) seen: Option<ChaosJobEnd>,
}

/// How a job ended, as an instance reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChaosJobEnd {
    pub(crate) state: String,
    pub(crate) attempt: u64,
    pub(crate) error: Option<String>,
    pub(crate) result: Option<String>,
}

impl ChaosJobEnd {
    fn of(body: &Value) -> Option<Self> {
        let state = body["state"].as_str()?;
        ["DONE", "FAILED", "CANCELLED"].contains(&state).then(|| Self {
            state: state.to_owned(),
            attempt: body["attempt_id"].as_u64().unwrap_or(0),
            error: body["error"].as_str().map(str::to_owned),
            result: body["result"]["text_translated"].as_str().map(str::to_owned),
        })
    }
}

/// All clients, one for each job.
pub(crate) struct Clients {
    seed: u64,
    addresses: Arc<[String]>,
    sent: AtomicUsize,
    pub(crate) facts: Vec<Mutex<ChaosJob>>,
}

impl Clients {
    pub(crate) fn new(seed: u64, jobs: usize, addresses: &Arc<[String]>) -> Self {
        let facts = (0..jobs).map(|_| Mutex::default()).collect();
        Self { seed, addresses: Arc::clone(addresses), sent: AtomicUsize::new(0), facts }
    }

    /// Whether every client has started.
    pub(crate) fn all_sent(&self) -> bool {
        self.sent.load(Ordering::SeqCst) >= self.facts.len()
    }

    fn any_instance(&self, rng: &mut ChaCha8Rng) -> &str {
        &self.addresses[rng.random_range(0..self.addresses.len())]
    }

    /// Every instance reports the same end as the one that the client saw.
    pub(crate) async fn check(&self, run: &Arc<ChaosRun>) {
        let mut checks = JoinSet::new();
        for from in 0..CHECKERS {
            let run = Arc::clone(run);
            checks.spawn(async move {
                for job in (from..run.clients.facts.len()).step_by(CHECKERS) {
                    run.clients.check_job(&run, job).await;
                }
            });
        }
        checks.join_all().await;
    }

    async fn check_job(&self, run: &ChaosRun, job: usize) {
        let facts = self.facts[job].lock().clone();
        let Some(id) = &facts.id else { return };
        let Some(seen) = &facts.seen else {
            return run
                .report_violation(format!("job {job} ({id}) was accepted and has not ended"));
        };
        if seen.state == "DONE" {
            let mine = format!("blob://{job} by node-");
            if !seen.result.as_ref().is_some_and(|result| result.starts_with(&mine)) {
                run.report_violation(format!(
                    "job {job} ended with the result of another job: {seen:?}"
                ));
            }
        }
        for (n, address) in self.addresses.iter().enumerate() {
            let path = format!("/v1/jobs/{id}");
            let reply = request(address, ("GET", &path), None, "", RESPONSE_LIMIT).await;
            let reported = reply.as_ref().and_then(|(_, body)| ChaosJobEnd::of(body));
            if reported.as_ref() != Some(seen) {
                run.report_violation(format!(
                    "the client saw job {job} end as {seen:?}, i{n} reports {reported:?}"
                ));
            }
        }
    }
}

/// Sends all jobs at this rate and waits for their ends.
pub(crate) async fn send_jobs(run: Arc<ChaosRun>, rate: f64) {
    let mut rng = rng(run.clients.seed, 2);
    let mut clients = JoinSet::new();
    for job in 0..run.clients.facts.len() {
        clients.spawn(run_client(Arc::clone(&run), job));
        run.clients.sent.fetch_add(1, Ordering::SeqCst);
        let pause_s = rng.random_range(0.0..2.0) / rate;
        tokio::time::sleep(Duration::from_secs_f64(pause_s)).await;
    }
    clients.join_all().await;
}

async fn run_client(run: Arc<ChaosRun>, job: usize) {
    let clients = &run.clients;
    let mut rng = rng(clients.seed, 1_000_000 + job as u64);
    let (src, tgt) = PAIRS[rng.random_range(0..PAIRS.len())];
    let body = json!({
        "session_id": format!("room-{job}"), "src_lang": src, "tgt_lang": tgt,
        "audio_ref": format!("blob://{job}"),
        "options": {"wait_ms": 2500, "deadline_ms": 30000},
    });
    clients.facts[job].lock().sent_ms = run.now_ms();
    let key = format!("utterance-{}-{job}", clients.seed);
    let id = loop {
        let route = ("POST", "/v1/dispatch/f2f");
        let reply = request(
            clients.any_instance(&mut rng),
            route,
            Some(&key),
            &body.to_string(),
            RESPONSE_LIMIT,
        )
        .await;
        let id = reply.and_then(|(_, body)| Some(body["job_id"].as_str()?.to_owned()));
        if let Some(id) = id {
            break id;
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..300))).await;
    };
    {
        let mut facts = clients.facts[job].lock();
        facts.id = Some(id.clone());
        facts.accepted_ms = Some(run.now_ms());
    }
    let seen = wait_for_end(&run, job, &id, &mut rng).await;
    let mut facts = clients.facts[job].lock();
    facts.seen = seen;
    facts.ended_ms = Some(run.now_ms());
}

/// Asks any instance until one reports the end of the job.
async fn wait_for_end(
    run: &ChaosRun,
    job: usize,
    id: &str,
    rng: &mut ChaCha8Rng,
) -> Option<ChaosJobEnd> {
    let path = format!("/v1/jobs/{id}?wait_ms={WAIT_MS}");
    let mut unknown_since_ms = None;
    loop {
        let address = run.clients.any_instance(rng);
        match request(address, ("GET", &path), None, "", RESPONSE_LIMIT).await {
            Some((200, body)) => {
                unknown_since_ms = None;
                if let Some(seen) = ChaosJobEnd::of(&body) {
                    return Some(seen);
                }
            }
            Some((404, _)) => {
                let since_ms = *unknown_since_ms.get_or_insert(run.now_ms());
                if run.now_ms() > since_ms + UNKNOWN_MS {
                    run.report_violation(format!(
                        "job {job} ({id}) was accepted and no instance knows it"
                    ));
                    return None;
                }
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..150))).await;
    }
}
