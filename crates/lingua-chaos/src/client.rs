//! Clients that do not give up: when their instance is gone, they ask any other by key or by id.
//!
//! Start at [`speak`]. A job counts as accepted when somebody has named its id.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fleet::PAIRS;
use crate::http::ask;
use crate::{World, luck};

/// How long an answer may take before another instance is asked: a little more than the longest wait.
const ANSWER: Duration = Duration::from_secs(4);

/// How long to be kept waiting for an end.
const WAIT_MS: u64 = 2_000;

/// For how long an accepted job may be unknown to whoever is asked.
const UNKNOWN_MS: u64 = 10_000;

/// Requests at a time when all is judged.
const JUDGES: usize = 16;

/// What a client has seen of its job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) id: Option<String>,
    pub(crate) asked_ms: u64,
    pub(crate) accepted_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) seen: Option<Seen>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: String,
    pub(crate) attempt: u64,
    pub(crate) error: Option<String>,
    pub(crate) result: Option<String>,
}

impl Seen {
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

/// All of them.
pub(crate) struct Clients {
    seed: u64,
    addresses: Arc<[String]>,
    asked: AtomicUsize,
    pub(crate) facts: Vec<Mutex<Facts>>,
}

impl Clients {
    pub(crate) fn new(seed: u64, jobs: usize, addresses: &Arc<[String]>) -> Self {
        let facts = (0..jobs).map(|_| Mutex::default()).collect();
        Self { seed, addresses: Arc::clone(addresses), asked: AtomicUsize::new(0), facts }
    }

    /// Whether every client has begun.
    pub(crate) fn all_have_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) >= self.facts.len()
    }

    fn anybody(&self, luck: &mut ChaCha8Rng) -> &str {
        &self.addresses[luck.random_range(0..self.addresses.len())]
    }

    /// What a client was told of the end is what every instance says, for ever.
    pub(crate) async fn judge(&self, world: &Arc<World>) {
        let mut judges = JoinSet::new();
        for from in 0..JUDGES {
            let world = Arc::clone(world);
            judges.spawn(async move {
                for job in (from..world.clients.facts.len()).step_by(JUDGES) {
                    world.clients.judge_job(&world, job).await;
                }
            });
        }
        judges.join_all().await;
    }

    async fn judge_job(&self, world: &World, job: usize) {
        let facts = self.facts[job].lock().clone();
        let Some(id) = &facts.id else { return };
        let Some(seen) = &facts.seen else {
            return world.broke(format!("job {job} ({id}) was accepted and has not ended"));
        };
        if seen.state == "DONE" {
            let mine = format!("blob://{job} by node-");
            if !seen.result.as_ref().is_some_and(|result| result.starts_with(&mine)) {
                world.broke(format!("job {job} ended with another one's result: {seen:?}"));
            }
        }
        for (n, address) in self.addresses.iter().enumerate() {
            let path = format!("/v1/jobs/{id}");
            let told = ask(address, ("GET", &path), None, "", ANSWER).await;
            let told = told.as_ref().and_then(|(_, body)| Seen::of(body));
            if told.as_ref() != Some(seen) {
                world
                    .broke(format!("the client saw job {job} end as {seen:?}, i{n} says {told:?}"));
            }
        }
    }
}

/// Asks for all jobs at this rate and waits for their ends.
pub(crate) async fn speak(world: Arc<World>, rate: f64) {
    let mut luck = luck(world.clients.seed, 2);
    let mut clients = JoinSet::new();
    for job in 0..world.clients.facts.len() {
        clients.spawn(one(Arc::clone(&world), job));
        world.clients.asked.fetch_add(1, Ordering::SeqCst);
        let pause_s = luck.random_range(0.0..2.0) / rate;
        tokio::time::sleep(Duration::from_secs_f64(pause_s)).await;
    }
    clients.join_all().await;
}

async fn one(world: Arc<World>, job: usize) {
    let clients = &world.clients;
    let mut luck = luck(clients.seed, 1_000_000 + job as u64);
    let (src, tgt) = PAIRS[luck.random_range(0..PAIRS.len())];
    let body = json!({
        "session_id": format!("room-{job}"), "src_lang": src, "tgt_lang": tgt,
        "audio_ref": format!("blob://{job}"),
        "options": {"wait_ms": 2500, "deadline_ms": 30000},
    });
    clients.facts[job].lock().asked_ms = world.now_ms();
    let key = format!("utterance-{}-{job}", clients.seed);
    let id = loop {
        let asked = ("POST", "/v1/dispatch/f2f");
        let answer =
            ask(clients.anybody(&mut luck), asked, Some(&key), &body.to_string(), ANSWER).await;
        let id = answer.and_then(|(_, body)| Some(body["job_id"].as_str()?.to_owned()));
        if let Some(id) = id {
            break id;
        }
        tokio::time::sleep(Duration::from_millis(luck.random_range(50..300))).await;
    };
    {
        let mut facts = clients.facts[job].lock();
        facts.id = Some(id.clone());
        facts.accepted_ms = Some(world.now_ms());
    }
    let seen = ended(&world, job, &id, &mut luck).await;
    let mut facts = clients.facts[job].lock();
    facts.seen = seen;
    facts.ended_ms = Some(world.now_ms());
}

/// Waits for the end of a job, wherever it is told.
async fn ended(world: &World, job: usize, id: &str, luck: &mut ChaCha8Rng) -> Option<Seen> {
    let path = format!("/v1/jobs/{id}?wait_ms={WAIT_MS}");
    let mut unknown_since_ms = None;
    loop {
        let address = world.clients.anybody(luck);
        match ask(address, ("GET", &path), None, "", ANSWER).await {
            Some((200, body)) => {
                unknown_since_ms = None;
                if let Some(seen) = Seen::of(&body) {
                    return Some(seen);
                }
            }
            Some((404, _)) => {
                let since_ms = *unknown_since_ms.get_or_insert(world.now_ms());
                if world.now_ms() > since_ms + UNKNOWN_MS {
                    world.broke(format!("job {job} ({id}) was accepted and nobody knows it"));
                    return None;
                }
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(luck.random_range(20..150))).await;
    }
}
