//! A Redis server that belongs to one test.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::scheduler::{signal, within};

/// A port that is free now. It lies below the ports of outgoing connections, and each search, in
/// this process or another, starts elsewhere, so that no one takes the port before the server does.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed).wrapping_mul(7_919);
    let from = std::process::id().wrapping_mul(104_729).wrapping_add(search) % COUNT;
    let ports = (from..COUNT).chain(0..from).map(|n| (FIRST + n) as u16);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(free).expect("a free port")
}

/// A server; it is killed when the test ends.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Self::start_on(free_port()).await
    }

    /// Starts it without any data.
    pub(crate) async fn start_on(port: u16) -> Self {
        Self::start_with(port, &[]).await
    }

    /// Starts it with settings besides the usual ones.
    pub(crate) async fn start_with(port: u16, settings: &[&str]) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().expect("redis-server is installed");
        let accepts = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(accepts).await;
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it; unsaved data are lost.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub(crate) async fn signal(&self, name: &str) {
        signal(&self.child, name).await;
    }

    /// The reply to `INFO section`.
    pub(crate) async fn info(&self, section: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("Redis accepts");
        let command = format!("INFO {section}\r\nQUIT\r\n");
        stream.write_all(command.as_bytes()).await.expect("sent");
        let mut reply = String::new();
        within(stream.read_to_string(&mut reply)).await.expect("a reply");
        reply
    }

    /// The memory of its data, in bytes.
    pub(crate) async fn used_memory(&self) -> u64 {
        let reply = self.reply("INFO memory").await;
        let line = reply.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|bytes| bytes.parse().ok()).expect("its memory")
    }

    /// Sends a command and gives the first line of the reply.
    pub(crate) async fn command(&self, command: &str) -> String {
        self.reply(command).await.lines().next().unwrap_or_default().to_owned()
    }

    /// Sends a command and gives the first 512 bytes of the reply.
    async fn reply(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("Redis accepts");
        stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("sent");
        let mut reply = vec![0; 512];
        let n = within(stream.read(&mut reply)).await.expect("a reply");
        String::from_utf8_lossy(&reply[..n]).into_owned()
    }
}
