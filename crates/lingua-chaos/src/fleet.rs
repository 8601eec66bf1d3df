//! Nodes that count their jobs, each behind a proxy of its own.
//!
//! Start at [`ChaosFleet::start`]. A node is a task that uses the node SDK; killing it drops all of
//! its state. Its proxy connects to another instance with each connection, and can be paused: then
//! neither side gets anything, and the connection stays open.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use lingua_core::NodeId;
use lingua_sdk::{Context, Failure, Job, Node, NodeOptions, Output};
use parking_lot::Mutex;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::http::request;
use crate::{ChaosRun, rng};

/// The languages of node `n` are `LANGUAGES[n % 4]`.
const LANGUAGES: [&[&str]; 4] =
    [&["zh", "en"], &["zh", "en", "ja"], &["en", "fr", "de"], &["zh", "ja", "fr", "en"]];

/// How long all nodes may take to register.
const REGISTER_LIMIT: Duration = Duration::from_secs(30);

const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// The pairs of the jobs; several nodes serve each of them.
pub(crate) const PAIRS: [(&str, &str); 5] =
    [("zh", "en"), ("en", "zh"), ("zh", "ja"), ("en", "fr"), ("ja", "en")];

/// A node over all of its restarts.
struct Member {
    id: NodeId,
    langs: &'static [&'static str],
    slots: u16,
    work_ms: u64,
    seed: u64,
    url: String,
    is_paused: watch::Sender<bool>,
    task: Mutex<Option<AbortHandle>>,
    starts: AtomicU64,
    /// The most jobs that it had at the same time.
    running_max: Arc<AtomicI64>,
    /// How often it had more jobs than slots.
    oversold: Arc<AtomicU64>,
    stats: Mutex<Vec<lingua_sdk::node::Stats>>,
}

/// All nodes.
pub(crate) struct ChaosFleet {
    members: Vec<Member>,
}

impl ChaosFleet {
    pub(crate) async fn new(
        seed: u64,
        nodes: usize,
        addresses: &Arc<[String]>,
    ) -> anyhow::Result<Self> {
        let mut rng = rng(seed, 1);
        let mut members = vec![];
        for n in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for a proxy")?;
            let url = format!("ws://{}/v1/node/ws", listener.local_addr()?);
            let (is_paused, paused) = watch::channel(false);
            let proxy_rng = crate::rng(seed, 1_000 + n as u64);
            tokio::spawn(run_proxy(listener, Arc::clone(addresses), paused, proxy_rng));
            members.push(Member {
                id: NodeId::new(&format!("node-{n}")).context("a name")?,
                langs: LANGUAGES[n % LANGUAGES.len()],
                slots: rng.random_range(1..=4),
                work_ms: rng.random_range(20..=120),
                seed: rng.next_u64(),
                url,
                is_paused,
                task: Mutex::new(None),
                starts: AtomicU64::new(0),
                running_max: Arc::default(),
                oversold: Arc::default(),
                stats: Mutex::default(),
            });
        }
        Ok(Self { members })
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn start_all(&self) {
        (0..self.len()).for_each(|n| self.start(n));
    }

    /// Starts a node, unless it runs.
    pub(crate) fn start(&self, n: usize) {
        let member = &self.members[n];
        let mut task = member.task.lock();
        if task.is_some() {
            return;
        }
        let starts = member.starts.fetch_add(1, Ordering::Relaxed);
        let options = NodeOptions::new(member.url.clone())
            .node_id(member.id.clone())
            .languages(member.langs, member.langs, member.langs)
            .slots(member.slots)
            .backoff(Duration::from_millis(50), Duration::from_millis(500))
            .seed(member.seed.wrapping_add(starts));
        let work = Work {
            id: member.id.to_string(),
            slots: member.slots.into(),
            work_ms: member.work_ms,
            rng: Mutex::new(rng(member.seed, starts)),
            running: AtomicI64::new(0),
            running_max: Arc::clone(&member.running_max),
            oversold: Arc::clone(&member.oversold),
        };
        let work = Arc::new(work);
        let handler = move |job: Job, context: Context| {
            let work = Arc::clone(&work);
            async move { work.handle(job, context).await }
        };
        let node = Node::new(options, handler);
        member.stats.lock().push(node.stats());
        let running = tokio::spawn(async move {
            node.run(std::future::pending()).await.ok();
        });
        *task = Some(running.abort_handle());
    }

    /// Ends a node at once, as `kill -9` does.
    pub(crate) fn kill(&self, n: usize) {
        if let Some(task) = self.members[n].task.lock().take() {
            task.abort();
        }
    }

    /// Stops passing on the messages of a node in both directions, or resumes it.
    pub(crate) fn pause(&self, n: usize, is_paused: bool) {
        self.members[n].is_paused.send_replace(is_paused);
    }

    /// Waits until all nodes are ready.
    pub(crate) async fn until_ready(&self, address: &str) -> anyhow::Result<()> {
        let ready = async {
            loop {
                let nodes = nodes(address).await.unwrap_or_default();
                let is_ready = |node: &&serde_json::Value| node["state"] == "ready";
                if nodes.iter().filter(is_ready).count() >= self.len() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(REGISTER_LIMIT, ready).await {
            Ok(()) => Ok(()),
            Err(_) => bail!("not all nodes have registered within {REGISTER_LIMIT:?}"),
        }
    }

    /// Slots in use, as an instance reports them.
    pub(crate) async fn used(&self, address: &str) -> Option<u64> {
        let nodes = nodes(address).await?;
        Some(nodes.iter().map(|node| node["used"].as_u64().unwrap_or(0)).sum())
    }

    /// How often nodes refused a job as `BUSY` or `STALE_FENCE`.
    pub(crate) fn refusals(&self) -> u64 {
        let of = |member: &Member| member.stats.lock().iter().map(|s| s.refused()).sum::<u64>();
        self.members.iter().map(of).sum()
    }

    pub(crate) fn slots(&self) -> u64 {
        self.members.iter().map(|member| u64::from(member.slots)).sum()
    }

    /// No node ever had more jobs than slots.
    pub(crate) fn check(&self, run: &ChaosRun) {
        for member in &self.members {
            if member.oversold.load(Ordering::SeqCst) > 0 {
                let most = member.running_max.load(Ordering::SeqCst);
                run.report_violation(format!(
                    "{} had {most} jobs in {} slots",
                    member.id, member.slots
                ));
            }
        }
    }
}

async fn nodes(address: &str) -> Option<Vec<serde_json::Value>> {
    let (status, body) = request(address, ("GET", "/v1/nodes"), None, "", REQUEST_LIMIT).await?;
    (status == 200).then(|| body["nodes"].as_array().cloned()).flatten()
}

/// The job handler of a node, which counts the jobs that run.
struct Work {
    id: String,
    slots: i64,
    work_ms: u64,
    rng: Mutex<ChaCha8Rng>,
    running: AtomicI64,
    running_max: Arc<AtomicI64>,
    oversold: Arc<AtomicU64>,
}

/// Counts down however a job ends.
struct ChaosJob<'a>(&'a AtomicI64);

impl Drop for ChaosJob<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = ChaosJob(&self.running);
        self.running_max.fetch_max(now, Ordering::SeqCst);
        if now > self.slots {
            self.oversold.fetch_add(1, Ordering::SeqCst);
        }
        let (ms, nonce) = {
            let mut rng = self.rng.lock();
            (rng.random_range(self.work_ms / 2..=self.work_ms * 2), rng.next_u32())
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
            _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
        }
        // Each result is unique, so a result that is delivered twice or swapped is noticed.
        let audio_ref = job.audio_ref.unwrap_or_default();
        Ok(Output::translated(format!("{audio_ref} by {} {nonce:08x}", self.id)))
    }
}

/// Accepts connections of a node and connects each to a random instance.
async fn run_proxy(
    listener: TcpListener,
    addresses: Arc<[String]>,
    paused: watch::Receiver<bool>,
    mut rng: ChaCha8Rng,
) {
    loop {
        let Ok((node, _)) = listener.accept().await else { return };
        let to = addresses[rng.random_range(0..addresses.len())].clone();
        let paused = paused.clone();
        tokio::spawn(async move {
            let Ok(instance) = TcpStream::connect(to).await else { return };
            node.set_nodelay(true).ok();
            instance.set_nodelay(true).ok();
            let (from_node, to_node) = node.into_split();
            let (from_instance, to_instance) = instance.into_split();
            tokio::select! {
                () = copy(from_node, to_instance, paused.clone()) => {}
                () = copy(from_instance, to_node, paused) => {}
            }
        });
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut paused: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
        if paused.wait_for(|paused| !paused).await.is_err()
            || to.write_all(&buffer[..n]).await.is_err()
        {
            return;
        }
    }
}
