//! Starts servers on free ports, in directories of their own.
//!
//! Invariant: a server never outlives the test process, however that ends. A shell stands in
//! between: it kills the server as soon as its standard input closes.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::Rules;
use lingua_redis::{RedisOptions, RedisStore};
use lingua_store::ManualClock;
use tempfile::TempDir;

/// How long a server may take to answer.
const START: Duration = Duration::from_secs(30);

/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(10);

const GUARD: &str = r#""$@" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null"#;

/// A running server.
pub(crate) struct Server {
    pub(crate) port: u16,
    pid: u32,
    guard: Child,
    /// Removed with the server.
    _dir: TempDir,
    args: Vec<String>,
}

/// A port that is free now. Below those that the system gives to outgoing connections, and
/// elsewhere in each process: else somebody takes it before the server does.
pub(crate) fn free_port() -> u16 {
    const PORTS: std::ops::Range<u32> = 15_000..32_000;
    static TRIED: AtomicU64 = AtomicU64::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed) as u32;
        let at =
            (std::process::id().wrapping_mul(7919).wrapping_add(tried)) % (PORTS.end - PORTS.start);
        let port = (PORTS.start + at) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Server {
    /// Starts a server with these settings besides the usual ones.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        Self::start_on(free_port(), settings).await
    }

    pub(crate) async fn start_on(port: u16, settings: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let usual = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
        let mut args: Vec<String> = usual.iter().map(|&arg| arg.to_owned()).collect();
        args.extend(["--port".to_owned(), port.to_string()]);
        args.extend(["--dir".to_owned(), dir.path().display().to_string()]);
        args.extend(settings.iter().map(|&arg| arg.to_owned()));
        let (guard, pid) = launch(&args);
        let server = Self { port, pid, guard, _dir: dir, args };
        server.answers().await;
        server
    }

    /// Starts a sentinel that watches the server on this port.
    pub(crate) async fn start_sentinel(master: u16) -> Self {
        let (port, dir) = (free_port(), TempDir::new().unwrap());
        let file = dir.path().join("sentinel.conf");
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor lingua 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds lingua 1000\nsentinel failover-timeout lingua 5000\n",
            dir.path().display()
        );
        std::fs::write(&file, settings).unwrap();
        let args = vec![file.display().to_string(), "--sentinel".to_owned()];
        let (guard, pid) = launch(&args);
        let server = Self { port, pid, guard, _dir: dir, args };
        server.answers().await;
        server
    }

    /// Waits until it answers.
    pub(crate) async fn answers(&self) {
        let asked = async {
            loop {
                if self.ask::<String>(&["PING"]).await.is_ok_and(|pong| pong == "PONG") {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let program = program();
        let late = || panic!("{program} on port {} does not answer; is it installed?", self.port);
        tokio::time::timeout(START, asked).await.unwrap_or_else(|_| late());
    }

    pub(crate) async fn ask<T: redis::FromRedisValue>(
        &self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    }

    /// Asks again until the answer is as it should be.
    pub(crate) async fn ask_until(&self, words: &[&str], fits: impl Fn(&str) -> bool) {
        let asked = async {
            loop {
                match self.ask::<redis::Value>(words).await {
                    Ok(value) if fits(&format!("{value:?}")) => return,
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        };
        let late = |_| panic!("port {} does not answer {words:?} as it should", self.port);
        tokio::time::timeout(START, asked).await.unwrap_or_else(late);
    }

    /// Ends it at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        drop(self.guard.stdin.take());
        self.guard.wait().unwrap();
    }

    /// Stops it in its tracks, or lets it go on.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid.to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Starts it again where it was, after [`kill`](Self::kill).
    pub(crate) async fn restart(&mut self) {
        (self.guard, self.pid) = launch(&self.args);
        self.answers().await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program() -> String {
    std::env::var("LINGUA_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

fn launch(args: &[String]) -> (Child, u32) {
    let mut guard = Command::new("sh")
        .args(["-c", GUARD, "guard", &program()])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut connection = String::new();
    BufReader::new(guard.stdout.as_mut().unwrap()).read_line(&mut connection).unwrap();
    (guard, connection.trim().parse().unwrap())
}

/// An empty store at this URL: each has a prefix of its own.
pub(crate) fn options(url: &str, rules: Rules, clock: Option<ManualClock>) -> RedisOptions {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    let mut options = RedisOptions::new(url.parse().unwrap(), rules);
    options.key_prefix = format!("test:{number}:");
    options.clock = clock;
    // A machine that builds at the same time may stand still for a while.
    options.timeouts.reply = Duration::from_secs(60);
    options.timeouts.connect = Duration::from_secs(60);
    options
}

/// The server that the tests of a process share.
pub(crate) async fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _starting = STARTING.lock().await;
    if let Some(server) = SERVER.get() {
        return server;
    }
    let server = Server::start(&[]).await;
    SERVER.get_or_init(|| server)
}

/// An empty store on the shared server.
pub(crate) async fn standalone(rules: Rules, clock: ManualClock) -> RedisStore {
    let server = shared().await;
    RedisStore::connect(options(&server.url(), rules, Some(clock))).await.unwrap()
}

/// Somebody who signs certificates, for one test.
pub(crate) struct Authority {
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self { dir: TempDir::new().unwrap() };
        let key = ["-newkey", "rsa:2048", "-nodes", "-days", "2"];
        authority.openssl(
            &["req", "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=lingua test"],
            &key,
        );
        authority.openssl(
            &["req", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"],
            &key[..3],
        );
        std::fs::write(authority.dir.path().join("names"), "subjectAltName=DNS:localhost").unwrap();
        let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key"];
        let out = ["-CAcreateserial", "-extfile", "names", "-days", "2", "-out", "server.crt"];
        authority.openssl(&sign, &out);
        authority
    }

    fn openssl(&self, args: &[&str], more: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(args).args(more).current_dir(self.dir.path());
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(done.expect("openssl is installed").success());
    }

    pub(crate) fn certificate(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("ca.crt")).unwrap()
    }

    /// A server that speaks only TLS, next to a plain port for the tests themselves.
    pub(crate) async fn start_server(&self) -> Server {
        let file = |name: &str| self.dir.path().join(name).display().to_string();
        let (port, cert, key, ca) =
            (free_port().to_string(), file("server.crt"), file("server.key"), file("ca.crt"));
        let mut server = Server::start(&[
            "--tls-port",
            &port,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            "no",
        ])
        .await;
        server.port = port.parse().unwrap();
        server
    }
}
