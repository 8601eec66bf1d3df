//! A page in a real browser: headless Chromium loads it from another origin than the scheduler's,
//! and it tells this test what it saw.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, new_token, within};

/// The largest request that the page sends.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Calls and speaks, then sends what it saw to its own server.
const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><script>
const seen = {};
const done = () => fetch("/outcome", {method: "POST", body: JSON.stringify(seen)});
const call = async () => {
  const body = {src_lang: "zh-CN", tgt_lang: "en-US", text: "你好"};
  try {
    const answer = await fetch("http://ADDRESS/v1/translate", {
      method: "POST", body: JSON.stringify(body),
      headers: {"Authorization": "Bearer TOKEN", "Content-Type": "application/json"}});
    seen.status = answer.status;
    seen.requestId = answer.headers.get("X-Request-Id");
    seen.job = await answer.json();
  } catch (error) { seen.callFailed = String(error); }
};
const speak = () => new Promise(resolve => {
  const socket = new WebSocket("ws://ADDRESS/v1/session/ws", ["lingua.v1", "lingua.token.TOKEN"]);
  seen.messages = [];
  socket.onopen = () => {
    seen.protocol = socket.protocol;
    socket.send(JSON.stringify({type: "session_start", src_lang: "zh-CN", tgt_lang: "en-US"}));
    socket.send(JSON.stringify({type: "text", text: "你好"}));
  };
  socket.onmessage = event => {
    const message = JSON.parse(event.data);
    seen.messages.push(message);
    if (message.type === "result") socket.close(1000);
  };
  socket.onclose = event => { seen.close = event.code; resolve(); };
});
call().then(speak).then(done);
</script>"#;

/// The server of the page.
struct Origin {
    listener: TcpListener,
    url: String,
}

impl Origin {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        Self { listener, url }
    }

    /// Serves this page from now on; gives what the page sends.
    fn serve(self, page: String) -> mpsc::UnboundedReceiver<Value> {
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = self.listener.accept().await {
                // A browser opens connections that it may never use.
                let (page, tell) = (page.clone(), tell.clone());
                tokio::spawn(async move { answer(stream, &page, &tell).await });
            }
        });
        told
    }
}

/// Answers one request and closes the connection.
async fn answer(mut stream: TcpStream, page: &str, tell: &mpsc::UnboundedSender<Value>) {
    let mut request = vec![];
    let body_at = loop {
        if let Some(at) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read_buf(&mut request).await {
            Ok(1..) if request.len() < REQUEST_BYTES_MAX => {}
            _ => return,
        }
    };
    let head = String::from_utf8_lossy(&request[..body_at]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    while request.len() < body_at + length && request.len() < REQUEST_BYTES_MAX {
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    }
    if head.starts_with("post /outcome") {
        tell.send(serde_json::from_slice(&request[body_at..]).expect("JSON")).ok();
    }
    let (kind, length) = ("Content-Type: text/html", page.len());
    let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n");
    let answer = format!("{head}Connection: close\r\n\r\n{page}");
    stream.write_all(answer.as_bytes()).await.ok();
}

/// A browser that shows this address; it is killed when the test ends.
struct Browser {
    _child: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
        // Without a port to debug it, it would end at once.
        command.arg("--remote-debugging-port=0");
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn().expect("chromium is installed");
        Self { _child: child, _profile: profile }
    }
}

/// What a page of an origin sees of a scheduler that allows this one.
async fn seen_by_page(origin: Origin, allowed: &str) -> Value {
    let (client, client_config) = new_token(&["--role", "client"]).await;
    let (node, node_config) = new_token(&["--role", "node"]).await;
    let config = format!("[server]\nallowed_origins = [{allowed:?}]\n");
    let s = Scheduler::from_toml(&(client_config + &node_config + &config)).await;
    let joined = RawNode::join_at(&s.address, Some(&node), register("n1", 4)).await;
    let _serving = joined.serve(4, Duration::from_millis(1));
    let url = origin.url.clone();
    let page = PAGE.replace("ADDRESS", &s.address).replace("TOKEN", &client);
    let mut told = origin.serve(page);
    let _browser = Browser::open(&url);
    let starts = tokio::time::timeout(Duration::from_secs(120), told.recv());
    starts.await.expect("the browser starts").expect("the page tells")
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_translates_and_speaks() {
    let origin = within(Origin::open()).await;
    let allowed = origin.url.clone();
    let seen = seen_by_page(origin, &allowed).await;
    assert_eq!((&seen["status"], &seen["protocol"]), (&json!(200), &json!("lingua.v1")), "{seen}");
    assert!(seen["requestId"].is_string(), "{seen}");
    let job = &seen["job"];
    assert_eq!((&job["state"], &job["served_as"]), (&json!("DONE"), &json!("zh:en")), "{seen}");
    assert_eq!(job["result"]["text_translated"], "hello", "{seen}");
    let messages = seen["messages"].as_array().expect("messages");
    assert_eq!(messages[0]["type"], "session_started", "{seen}");
    let result = messages.last().expect("a result");
    assert_eq!((&result["type"], &result["seq"]), (&json!("result"), &json!(1)), "{seen}");
    assert_eq!(result["text_translated"], "hello", "{seen}");
    assert_eq!(seen["close"], 1000, "{seen}");
}

#[tokio::test]
async fn a_page_of_another_origin_gets_nothing() {
    let origin = within(Origin::open()).await;
    let seen = seen_by_page(origin, "https://app.example").await;
    assert!(seen["callFailed"].is_string(), "{seen}");
    for nothing in ["status", "job", "protocol"] {
        assert!(seen[nothing].is_null(), "{seen}");
    }
    assert_eq!(seen["messages"], json!([]), "{seen}");
    assert_eq!(seen["close"], 1006, "{seen}");
}
