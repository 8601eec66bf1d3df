//! Redis and instances as processes that are started, killed, paused and started again.
//!
//! Invariant: no process outlives this one, unless this one is killed itself.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

/// How long a process may take to listen.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A port that is free now, below the ports of outgoing connections.
fn free_port() -> anyhow::Result<u16> {
    static TRIED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    for _ in 0..1000 {
        let tried = TRIED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let at = std::process::id().wrapping_mul(6151).wrapping_add(tried) % 15_000;
        let port = (16_000 + at) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between 16000 and 31000; stop a process that uses one")
}

/// A process that listens on a port.
struct Process {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Process {
    async fn start(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        if child.is_some() {
            return Ok(());
        }
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.env.iter().cloned()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = self.program.display();
        *child = Some(command.spawn().with_context(|| format!("{name} cannot be started"))?);
        drop(child);
        let listens = async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let late = || format!("{} does not listen on port {}", self.name, self.port);
        tokio::time::timeout(START_LIMIT, listens).await.with_context(late)
    }

    async fn kill(&self) {
        if let Some(mut child) = self.child.lock().await.take() {
            child.kill().await.ok();
        }
    }

    async fn signal(&self, signal: &str) {
        let pid = self.child.lock().await.as_ref().and_then(Child::id);
        if let Some(pid) = pid {
            let args = [format!("-{signal}"), pid.to_string()];
            Command::new("kill").args(args).status().await.ok();
        }
    }

    /// Sends SIGTERM and waits for the end.
    async fn terminate(&self) {
        self.signal("TERM").await;
        if let Some(mut child) = self.child.lock().await.take() {
            child.wait().await.ok();
        }
    }
}

/// The Redis server of the run; it keeps its data over a restart.
pub(crate) struct ChaosRedis {
    process: Process,
    _dir: TempDir,
}

impl ChaosRedis {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let (port, dir) = (free_port()?, TempDir::new()?);
        let text = |text: &str| text.to_owned();
        let args = vec![
            text("--port"),
            port.to_string(),
            text("--bind"),
            text("127.0.0.1"),
            text("--save"),
            String::new(),
            text("--appendonly"),
            text("yes"),
            text("--appendfsync"),
            text("everysec"),
            text("--dir"),
            dir.path().display().to_string(),
        ];
        let (name, program) = ("redis".to_owned(), PathBuf::from("redis-server"));
        let child = Mutex::new(None);
        let process = Process { name, program, args, env: vec![], port, child };
        process.start().await?;
        Ok(Self { process, _dir: dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.process.port)
    }

    pub(crate) async fn kill(&self) {
        self.process.kill().await;
    }

    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        self.process.start().await
    }

    pub(crate) async fn signal(&self, signal: &str) {
        self.process.signal(signal).await;
    }
}

/// An instance of the scheduler.
pub(crate) struct ChaosInstance {
    process: Process,
}

impl ChaosInstance {
    pub(crate) fn new(n: usize, program: &Path, store: &str) -> anyhow::Result<Self> {
        let port = free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let args = ["serve", "--listen", &listen, "--store", store].map(str::to_owned).to_vec();
        let env = [
            ("LINGUA_INSTANCE__ID", format!("i{n}")),
            ("LINGUA_STORE__TIMEOUT_MS", "500".to_owned()),
            ("LINGUA_STORE__RECONNECT_MAX_MS", "200".to_owned()),
            ("LINGUA_SCHEDULER__LEADER_LEASE_MS", "3000".to_owned()),
            ("LINGUA_SCHEDULER__HEARTBEAT_INTERVAL_MS", "1000".to_owned()),
            ("LINGUA_SCHEDULER__HEARTBEAT_STALE_MS", "3000".to_owned()),
            ("LINGUA_SCHEDULER__RESERVATION_TTL_MS", "2000".to_owned()),
            ("LINGUA_SCHEDULER__RUN_LEASE_MS", super::RUN_LEASE_MS.to_string()),
            ("LINGUA_SCHEDULER__RUN_TIMEOUT_MS", "10000".to_owned()),
            ("LINGUA_SCHEDULER__DRAIN_MS", "2000".to_owned()),
            ("LINGUA_LOG__LEVEL", "error".to_owned()),
        ];
        let env = env.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let (name, program, child) = (format!("i{n}"), program.to_owned(), Mutex::new(None));
        Ok(Self { process: Process { name, program, args, env, port, child } })
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.process.port)
    }

    pub(crate) async fn start(&self) -> anyhow::Result<()> {
        self.process.start().await
    }

    pub(crate) async fn kill(&self) {
        self.process.kill().await;
    }

    pub(crate) async fn terminate(&self) {
        self.process.terminate().await;
    }

    pub(crate) async fn signal(&self, signal: &str) {
        self.process.signal(signal).await;
    }
}
