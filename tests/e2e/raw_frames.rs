//! WebSocket frames that no library sends, on every socket: the server says why it closes, or just
//! closes, and goes on serving the others.

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, within};
use crate::session::SessionClient;

/// What the socket has to do.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Send a close frame with one of these codes.
    Close(&'static [u16]),
    /// End, with or without a close frame.
    End,
    /// Answer a ping that follows.
    Live,
}

use Then::{Close, End, Live};

const PROTOCOL: Then = Close(&[1002]);
const NOT_UTF8: Then = Close(&[1007]);
const TOO_BIG: Then = Close(&[1009]);

const FIN: u8 = 0x80;
const MORE: u8 = 0;
const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A masked frame with this first byte; the length is in the shortest form.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        middle @ ..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend((middle as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A frame without a mask.
fn bare(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, payload.len() as u8], payload].concat()
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(FIN | CLOSE, &[&code.to_be_bytes()[..], reason].concat())
}

/// The head of a frame that announces this many bytes.
fn announced(bytes: u64) -> Vec<u8> {
    [&[FIN | BINARY, 0x80 | 127][..], &bytes.to_be_bytes(), &[0; 4]].concat()
}

type Case = (&'static str, Vec<u8>, Then);

fn masks_and_bits() -> Vec<Case> {
    vec![
        ("text without a mask", bare(FIN | TEXT, b"{}"), PROTOCOL),
        ("binary without a mask", bare(FIN | BINARY, b"ab"), PROTOCOL),
        ("ping without a mask", bare(FIN | PING, b""), PROTOCOL),
        ("close without a mask", bare(FIN | CLOSE, &[3, 232]), PROTOCOL),
        ("first reserved bit", frame(FIN | 0x40 | TEXT, b"{}"), PROTOCOL),
        ("second reserved bit", frame(FIN | 0x20 | TEXT, b"{}"), PROTOCOL),
        ("third reserved bit", frame(FIN | 0x10 | BINARY, b"ab"), PROTOCOL),
        ("all reserved bits on a ping", frame(FIN | 0x70 | PING, b""), PROTOCOL),
        ("opcode 3", frame(FIN | 3, b""), PROTOCOL),
        ("opcode 7", frame(FIN | 7, b"ab"), PROTOCOL),
        ("opcode 11", frame(FIN | 11, b""), PROTOCOL),
        ("opcode 15", frame(FIN | 15, b"ab"), PROTOCOL),
        ("all bits", vec![0xff; 64], PROTOCOL),
        ("a request", b"GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), PROTOCOL),
    ]
}

fn texts() -> Vec<Case> {
    let two = |first: &[u8], second: &[u8]| {
        [frame(MORE | TEXT, first), frame(FIN | CONTINUED, second)].concat()
    };
    vec![
        ("a byte that no text has", frame(FIN | TEXT, &[0xff]), NOT_UTF8),
        ("a long form of NUL", frame(FIN | TEXT, &[0xc0, 0x80]), NOT_UTF8),
        ("half of a surrogate pair", frame(FIN | TEXT, &[0xed, 0xa0, 0x80]), NOT_UTF8),
        ("beyond the last character", frame(FIN | TEXT, &[0xf4, 0x90, 0x80, 0x80]), NOT_UTF8),
        ("a text that ends in a character", frame(FIN | TEXT, &[0xe4, 0xbd]), NOT_UTF8),
        ("a bad character over two fragments", two(&[0xf0, 0x9f], b"a"), NOT_UTF8),
        ("a character over two fragments", two(&[0xe4], &[0xbd, 0xa0]), Live),
        ("an empty text", frame(FIN | TEXT, b""), Live),
        ("NUL as a text", frame(FIN | TEXT, &[0]), Live),
    ]
}

fn fragments() -> Vec<Case> {
    let ping = frame(FIN | PING, b"between");
    let whole = [frame(MORE | TEXT, b"{"), ping, frame(FIN | CONTINUED, b"}")].concat();
    let twice = [frame(MORE | TEXT, b"{"), frame(FIN | TEXT, b"}")].concat();
    let mixed = [frame(MORE | TEXT, b"{"), frame(MORE | BINARY, b"}")].concat();
    let empty = [frame(MORE | BINARY, b""), frame(MORE | CONTINUED, b"").repeat(5_000)].concat();
    let part = frame(MORE | CONTINUED, &[0; 60_000]);
    let long = [frame(MORE | BINARY, b""), part.repeat(300)].concat();
    vec![
        ("a ping between fragments", whole, Live),
        ("a continuation of nothing", frame(FIN | CONTINUED, b"a"), PROTOCOL),
        ("an open continuation of nothing", frame(MORE | CONTINUED, b"a"), PROTOCOL),
        ("a text within a text", twice, PROTOCOL),
        ("a binary within a text", mixed, PROTOCOL),
        ("a fragmented ping", frame(MORE | PING, b"a"), PROTOCOL),
        ("a fragmented pong", frame(MORE | PONG, b"a"), PROTOCOL),
        ("a fragmented close", frame(MORE | CLOSE, &[3, 232]), PROTOCOL),
        ("thousands of empty fragments", empty, Live),
        ("fragments that are too long together", long, TOO_BIG),
    ]
}

fn lengths() -> Vec<Case> {
    let in_two_bytes = [&[FIN | PING, 0x80 | 126, 0, 1][..], &[0; 4], b"a"].concat();
    let mut cut = frame(FIN | TEXT, &[b' '; 100]);
    cut.truncate(50);
    vec![
        ("a ping of 126 bytes", frame(FIN | PING, &[0; 126]), PROTOCOL),
        ("a pong of 126 bytes", frame(FIN | PONG, &[0; 126]), PROTOCOL),
        ("a close of 126 bytes", close(1000, &[b'a'; 124]), PROTOCOL),
        ("a short ping with a long length", in_two_bytes, End),
        ("more than any message may have", announced(1 << 40), TOO_BIG),
        ("a length with the first bit set", announced(u64::MAX), Close(&[1002, 1009])),
        ("a negative length", announced(1 << 63), Close(&[1002, 1009])),
        ("a message that ends early", cut, End),
        ("a head that ends early", vec![FIN | TEXT, 0x80 | 126, 0], End),
        ("one byte", vec![FIN | TEXT], End),
        ("pongs that nobody asked for", frame(FIN | PONG, b"x").repeat(3), Live),
    ]
}

fn closes() -> Vec<Case> {
    let then = |first: Vec<u8>| [first, frame(FIN | TEXT, b"{}")].concat();
    vec![
        ("a close without a code", frame(FIN | CLOSE, b""), End),
        ("a close and then a text", then(close(1000, b"")), Close(&[1000])),
        ("two closes", close(1000, b"").repeat(2), Close(&[1000])),
        ("half of a code", frame(FIN | CLOSE, &[3]), PROTOCOL),
        ("code 0", close(0, b""), PROTOCOL),
        ("code 999", close(999, b""), PROTOCOL),
        ("code 1004", close(1004, b""), PROTOCOL),
        ("code 1005", close(1005, b""), PROTOCOL),
        ("code 1006", close(1006, b""), PROTOCOL),
        ("code 1015", close(1015, b""), PROTOCOL),
        ("code 65535", close(65_535, b""), PROTOCOL),
        ("a reason that is no text", close(1000, &[0xff, 0xfe]), Close(&[1002, 1007])),
        ("a code of an application", close(4321, b"over"), Close(&[4321])),
    ]
}

/// A connection after its upgrade.
struct RawSocket(TcpStream);

impl RawSocket {
    async fn open(s: &Scheduler, path: &str) -> Self {
        let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        let upgrade = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(upgrade.as_bytes()).await.expect("sent");
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(stream.read_u8()).await.expect("an answer"));
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Self(stream)
    }

    /// The opcode and payload of the next frame; `None` when the connection has ended.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let first = self.0.read_u8().await?;
            let bytes = match self.0.read_u8().await? {
                126 => u64::from(self.0.read_u16().await?),
                127 => self.0.read_u64().await?,
                short => u64::from(short),
            };
            let mut payload = vec![0; bytes as usize];
            self.0.read_exact(&mut payload).await?;
            Ok::<_, std::io::Error>((first & 0x0f, payload))
        };
        within(read).await.ok()
    }

    /// Waits until the first frame of this kind.
    async fn until(&mut self, opcode: u8) -> Option<Vec<u8>> {
        loop {
            match self.next().await {
                Some((found, payload)) if found == opcode => return Some(payload),
                Some(_) => {}
                None => return None,
            }
        }
    }

    async fn has_to(&mut self, then: Then) -> Result<(), String> {
        match then {
            Live => {
                self.0.write_all(&frame(FIN | PING, b"alive")).await.ok();
                loop {
                    match self.until(PONG).await {
                        Some(payload) if payload == b"alive" => return Ok(()),
                        Some(_) => {}
                        None => return Err("it was closed".to_owned()),
                    }
                }
            }
            End => {
                // What is not complete ends with the connection.
                self.0.shutdown().await.ok();
                while self.next().await.is_some() {}
                Ok(())
            }
            Close(codes) => {
                let payload = self.until(CLOSE).await.ok_or("no close frame")?;
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                match codes.contains(&code) {
                    true => Ok(()),
                    false => Err(format!("closed with {code}, not with {codes:?}")),
                }
            }
        }
    }
}

/// How often the long tests go round: `cargo xtask attack` sets more.
fn rounds() -> usize {
    let given = std::env::var("LINGUA_ATTACK_ROUNDS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(1)
}

/// Sends a case; says what was wrong.
async fn attack(s: &Scheduler, path: &str, first: Option<Value>, case: &Case) -> Option<String> {
    let (name, bytes, then) = case;
    let mut socket = RawSocket::open(s, path).await;
    if let Some(first) = &first {
        socket.0.write_all(&frame(FIN | TEXT, first.to_string().as_bytes())).await.expect("sent");
        socket.until(TEXT).await.expect("an answer");
    }
    // The server may close before it has read everything.
    socket.0.write_all(bytes).await.ok();
    let then = match (first, then) {
        // Without a first message everything but pings and pongs ends the socket.
        (None, Live | Close(_)) => End,
        (_, then) => *then,
    };
    socket.has_to(then).await.err().map(|why| format!("{path}: {name}: {why}"))
}

/// The registration of a node that gets none of the jobs of these tests.
fn hostile_node(id: &str) -> Value {
    let mut message = register(id, 1);
    for list in ["asr_langs", "semantic_langs", "tts_langs"] {
        message[list] = json!(["fr"]);
    }
    message
}

/// Requirements: SEC-18.
#[tokio::test]
async fn frames_that_no_library_sends_end_their_own_socket_only() {
    let s = Scheduler::with(&[("SESSION__FRAME_BYTES_MAX", "1000000")]).await;
    let mut node = RawNode::join(&s, "healthy", 1).await;
    let mut client = SessionClient::start(&s).await;
    let cases = [masks_and_bits(), texts(), fragments(), lengths(), closes()].concat();
    assert!(cases.len() >= 46, "{}", cases.len());
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let mut wrong = vec![];
    for path in ["/v1/node/ws", "/v1/session/ws"] {
        for is_started in [false, true] {
            let attacks = cases.iter().enumerate().map(|(n, case)| {
                let first = match path {
                    "/v1/node/ws" => hostile_node(&format!("hostile-{n}")),
                    _ => start.clone(),
                };
                attack(&s, path, is_started.then_some(first), case)
            });
            wrong.extend(join_all(attacks).await.into_iter().flatten());
            assert_eq!(s.get("/healthz").await.status, 200);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    client.send(json!({"type": "text", "text": "hello"})).await;
    node.work().await;
    assert_eq!(client.outcome().await["type"], "result");
    let errors = s.log_lines(&[("level", "ERROR")]);
    assert!(errors.is_empty(), "{errors:?}");
}

/// Frames of several cases one after the other, with bytes changed, in parts that arrive apart.
fn random_bytes(random: &mut StdRng, cases: &[Case]) -> Vec<Vec<u8>> {
    let some = (0..random.random_range(1..6)).map(|_| random.random_range(0..cases.len()));
    let mut bytes: Vec<u8> = some.collect::<Vec<_>>().into_iter().fold(vec![], |mut all, case| {
        all.extend(&cases[case].1);
        all
    });
    bytes.truncate(20_000);
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    let part = random.random_range(1..=bytes.len().min(200));
    bytes.chunks(part).take(50).map(<[u8]>::to_vec).collect()
}

/// Whatever comes, the socket ends when its peer does, and the others are served.
#[tokio::test]
async fn random_frames_end_their_own_socket_only() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "healthy", 1).await;
    let mut client = SessionClient::start(&s).await;
    let cases = [masks_and_bits(), texts(), fragments(), lengths(), closes()].concat();
    let mut random = StdRng::seed_from_u64(1);
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let hostile_node = hostile_node("hostile");
    for round in 0..30 * rounds() {
        let sockets =
            ["/v1/node/ws", "/v1/session/ws"].map(|path| (path, random_bytes(&mut random, &cases)));
        let attacks = sockets.into_iter().map(async |(path, parts)| {
            let mut socket = RawSocket::open(&s, path).await;
            let first = if path == "/v1/node/ws" { &hostile_node } else { &start };
            if round % 3 > 0 {
                let first = frame(FIN | TEXT, first.to_string().as_bytes());
                socket.0.write_all(&first).await.expect("sent");
            }
            for part in parts {
                if socket.0.write_all(&part).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            socket.has_to(End).await.expect("it ends");
        });
        join_all(attacks).await;
    }
    client.send(json!({"type": "text", "text": "hello"})).await;
    node.work().await;
    assert_eq!(client.outcome().await["type"], "result");
    assert_eq!(s.log_lines(&[("level", "ERROR")]), Vec::<Value>::new());
}
