//! A Redis server of a test's own, and what can be done to it.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::world::within;

/// A port that is free now. Below those that the system gives to outgoing connections, and elsewhere in
/// each process: else somebody takes it before the server does.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    let from = std::process::id().wrapping_mul(104_729) % COUNT;
    let ports = (from..COUNT).chain(0..from).map(|n| (FIRST + n) as u16);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(free).expect("a free port")
}

/// A server; it ends with the test.
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
        let answers = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(answers).await;
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it; its data are gone.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    /// `STOP` and `CONT`, for instance.
    pub(crate) async fn signal(&self, name: &str) {
        signal(&self.child, name).await;
    }

    /// Says something to it and gives the first line of the answer.
    pub(crate) async fn say(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        stream.write_all(format!("{command}\r\n").as_bytes()).await.expect("it reads");
        let mut answer = vec![0; 512];
        let n = within(stream.read(&mut answer)).await.expect("it answers");
        String::from_utf8_lossy(&answer[..n]).lines().next().unwrap_or_default().to_owned()
    }
}

/// Sends a signal to a process.
pub(crate) async fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().await;
    assert!(sent.expect("kill runs").success());
}

/// A way to a server that can be cut.
pub(crate) struct Cable {
    pub(crate) port: u16,
    is_whole: watch::Sender<bool>,
}

impl Cable {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (is_whole, mut whole) = watch::channel(true);
        let at = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            loop {
                let Ok((mut from, _)) = listener.accept().await else { return };
                let mut cut = whole.clone();
                if !*whole.borrow_and_update() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = cut.wait_for(|whole| !whole) => {}
                    }
                });
            }
        });
        Self { port: at, is_whole }
    }

    pub(crate) fn cut(&self) {
        self.is_whole.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.is_whole.send_replace(true);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}
