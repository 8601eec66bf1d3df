//! A running scheduler, nodes that count for themselves, and plain HTTP.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Longer than anything should take, on however slow a machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program under test.
pub(crate) fn binary() -> String {
    let built = option_env!("CARGO_BIN_EXE_lingua").map(str::to_owned);
    built
        .or_else(|| std::env::var("LINGUA_BIN").ok())
        .expect("cargo builds the program for its tests")
}

/// A scheduler process; it ends with the test.
pub(crate) struct Scheduler {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Scheduler {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With a configuration file.
    pub(crate) async fn from_file(path: &str) -> Self {
        Self::launch(&["--config", path], &[]).await
    }

    /// With settings from the environment, such as `("SCHEDULER__MAX_RETRY", "0")`.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::launch(&[], settings).await
    }

    async fn launch(args: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        command.stderr(Stdio::piped()).kill_on_drop(true);
        command.env("LINGUA_LOG__FORMAT", "json");
        for (key, value) in settings {
            command.env(format!("LINGUA_{key}"), value);
        }
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines();
        let address = loop {
            let line = within(lines.next_line()).await.expect("readable").expect("it says where");
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if line["fields"]["message"] == "listening" {
                break line["fields"]["address"].as_str().expect("an address").to_owned();
            }
        };
        // Whoever does not read the log of a process ends up stopping it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        request(&self.address, "GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        request(&self.address, "POST", path, &[], &body.to_string()).await
    }

    /// An instance of this name over a shared store, whose death is noticed soon.
    pub(crate) async fn over(url: &str, name: &str) -> Self {
        Self::with(&[
            ("STORE__URL", url),
            ("STORE__TIMEOUT_MS", "500"),
            ("STORE__RECONNECT_MAX_MS", "200"),
            ("INSTANCE__ID", name),
            ("SCHEDULER__LEADER_LEASE_MS", "1500"),
        ])
        .await
    }

    /// Asks until the status is this one.
    pub(crate) async fn until(&self, path: &str, status: u16) -> Value {
        self.until_it(path, |reply| reply.status == status).await.body
    }

    /// Asks until the answer is as it should be.
    pub(crate) async fn until_it(&self, path: &str, fits: impl Fn(&Reply) -> bool) -> Reply {
        let asked = async {
            loop {
                let reply = self.get(path).await;
                if fits(&reply) {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(asked).await
    }

    /// What one of its metrics says.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Kills it as a power cut would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Submits a job that must be accepted and sent.
    pub(crate) async fn dispatch(&self, body: Value) -> (String, String) {
        let reply = self.post("/v1/dispatch/f2f", body).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        let text = |key: &str| reply.body[key].as_str().expect(key).to_owned();
        (text("job_id"), text("node_id"))
    }

    /// Waits for the end of a job.
    pub(crate) async fn ended(&self, job: &str) -> Value {
        let reply = self.get(&format!("/v1/jobs/{job}?wait_ms=15000")).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        let state = reply.body["state"].as_str().expect("a state");
        assert!(["DONE", "FAILED", "CANCELLED"].contains(&state), "{:?}", reply.body);
        reply.body
    }

    pub(crate) async fn used(&self) -> u64 {
        let nodes = self.get("/v1/nodes").await.body;
        nodes["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .map(|n| n["used"].as_u64().unwrap_or(0))
            .sum()
    }

    /// Asks it to stop, as an operator would, and waits for it; gives the exit code.
    pub(crate) async fn terminate(mut self) -> Option<i32> {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill runs");
        assert!(sent.success());
        within(self.child.wait()).await.expect("it ends").code()
    }
}

/// Runs the program to its end; gives exit code, output and errors.
pub(crate) async fn run(args: &[&str], settings: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.envs(settings.iter().copied());
    let output = within(command.output()).await.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Value,
    pub(crate) text: String,
}

/// One request on a connection of its own.
pub(crate) async fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.expect("it reads");
    let mut answer = vec![];
    within(stream.read_to_end(&mut answer)).await.expect("it answers");
    let answer = String::from_utf8(answer).expect("text");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let body = serde_json::from_str(text).unwrap_or(Value::Null);
    Reply { status, head: head.to_ascii_lowercase(), body, text: text.to_owned() }
}

/// A usual job.
pub(crate) fn job() -> Value {
    json!({"session_id": "room-1", "src_lang": "zh", "tgt_lang": "en", "audio_ref": "blob://1"})
}

/// A usual job with other options.
pub(crate) fn job_with(options: Value) -> Value {
    let mut job = job();
    job["options"] = options;
    job
}

/// Opens a WebSocket.
pub(crate) async fn connect(
    url: &str,
    token: Option<&str>,
) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    let mut request = url.into_client_request().expect("a url");
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("a header");
        request.headers_mut().insert("authorization", value);
    }
    // In a box, because it has room for a TLS handshake, too.
    let connecting = Box::pin(tokio_tungstenite::connect_async(request));
    within(connecting).await.expect("it upgrades").0
}

/// A node that the test speaks for.
pub(crate) struct Node {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) hello: Value,
}

impl Node {
    async fn connect(address: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
        connect(&format!("ws://{address}/v1/node/ws"), None).await
    }

    /// Registers with zh and en.
    pub(crate) async fn join(scheduler: &Scheduler, id: &str, slots: u32) -> Self {
        Self::join_at(&scheduler.address, id, slots).await
    }

    /// The same at an address that leads to a scheduler.
    pub(crate) async fn join_at(address: &str, id: &str, slots: u32) -> Self {
        Self::introduce(address, json!({
            "type": "register", "node_id": id, "max_concurrent_jobs": slots,
            "asr_langs": ["zh", "en"], "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"],
        }))
        .await
    }

    pub(crate) async fn join_with(scheduler: &Scheduler, register: Value) -> Self {
        Self::introduce(&scheduler.address, register).await
    }

    async fn introduce(address: &str, register: Value) -> Self {
        let mut node = Self { socket: Self::connect(address).await, hello: Value::Null };
        node.send(register).await;
        node.hello = node.next().await;
        assert_eq!(node.hello["type"], "registered", "{:?}", node.hello);
        node
    }

    /// Connects and says nothing.
    pub(crate) async fn silent(scheduler: &Scheduler) -> Self {
        Self { socket: Self::connect(&scheduler.address).await, hello: Value::Null }
    }

    /// Sends what the other side may refuse to read.
    pub(crate) async fn try_send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.ok();
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.expect("the socket is open");
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.expect("the socket is open");
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.expect("the socket is open");
    }

    /// Sends sound that the other side may refuse to read.
    pub(crate) async fn try_send_bytes(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.ok();
    }

    /// The next message, or null when the socket is closed.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match within(self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).expect("JSON"),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(bytes))) => return json!({"binary": bytes.to_vec()}),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Value::Null,
            }
        }
    }

    /// The next message of this type.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the socket closed before {kind}");
            if message["type"] == kind {
                return message;
            }
        }
    }

    /// Says something about a job that it was given.
    pub(crate) async fn say(&mut self, kind: &str, assign: &Value, more: Value) {
        let mut message = json!({
            "type": kind, "job_id": assign["job_id"], "attempt_id": assign["attempt_id"],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        self.send(message).await;
    }

    /// Does the next job.
    pub(crate) async fn work(&mut self) -> Value {
        let assign = self.expect("job_assign").await;
        self.say("job_ack", &assign, json!({})).await;
        self.say("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
        let confirmed = self.expect("job_confirmed").await;
        assert_eq!(confirmed["accepted"], true, "{confirmed:?}");
        assign
    }

    pub(crate) async fn close(mut self) {
        self.socket.close(None).await.ok();
    }

    /// Goes away without a word, as a crash does.
    pub(crate) fn drop_dead(self) {}

    /// Works by itself from now on, and fails the test if it ever has more jobs than slots.
    pub(crate) fn automatic(self, slots: i64, work: Duration) -> Automatic {
        let (at_once, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        let seen = Arc::clone(&most);
        let life = tokio::spawn(async move {
            let (mut out, mut inward) = self.socket.split();
            let (done, mut finished) = tokio::sync::mpsc::unbounded_channel::<Value>();
            loop {
                tokio::select! {
                    frame = inward.next() => {
                        let Some(Ok(frame)) = frame else { return };
                        let Message::Text(text) = frame else { continue };
                        let message: Value = serde_json::from_str(&text).unwrap_or_default();
                        if message["type"] != "job_assign" { continue }
                        let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                        seen.fetch_max(now, Ordering::SeqCst);
                        let about = json!({"job_id": message["job_id"], "attempt_id": message["attempt_id"]});
                        let mut ack = about.clone();
                        ack["type"] = "job_ack".into();
                        if out.send(Message::text(ack.to_string())).await.is_err() { return }
                        let done = done.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(work).await;
                            done.send(about).ok();
                        });
                    }
                    Some(mut about) = finished.recv() => {
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        about["type"] = "job_done".into();
                        about["result"] = json!({"text_translated": "hello"});
                        if out.send(Message::text(about.to_string())).await.is_err() { return }
                    }
                }
            }
        });
        Automatic { most, slots, life }
    }
}

/// A node that works by itself.
pub(crate) struct Automatic {
    most: Arc<AtomicI64>,
    slots: i64,
    life: tokio::task::JoinHandle<()>,
}

impl Automatic {
    /// Its process dies.
    pub(crate) fn kill(&self) {
        self.life.abort();
    }

    pub(crate) fn check(&self) {
        let most = self.most.load(Ordering::SeqCst);
        assert!(most <= self.slots, "{most} jobs at once in {} slots", self.slots);
        assert!(most > 0, "it was never used");
    }
}
