//! A node that answers at once, or after a fixed time.
//!
//! Start at [`BenchNode::connect`], then [`BenchNode::run`]. All jobs of one read are acknowledged
//! and done in one write. It sends heartbeats and answers pings, as any node.
//!
//! Invariant: it does not count its slots; whether a broker overloads a node is tested elsewhere.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval_at, sleep_until, timeout};

use super::{client, frame};

/// Room for a few jobs.
const BUFFER_BYTES: usize = 2 << 10;

/// Longest response to an upgrade.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long connecting and registering may take on a busy machine.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A node that has registered.
#[derive(Debug)]
pub(crate) struct BenchNode {
    stream: TcpStream,
    buffer: BytesMut,
    heartbeat_interval: Duration,
    name: String,
    /// The result of every job, as JSON.
    result: Arc<str>,
    work: Duration,
    /// When each job is done, and its ids; the first to be done comes first.
    running: VecDeque<(Instant, Vec<u8>)>,
    /// Counts the answered heartbeats of all nodes.
    heartbeats: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct BenchNodeProfile<'a> {
    pub(crate) name: String,
    pub(crate) langs: &'a [&'a str],
    pub(crate) slots: u16,
    /// How long each job takes.
    pub(crate) work: Duration,
    pub(crate) token: Option<&'static str>,
    /// The local address, for fleets that need more ports than one address has.
    pub(crate) from: Option<IpAddr>,
}

impl BenchNode {
    /// Connects and registers.
    pub(crate) async fn connect(
        broker: SocketAddr,
        profile: BenchNodeProfile<'_>,
        result: Arc<str>,
        heartbeats: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let langs = profile.langs;
        let register = serde_json::json!({
            "type": "register", "node_id": profile.name, "max_concurrent_jobs": profile.slots,
            "asr_langs": langs, "semantic_langs": langs, "tts_langs": langs,
        });
        let connecting = async {
            let mut node = Self {
                stream: open_stream(broker, profile.from).await?,
                buffer: BytesMut::with_capacity(BUFFER_BYTES),
                heartbeat_interval: Duration::ZERO,
                name: profile.name,
                result,
                work: profile.work,
                running: VecDeque::new(),
                heartbeats,
            };
            node.upgrade(broker, profile.token).await?;
            let mut out = vec![];
            frame::put(&mut out, frame::TEXT, &[register.to_string().as_bytes()]);
            node.stream.write_all(&out).await.context("a node was disconnected")?;
            node.heartbeat_interval = node.read_registered().await?;
            Ok(node)
        };
        timeout(CONNECT_MAX, connecting).await.context("a node could not register in time")?
    }

    async fn upgrade(&mut self, broker: SocketAddr, token: Option<&str>) -> anyhow::Result<()> {
        let authorization = client::authorization(token);
        let request = format!(
            "GET /v1/node/ws HTTP/1.1\r\nHost: {broker}\r\n{authorization}Upgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await.context("a node was disconnected")?;
        while self.buffer.len() < HEAD_BYTES_MAX {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(end + 4);
                if !head.starts_with(b"HTTP/1.1 101") {
                    let head = String::from_utf8_lossy(&head).into_owned();
                    bail!("a node was refused: {}", head.lines().next().unwrap_or_default());
                }
                return Ok(());
            }
            self.read().await?;
        }
        bail!("the response to a node's upgrade is too long")
    }

    /// Waits for the reply to the registration, and takes the heartbeat interval from it.
    async fn read_registered(&mut self) -> anyhow::Result<Duration> {
        loop {
            while let Some((kind, message)) = frame::take(&mut self.buffer) {
                if kind == frame::TEXT {
                    let Some(ms) = number_after(&message, b"\"heartbeat_interval_ms\":") else {
                        bail!("a node was refused: {}", String::from_utf8_lossy(&message));
                    };
                    return Ok(Duration::from_millis(ms.max(1)));
                }
            }
            self.read().await?;
        }
    }

    /// Works until the broker disconnects, which is an error: this node never leaves.
    pub(crate) async fn run(mut self, phase: f64) -> anyhow::Result<()> {
        let first = Instant::now() + self.heartbeat_interval.mul_f64(phase);
        let mut heartbeats = interval_at(first, self.heartbeat_interval);
        let mut out = vec![];
        loop {
            self.handle_messages(&mut out)?;
            self.finish_jobs(&mut out);
            if !out.is_empty() {
                self.stream.write_all(&out).await.context("a node was disconnected")?;
                out.clear();
            }
            let next_done = self.running.front().map_or_else(Instant::now, |(due, _)| *due);
            tokio::select! {
                biased;
                () = sleep_until(next_done), if !self.running.is_empty() => {}
                read = self.stream.read_buf(&mut self.buffer) => {
                    if read.context("a node lost its connection")? == 0 {
                        bail!("the broker disconnected a node");
                    }
                }
                _ = heartbeats.tick() => {
                    let head = br#"{"type":"heartbeat","node_id":""#;
                    frame::put(&mut out, frame::TEXT, &[head, self.name.as_bytes(), br#""}"#]);
                }
            }
        }
    }

    /// Answers all messages that have arrived.
    fn handle_messages(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        while let Some((kind, message)) = frame::take(&mut self.buffer) {
            match kind {
                frame::TEXT if message.starts_with(br#"{"type":"job_assign""#) => {
                    let Some(ids) = job_ids(&message) else {
                        bail!("a job without ids: {}", String::from_utf8_lossy(&message));
                    };
                    let ack: [&[u8]; 3] = [br#"{"type":"job_ack","#, ids, b"}"];
                    frame::put(out, frame::TEXT, &ack);
                    match self.work.is_zero() {
                        true => put_done(out, ids, &self.result),
                        false => self.running.push_back((Instant::now() + self.work, ids.to_vec())),
                    }
                }
                frame::TEXT if message.starts_with(br#"{"type":"error""#) => {
                    bail!("the broker reports an error: {}", String::from_utf8_lossy(&message));
                }
                frame::TEXT if message.starts_with(br#"{"type":"heartbeat_ack""#) => {
                    self.heartbeats.fetch_add(1, Ordering::Relaxed);
                }
                frame::PING => frame::put(out, frame::PONG, &[&message]),
                frame::CLOSE => bail!("the broker disconnected a node"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reports the jobs that are done by now. All jobs take as long, so the first is the oldest.
    fn finish_jobs(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        while let Some((_, ids)) = self.running.pop_front_if(|(due, _)| *due <= now) {
            put_done(out, &ids, &self.result);
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await.context("a node lost its connection")? {
            0 => bail!("the broker disconnected a node before it was registered"),
            _ => Ok(()),
        }
    }
}

fn put_done(out: &mut Vec<u8>, ids: &[u8], result: &str) {
    let parts: [&[u8]; 5] =
        [br#"{"type":"job_done","#, ids, br#","result":"#, result.as_bytes(), b"}"];
    frame::put(out, frame::TEXT, &parts);
}

async fn open_stream(broker: SocketAddr, from: Option<IpAddr>) -> anyhow::Result<TcpStream> {
    let stream = match from {
        None => TcpStream::connect(broker).await,
        Some(from) => {
            let socket = TcpSocket::new_v4().context("no socket for a node")?;
            socket.bind(SocketAddr::new(from, 0)).with_context(|| format!("no port on {from}"))?;
            socket.connect(broker).await
        }
    };
    let stream = stream.context("a node cannot connect")?;
    stream.set_nodelay(true).ok();
    Ok(stream)
}

/// `"job_id":"…","attempt_id":1,"fence":7` of a `job_assign` message, to be repeated in the
/// replies.
fn job_ids(assign: &[u8]) -> Option<&[u8]> {
    let start = find(assign, b"\"job_id\"")?;
    let fence = start + find(&assign[start..], b"\"fence\":")? + b"\"fence\":".len();
    let digits = assign[fence..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &assign[start..fence + digits])
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    let rest = &text[find(text, key)? + key.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use lingua_wire::node::NodeMessage;
    use lingua_wire::scheduler::JobAssign;

    use super::*;

    /// The raw node takes shortcuts with JSON; the golden message shows that they work.
    #[test]
    fn the_ids_of_a_job_make_a_valid_report() {
        let golden = include_str!("../../../lingua-wire/golden/job_assign.text.json");
        let assign: JobAssign<'_> = serde_json::from_str(golden).unwrap();
        let assign = lingua_wire::to_json(&assign);
        assert!(assign.starts_with(r#"{"type":"job_assign""#), "{assign}");
        let ids = std::str::from_utf8(job_ids(assign.as_bytes()).unwrap()).unwrap();
        let done = format!(r#"{{"type":"job_done",{ids},"result":{{}}}}"#);
        let Ok(NodeMessage::JobDone(done)) = NodeMessage::parse(&done) else { panic!("{done}") };
        assert_eq!(done.fence.map(|fence| fence.0), Some(1_763_240_000_017));
    }
}
