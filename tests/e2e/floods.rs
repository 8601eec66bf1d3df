//! One caller that floods an instance: its memory stays bounded, and others are still served.
//!
//! Each test does what an attacker would do and measures the process from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::memory::resident_kib;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, binary, job, job_with, within};
use crate::session::SessionClient;

/// What a flood may add to the memory of the process.
const GROWTH_KIB_MAX: u64 = 48 << 10;

pub(crate) fn assert_bounded(before_kib: u64, after_kib: u64) {
    let growth_kib = after_kib.saturating_sub(before_kib);
    assert!(growth_kib <= GROWTH_KIB_MAX, "from {before_kib} to {after_kib} KiB");
}

/// A masked WebSocket frame with a mask of zeros.
pub(crate) fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend((long as u16).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// A connection whose receive buffer is small, so that what it does not read stays with the server.
pub(crate) async fn slow_reader(s: &Scheduler) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a small buffer");
    let address = s.address.parse().expect("an address");
    within(socket.connect(address)).await.expect("the scheduler accepts")
}

pub(crate) async fn upgraded(s: &Scheduler, path: &str, first: &Value) -> TcpStream {
    let mut stream = slow_reader(s).await;
    let upgrade = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(upgrade.as_bytes()).await.expect("sent");
    stream.write_all(&masked(1, first.to_string().as_bytes())).await.expect("sent");
    stream
}

/// Writes until the server closes the connection, or takes nothing for a second.
pub(crate) async fn pour(stream: &mut TcpStream, bytes: &[u8], limit: Duration) -> usize {
    let mut sent = 0;
    let pouring = async {
        loop {
            let write = tokio::time::timeout(Duration::from_secs(1), stream.write_all(bytes));
            match write.await {
                Ok(Ok(())) => sent += bytes.len(),
                _ => break,
            }
        }
    };
    tokio::time::timeout(limit, pouring).await.ok();
    sent
}

/// Processor time of the thread that serves all connections, in milliseconds.
pub(crate) fn thread_ms(s: &Scheduler) -> u64 {
    let pid = s.child.id().expect("the process runs");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")).expect("its times");
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>());
    ticks.map(|ticks| ticks.expect("a number") * 10).sum()
}

#[tokio::test]
async fn pings_whose_pongs_are_not_read_cost_no_memory_and_no_time() {
    let s = Scheduler::start().await;
    let session = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let pings = masked(9, &[b'x'; 125]).repeat(500);
    for (path, first) in [("/v1/session/ws", session), ("/v1/node/ws", register("n1", 1))] {
        let (before_kib, before_ms) = (resident_kib(&s), thread_ms(&s));
        let mut stream = upgraded(&s, path, &first).await;
        let sent = pour(&mut stream, &pings, Duration::from_secs(4)).await;
        let busy_ms = thread_ms(&s) - before_ms;
        assert!(busy_ms < 400, "{busy_ms} ms for {sent} bytes");
        // Pongs that the peer does not read are not kept: 64 MiB of pings leave only the buffers.
        let growth_kib = resident_kib(&s).saturating_sub(before_kib);
        assert!(growth_kib <= 16 << 10, "{growth_kib} KiB for {sent} bytes");
    }
}

#[tokio::test]
async fn a_socket_with_too_many_pings_is_closed_and_told_why() {
    let s = Scheduler::start().await;
    let mut client = SessionClient::start(&s).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    for socket in [&mut *client, &mut *node] {
        for _ in 0..150 {
            socket.stream.send(Message::Ping("x".into())).await.ok();
        }
        let error = socket.expect("error").await;
        assert_eq!((&error["error"], &error["fatal"]), (&json!("RATE_LIMITED"), &json!(true)));
        assert_eq!(socket.close_code().await, Some(1013));
    }
}

#[tokio::test]
async fn a_body_in_one_byte_packets_costs_as_much_memory_as_it_has_bytes() {
    let s = Scheduler::start().await;
    let before_kib = resident_kib(&s);
    let mut streams = vec![];
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        streams.push(stream);
    }
    for _ in 0..300 {
        for stream in &mut streams {
            stream.write_all(b" ").await.expect("sent");
        }
        // Lets the scheduler read each packet by itself.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_bounded(before_kib, resident_kib(&s));
    assert_eq!(s.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn bodies_that_are_being_received_are_bounded_in_bytes() {
    let s = Scheduler::with(&[("SERVER__REQUEST_BYTES_MAX", "2000000")]).await;
    let mut full = 0;
    let mut streams = vec![];
    for _ in 0..4 {
        let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        let head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Length: 1000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(&vec![b' '; 999_999]).await.ok();
        let mut reply = [0; 12];
        let read = tokio::time::timeout(Duration::from_millis(500), stream.read_exact(&mut reply));
        full += usize::from(read.await.is_ok_and(|read| read.is_ok() && &reply[9..] == b"429"));
        streams.push(stream);
    }
    assert!((2..=3).contains(&full), "{full} of 4 bodies were refused");
    drop(streams);
    s.until_metric("lingua_held_bytes{kind=\"requests\"}", 0.0).await;
}

/// Ends so many jobs with a long text each.
async fn long_jobs(s: &Scheduler, count: usize, bytes: usize) {
    let mut node = RawNode::join(s, "n1", 1).await;
    for _ in 0..count {
        let done = async {
            let assign = node.expect("job_assign").await;
            node.done(&assign, &"x".repeat(bytes)).await;
        };
        let (reply, ()) = tokio::join!(s.post("/v1/translate", job()), done);
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
}

#[tokio::test]
async fn responses_that_are_not_read_are_bounded_and_their_readers_cut() {
    let s = Scheduler::with(&[
        ("SERVER__RESPONSE_BYTES_MAX", "16000000"),
        ("SERVER__WRITE_MS", "1500"),
    ])
    .await;
    long_jobs(&s, 60, 500_000).await;
    let before_kib = resident_kib(&s);
    let mut streams = vec![];
    for _ in 0..12 {
        let mut stream = slow_reader(&s).await;
        let request = b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        streams.push(stream);
    }
    let refused = "lingua_bytes_refused_total{kind=\"responses\"}";
    within(async {
        while s.metric(refused).await < 1.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_bounded(before_kib, resident_kib(&s));
    // The clients do not read: all are disconnected, and their bytes are free again.
    s.until_metric("lingua_held_bytes{kind=\"responses\"}", 0.0).await;
    let page = s.get("/v1/jobs?limit=1000").await;
    assert_eq!(page.status, 200);
    let shown = page.body["jobs"].as_array().map_or(0, Vec::len);
    assert!(shown < 60 && page.body["next"].is_string(), "{shown} jobs on a page");
}

#[tokio::test]
async fn every_job_is_on_one_of_the_short_pages() {
    let s = Scheduler::start().await;
    long_jobs(&s, 30, 500_000).await;
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let page = s.get(&format!("/v1/jobs?limit=1000{cursor}")).await.body;
        seen += page["jobs"].as_array().map_or(0, Vec::len);
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 30);
}

#[tokio::test]
async fn event_streams_are_bounded_and_those_that_are_not_read_are_cut() {
    let s = Scheduler::with(&[
        ("LIMITS__EVENT_STREAMS_PER_CALLER", "20"),
        ("SERVER__WRITE_MS", "1000"),
    ])
    .await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut streams = vec![];
    for _ in 0..30 {
        let mut stream = slow_reader(&s).await;
        let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut status = [0; 12];
        within(stream.read_exact(&mut status)).await.expect("a status");
        streams.push((stream, status));
    }
    let refused = streams.iter().filter(|(_, status)| status.ends_with(b"429")).count();
    assert_eq!(refused, 10);
    // Events that clients do not read: the streams are cut, and new ones find a place.
    within(async {
        while s.metric("lingua_connections{kind=\"events\"}").await > 0.0 {
            s.dispatch(job()).await;
            let assign = node.expect("job_assign").await;
            let partial = json!({"text": "x".repeat(8_000)});
            for _ in 0..200 {
                node.report("job_partial", &assign, partial.clone()).await;
            }
            node.done(&assign, "hello").await;
            node.expect("job_confirmed").await;
        }
    })
    .await;
    drop(streams);
}

/// Does so many jobs one after the other; gives the processor time that they cost.
async fn busy_ms_of_jobs(s: &Scheduler, node: &mut RawNode, count: usize) -> u64 {
    let before_ms = thread_ms(s);
    for _ in 0..count {
        let (reply, _) = tokio::join!(s.post("/v1/translate", job()), node.work());
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    thread_ms(s) - before_ms
}

/// Each event is encoded once, and streams get several at a time.
#[tokio::test]
async fn jobs_cost_little_more_while_hundreds_of_event_streams_are_open() {
    const STREAMS: usize = 512;
    const JOBS: usize = 300;
    let limits = "[limits]\nevent_streams_max = 1000\nevent_streams_per_caller = 1000\n\
                  [[auth.tenants]]\nname = \"default\"\nlimits = { event_streams = 1000 }\n";
    let s = Scheduler::from_toml(limits).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    busy_ms_of_jobs(&s, &mut node, 20).await;
    let alone_ms = busy_ms_of_jobs(&s, &mut node, JOBS).await;
    let mut readers = vec![];
    for _ in 0..STREAMS {
        let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        let request = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut status = [0; 12];
        within(stream.read_exact(&mut status)).await.expect("a status");
        assert!(status.ends_with(b"200"));
        let bytes = Arc::new(AtomicUsize::new(0));
        readers.push(Arc::clone(&bytes));
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                bytes.fetch_add(read, Ordering::Relaxed);
            }
        });
    }
    let watched_ms = busy_ms_of_jobs(&s, &mut node, JOBS).await;
    // Every stream has the events of all these jobs.
    within(async {
        while readers.iter().any(|bytes| bytes.load(Ordering::Relaxed) < JOBS * 100) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(
        watched_ms <= 10 * alone_ms.max(100),
        "{JOBS} jobs: {alone_ms} ms alone, {watched_ms} ms with {STREAMS} streams"
    );
}

/// More silent connections than there are places: others are answered, at no more cost.
#[tokio::test]
async fn silent_connections_beyond_all_places_delay_nobody() {
    const SILENT: usize = 1_100;
    rlimit::increase_nofile_limit(4_096).expect("files for the test itself");
    let s = Scheduler::with(&[("SERVER__CONNECTIONS_MAX", "700")]).await;
    let asked = async || {
        let before_ms = thread_ms(&s);
        for _ in 0..300 {
            // A connection of its own for each, as a load balancer does.
            assert_eq!(s.new_client().get("/healthz").await.status, 200);
        }
        thread_ms(&s) - before_ms
    };
    let alone_ms = asked().await;
    let mut silent = vec![];
    for n in 0..SILENT {
        silent.push(TcpStream::connect(&s.address).await.expect("the system accepts"));
        if n % 100 == 0 {
            assert_eq!(s.new_client().get("/healthz").await.status, 200, "beside {n}");
        }
    }
    let beside_ms = asked().await;
    assert!(
        beside_ms <= 5 * alone_ms.max(50),
        "300 requests: {alone_ms} ms alone, {beside_ms} ms beside {SILENT} connections"
    );
    assert!(s.metric("lingua_connections{kind=\"client\"}").await <= 700.0);
}

/// A socket that sends too much is read more slowly; others are not, and every message is answered.
#[tokio::test]
async fn a_flooding_socket_is_slowed_and_nothing_is_lost() {
    const RATE: usize = 200;
    const SENT: usize = 3 * RATE;
    let rate = RATE.to_string();
    let s = Scheduler::with(&[
        ("LIMITS__NODE_MESSAGES_PER_SECOND", &rate),
        ("SESSION__MESSAGES_PER_SECOND", &rate),
    ])
    .await;
    let mut flooding_node = RawNode::join_with(&s, register("flood", 1)).await;
    let mut flooding_client = SessionClient::start(&s).await;
    let mut node = RawNode::join(&s, "n1", 2).await;
    // The flooding node serves nobody: it is drained.
    assert_eq!(s.post("/v1/nodes/flood/drain", json!({})).await.status, 200);
    flooding_node.expect("drain").await;
    let mut client = SessionClient::start(&s).await;
    let began = tokio::time::Instant::now();
    let node_flood = async {
        for _ in 0..SENT {
            flooding_node.send(json!({"type": "heartbeat"})).await;
        }
        for _ in 0..SENT {
            flooding_node.expect("heartbeat_ack").await;
        }
        began.elapsed()
    };
    let client_flood = async {
        for n in 0..SENT {
            flooding_client.send(json!({"type": format!("nonsense-{n}")})).await;
        }
        for n in 0..SENT {
            let error = flooding_client.expect("error").await;
            let detail = error["detail"].as_str().expect("a text");
            assert!(detail.contains(&format!("nonsense-{n}")), "in order: {n}: {error}");
        }
        began.elapsed()
    };
    let others = async {
        for seq in 1..=20 {
            client.send(json!({"type": "text", "text": "hello"})).await;
            node.work().await;
            assert_eq!(client.outcome().await["seq"], seq);
        }
        began.elapsed()
    };
    let (nodes, clients, others) = tokio::join!(node_flood, client_flood, others);
    // A second's worth passes at once, the rest at the rate.
    let least = Duration::from_millis(1_500);
    assert!(nodes >= least && clients >= least, "not slowed: {nodes:?}, {clients:?}");
    assert!(others < nodes.min(clients), "20 jobs took {others:?}, the floods {nodes:?}");
    // They are not cut off, and go on.
    flooding_client.send(json!({"type": "text", "text": "hello"})).await;
    node.work().await;
    assert_eq!(flooding_client.outcome().await["seq"], 1);
}

#[tokio::test]
async fn a_flood_of_texts_on_a_session_delays_nobody_else() {
    let s = Scheduler::with(&[("SCHEDULER__WAIT_MS", "15000")]).await;
    let _full = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    let mut client = SessionClient::start(&s).await;
    let before_kib = resident_kib(&s);
    let text = json!({"type": "text", "text": "hello"}).to_string();
    let flood = masked(1, text.as_bytes()).repeat(1_000);
    let tcp = match client.stream.get_mut() {
        tokio_tungstenite::MaybeTlsStream::Plain(tcp) => tcp,
        _ => unreachable!("no TLS"),
    };
    let before_ms = thread_ms(&s);
    // Replies are not read: the server stops reading, or closes.
    let sent = pour(tcp, &flood, Duration::from_secs(4)).await;
    for _ in 0..20 {
        assert_eq!(s.get("/healthz").await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let busy_ms = thread_ms(&s) - before_ms;
    assert!(busy_ms < 1_500, "{busy_ms} ms for {sent} bytes");
    assert_bounded(before_kib, resident_kib(&s));
}

#[tokio::test]
async fn texts_beyond_the_open_segments_are_refused_and_the_session_goes_on() {
    let s =
        Scheduler::with(&[("SESSION__OPEN_SEGMENTS_MAX", "2"), ("SCHEDULER__WAIT_MS", "15000")])
            .await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut client = SessionClient::start(&s).await;
    for _ in 0..300 {
        client.send(json!({"type": "text", "text": "hello"})).await;
    }
    for _ in 0..300 - 2 - 256 {
        let error = client.expect("error").await;
        assert_eq!((&error["error"], &error["fatal"]), (&json!("RATE_LIMITED"), &json!(false)));
    }
    node.work().await;
    node.work().await;
    for seq in 1..=258 {
        let outcome = client.outcome().await;
        assert_eq!(outcome["seq"], seq, "{outcome}");
        let is_result = outcome["type"] == "result";
        assert_eq!(is_result, seq <= 2, "{outcome}");
    }
    client.send(json!({"type": "text", "text": "again"})).await;
    node.work().await;
    assert_eq!(client.outcome().await["seq"], 259);
}

/// So many languages that no other node has.
fn many_languages(first: usize, count: usize) -> Vec<String> {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    let tag = |n: usize| {
        let first = ["q", "x", "y", "z"][n / 676];
        format!("{first}{}{}", letter(n / 26), letter(n))
    };
    (first..first + count).map(tag).collect()
}

#[tokio::test]
async fn registrations_with_many_languages_delay_nobody_else() {
    let s = Scheduler::start().await;
    let before_ms = thread_ms(&s);
    let mut nodes = vec![];
    for n in 0..20 {
        let langs = many_languages(n * 97, 512);
        let mut message = register(&format!("n{n}"), 1);
        for list in ["asr_langs", "semantic_langs", "tts_langs"] {
            message[list] = json!(langs);
        }
        nodes.push(RawNode::join_with(&s, message).await);
    }
    // The table is made again half a second after the last of them.
    let counted =
        s.until_reply("/v1/pools", |reply| reply.body["left_out"].as_u64() > Some(20 * 512 * 97));
    let pools = counted.await.body;
    let busy_ms = thread_ms(&s) - before_ms;
    assert!(busy_ms < 200, "{busy_ms} ms");
    assert!(pools["pools"].as_array().is_some_and(|pools| pools.len() > 50), "{pools}");
    drop(nodes);
}

#[tokio::test]
async fn pages_without_a_token_are_limited_for_each_address() {
    let s = Scheduler::with(&[("LIMITS__OPEN_REQUESTS_PER_SECOND", "5")]).await;
    for path in ["/openapi.json", "/docs", "/", "/readyz"] {
        let mut refused = 0;
        for _ in 0..20 {
            let reply = s.get(path).await;
            assert!([200, 429].contains(&reply.status), "{path}: {}", reply.status);
            refused += usize::from(reply.status == 429);
        }
        assert!(refused > 0, "{path}");
    }
    for _ in 0..50 {
        assert_eq!(s.get("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn the_description_is_made_once() {
    let s = Scheduler::with(&[("LIMITS__OPEN_REQUESTS_PER_SECOND", "100000")]).await;
    let seconds = || async { s.metric("process_cpu_seconds_total").await };
    s.get("/openapi.json").await;
    let before = seconds().await;
    for _ in 0..200 {
        assert_eq!(s.get("/openapi.json").await.status, 200);
    }
    let each_ms = (seconds().await - before) * 1_000.0 / 200.0;
    assert!(each_ms < 1.0, "{each_ms} ms of processor time for each request");
}

#[tokio::test]
async fn connections_are_bounded_and_silent_ones_give_way() {
    let s = Scheduler::with(&[("SERVER__CONNECTIONS_MAX", "50")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut silent = vec![];
    for _ in 0..200 {
        silent.push(TcpStream::connect(&s.address).await.expect("the system accepts"));
    }
    // New clients are served, and those that were there stay.
    assert_eq!(s.new_client().get("/healthz").await.status, 200);
    s.dispatch(job_with(json!({}))).await;
    node.work().await;
    assert!(s.metric("lingua_connections{kind=\"client\"}").await <= 50.0);
    assert!(s.metric("lingua_connections_refused_total").await > 100.0);
}

#[tokio::test]
async fn silent_connections_are_cut() {
    let s = Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    let mut silent = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    let mut half = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    half.write_all(b"GET /healthz HTT").await.expect("sent");
    for stream in [&mut silent, &mut half] {
        let mut rest = vec![];
        within(stream.read_to_end(&mut rest)).await.ok();
    }
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised() {
    let script = "ulimit -Sn 512 && exec \"$0\" serve --listen 127.0.0.1:0";
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", script, &binary()]).stderr(std::process::Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a log")).lines();
    while let Some(line) = within(lines.next_line()).await.expect("a readable log") {
        if line.contains("listening") {
            break;
        }
    }
    let pid = child.id().expect("the process runs");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("its limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let mut numbers = line.split_whitespace().skip(3);
    assert_eq!(numbers.next(), numbers.next(), "{line}");
}
