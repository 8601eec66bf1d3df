//! To a tenant, nothing of another tenant exists.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::callers::{Caller, secret, token};
use crate::json_socket::JsonSocket;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, within};

fn tokens() -> String {
    ["alice", "bob"]
        .map(|tenant| {
            let of = format!("tenant = \"{tenant}\"");
            token(&format!("{tenant}-app"), "client", &of)
                + &token(&format!("{tenant}-gpu"), "node", &of)
                + &token(&format!("{tenant}-eye"), "viewer", &of)
                + &token(&format!("{tenant}-ops"), "admin", &of)
        })
        .concat()
        + &token("eye", "viewer", "")
        + &token("ops", "admin", "")
}

fn secret_node(id: &str) -> Value {
    let mut message = register(id, 2);
    message["accept_public_jobs"] = json!(false);
    message
}

/// Alice's world: a public node, a private node, a job that has ended and one that is open.
struct Alice {
    _public: RawNode,
    _private: RawNode,
    done: String,
    open: String,
}

impl Alice {
    async fn in_world(s: &Scheduler) -> Self {
        let join =
            async |message| RawNode::join_at(&s.address, Some(&secret("alice-gpu")), message).await;
        let mut public = join(register("alice-public", 2)).await;
        let private = join(secret_node("alice-private")).await;
        let app = Caller::new(s, "alice-app");
        let mut body = job();
        body["session_id"] = json!("alice-room");
        let sent = app.post("/v1/dispatch/f2f", body.clone()).await;
        let assign = public.socket.expect("job_assign").await;
        public.ack(&assign).await;
        public.done(&assign, "alice's words").await;
        let done = sent.body["job_id"].as_str().expect("a job").to_owned();
        let ended = app.get(&format!("/v1/jobs/{done}?wait_ms=5000")).await;
        assert_eq!(ended.body["result"]["text_translated"], "alice's words");
        let sent = app.post("/v1/dispatch/f2f", body).await;
        let assign = public.socket.expect("job_assign").await;
        public.ack(&assign).await;
        let open = sent.body["job_id"].as_str().expect("a job").to_owned();
        Self { _public: public, _private: private, done, open }
    }
}

/// What a route must answer to another tenant.
enum Expected {
    /// This status.
    Status(u16),
    /// 200, and nothing of Alice in it.
    NothingOfAlice,
    /// The route has no object of a tenant; another test is about it.
    NoObject,
}

/// Every route of the API, with a request of Bob about something of Alice's, and who sends it. A
/// route that is not here fails the test: say here what other tenants get.
fn walk(route: &str, alice: &Alice) -> Option<(&'static str, String, Value, Expected)> {
    use Expected::{NoObject, NothingOfAlice, Status};
    let (_, path) = route.split_once(' ')?;
    let about = json!({"job_id": alice.open, "attempt_id": 1, "node_id": "alice-public"});
    let job = |id: &str| path.replace("{id}", id);
    let node = |id: &str| path.replace("{id}", id);
    let plain = || path.to_owned();
    let with = |key: &str, value: &str| {
        let mut about = about.clone();
        about[key] = json!(value);
        about
    };
    let none = json!({});
    Some(match route {
        "POST /v1/node/register" => ("bob-gpu", plain(), register("alice-public", 1), Status(403)),
        "POST /v1/node/heartbeat" | "POST /v1/node/offline" => {
            ("bob-gpu", plain(), json!({"node_id": "alice-public"}), Status(403))
        }
        "GET /v1/node/{id}/jobs" => ("bob-gpu", node("alice-public"), none, Status(403)),
        "POST /v1/job/ack" => ("bob-gpu", plain(), about.clone(), Status(403)),
        "POST /v1/job/partial" => ("bob-gpu", plain(), with("text", "forged"), Status(403)),
        "POST /v1/job/done" => ("bob-gpu", plain(), with("status", "ok"), Status(403)),
        "POST /v1/job/fail" => ("bob-gpu", plain(), with("reason", "X"), Status(403)),
        "POST /v1/jobs/{id}/cancel" => ("bob-app", job(&alice.open), none, Status(404)),
        "GET /v1/jobs/{id}" => ("bob-app", job(&alice.done) + "?wait_ms=50", none, Status(404)),
        "GET /v1/jobs" => ("bob-app", plain(), none, NothingOfAlice),
        "GET /v1/usage" => ("bob-app", plain(), none, NothingOfAlice),
        "DELETE /v1/jobs/{id}" => ("bob-app", job(&alice.done), none, Status(404)),
        "DELETE /v1/jobs" => {
            ("bob-app", path.to_owned() + "?session=alice-room", none, NothingOfAlice)
        }
        "GET /v1/pools" => ("bob-app", plain(), none, NothingOfAlice),
        "GET /v1/pools/{pair}" => ("bob-app", path.replace("{pair}", "fr:en"), none, Status(404)),
        "POST /v1/explain" => {
            let body = json!({"src_lang": "fr", "tgt_lang": "en", "options": {"public": false}});
            ("bob-app", plain(), body, NothingOfAlice)
        }
        "GET /v1/nodes" => ("bob-eye", plain(), none, NothingOfAlice),
        "GET /v1/nodes/{id}" => ("bob-eye", node("alice-public"), none, Status(404)),
        "GET /v1/cluster" => ("bob-eye", plain(), none, NothingOfAlice),
        "GET /metrics" => ("bob-eye", plain(), none, Status(403)),
        "POST /v1/nodes/{id}/drain" | "POST /v1/nodes/{id}/resume" => {
            ("bob-ops", node("alice-public"), none, Status(404))
        }
        // New jobs and sessions are the caller's own; sockets and events have tests below.
        "POST /v1/dispatch/f2f"
        | "POST /v1/translate"
        | "GET /v1/events"
        | "GET /v1/me"
        | "GET /v1/node/ws"
        | "GET /v1/session/ws" => ("bob-app", plain(), none, NoObject),
        "GET /" | "GET /healthz" | "GET /readyz" | "GET /openapi.json" => {
            ("bob-app", plain(), none, NoObject)
        }
        _ => return None,
    })
}

#[tokio::test]
async fn no_route_shows_or_changes_what_another_tenant_has() {
    let s = Scheduler::from_toml(&tokens()).await;
    let mut french = secret_node("alice-french");
    french["language_capabilities"] = json!({
        "asr_languages": ["fr"], "semantic_languages": ["fr", "en"], "tts_languages": ["en"],
    });
    let alice = Alice::in_world(&s).await;
    let _french = RawNode::join_at(&s.address, Some(&secret("alice-gpu")), french).await;
    let own = Caller::new(&s, "alice-app");
    within(async { while !own.get("/v1/pools").await.text.contains("fr:en") {} }).await;
    let document = s.get("/openapi.json").await.body;
    let mut walked = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let route = format!("{} {path}", method.to_uppercase());
            let (caller, path, body, expected) = walk(&route, &alice).unwrap_or_else(|| {
                panic!("{route} is new: say in `walk` what another tenant gets from it")
            });
            let send = async || {
                Caller::new(&s, caller).send(&method.to_uppercase(), &path, &body.to_string()).await
            };
            match expected {
                Expected::NoObject => continue,
                Expected::Status(status) => {
                    let reply = send().await;
                    assert_eq!(reply.status, status, "{route}: {}", reply.text);
                    let shown = reply.text.replace("alice-public", "");
                    assert!(!shown.contains("alice"), "{route}: {shown}");
                }
                Expected::NothingOfAlice => {
                    let reply = send().await;
                    assert_eq!(reply.status, 200, "{route}: {}", reply.text);
                    let says = |word: &str| reply.text.contains(word);
                    let public = route == "POST /v1/explain" && says("alice-public");
                    assert!(public || !says("alice-public"), "{route}: {}", reply.text);
                    for word in
                        ["alice-private", "alice-french", "alice-room", &alice.done, "fr:en\""]
                    {
                        let is_asked = route == "POST /v1/explain" && word.starts_with("fr:en");
                        assert!(is_asked || !says(word), "{route}: {word} in {}", reply.text);
                    }
                }
            }
            walked += 1;
        }
    }
    assert!(walked >= 18, "{walked} routes");
    let done = own.get(&format!("/v1/jobs/{}", alice.done)).await;
    assert_eq!(done.body["result"]["text_translated"], "alice's words", "nobody has erased it");
    let open = own.get(&format!("/v1/jobs/{}", alice.open)).await;
    assert_eq!(open.body["state"], "ACKED", "nothing has happened to Alice's job: {}", open.text);
    assert_eq!(own.get("/v1/pools/fr:en").await.status, 200, "her own node is hers to see");
}

#[tokio::test]
async fn a_viewer_sees_jobs_without_what_was_said() {
    let redis = Redis::start().await;
    let config = format!("[store]\nurl = \"{}\"\n{}", redis.url(), tokens());
    let s = Scheduler::from_toml(&config).await;
    let alice = Alice::in_world(&s).await;
    let bob = Caller::new(&s, "bob-app").post("/v1/dispatch/f2f", job_with(json!({}))).await;
    let bobs = bob.body["job_id"].as_str().expect("a job").to_owned();
    let path = format!("/v1/jobs/{}", alice.done);
    for (name, sees_alice, sees_bob, sees_texts) in [
        ("alice-app", true, false, true),
        ("alice-eye", true, false, false),
        ("alice-ops", true, false, true),
        ("bob-app", false, true, true),
        ("bob-ops", false, true, true),
        ("eye", true, true, false),
        ("ops", true, true, true),
    ] {
        let caller = Caller::new(&s, name);
        let shown = caller.get(&path).await;
        assert_eq!(shown.status == 200, sees_alice, "{name}: {}", shown.text);
        let list = caller.get("/v1/jobs").await.text;
        let has = |id: &str| list.contains(id);
        assert_eq!((has(&alice.done), has(&bobs)), (sees_alice, sees_bob), "{name}: {list}");
        let of_session = caller.get("/v1/jobs?session=alice-room").await.text;
        assert_eq!(of_session.contains(&alice.done), sees_alice, "{name}: {of_session}");
        for text in [&shown.text, &list] {
            let says = text.contains("alice's words");
            assert_eq!(says, sees_alice && sees_texts, "{name}: {text}");
        }
    }
}

#[tokio::test]
async fn events_are_of_the_callers_tenant() {
    let s = Scheduler::from_toml(&tokens()).await;
    let mut streams = vec![];
    for name in ["alice-app", "bob-app", "bob-eye", "eye", "ops"] {
        let mut stream = tokio::net::TcpStream::connect(&s.address).await.expect("accepted");
        let token = secret(name);
        let request = format!(
            "GET /v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
            s.address
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut head = [0; 12];
        within(stream.read_exact(&mut head)).await.expect("a reply");
        assert!(head.ends_with(b"200"), "{name}");
        streams.push((name, stream));
    }
    let mut alice = Alice::in_world(&s).await;
    let assign = json!({"job_id": alice.open, "attempt_id": 1});
    alice._public.report("job_partial", &assign, json!({"text": "so far"})).await;
    alice._public.done(&assign, "over").await;
    let own = Caller::new(&s, "alice-app");
    own.get(&format!("/v1/jobs/{}?wait_ms=5000", alice.open)).await;
    // A stream that gets nothing is read until Bob's own job appears.
    let mut bob = RawNode::join_at(&s.address, Some(&secret("bob-gpu")), register("bobs", 1)).await;
    let private = json!({"public": false});
    let sent = Caller::new(&s, "bob-app").post("/v1/dispatch/f2f", job_with(private)).await;
    let bobs = sent.body["job_id"].as_str().expect("a job").to_owned();
    let assign = bob.socket.expect("job_assign").await;
    bob.done(&assign, "bob's words").await;
    for (name, mut stream) in streams {
        let until = if name == "alice-app" { "so far" } else { bobs.as_str() };
        let mut text = String::new();
        while !text.contains(until) || !text.contains("DONE") {
            let mut buffer = [0; 4096];
            let count = within(stream.read(&mut buffer)).await.expect("events");
            text += &String::from_utf8_lossy(&buffer[..count]);
        }
        let sees = |word: &str| text.contains(word);
        let is_bobs = name.starts_with("bob");
        let is_all = name == "eye" || name == "ops";
        assert_eq!(sees(&alice.done), !is_bobs, "{name}: {text}");
        assert_eq!(sees("so far"), !is_bobs && name != "eye", "{name}: {text}");
        assert_eq!(sees("event: node"), is_all, "{name}: {text}");
    }
}

#[tokio::test]
async fn a_session_of_another_tenant_cannot_be_resumed() {
    let s = Scheduler::from_toml(&tokens()).await;
    let url = format!("ws://{}/v1/session/ws", s.address);
    let mut socket = JsonSocket::connect(&url, Some(&secret("alice-app"))).await;
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    socket.send(start).await;
    let started = socket.expect("session_started").await;
    let resume = json!({
        "type": "session_resume", "session_id": started["session_id"],
        "resume_token": started["resume_token"], "last_seq": 0,
    });
    let mut other = JsonSocket::connect(&url, Some(&secret("bob-app"))).await;
    other.send(resume.clone()).await;
    assert_eq!(other.expect("error").await["error"], "SESSION_NOT_FOUND");
    let mut own = JsonSocket::connect(&url, Some(&secret("alice-ops"))).await;
    own.send(resume).await;
    assert_eq!(own.expect("session_started").await["resumed"], true);
}

/// `public` of a tenant is what holds if a job does not say.
#[tokio::test]
async fn a_tenant_may_keep_its_jobs_on_its_own_nodes() {
    let rules = "[[auth.tenants]]\nname = \"alice\"\npublic = false\n";
    let s = Scheduler::from_toml(&(tokens() + rules)).await;
    let _bobs =
        RawNode::join_at(&s.address, Some(&secret("bob-gpu")), register("bob-public", 1)).await;
    let app = Caller::new(&s, "alice-app");
    let kept = app.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
    assert_eq!(kept.error(), (503, "NO_CAPABLE_NODE"), "{}", kept.text);
    let asked = job_with(json!({"wait_ms": 0, "public": true}));
    let given = app.post("/v1/dispatch/f2f", asked).await;
    assert_eq!((given.status, &given.body["node_id"]), (200, &json!("bob-public")));
}
