//! Who may call under which name, through which proxies, and what pages and nodes are given.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::Reply;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job, new_token, within};

async fn as_host(s: &Scheduler, host: &str, path: &str) -> Reply {
    let client = s.new_client();
    client.send("GET", path, &[("host", host)], "").await
}

#[tokio::test]
async fn without_tokens_only_names_of_the_loopback_are_served() {
    let s = Scheduler::from_toml("[server]\nallowed_hosts = [\"lingua.test\"]\n").await;
    for path in ["/v1/nodes", "/v1/jobs", "/", "/docs", "/metrics"] {
        for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"] {
            let reply = as_host(&s, host, path).await;
            assert_eq!(reply.error(), (403, "FORBIDDEN"), "{host} {path}");
            assert!(reply.text.contains("allowed_hosts"), "{}", reply.text);
        }
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:9", "127.1.2.3", "[::1]:7410"] {
            assert_eq!(as_host(&s, host, path).await.status, 200, "{host} {path}");
        }
        assert_eq!(as_host(&s, "lingua.test:80", path).await.status, 200);
    }
    let refused = "lingua_auth_failures_total{reason=\"foreign_host\"}";
    assert_eq!(s.metric(refused).await, 20.0);
}

#[tokio::test]
async fn with_tokens_any_name_is_served() {
    let (token, config) = new_token(&["--role", "admin", "--name", "ops"]).await;
    let s = Scheduler::from_toml(&config).await;
    let headers = [("host", "lingua.example"), ("authorization", &*format!("Bearer {token}"))];
    assert_eq!(s.send("GET", "/v1/nodes", &headers, "").await.status, 200);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_take_the_jobs_of_a_node() {
    let s = Scheduler::start().await;
    let registered = s.post("/v1/node/register", register("n1", 1)).await;
    assert_eq!(registered.status, 200, "{}", registered.body);
    let waiting = s.post("/v1/translate", job());
    let looking = async {
        let path = "/v1/node/n1/jobs?wait_ms=100";
        for header in [
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
            ("Origin", "https://evil.example"),
            ("Host", "evil.example"),
        ] {
            let reply = s.send("GET", path, &[header], "").await;
            assert_eq!(reply.error(), (403, "FORBIDDEN"), "{header:?}");
        }
        let jobs = s.get("/v1/node/n1/jobs?wait_ms=15000").await.body;
        let assign = jobs["jobs"][0].clone();
        let mut done = json!({"node_id": "n1", "status": "ok", "result": {"text_translated": "a"}});
        for key in ["job_id", "attempt_id"] {
            done[key] = assign[key].clone();
        }
        assert_eq!(s.post("/v1/job/done", done).await.status, 200);
    };
    let (translated, ()) = tokio::join!(waiting, looking);
    assert_eq!(translated.body["result"]["text_translated"], "a", "{}", translated.body);
}

#[tokio::test]
async fn pages_cannot_be_framed_and_load_only_what_this_server_sends() {
    let s = Scheduler::start().await;
    for path in ["/", "/docs"] {
        let reply = s.get(path).await;
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(policy.contains("default-src"), "{path}: {policy}");
    }
    for path in ["/", "/docs", "/openapi.json", "/v1/nodes", "/nowhere"] {
        assert_eq!(s.get(path).await.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

/// How many of so many requests with these headers are refused because there are too many.
async fn refused(s: &Scheduler, headers: &[(&str, &str)]) -> usize {
    let mut refused = 0;
    for _ in 0..10 {
        refused += usize::from(s.send("GET", "/v1/nodes", headers, "").await.status == 429);
    }
    refused
}

const LIMITED: &str = "[limits]\nrequests_per_second = 1\nburst = 5\n";

#[tokio::test]
async fn limits_see_the_caller_behind_a_trusted_proxy() {
    let trusting = format!("{LIMITED}[server]\ntrusted_proxies = [\"127.0.0.0/8\"]\n");
    let s = Scheduler::from_toml(&trusting).await;
    assert!(refused(&s, &[("X-Forwarded-For", "203.0.113.1")]).await >= 4);
    assert!(refused(&s, &[("X-Forwarded-For", "203.0.113.2")]).await >= 4, "its own limit");
    // What the caller wrote itself, left of the proxy's word, changes nothing.
    assert_eq!(refused(&s, &[("X-Forwarded-For", "198.51.100.9, 203.0.113.2")]).await, 10);
    let s = Scheduler::from_toml(LIMITED).await;
    assert!(refused(&s, &[("X-Forwarded-For", "203.0.113.1")]).await >= 4);
    assert!(refused(&s, &[("X-Forwarded-For", "203.0.113.2")]).await >= 9, "nobody is believed");
}

async fn proxied(s: &Scheduler, header: &[u8]) -> String {
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    let request = b"GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(&[header, request].concat()).await.expect("sent");
    let mut reply = vec![];
    within(stream.read_to_end(&mut reply)).await.ok();
    String::from_utf8_lossy(&reply).into_owned()
}

#[tokio::test]
async fn the_proxy_protocol_tells_the_caller() {
    let config =
        format!("{LIMITED}[server]\ntrusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true\n");
    let s = Scheduler::from_toml(&config).await;
    let v1 = |n: u8| format!("PROXY TCP4 203.0.113.{n} 127.0.0.1 4711 80\r\n");
    for n in [1, 2] {
        for _ in 0..5 {
            assert!(proxied(&s, v1(n).as_bytes()).await.starts_with("HTTP/1.1 200"), "{n}");
        }
        assert!(proxied(&s, v1(n).as_bytes()).await.starts_with("HTTP/1.1 429"), "{n}");
    }
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    v2.extend([203, 0, 113, 3, 127, 0, 0, 1, 0x12, 0x67, 0, 80]);
    assert!(proxied(&s, &v2).await.starts_with("HTTP/1.1 200"));
    assert_eq!(proxied(&s, b"").await, "", "a proxy has to say for whom it calls");
}

/// The callers that the audit log names, one line for each.
fn audited(log: &std::path::Path) -> Vec<String> {
    let lines = std::fs::read_to_string(log).expect("the log");
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.map(|line: Value| line["remote"].as_str().expect("an address").to_owned()).collect()
}

#[tokio::test]
async fn the_audit_log_names_the_caller_behind_a_proxy() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_, token) = new_token(&["--role", "admin"]).await;
    let start = async |log: &std::path::Path, more: &str| {
        let trusted = "trusted_proxies = [\"127.0.0.0/8\"]";
        let audit = format!("[audit]\nfile = {log:?}\n");
        Scheduler::from_toml(&format!("[server]\n{trusted}\n{more}\n{audit}{token}")).await
    };
    let log = dir.path().join("forwarded.jsonl");
    let s = start(&log, "").await;
    for forwarded in ["203.0.113.1", "198.51.100.9, 203.0.113.2", "2001:db8::7"] {
        let headers = [("X-Forwarded-For", forwarded), ("Authorization", "Bearer guess")];
        assert_eq!(s.send("GET", "/v1/nodes", &headers, "").await.status, 401);
    }
    assert_eq!(audited(&log), ["203.0.113.1", "203.0.113.2", "2001:db8::7"]);

    let log = dir.path().join("proxied.jsonl");
    let s = start(&log, "proxy_protocol = true").await;
    let v1 = "PROXY TCP4 203.0.113.4 127.0.0.1 4711 80\r\n";
    assert!(proxied(&s, v1.as_bytes()).await.starts_with("HTTP/1.1 401"));
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    v2.extend([203, 0, 113, 5, 127, 0, 0, 1, 0x12, 0x67, 0, 80]);
    assert!(proxied(&s, &v2).await.starts_with("HTTP/1.1 401"));
    assert_eq!(audited(&log), ["203.0.113.4", "203.0.113.5"]);

    let log = dir.path().join("direct.jsonl");
    let config = format!("[audit]\nfile = {log:?}\n{token}");
    let s = Scheduler::from_toml(&config).await;
    let headers = [("X-Forwarded-For", "203.0.113.6"), ("Authorization", "Bearer guess")];
    assert_eq!(s.send("GET", "/v1/nodes", &headers, "").await.status, 401);
    assert_eq!(audited(&log), ["127.0.0.1"], "nobody is believed");
}

#[tokio::test]
async fn references_to_audio_are_checked() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let with_ref = |audio_ref: &str| {
        let mut job = job();
        job["audio_ref"] = Value::from(audio_ref);
        job
    };
    for bad in ["file:///etc/passwd", "http://169.254.169.254/latest", "http://localhost/x", "/x"] {
        for path in ["/v1/dispatch/f2f", "/v1/translate"] {
            let reply = s.post(path, with_ref(bad)).await;
            assert_eq!(reply.error(), (400, "INVALID_REQUEST"), "{bad}");
            assert!(reply.text.contains("audio_ref"), "{}", reply.text);
        }
    }
    s.dispatch(with_ref("https://cdn.example.com/a.wav")).await;
    assert_eq!(node.work().await["audio_ref"], "https://cdn.example.com/a.wav");

    let config = "[server]\naudio_ref_schemes = [\"http\"]\naudio_ref_hosts = [\"127.0.0.1\"]\n";
    let s = Scheduler::from_toml(config).await;
    let _node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(with_ref("http://127.0.0.1:9000/a.wav")).await;
    let reply = s.post("/v1/dispatch/f2f", with_ref("http://other/a.wav")).await;
    assert_eq!(reply.error(), (400, "INVALID_REQUEST"));
}

#[tokio::test]
async fn a_small_limit_on_bodies_holds_for_a_request_in_one_packet() {
    let s = Scheduler::with(&[("SERVER__BODY_BYTES_MAX", "2000")]).await;
    let mut long = job();
    long["trace_id"] = Value::from("x".repeat(100));
    long["padding"] = Value::from("x".repeat(3_000));
    let reply = s.post("/v1/dispatch/f2f", long).await;
    assert_eq!(reply.error(), (413, "PAYLOAD_TOO_LARGE"));
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 3_000, "x".repeat(3_000));
    let request = format!(
        "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n\
         Transfer-Encoding: chunked\r\n\r\n{chunk}"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut status = [0; 12];
    within(stream.read_exact(&mut status)).await.expect("a status");
    assert_eq!(&status, b"HTTP/1.1 413");
}

#[tokio::test]
async fn a_slow_caller_of_the_proxy_protocol_is_cut() {
    let config = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true\n\
                  first_message_ms = 300\n";
    let s = Scheduler::from_toml(config).await;
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    stream.write_all(b"PROXY TCP4 ").await.expect("sent");
    let mut rest = vec![];
    let cut = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(cut.is_ok());
}
