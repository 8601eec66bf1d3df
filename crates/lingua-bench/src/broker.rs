//! What is measured, in processes of their own: schedulers, the bare relay, Gearman.
//!
//! Start at [`Broker::start`]. Invariant: a broker ends with the benchmark, unless the benchmark is
//! killed with `kill -9`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use lingua_wire::client::Dispatch;
use lingua_wire::to_json;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::machine::{self, CorePins};
use crate::raw_client::{BrokerEndpoint, client};
use crate::tokens::{self, BenchTokens};
use crate::{gearman, relay};

/// How long a broker may take to listen, and how often Gearman is asked whether it does.
const START_MAX: Duration = Duration::from_secs(20);
const START_POLL: Duration = Duration::from_millis(20);

/// Last lines of a broker's log that are part of the error when it ends.
const LOG_LINES_MAX: usize = 5;

/// The language pairs of the jobs, in turn.
pub(crate) const PAIRS: [(&str, &str); 4] =
    [("en", "zh"), ("zh", "en"), ("en", "de"), ("de", "en")];

/// The languages of the nodes: each node serves all pairs.
pub(crate) const LANGS: [&str; 3] = ["en", "zh", "de"];

/// Length of a job's body, as in the measurements of Gearman and BullMQ.
pub(crate) const JOB_BYTES: usize = 300;

/// What to start.
#[derive(Debug, Clone)]
pub(crate) enum BrokerSpec {
    Relay,
    Scheduler(SchedulerSpec),
    Gearman,
}

#[derive(Debug, Clone)]
pub(crate) struct SchedulerSpec {
    /// What tables call it.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// URL of the store; absent means the embedded one.
    pub(crate) store: Option<String>,
    /// Keeps several programs apart that share a store.
    pub(crate) key_prefix: Option<String>,
    pub(crate) instances: u32,
    /// Whether its callers have tokens of two tenants.
    pub(crate) has_tokens: bool,
}

impl BrokerSpec {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Relay => "relay",
            Self::Scheduler(scheduler) => &scheduler.name,
            Self::Gearman => "gearman",
        }
    }
}

/// A broker that listens: one process, or one for each instance of a scheduler.
#[derive(Debug)]
pub(crate) struct Broker {
    name: String,
    is_gearman: bool,
    processes: Vec<BrokerProcess>,
    /// Removed with the broker.
    _tokens: Option<BenchTokens>,
}

#[derive(Debug)]
struct BrokerProcess {
    child: Child,
    pid: u32,
    endpoint: BrokerEndpoint,
}

impl Broker {
    /// Starts a broker and waits until it listens.
    pub(crate) async fn start(spec: &BrokerSpec, pins: Option<&CorePins>) -> anyhow::Result<Self> {
        let instances = match spec {
            BrokerSpec::Scheduler(scheduler) => scheduler.instances,
            _ => 1,
        };
        let tokens = match spec {
            BrokerSpec::Scheduler(SchedulerSpec { has_tokens: true, .. }) => {
                Some(BenchTokens::write()?)
            }
            _ => None,
        };
        let mut processes = vec![];
        for _ in 0..instances {
            let process = BrokerProcess::start(spec, tokens.as_ref(), pins).await;
            processes.push(process.with_context(|| format!("cannot start {}", spec.name()))?);
        }
        let is_gearman = matches!(spec, BrokerSpec::Gearman);
        Ok(Self { name: spec.name().to_owned(), is_gearman, processes, _tokens: tokens })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_gearman(&self) -> bool {
        self.is_gearman
    }

    /// The endpoint of the client or node with this number: they go to the instances in turn.
    pub(crate) fn endpoint(&self, number: usize) -> &BrokerEndpoint {
        &self.processes[number % self.processes.len()].endpoint
    }

    /// Where each of its processes listens.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.processes.iter().map(|process| process.endpoint.address).collect()
    }

    /// CPU time that its processes have used.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let each = self.processes.iter().map(|process| machine::cpu(process.pid));
        each.sum::<anyhow::Result<_>>().with_context(|| format!("{} ended", self.name))
    }

    /// Memory that its processes have in RAM, in KiB.
    pub(crate) fn resident_kib(&self) -> anyhow::Result<u64> {
        let each = self.processes.iter().map(|process| machine::resident_kib(process.pid));
        each.sum::<anyhow::Result<_>>().with_context(|| format!("{} ended", self.name))
    }

    /// Kills its processes.
    pub(crate) async fn stop(self) {
        for mut process in self.processes {
            // A process that has ended already needs no end.
            process.child.kill().await.ok();
        }
    }
}

impl BrokerProcess {
    async fn start(
        spec: &BrokerSpec,
        tokens: Option<&BenchTokens>,
        pins: Option<&CorePins>,
    ) -> anyhow::Result<Self> {
        let starting = async {
            match spec {
                BrokerSpec::Relay => start_relay(pins).await,
                BrokerSpec::Scheduler(scheduler) => start_scheduler(scheduler, tokens, pins).await,
                BrokerSpec::Gearman => start_gearman(pins).await,
            }
        };
        let (child, address) =
            timeout(START_MAX, starting).await.context("it does not listen")??;
        let pid = child.id().context("it ended at once")?;
        let endpoint = match spec {
            BrokerSpec::Gearman => gearman::endpoint(address),
            _ => BrokerEndpoint {
                address,
                requests: http_requests(address, tokens.is_some()),
                reply: client::take_reply,
                node_token: tokens.map(|_| tokens::NODES),
            },
        };
        Ok(Self { child, pid, endpoint })
    }
}

/// A request for each pair, and for each token if there are any.
fn http_requests(address: SocketAddr, has_tokens: bool) -> Arc<[Bytes]> {
    let host = address.to_string();
    let tokens: Vec<Option<&str>> = match has_tokens {
        true => tokens::CLIENTS.into_iter().map(Some).collect(),
        false => vec![None],
    };
    let of_token = |token: &Option<&'static str>| {
        let (host, token) = (host.clone(), *token);
        PAIRS.map(|(src, tgt)| client::request(&host, token, &job_body(src, tgt)))
    };
    tokens.iter().flat_map(of_token).collect()
}

/// A job of the agreed length.
fn job_body(src: &str, tgt: &str) -> String {
    let with_text = |text: &str| {
        to_json(&Dispatch {
            session_id: Some("bench".into()),
            src_lang: src.into(),
            tgt_lang: tgt.into(),
            text: Some(text.to_owned().into()),
            ..Dispatch::default()
        })
    };
    let text = "where is the nearest station ".repeat(JOB_BYTES / 10);
    let room = JOB_BYTES.saturating_sub(with_text("").len());
    with_text(&text[..room])
}

/// The result of every job: as long as its text.
pub(crate) fn job_result() -> Arc<str> {
    let text = "wo ist der naechste Bahnhof ".repeat(8);
    format!(r#"{{"text_translated":"{}"}}"#, text.trim_end()).into()
}

/// A program on the broker's core that ends with this process.
fn command(program: &Path, pins: Option<&CorePins>) -> Command {
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

async fn start_relay(pins: Option<&CorePins>) -> anyhow::Result<(Child, SocketAddr)> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let mut child = command(&this, pins)
        .arg("relay")
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("it does not run")?;
    let stdout = child.stdout.take().context("it has no output")?;
    let address = address_in(stdout, |line| line.strip_prefix(relay::LISTENING)?.parse().ok());
    Ok((child, address.await?))
}

async fn start_scheduler(
    spec: &SchedulerSpec,
    tokens: Option<&BenchTokens>,
    pins: Option<&CorePins>,
) -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = command(&spec.program, pins);
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    if let Some(store) = &spec.store {
        command.args(["--store", store]);
    }
    if let Some(tokens) = tokens {
        command.arg("--config").arg(tokens.file());
    }
    if let Some(prefix) = &spec.key_prefix {
        command.env("LINGUA_STORE__KEY_PREFIX", prefix);
    }
    // The address is in the log; a line for each registration would cost what is measured.
    command.env("LINGUA_LOG__FORMAT", "json").env("LINGUA_LOG__LEVEL", "warn,lingua::serve=info");
    let mut child = command.stderr(Stdio::piped()).spawn().context("it does not run")?;
    let log = child.stderr.take().context("it has no log")?;
    let address = address_in(log, |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let is_listening = line["fields"]["message"] == "listening";
        is_listening.then(|| line["fields"]["address"].as_str()?.parse().ok()).flatten()
    });
    Ok((child, address.await?))
}

async fn start_gearman(pins: Option<&CorePins>) -> anyhow::Result<(Child, SocketAddr)> {
    let program = machine::find_program("gearmand").context(
        "there is no gearmand on this machine; install it (Debian: gearman-job-server) or leave \
         gearman out of --peers",
    )?;
    // gearmand cannot choose a free port by itself.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?;
    let address = free.local_addr().context("no free port")?;
    drop(free);
    let port = address.port().to_string();
    let mut child = command(&program, pins)
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

/// Reads lines up to the one with the address. Keeps on reading after that: a process whose log
/// nobody reads blocks when the pipe is full.
async fn address_in(
    output: impl AsyncRead + Unpin + Send + 'static,
    find: impl Fn(&str) -> Option<SocketAddr>,
) -> anyhow::Result<SocketAddr> {
    let mut lines = BufReader::new(output).lines();
    let mut last = vec![];
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(address) = find(&line) {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
        last.push(line);
        if last.len() > LOG_LINES_MAX {
            last.remove(0);
        }
    }
    bail!("it ended: {}", last.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_agreed_length() {
        for (src, tgt) in PAIRS {
            assert_eq!(job_body(src, tgt).len(), JOB_BYTES);
            assert!(LANGS.contains(&src) && LANGS.contains(&tgt));
        }
        assert!(serde_json::from_str::<Value>(&job_result()).is_ok());
    }
}
