//! Tokens that change while the program runs: revoked, expired, replaced.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http::Reply;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, new_token, run, signal, within};
use crate::session::SessionClient;

/// `auth.tokens_file`, and schedulers that read it.
pub(crate) struct TokensFile {
    dir: tempfile::TempDir,
}

impl TokensFile {
    pub(crate) fn new(content: &str) -> Self {
        let file = Self { dir: tempfile::tempdir().expect("a directory") };
        file.write(content);
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("tokens.toml")
    }

    /// Replaces the file as a careful program does.
    pub(crate) fn write(&self, content: &str) {
        self.add("tokens.toml", content, 0o600);
    }

    /// Puts another file beside it, or replaces that; gives its path.
    pub(crate) fn add(&self, name: &str, content: &str, mode: u32) -> String {
        let (new, path) = (self.dir.path().join("new"), self.dir.path().join(name));
        std::fs::write(&new, content).expect("written");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&new, permissions).expect("permissions");
        std::fs::rename(new, &path).expect("renamed");
        path.to_str().expect("a path").to_owned()
    }

    pub(crate) async fn scheduler(&self) -> Scheduler {
        let path = self.path();
        Scheduler::with(&[("AUTH__TOKENS_FILE", path.to_str().expect("a path"))]).await
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(crate) async fn call(s: &Scheduler, token: &str, path: &str) -> Reply {
    s.send("GET", path, &[("Authorization", &bearer(token))], "").await
}

fn start() -> Value {
    json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"})
}

/// Opens an event stream and leaves its body unread.
async fn event_stream(s: &Scheduler, token: &str) -> Response<Incoming> {
    let stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, io) = handshake.expect("HTTP/1.1");
    tokio::spawn(io);
    let request = Request::get("/v1/events")
        .header("host", &s.address)
        .header("authorization", bearer(token))
        .body(Empty::<Bytes>::new());
    let response = within(sender.send_request(request.expect("a request"))).await.expect("opened");
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test]
async fn a_revoked_token_ends_what_it_has_open_at_every_instance() {
    let (node, node_entry) = new_token(&["--role", "node", "--name", "fleet"]).await;
    let (client, client_entry) = new_token(&["--role", "client", "--name", "app"]).await;
    let (admin, admin_entry) = new_token(&["--role", "admin"]).await;
    let file = TokensFile::new(&format!("{node_entry}{client_entry}{admin_entry}"));
    let schedulers = [file.scheduler().await, file.scheduler().await];
    let mut open = vec![];
    for s in &schedulers {
        let connected = RawNode::join_at(&s.address, Some(&node), register("n1", 1)).await;
        let session = SessionClient::open_as(&s.address, start(), Some(&client)).await;
        let poller = s
            .send(
                "POST",
                "/v1/node/register",
                &[("Authorization", &bearer(&node))],
                &register("poller", 1).to_string(),
            )
            .await;
        assert_eq!(poller.status, 200, "{}", poller.text);
        let events = event_stream(s, &client).await;
        let kept = event_stream(s, &admin).await;
        open.push((s, connected, session, events, kept));
    }
    let polls = schedulers.iter().map(|s| call(s, &node, "/v1/node/poller/jobs?wait_ms=60000"));
    let revoke = async {
        // Two event streams, the poll, and this request.
        for s in &schedulers {
            let polled = async || call(s, &admin, "/metrics").await.text;
            let open = r#"lingua_connections{kind="client"} 4"#;
            within(async { while !polled().await.contains(open) {} }).await;
        }
        file.write(&admin_entry);
    };
    let (polled, ()) = tokio::join!(futures_util::future::join_all(polls), revoke);
    for reply in polled {
        assert_eq!(reply.error(), (401, "UNAUTHORIZED"), "{reply:?}");
        assert!(reply.text.contains("revoked"), "the open poll was ended: {reply:?}");
    }
    for (s, mut connected, mut session, events, kept) in open {
        assert_eq!(connected.close_code().await, Some(1008));
        assert_eq!(session.close_code().await, Some(1008));
        within(events.into_body().collect()).await.expect("the stream ends");
        assert_eq!(call(s, &client, "/v1/jobs").await.error(), (401, "UNAUTHORIZED"));
        assert_eq!(call(s, &admin, "/v1/jobs").await.status, 200);
        let metrics = call(s, &admin, "/metrics").await.text;
        assert!(metrics.contains(r#"reason="revoked_token"} 4"#), "{metrics}");
        drop(kept);
    }
}

/// The promise is a second. The machine may be busy once, but not three times.
#[tokio::test]
async fn what_a_revoked_token_has_open_ends_within_a_second_of_the_change() {
    const PROMISED: Duration = Duration::from_secs(1);
    let (node, node_entry) = new_token(&["--role", "node", "--name", "fleet"]).await;
    let (client, client_entry) = new_token(&["--role", "client", "--name", "app"]).await;
    let (_, admin_entry) = new_token(&["--role", "admin"]).await;
    let all = format!("{node_entry}{client_entry}{admin_entry}");
    let file = TokensFile::new(&all);
    let schedulers = [file.scheduler().await, file.scheduler().await];
    let mut took = vec![];
    for _ in 0..3 {
        let mut open = vec![];
        for s in &schedulers {
            let connected = RawNode::join_at(&s.address, Some(&node), register("n1", 1)).await;
            let session = SessionClient::open_as(&s.address, start(), Some(&client)).await;
            assert_eq!(session.started["type"], "session_started", "{}", session.started);
            open.push((connected, session, event_stream(s, &client).await));
        }
        file.write(&admin_entry);
        let changed = Instant::now();
        let ended = open.into_iter().map(async |(mut connected, mut session, events)| {
            let (node, client) = tokio::join!(connected.close_code(), session.close_code());
            assert_eq!((node, client), (Some(1008), Some(1008)));
            within(events.into_body().collect()).await.expect("the stream ends");
        });
        futures_util::future::join_all(ended).await;
        took.push(changed.elapsed());
        if took.iter().any(|took| *took < PROMISED) {
            return;
        }
        file.write(&all);
        for s in &schedulers {
            within(async { while call(s, &client, "/v1/jobs").await.status != 200 {} }).await;
        }
    }
    panic!("sockets and streams ended late: {took:?}");
}

#[tokio::test]
async fn a_token_that_expires_ends_its_socket() {
    let expires = jiff::Timestamp::now() + std::time::Duration::from_secs(3);
    let args = ["--role", "client", "--expires", &expires.to_string()];
    let (short, entry) = new_token(&args).await;
    let s = Scheduler::from_toml(&entry).await;
    let mut session = SessionClient::open_as(&s.address, start(), Some(&short)).await;
    assert_eq!(session.started["type"], "session_started", "{}", session.started);
    let last = session.expect("error").await;
    assert_eq!((&last["error"], &last["fatal"]), (&json!("UNAUTHORIZED"), &json!(true)));
    assert!(last["detail"].as_str().expect("a text").contains("expired"), "{last}");
    assert_eq!(session.close_code().await, Some(1008));
    let refused = call(&s, &short, "/v1/jobs").await;
    assert_eq!(refused.error(), (401, "UNAUTHORIZED"));
    assert!(refused.text.contains("expired"), "{refused:?}");
}

#[tokio::test]
async fn a_caller_has_two_tokens_while_one_replaces_the_other() {
    let named = ["--role", "client", "--name", "app"];
    let ((old, old_entry), (new, new_entry)) = (new_token(&named).await, new_token(&named).await);
    let file = TokensFile::new(&old_entry);
    let s = file.scheduler().await;
    assert_eq!(call(&s, &new, "/v1/jobs").await.status, 401);
    let mut session = SessionClient::open_as(&s.address, start(), Some(&old)).await;
    file.write(&format!("{old_entry}{new_entry}"));
    within(async { while call(&s, &new, "/v1/jobs").await.status != 200 {} }).await;
    assert_eq!(call(&s, &old, "/v1/jobs").await.status, 200);
    session.send(json!({"type": "nonsense"})).await;
    assert_eq!(session.next().await["fatal"], false, "the session goes on");
    file.write(&new_entry);
    within(async { while call(&s, &old, "/v1/jobs").await.status != 401 {} }).await;
    assert_eq!(call(&s, &new, "/v1/jobs").await.status, 200);
    assert_eq!(session.close_code().await, Some(1008));
}

#[tokio::test]
async fn a_bad_file_of_tokens_changes_nothing() {
    let (token, entry) = new_token(&["--role", "admin"]).await;
    let file = TokensFile::new(&entry);
    let s = file.scheduler().await;
    let refused = "tokens not reloaded; those of before stay in force";
    for (count, bad) in ["[[auth.tokens]]\nname = 1", "[server]", "\u{0}"].into_iter().enumerate() {
        file.write(bad);
        let logged = || s.log_lines(&[("message", refused)]).len();
        within(async {
            while logged() <= count {
                assert_eq!(call(&s, &token, "/v1/nodes").await.status, 200);
            }
        })
        .await;
    }
    assert_eq!(call(&s, &token, "/v1/nodes").await.status, 200);
    signal(&s.child, "HUP").await;
    within(async {
        while s.log_lines(&[("message", refused)]).len() < 4 {
            assert_eq!(call(&s, &token, "/v1/nodes").await.status, 200);
        }
    })
    .await;
    file.write("");
    within(async { while call(&s, &token, "/v1/nodes").await.status != 401 {} }).await;
    let nobody = s.get("/v1/nodes").await;
    assert_eq!(nobody.error(), (401, "UNAUTHORIZED"), "without tokens nobody may call");
    file.write(&entry);
    within(async { while call(&s, &token, "/v1/nodes").await.status != 200 {} }).await;
    let path = file.path();
    std::fs::remove_file(&path).expect("removed");
    let (code, _, error) =
        run(&["config", "check"], &[("LINGUA_AUTH__TOKENS_FILE", path.to_str().expect("a path"))])
            .await;
    assert_eq!(code, Some(64), "{error}");
}
