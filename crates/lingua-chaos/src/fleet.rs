//! Nodes that count what they do, each behind a cable of its own.
//!
//! Start at [`Fleet::start`]. A node's process is a task with the node SDK in it; killing it drops everything that it had. Its cable leads to another
//! instance with each connection, and can be held up: then the node is as good as stopped, and nobody is told.

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

use crate::http::ask;
use crate::{World, luck};

/// What nodes speak.
const LANGUAGES: [&[&str]; 4] =
    [&["zh", "en"], &["zh", "en", "ja"], &["en", "fr", "de"], &["zh", "ja", "fr", "en"]];

/// How long all nodes may take to be there.
const JOIN: Duration = Duration::from_secs(30);

const REQUEST: Duration = Duration::from_secs(5);

/// The directions that jobs are asked for in; several nodes serve each of them.
pub(crate) const PAIRS: [(&str, &str); 5] =
    [("zh", "en"), ("en", "zh"), ("zh", "ja"), ("en", "fr"), ("ja", "en")];

/// A node, in whichever life.
struct Member {
    id: NodeId,
    langs: &'static [&'static str],
    slots: u16,
    work_ms: u64,
    seed: u64,
    url: String,
    is_held: watch::Sender<bool>,
    life: Mutex<Option<AbortHandle>>,
    lives: AtomicU64,
    most: Arc<AtomicI64>,
    broken: Arc<AtomicU64>,
    refused: Mutex<Vec<lingua_sdk::node::Stats>>,
}

/// All of them.
pub(crate) struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    pub(crate) async fn new(
        seed: u64,
        nodes: usize,
        addresses: &Arc<[String]>,
    ) -> anyhow::Result<Self> {
        let mut luck = luck(seed, 1);
        let mut members = vec![];
        for n in 0..nodes {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for a cable")?;
            let url = format!("ws://{}/v1/node/ws", listener.local_addr()?);
            let (is_held, held) = watch::channel(false);
            let ways = crate::luck(seed, 1_000 + n as u64);
            tokio::spawn(lay_cable(listener, Arc::clone(addresses), held, ways));
            members.push(Member {
                id: NodeId::new(&format!("node-{n}")).context("a name")?,
                langs: LANGUAGES[n % LANGUAGES.len()],
                slots: luck.random_range(1..=4),
                work_ms: luck.random_range(20..=120),
                seed: luck.next_u64(),
                url,
                is_held,
                life: Mutex::new(None),
                lives: AtomicU64::new(0),
                most: Arc::default(),
                broken: Arc::default(),
                refused: Mutex::default(),
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

    /// Begins a life of a node, unless it has one.
    pub(crate) fn start(&self, n: usize) {
        let member = &self.members[n];
        let mut life = member.life.lock();
        if life.is_some() {
            return;
        }
        let lives = member.lives.fetch_add(1, Ordering::Relaxed);
        let options = NodeOptions::new(member.url.clone())
            .node_id(member.id.clone())
            .languages(member.langs, member.langs, member.langs)
            .slots(member.slots)
            .backoff(Duration::from_millis(50), Duration::from_millis(500))
            .seed(member.seed.wrapping_add(lives));
        let work = Work {
            id: member.id.to_string(),
            slots: member.slots.into(),
            work_ms: member.work_ms,
            luck: Mutex::new(luck(member.seed, lives)),
            running: AtomicI64::new(0),
            most: Arc::clone(&member.most),
            broken: Arc::clone(&member.broken),
        };
        let work = Arc::new(work);
        let handler = move |job: Job, context: Context| {
            let work = Arc::clone(&work);
            async move { work.on(job, context).await }
        };
        let node = Node::new(options, handler);
        member.refused.lock().push(node.stats());
        let running = tokio::spawn(async move {
            node.run(std::future::pending()).await.ok();
        });
        *life = Some(running.abort_handle());
    }

    /// Ends a node's life as `kill -9` does.
    pub(crate) fn kill(&self, n: usize) {
        if let Some(life) = self.members[n].life.lock().take() {
            life.abort();
        }
    }

    /// Holds up everything that a node says and hears, or lets it through again.
    pub(crate) fn hold(&self, n: usize, is_held: bool) {
        self.members[n].is_held.send_replace(is_held);
    }

    /// Waits until all nodes take jobs.
    pub(crate) async fn all_are_there(&self, address: &str) -> anyhow::Result<()> {
        let there = async {
            loop {
                let nodes = nodes(address).await.unwrap_or_default();
                let is_ready = |node: &&serde_json::Value| node["state"] == "ready";
                if nodes.iter().filter(is_ready).count() >= self.len() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(JOIN, there).await {
            Ok(()) => Ok(()),
            Err(_) => bail!("not all nodes have registered within {JOIN:?}"),
        }
    }

    /// Slots that are taken, as an instance sees it.
    pub(crate) async fn used(&self, address: &str) -> Option<u64> {
        let nodes = nodes(address).await?;
        Some(nodes.iter().map(|node| node["used"].as_u64().unwrap_or(0)).sum())
    }

    /// How often nodes refused a job for want of room, or because it was overtaken.
    pub(crate) fn refusals(&self) -> u64 {
        let of = |member: &Member| member.refused.lock().iter().map(|s| s.refused()).sum::<u64>();
        self.members.iter().map(of).sum()
    }

    pub(crate) fn slots(&self) -> u64 {
        self.members.iter().map(|member| u64::from(member.slots)).sum()
    }

    /// No node ever had more jobs than slots.
    pub(crate) fn judge(&self, world: &World) {
        for member in &self.members {
            if member.broken.load(Ordering::SeqCst) > 0 {
                let most = member.most.load(Ordering::SeqCst);
                world.broke(format!("{} had {most} jobs in {} slots", member.id, member.slots));
            }
        }
    }
}

async fn nodes(address: &str) -> Option<Vec<serde_json::Value>> {
    let (status, body) = ask(address, ("GET", "/v1/nodes"), None, "", REQUEST).await?;
    (status == 200).then(|| body["nodes"].as_array().cloned()).flatten()
}

/// What one process of a node does, and how much of it at once.
struct Work {
    id: String,
    slots: i64,
    work_ms: u64,
    luck: Mutex<ChaCha8Rng>,
    running: AtomicI64,
    most: Arc<AtomicI64>,
    broken: Arc<AtomicU64>,
}

/// Counts down however a job ends.
struct Running<'a>(&'a AtomicI64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Work {
    async fn on(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(&self.running);
        self.most.fetch_max(now, Ordering::SeqCst);
        if now > self.slots {
            self.broken.fetch_add(1, Ordering::SeqCst);
        }
        let (ms, nonce) = {
            let mut luck = self.luck.lock();
            (luck.random_range(self.work_ms / 2..=self.work_ms * 2), luck.next_u32())
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => {}
            _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
        }
        // A result that nobody else gives: one that is delivered twice, or swapped, is seen.
        let said = job.audio_ref.unwrap_or_default();
        Ok(Output::translated(format!("{said} by {} {nonce:08x}", self.id)))
    }
}

/// Connects a node to one instance after the other.
async fn lay_cable(
    listener: TcpListener,
    addresses: Arc<[String]>,
    held: watch::Receiver<bool>,
    mut luck: ChaCha8Rng,
) {
    loop {
        let Ok((node, _)) = listener.accept().await else { return };
        let to = addresses[luck.random_range(0..addresses.len())].clone();
        let held = held.clone();
        tokio::spawn(async move {
            let Ok(instance) = TcpStream::connect(to).await else { return };
            node.set_nodelay(true).ok();
            instance.set_nodelay(true).ok();
            let (from_node, to_node) = node.into_split();
            let (from_instance, to_instance) = instance.into_split();
            tokio::select! {
                () = pass(from_node, to_instance, held.clone()) => {}
                () = pass(from_instance, to_node, held) => {}
            }
        });
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut held: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
