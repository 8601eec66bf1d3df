//! A node that answers at once, or after a while.
//!
//! Start at [`Node::join`], then [`Node::run`]. All jobs of one read are acknowledged and done in
//! one write. It beats as it is told to and answers pings, as any node.
//!
//! Invariant: it keeps no count of its slots; a broker that overloads it is not its concern here.

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

use super::frame;

/// Room for a few jobs.
const BUFFER_BYTES: usize = 2 << 10;

/// Longest answer to an upgrade.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long joining may take on a busy machine.
const JOIN_MAX: Duration = Duration::from_secs(30);

/// When a node without work looks whether it has any: never mind.
const IDLE: Duration = Duration::from_secs(3600);

/// What all nodes of a fleet do together.
#[derive(Debug, Default)]
pub(in crate::bench) struct Tally {
    /// Heartbeats that were answered.
    pub(in crate::bench) beats: AtomicU64,
}

/// A node that has registered.
#[derive(Debug)]
pub(in crate::bench) struct Node {
    stream: TcpStream,
    buffer: BytesMut,
    beat_every: Duration,
    name: String,
    /// The result of every job, as JSON.
    result: Arc<str>,
    /// How long a job takes, and the names of those that are not done yet, the first to be done first.
    work: Duration,
    at_work: VecDeque<(Instant, Vec<u8>)>,
    tally: Arc<Tally>,
}

/// What makes one node different from another.
#[derive(Debug)]
pub(in crate::bench) struct Profile<'a> {
    pub(in crate::bench) name: String,
    pub(in crate::bench) langs: &'a [&'a str],
    pub(in crate::bench) slots: u16,
    /// How long each job takes.
    pub(in crate::bench) work: Duration,
    /// The address that it comes from, for fleets that need more ports than one address has.
    pub(in crate::bench) from: Option<IpAddr>,
}

impl Node {
    /// Connects and registers.
    pub(in crate::bench) async fn join(
        broker: SocketAddr,
        profile: Profile<'_>,
        result: Arc<str>,
        tally: Arc<Tally>,
    ) -> anyhow::Result<Self> {
        let langs = profile.langs;
        let register = serde_json::json!({
            "type": "register", "node_id": profile.name, "max_concurrent_jobs": profile.slots,
            "asr_langs": langs, "semantic_langs": langs, "tts_langs": langs,
        })
        .to_string();
        let joining = async {
            let stream = connect(broker, profile.from).await?;
            let (name, beat_every) = (profile.name, Duration::ZERO);
            let buffer = BytesMut::with_capacity(BUFFER_BYTES);
            let (work, at_work) = (profile.work, VecDeque::new());
            let mut node = Self { stream, buffer, beat_every, name, result, work, at_work, tally };
            node.upgrade(broker).await?;
            node.say(register.as_bytes()).await?;
            node.beat_every = node.welcome().await?;
            Ok(node)
        };
        timeout(JOIN_MAX, joining).await.context("a node could not join in time")?
    }

    async fn upgrade(&mut self, broker: SocketAddr) -> anyhow::Result<()> {
        let request = format!(
            "GET /v1/node/ws HTTP/1.1\r\nHost: {broker}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        self.stream.write_all(request.as_bytes()).await.context("a node was hung up on")?;
        while self.buffer.len() < HEAD_BYTES_MAX {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffer.split_to(end + 4);
                if !head.starts_with(b"HTTP/1.1 101") {
                    let head = String::from_utf8_lossy(&head).into_owned();
                    bail!("a node was refused: {}", head.lines().next().unwrap_or_default());
                }
                return Ok(());
            }
            self.read().await?;
        }
        bail!("the answer to a node's upgrade does not end")
    }

    /// Waits for the answer to the registration; gives the interval of the heartbeats.
    async fn welcome(&mut self) -> anyhow::Result<Duration> {
        loop {
            while let Some((kind, said)) = frame::take(&mut self.buffer) {
                if kind == frame::TEXT {
                    let Some(ms) = number_after(&said, b"\"heartbeat_interval_ms\":") else {
                        bail!("a node was refused: {}", String::from_utf8_lossy(&said));
                    };
                    return Ok(Duration::from_millis(ms.max(1)));
                }
            }
            self.read().await?;
        }
    }

    /// Works until the broker hangs up, which is an error: this node never leaves.
    pub(in crate::bench) async fn run(mut self, phase: f64) -> anyhow::Result<()> {
        let first = Instant::now() + self.beat_every.mul_f64(phase);
        let mut beats = interval_at(first, self.beat_every);
        let mut out = vec![];
        loop {
            self.hear(&mut out)?;
            self.finish(&mut out);
            if !out.is_empty() {
                self.stream.write_all(&out).await.context("a node was hung up on")?;
                out.clear();
            }
            let next = self.at_work.front().map_or_else(|| Instant::now() + IDLE, |(due, _)| *due);
            tokio::select! {
                biased;
                () = sleep_until(next), if !self.at_work.is_empty() => {}
                read = self.stream.read_buf(&mut self.buffer) => {
                    if read.context("a node lost its connection")? == 0 {
                        bail!("the broker hung up on a node");
                    }
                }
                _ = beats.tick() => {
                    let parts = [br#"{"type":"heartbeat","node_id":""#, self.name.as_bytes(), br#""}"#];
                    frame::put(&mut out, frame::TEXT, &parts);
                }
            }
        }
    }

    /// Answers all that has arrived.
    fn hear(&mut self, out: &mut Vec<u8>) -> anyhow::Result<()> {
        while let Some((kind, said)) = frame::take(&mut self.buffer) {
            match kind {
                frame::TEXT if said.starts_with(br#"{"type":"job_assign""#) => {
                    let Some(names) = names_of(&said) else {
                        bail!("an order without names: {}", String::from_utf8_lossy(&said));
                    };
                    let ack: [&[u8]; 3] = [br#"{"type":"job_ack","#, names, b"}"];
                    frame::put(out, frame::TEXT, &ack);
                    match self.work.is_zero() {
                        true => put_done(out, names, &self.result),
                        false => {
                            self.at_work.push_back((Instant::now() + self.work, names.to_vec()));
                        }
                    }
                }
                frame::TEXT if said.starts_with(br#"{"type":"error""#) => {
                    bail!("the broker complains: {}", String::from_utf8_lossy(&said));
                }
                frame::TEXT if said.starts_with(br#"{"type":"heartbeat_ack""#) => {
                    self.tally.beats.fetch_add(1, Ordering::Relaxed);
                }
                frame::PING => frame::put(out, frame::PONG, &[&said]),
                frame::CLOSE => bail!("the broker hung up on a node"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Hands in what is done by now. All jobs take as long, so the first is the oldest.
    fn finish(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        while let Some((_, names)) = self.at_work.pop_front_if(|(due, _)| *due <= now) {
            put_done(out, &names, &self.result);
        }
    }

    async fn say(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let mut out = vec![];
        frame::put(&mut out, frame::TEXT, &[text]);
        self.stream.write_all(&out).await.context("a node was hung up on")
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await.context("a node lost its connection")? {
            0 => bail!("the broker hung up on a node that wanted to join"),
            _ => Ok(()),
        }
    }
}

fn put_done(out: &mut Vec<u8>, names: &[u8], result: &str) {
    let parts: [&[u8]; 5] =
        [br#"{"type":"job_done","#, names, br#","result":"#, result.as_bytes(), b"}"];
    frame::put(out, frame::TEXT, &parts);
}

async fn connect(broker: SocketAddr, from: Option<IpAddr>) -> anyhow::Result<TcpStream> {
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

/// `"job_id":"…","attempt_id":1,"fence":7`: the order's own words, to be repeated as they are.
fn names_of(order: &[u8]) -> Option<&[u8]> {
    let start = find(order, b"\"job_id\"")?;
    let fence = start + find(&order[start..], b"\"fence\":")? + b"\"fence\":".len();
    let digits = order[fence..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &order[start..fence + digits])
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

    use super::*;

    /// The lean node takes shortcuts with JSON; the golden order shows that they hold.
    #[test]
    fn the_names_of_an_order_make_good_answers() {
        let golden = include_str!("../../../../lingua-wire/golden/job_assign.text.json");
        let order: serde_json::Value = serde_json::from_str(golden).unwrap();
        let order: lingua_wire::scheduler::JobAssign<'_> =
            serde_json::from_str(golden).unwrap_or_else(|error| panic!("{error}: {order}"));
        let order = lingua_wire::to_json(&order);
        assert!(order.starts_with(r#"{"type":"job_assign""#), "{order}");
        let names = std::str::from_utf8(names_of(order.as_bytes()).unwrap()).unwrap();
        let done = format!(r#"{{"type":"job_done",{names},"result":{{}}}}"#);
        let Ok(NodeMessage::JobDone(done)) = NodeMessage::parse(&done) else { panic!("{done}") };
        assert_eq!(done.fence.map(|fence| fence.0), Some(1_763_240_000_017));
    }
}
