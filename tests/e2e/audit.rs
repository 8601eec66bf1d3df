//! The audit log: what administrators did, who was refused.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::callers::{secret, token};
use crate::raw_node::{RawNode, register};
use crate::revocation::{TokensFile, bearer, call};
use crate::scheduler::{Scheduler, job, new_token, run, signal, within};
use crate::session::SessionClient;

/// The tokens file and beside it the audit log.
struct Audited {
    file: TokensFile,
    s: Scheduler,
}

impl Audited {
    async fn new(tokens: &str) -> Self {
        let file = TokensFile::new(tokens);
        let (path, log) = (file.path(), file.path().with_file_name("audit.jsonl"));
        let s = Scheduler::with(&[
            ("AUTH__TOKENS_FILE", path.to_str().expect("a path")),
            ("AUDIT__FILE", log.to_str().expect("a path")),
        ])
        .await;
        Self { file, s }
    }

    fn log(&self) -> std::path::PathBuf {
        self.file.path().with_file_name("audit.jsonl")
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.log()).expect("the log");
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    fn lines_of(&self, action: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["action"] == action).collect()
    }

    async fn post(&self, token: &str, path: &str, body: Value) -> u16 {
        let headers = [("Authorization", &*bearer(token))];
        self.s.send("POST", path, &headers, &body.to_string()).await.status
    }
}

#[tokio::test]
async fn what_an_admin_does_is_recorded() {
    let (admin, admin_entry) = new_token(&["--role", "admin", "--name", "ops"]).await;
    let (client, client_entry) =
        new_token(&["--role", "client", "--name", "app", "--tenant", "alice"]).await;
    let a = Audited::new(&format!("{admin_entry}{client_entry}")).await;
    let mut node = RawNode::join_at(&a.s.address, Some(&admin), register("n1", 2)).await;
    assert_eq!(a.post(&admin, "/v1/nodes/n1/drain", json!({})).await, 200);
    assert_eq!(a.post(&admin, "/v1/nodes/n1/resume", json!({})).await, 200);
    assert_eq!(a.post(&admin, "/v1/nodes/nobody/drain", json!({})).await, 404);
    let dispatched = {
        let headers = [("Authorization", &*bearer(&client))];
        a.s.send("POST", "/v1/dispatch/f2f", &headers, &job().to_string()).await
    };
    let id = dispatched.body["job_id"].as_str().expect("a job").to_owned();
    node.expect("job_assign").await;
    assert_eq!(a.post(&client, &format!("/v1/jobs/{id}/cancel"), json!({})).await, 200);
    assert_eq!(a.lines_of("cancel"), Vec::<Value>::new(), "a client's own job");
    a.post(&admin, &format!("/v1/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(a.post(&admin, "/v1/node/offline", json!({"node_id": "n1"})).await, 200);

    let drains = a.lines_of("drain");
    let expected = [("n1", "ok"), ("nobody", "NODE_NOT_FOUND")];
    assert_eq!(drains.len(), expected.len(), "{drains:?}");
    for (line, (object, outcome)) in drains.iter().zip(expected) {
        assert_eq!((&line["object"], &line["outcome"]), (&json!(object), &json!(outcome)));
        assert_eq!((&line["actor"], &line["remote"]), (&json!("ops"), &json!("127.0.0.1")));
        assert!(line["ts"].as_u64().expect("a time") > 1_700_000_000_000, "{line}");
        assert!(line.get("tenant").is_some(), "{line}");
    }
    assert_eq!(a.lines_of("resume").len(), 1);
    assert_eq!(a.lines_of("cancel")[0]["object"], *id);
    assert_eq!(a.lines_of("offline")[0]["object"], "n1");
    let mode = std::fs::metadata(a.log()).expect("the log").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn refusals_of_one_caller_are_counted_together() {
    let (client, entry) =
        new_token(&["--role", "client", "--name", "app", "--tenant", "alice"]).await;
    let (admin, admin_entry) = new_token(&["--role", "admin", "--name", "ops"]).await;
    let a = Audited::new(&format!("{entry}{admin_entry}")).await;
    for n in 0..50 {
        assert_eq!(a.post(&client, &format!("/v1/nodes/n{n}/drain"), json!({})).await, 403);
        assert_eq!(call(&a.s, "guess", "/v1/nodes").await.status, 401);
    }
    let origin = [("Authorization", &*bearer(&admin)), ("Origin", "https://evil.example")];
    assert_eq!(a.s.send("GET", "/v1/nodes", &origin, "").await.status, 403);
    let lines = a.lines();
    let of = |actor: &str| lines.iter().filter(|line| line["actor"] == actor).collect::<Vec<_>>();
    let [wrong_role] = of("app")[..] else { panic!("one line for all: {lines:?}") };
    assert_eq!(wrong_role["action"], "POST /v1/nodes/{id}/drain");
    assert_eq!(
        (&wrong_role["object"], &wrong_role["tenant"]),
        (&json!("/v1/nodes/n0/drain"), &json!("alice"))
    );
    assert_eq!(wrong_role["outcome"], "FORBIDDEN");
    let [unknown] = of("unknown")[..] else { panic!("one line for all: {lines:?}") };
    assert_eq!(
        (&unknown["outcome"], &unknown["remote"]),
        (&json!("UNAUTHORIZED"), &json!("127.0.0.1"))
    );
    assert_eq!(of("ops").len(), 1, "a page of another origin");
    within(async {
        while a.lines().iter().filter(|line| line["count"] == 49).count() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    let metrics = call(&a.s, &admin, "/metrics").await.text;
    for expected in [r#"wrong_role"} 50"#, r#"unknown_token"} 50"#, r#"foreign_origin"} 1"#] {
        let expected = format!(r#"lingua_auth_failures_total{{reason="{expected}"#);
        assert!(metrics.contains(&expected), "{expected}: {metrics}");
    }
}

#[tokio::test]
async fn refusals_on_open_sockets_are_recorded() {
    let key = "0123456789abcdef0123456789abcdef";
    let nodes = [token("red", "node", ""), token("blue", "node", "nodes = [\"blue-*\"]")].concat();
    let a = Audited::new(&nodes).await;
    let path = a.file.add("alice.key", key, 0o600);
    a.file.write(&format!("{nodes}[[auth.keys]]\nid = \"k\"\nsecret_file = {path:?}\n"));
    signal(&a.s.child, "HUP").await;
    within(async {
        while a.lines_of("reload").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut red = RawNode::join_at(&a.s.address, Some(&secret("red")), register("blue-1", 1)).await;
    // An id that the token may not have, and one that belongs to another token.
    for (id, outcome) in [("red-1", "FORBIDDEN"), ("blue-1", "NODE_ID_TAKEN")] {
        let mut blue = RawNode::connect(&a.s.address, Some(&secret("blue"))).await;
        blue.send(register(id, 1)).await;
        assert_eq!(blue.expect("error").await["error"], outcome);
        let lines = a.lines_of("register on a socket");
        let line = lines.last().expect("a line");
        assert_eq!((&line["actor"], &line["object"]), (&json!("blue"), &json!(id)));
        assert_eq!((&line["outcome"], &line["remote"]), (&json!(outcome), &json!("127.0.0.1")));
    }
    red.send(json!({"type": "heartbeat", "node_id": "other"})).await;
    red.expect("error").await;
    assert_eq!(a.lines_of("speak for another node")[0]["object"], "other");

    let args = ["grant", "new", "--key-id", "k", "--ttl", "10m", "--key-file", &path];
    let args = [&args[..], &["--sub", "ann", "--langs", "zh:en"]].concat();
    let grant = run(&args, &[]).await.1.trim().to_owned();
    let start = json!({"type": "session_start", "src_lang": "en", "tgt_lang": "zh"});
    let refused = SessionClient::open_as(&a.s.address, start, Some(&grant)).await;
    assert_eq!(refused.started["error"], "FORBIDDEN", "{}", refused.started);
    let line = &a.lines_of("open a session")[0];
    assert_eq!((&line["actor"], &line["outcome"]), (&json!("k/ann"), &json!("FORBIDDEN")));
}

#[tokio::test]
async fn the_log_is_opened_again_on_sighup_and_has_reloads() {
    let (admin, entry) = new_token(&["--role", "admin", "--name", "ops"]).await;
    let a = Audited::new(&entry).await;
    a.post(&admin, "/v1/nodes/first/drain", json!({})).await;
    let moved = a.log().with_extension("1");
    std::fs::rename(a.log(), &moved).expect("moved");
    signal(&a.s.child, "HUP").await;
    within(async {
        while !a.log().exists() || a.lines_of("reload").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let reload = &a.lines_of("reload")[0];
    assert_eq!((&reload["actor"], &reload["outcome"]), (&json!("lingua"), &json!("ok")));
    a.post(&admin, "/v1/nodes/second/drain", json!({})).await;
    assert_eq!(a.lines_of("drain")[0]["object"], "second");
    let before = std::fs::read_to_string(moved).expect("the old log");
    assert!(before.contains("first") && !before.contains("second"), "{before}");
    a.file.write("not TOML");
    within(async {
        while a.lines_of("reload").len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(a.lines_of("reload")[1]["outcome"].as_str().expect("text").contains("line 1"));
}

/// The caller is told that there is no such thing; the operator learns that there is.
#[tokio::test]
async fn a_reach_for_what_another_tenant_has_is_recorded_and_counted() {
    let bobs = ["show", "wait", "cancel", "erase", "resume"];
    let bobs = bobs.map(|name| token(name, "client", "tenant = \"bob\"")).concat();
    let alice = token("app", "client", "tenant = \"alice\"");
    let node = token("gpu", "node", "tenant = \"alice\"");
    let others = token("drain", "admin", "tenant = \"bob\"")
        + &token("look", "viewer", "tenant = \"bob\"")
        + &token("ops", "admin", "");
    let a = Audited::new(&[bobs, alice, node, others].concat()).await;
    let mut gpu = RawNode::join_at(&a.s.address, Some(&secret("gpu")), register("n1", 2)).await;
    let send = async |name: &str, method: &str, path: &str, body: &Value| {
        let headers = [("Authorization", &*bearer(&secret(name)))];
        a.s.send(method, path, &headers, &body.to_string()).await
    };
    let dispatched = send("app", "POST", "/v1/dispatch/f2f", &job()).await;
    let id = dispatched.body["job_id"].as_str().expect("a job").to_owned();
    let assign = gpu.expect("job_assign").await;
    gpu.ack(&assign).await;
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let session = SessionClient::open_as(&a.s.address, start, Some(&secret("app"))).await.started;
    let at = format!("/v1/jobs/{id}");
    let unknown = "/v1/jobs/job-00000000000000000000000000000001";
    let tries = [
        ("show", "GET", at.clone(), "GET /v1/jobs/{id}", &*at),
        ("wait", "GET", format!("{at}?wait_ms=50"), "GET /v1/jobs/{id}", &*at),
        ("cancel", "POST", format!("{at}/cancel"), "POST /v1/jobs/{id}/cancel", ""),
        ("erase", "DELETE", at.clone(), "erase", &*id),
        ("drain", "POST", "/v1/nodes/n1/drain".to_owned(), "POST /v1/nodes/{id}/drain", ""),
        ("look", "GET", "/v1/nodes/n1".to_owned(), "GET /v1/nodes/{id}", "/v1/nodes/n1"),
    ];
    for (name, method, path, action, object) in &tries {
        // What nobody has leaves no line.
        let nobody = path.replace(&at, unknown).replace("n1", "nobody");
        let reply = send(name, method, &nobody, &json!({})).await;
        assert_eq!(reply.status, 404, "{name}: {}", reply.text);
        let of = |line: &&Value| line["actor"] == **name && line["outcome"] == "other_tenant";
        assert_eq!(a.lines().iter().filter(of).count(), 0, "{name}");
        let foreign = send(name, method, path, &json!({})).await;
        assert_eq!(foreign.status, 404, "{name}: {}", foreign.text);
        assert_eq!(foreign.body["error"], reply.body["error"], "{name}: the same answer");
        let lines = a.lines();
        let [line] = lines.iter().filter(of).collect::<Vec<_>>()[..] else {
            panic!("one line for {name}: {lines:?}")
        };
        assert_eq!((&line["action"], &line["tenant"]), (&json!(action), &json!("bob")), "{line}");
        assert!(line["object"].as_str().is_some_and(|shown| shown.contains(object)), "{line}");
    }
    let resume = json!({
        "type": "session_resume", "session_id": session["session_id"],
        "resume_token": session["resume_token"], "last_seq": 0,
    });
    let refused = SessionClient::open_as(&a.s.address, resume, Some(&secret("resume"))).await;
    assert_eq!(refused.started["error"], "SESSION_NOT_FOUND", "{}", refused.started);
    let line = &a.lines_of("open a session")[0];
    let told = (&line["actor"], &line["object"], &line["outcome"]);
    assert_eq!(told, (&json!("resume"), &session["session_id"], &json!("other_tenant")));
    assert_eq!(send("app", "GET", &at, &json!({})).await.body["state"], "ACKED", "undisturbed");
    let metrics = call(&a.s, &secret("ops"), "/metrics").await.text;
    let counted = r#"lingua_auth_failures_total{reason="other_tenant"} 7"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn refusals_are_counted_by_the_right_that_was_missing() {
    let nodes = token("red", "node", "")
        + &token("blue", "node", "nodes = [\"blue-*\"]\nnodes_max = 1")
        + &token("eye", "viewer", "tenant = \"bob\"")
        + &token("app", "client", "tenant = \"bob\"")
        + &token("ops", "admin", "");
    let a = Audited::new(&nodes).await;
    let register_as = async |name: &str, id: &str| {
        a.post(&secret(name), "/v1/node/register", register(id, 1)).await
    };
    assert_eq!(register_as("red", "blue-9").await, 200);
    assert_eq!(register_as("blue", "blue-1").await, 200);
    for (name, id) in [("blue", "blue-9"), ("blue", "red-1"), ("blue", "blue-2")] {
        assert_eq!(register_as(name, id).await, 403, "{id}");
    }
    let headers = [("Authorization", &*bearer(&secret("eye")))];
    let erase = a.s.send("DELETE", "/v1/jobs?session=%E2%80%AEx%C2%9B", &headers, "").await;
    assert_eq!(erase.status, 403, "{}", erase.text);
    assert_eq!(call(&a.s, &secret("app"), "/v1/usage?tenant=alice").await.status, 403);
    assert_eq!(call(&a.s, &secret("eye"), "/metrics").await.status, 403);
    let metrics = call(&a.s, &secret("ops"), "/metrics").await.text;
    for expected in [
        r#"other_owner"} 1"#,
        r#"node_pattern"} 1"#,
        r#"nodes_max"} 1"#,
        r#"wrong_role"} 1"#,
        r#"tenant_only"} 2"#,
        r#"grant_langs"} 0"#,
    ] {
        let expected = format!(r#"lingua_auth_failures_total{{reason="{expected}"#);
        assert!(metrics.contains(&expected), "{expected}: {metrics}");
    }
    // What would change the text around it is not written.
    let erased = &a.lines_of("erase")[0];
    assert_eq!(erased["object"], "session \u{fffd}x\u{fffd}", "{erased}");
}
