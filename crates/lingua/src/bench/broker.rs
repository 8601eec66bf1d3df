//! What is measured, in a process of its own: the scheduler, the bare relay, or Gearman.
//!
//! Start at [`Broker::start`]. Invariant: a broker ends with the benchmark, unless that is killed so
//! hard (`kill -9`) that it cannot end anything.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use lingua_wire::client::Dispatch;
use lingua_wire::to_json;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::lean::{Door, client};
use super::machine::{self, Pins};
use super::{gearman, relay};

/// How long a broker may take to listen, and how often to look if it does not say.
const START_MAX: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);

/// Lines of a broker's log that are kept to say why it ended.
const LAST_WORDS_MAX: usize = 5;

/// The directions of the jobs, in turn.
pub(super) const PAIRS: [(&str, &str); 4] =
    [("en", "zh"), ("zh", "en"), ("en", "de"), ("de", "en")];

/// The languages of the nodes: each serves all pairs.
pub(super) const LANGS: [&str; 3] = ["en", "zh", "de"];

/// How long the body of a job is, as in the peers' measurements.
pub(super) const JOB_BYTES: usize = 300;

/// Which broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Relay,
    Scheduler,
    Gearman,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Scheduler => "scheduler",
            Self::Gearman => "gearman",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the scheduler keeps its state, and how many instances share it.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) store: Option<String>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) instances: u32,
}

/// A broker that listens: a process, or as many as the scheduler has instances.
#[derive(Debug)]
pub(super) struct Broker {
    kind: Kind,
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    pid: u32,
    door: Door,
}

impl Broker {
    /// Starts a broker and waits until it listens.
    pub(super) async fn start(
        kind: Kind,
        state: &State,
        pins: Option<&Pins>,
    ) -> anyhow::Result<Self> {
        let count = if kind == Kind::Scheduler { state.instances } else { 1 };
        let mut processes = vec![];
        for _ in 0..count {
            let process = Process::start(kind, state, pins).await;
            processes.push(process.with_context(|| format!("cannot start the {kind}"))?);
        }
        Ok(Self { kind, processes })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The door of the client or node of this number: they go to the instances in turn.
    pub(super) fn door(&self, number: usize) -> &Door {
        &self.processes[number % self.processes.len()].door
    }

    /// Where each of its processes listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.processes.iter().map(|process| process.door.address).collect()
    }

    /// CPU time that its processes have used.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        let each = self.processes.iter().map(|process| machine::cpu(process.pid));
        each.sum::<anyhow::Result<_>>().with_context(|| format!("the {} ended", self.kind))
    }

    /// Memory that its processes have in RAM, in KiB.
    pub(super) fn resident_kib(&self) -> anyhow::Result<u64> {
        let each = self.processes.iter().map(|process| machine::resident_kib(process.pid));
        each.sum::<anyhow::Result<_>>().with_context(|| format!("the {} ended", self.kind))
    }

    /// Ends it at once.
    pub(super) async fn stop(self) {
        for mut process in self.processes {
            // One that has ended already is what we want.
            process.child.kill().await.ok();
        }
    }
}

impl Process {
    async fn start(kind: Kind, state: &State, pins: Option<&Pins>) -> anyhow::Result<Self> {
        let starting = async {
            match kind {
                Kind::Relay => start_relay(pins).await,
                Kind::Scheduler => start_scheduler(state, pins).await,
                Kind::Gearman => start_gearman(pins).await,
            }
        };
        let (child, address) =
            timeout(START_MAX, starting).await.context("it does not listen")??;
        let pid = child.id().context("it ended at once")?;
        let door = match kind {
            Kind::Gearman => gearman::door(address),
            _ => Door { address, requests: http_requests(address), reply: client::reply },
        };
        Ok(Self { child, pid, door })
    }
}

fn http_requests(address: SocketAddr) -> Arc<[Bytes]> {
    let host = address.to_string();
    PAIRS.iter().map(|(src, tgt)| client::request(&host, &body(src, tgt))).collect()
}

/// A job of the agreed length.
fn body(src: &str, tgt: &str) -> String {
    let with = |text: &str| {
        to_json(&Dispatch {
            session_id: Some("bench".into()),
            src_lang: src.into(),
            tgt_lang: tgt.into(),
            text: Some(text.to_owned().into()),
            ..Dispatch::default()
        })
    };
    let words = "where is the nearest station ".repeat(JOB_BYTES / 10);
    let room = JOB_BYTES.saturating_sub(with("").len());
    with(&words[..room])
}

/// The result of every job: as long as its text.
pub(super) fn result() -> Arc<str> {
    let said = "wo ist der naechste Bahnhof ".repeat(8);
    format!(r#"{{"text_translated":"{}"}}"#, said.trim_end()).into()
}

/// A program on the broker's core that ends with us.
fn command(program: PathBuf, pins: Option<&Pins>) -> Command {
    let mut command = match pins {
        Some(pins) => {
            let mut command = Command::new(&pins.taskset);
            command.args(["-c", &pins.broker.to_string()]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot tell where this program is")
}

async fn start_relay(pins: Option<&Pins>) -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = command(this_program()?, pins);
    let mut child = command
        .args(["bench", "relay"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("it does not run")?;
    let said = child.stdout.take().context("it says nothing")?;
    let address = address_in(said, |line| line.strip_prefix(relay::LISTENING)?.parse().ok());
    Ok((child, address.await?))
}

async fn start_scheduler(
    state: &State,
    pins: Option<&Pins>,
) -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = command(this_program()?, pins);
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    if let Some(store) = &state.store {
        command.args(["--store", store]);
    }
    if let Some(dir) = &state.data_dir {
        command.arg("--data-dir").arg(dir);
    }
    // Only its address is wanted: a line for each registration would be part of what is measured.
    command.env("LINGUA_LOG__FORMAT", "json").env("LINGUA_LOG__LEVEL", "warn,lingua::serve=info");
    let mut child = command.stderr(Stdio::piped()).spawn().context("it does not run")?;
    let log = child.stderr.take().context("it has no log")?;
    let address = address_in(log, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let is_it = line["fields"]["message"] == "listening";
        is_it.then(|| line["fields"]["address"].as_str()?.parse().ok()).flatten()
    });
    Ok((child, address.await?))
}

async fn start_gearman(pins: Option<&Pins>) -> anyhow::Result<(Child, SocketAddr)> {
    let program = machine::program("gearmand").context(
        "there is no gearmand on this machine; install it (Debian: gearman-job-server) or leave out --gearman",
    )?;
    // It cannot choose a port by itself.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?;
    let address = free.local_addr().context("no free port")?;
    drop(free);
    let port = address.port().to_string();
    let mut child = command(program, pins)
        .args(["--listen", "127.0.0.1", "--port", &port, "--log-file", "none", "--threads", "1"])
        .spawn()
        .context("it does not run")?;
    while TcpStream::connect(address).await.is_err() {
        if let Ok(Some(status)) = child.try_wait() {
            bail!("gearmand ended at once: {status}");
        }
        sleep(START_POLL).await;
    }
    Ok((child, address))
}

/// Reads lines up to the one with the address, and goes on reading: a process whose log nobody
/// reads comes to a stop.
async fn address_in(
    said: impl AsyncRead + Unpin + Send + 'static,
    find: impl Fn(&str) -> Option<SocketAddr>,
) -> anyhow::Result<SocketAddr> {
    let mut lines = BufReader::new(said).lines();
    let mut last_words = vec![];
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(address) = find(&line) {
            tokio::spawn(drain(lines));
            return Ok(address);
        }
        last_words.push(line);
        if last_words.len() > LAST_WORDS_MAX {
            last_words.remove(0);
        }
    }
    bail!("it ended: {}", last_words.join("; "))
}

async fn drain(mut lines: Lines<BufReader<impl AsyncRead + Unpin>>) {
    while let Ok(Some(_)) = lines.next_line().await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_agreed_length() {
        for (src, tgt) in PAIRS {
            assert_eq!(body(src, tgt).len(), JOB_BYTES);
            assert!(LANGS.contains(&src) && LANGS.contains(&tgt));
        }
        assert!(serde_json::from_str::<Value>(&result()).is_ok());
    }
}
