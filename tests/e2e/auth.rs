//! Tokens, configuration and exit codes.

use serde_json::json;

use crate::revocation::call;
use crate::scheduler::{Scheduler, job, new_token, run, within};
use crate::session::SessionClient;

#[tokio::test]
async fn tokens_open_what_their_role_allows() {
    let mut tokens = vec![];
    let mut file = String::new();
    for role in ["node", "client", "admin"] {
        let (code, config, secret) = run(&["token", "new", "--role", role], &[]).await;
        assert_eq!(code, Some(0));
        tokens.push(secret.lines().last().expect("a token").to_owned());
        file += &config;
    }
    assert!(
        tokens.iter().all(|token| !file.contains(token.as_str())),
        "the file holds only the hash"
    );
    let path = std::env::temp_dir().join(format!("lingua-e2e-{}.toml", std::process::id()));
    std::fs::write(&path, file).expect("a file");
    let s = Scheduler::from_file(path.to_str().expect("a path")).await;
    let body = job().to_string();
    let call = async |token: Option<&String>, method: &str, path: &str| {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            bearer.iter().map(|b| ("Authorization", b.as_str())).collect();
        s.send(method, path, &headers, &body).await
    };
    let [node, client, admin] = &tokens[..] else { panic!("three tokens") };
    assert_eq!(call(None, "GET", "/healthz").await.status, 200, "health needs no token");
    let unknown = call(None, "POST", "/v1/dispatch/f2f").await;
    assert_eq!(unknown.error(), (401, "UNAUTHORIZED"));
    let wrong = call(Some(node), "POST", "/v1/dispatch/f2f").await;
    assert_eq!(wrong.error(), (403, "FORBIDDEN"));
    assert_eq!(
        call(Some(client), "POST", "/v1/dispatch/f2f").await.status,
        503,
        "allowed, but there is no node"
    );
    assert_eq!(call(Some(client), "POST", "/v1/nodes/x/drain").await.status, 403);
    assert_eq!(call(Some(admin), "POST", "/v1/nodes/x/drain").await.status, 404);
    assert_eq!(call(Some(admin), "GET", "/v1/nodes").await.status, 200);
    std::fs::remove_file(path).ok();
}

#[tokio::test]
async fn requests_of_foreign_web_pages_are_refused() {
    let s = Scheduler::with(&[]).await;
    let foreign = [("Origin", "https://evil.example")];
    let reply = s.send("GET", "/v1/nodes", &foreign, "").await;
    assert_eq!(reply.error(), (403, "FORBIDDEN"));
    let own = format!("http://{}", s.address);
    assert_eq!(s.send("GET", "/v1/nodes", &[("Origin", &own)], "").await.status, 200);
}

#[tokio::test]
async fn a_public_address_without_tokens_is_refused() {
    let (code, _, error) = run(&["serve", "--listen", "0.0.0.0:0"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("without tokens") && error.contains("lingua token new"), "{error}");
}

/// Requirements: CONF-01, CONF-08, CONF-10.
#[tokio::test]
async fn exit_codes_distinguish_usage_configuration_and_failure() {
    assert_eq!(run(&["--version"], &[]).await.0, Some(0));
    assert_eq!(run(&["serve", "--frobnicate"], &[]).await.0, Some(2));
    for (key, value) in [
        ("LINGUA_SELECTION__POLICY", "roulette"),
        ("LINGUA_POOLS__SEMANTIC_RULE", "never"),
        ("LINGUA_SERVER__LISTENN", "127.0.0.1:1"),
        ("LINGUA_SCHEDULER__MAX_RETRY", "many"),
    ] {
        let (code, _, error) = run(&["config", "check"], &[(key, value)]).await;
        assert_eq!(code, Some(64), "{key}: {error}");
        assert!(error.starts_with("lingua: bad configuration"), "{error}");
    }
    let mistyped = [("LINGUA_SERVER_LISTEN", "127.0.0.1:1")];
    let (code, _, error) = run(&["config", "check"], &mistyped).await;
    assert_eq!(code, Some(0), "a name without a section is ignored with a warning");
    assert!(error.contains("LINGUA_SERVER__LISTEN"), "{error}");
    let (code, out, _) = run(&["config", "dump"], &[("LINGUA_SCHEDULER__MAX_RETRY", "7")]).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("max_retry = 7") && out.contains("listen = \"127.0.0.1:7410\""), "{out}");
    for url in ["postgres://127.0.0.1", "redis://127.0.0.1:x", "redis+sentinel://127.0.0.1"] {
        let (code, _, error) = run(&["serve", "--store", url], &[]).await;
        assert_eq!(code, Some(64), "{error}");
        assert!(error.contains("store.url"), "{error}");
    }
}

#[tokio::test]
async fn a_client_with_slow_headers_is_disconnected() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let s = Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    let mut streams = vec![];
    for _ in 0..50 {
        let mut stream =
            tokio::net::TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.expect("sent");
        streams.push(stream);
    }
    for mut stream in streams {
        let mut rest = vec![];
        within(stream.read_to_end(&mut rest)).await.ok();
    }
    assert_eq!(s.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn too_many_requests_are_refused_with_the_time_to_wait() {
    let limits = [("LIMITS__REQUESTS_PER_SECOND", "1"), ("LIMITS__BURST", "5")];
    let s = Scheduler::with(&limits).await;
    let mut refused = vec![];
    for _ in 0..20 {
        let reply = s.get("/v1/nodes").await;
        if reply.status != 200 {
            refused.push(reply);
        }
    }
    assert!((1..=15).contains(&refused.len()), "{} of 20", refused.len());
    for reply in &refused {
        assert_eq!(reply.error(), (429, "RATE_LIMITED"));
        let wait_ms = reply.body["retry_after_ms"].as_u64().expect("a time");
        assert!((1..=1000).contains(&wait_ms), "{wait_ms}");
        assert_eq!(reply.header("retry-after"), Some("1"), "{reply:?}");
    }
    assert_eq!(s.get("/healthz").await.status, 200, "health is not limited");
}

#[tokio::test]
async fn each_token_has_a_limit_of_its_own() {
    let mut file = "[limits]\nrequests_per_second = 1\nburst = 3\n".to_owned();
    let mut tokens = vec![];
    for _ in 0..2 {
        let (_, config, secret) = run(&["token", "new", "--role", "admin"], &[]).await;
        tokens.push(format!("Bearer {}", secret.lines().last().expect("a token")));
        file += &config;
    }
    let path = std::env::temp_dir().join(format!("lingua-limits-{}.toml", std::process::id()));
    std::fs::write(&path, file).expect("a file");
    let s = Scheduler::from_file(path.to_str().expect("a path")).await;
    let get = async |token: &str| {
        let headers = [("Authorization", token)];
        s.send("GET", "/v1/nodes", &headers, "").await.status
    };
    // Uses up the burst, even on a slow machine.
    while get(&tokens[0]).await == 200 {}
    assert_eq!(get(&tokens[1]).await, 200, "another token");
    assert_eq!(
        get("Bearer guess").await,
        401,
        "without a valid token the address is limited, which has a burst of its own"
    );
    while get("Bearer guess").await == 401 {}
    assert_eq!(get("Bearer another guess").await, 429, "guessing tokens is limited, too");
    assert_eq!(get(&tokens[1]).await, 200);
    let metrics = s.send("GET", "/metrics", &[("Authorization", &tokens[1])], "").await;
    assert!(metrics.text.contains("lingua_rate_limited_total "), "{}", metrics.text);
    std::fs::remove_file(path).ok();
}

#[tokio::test]
async fn a_caller_is_told_who_it_is_and_what_is_left() {
    let args = ["--role", "client", "--name", "app", "--tenant", "alice"];
    let (client, entry) = new_token(&args).await;
    let (viewer, viewer_entry) = new_token(&["--role", "viewer", "--name", "eye"]).await;
    let limits = "limits = { requests_per_second = 50, sessions = 3, open_jobs = 9 }\n";
    let tenant = "[[auth.tenants]]\nname = \"alice\"\nlimits = { open_jobs = 5 }\n";
    let s = Scheduler::from_toml(&format!("{entry}{limits}{viewer_entry}{tenant}")).await;
    let me = call(&s, &client, "/v1/me").await;
    assert_eq!(me.status, 200, "{me:?}");
    for (limit, value) in [("requests_per_second", 50), ("sessions", 3), ("open_jobs", 5)] {
        assert_eq!(me.body["limits"][limit], value, "{}", me.text);
    }
    assert_eq!((&me.body["name"], &me.body["role"]), (&json!("app"), &json!("client")));
    assert_eq!(me.body["tenant"], "alice");
    for (left, value) in [("requests", 49), ("sessions", 3), ("open_jobs", 5)] {
        assert_eq!(me.body["left"][left], value, "{}", me.text);
    }
    assert_eq!(me.body["left"]["event_streams"], me.body["limits"]["event_streams"]);
    assert_eq!(me.header("ratelimit-limit"), Some("50"));
    assert_eq!(me.header("ratelimit-remaining"), Some("49"));
    assert_eq!(me.header("ratelimit-reset"), Some("1"));
    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let open = SessionClient::open_as(&s.address, start, Some(&client)).await;
    assert_eq!(open.started["type"], "session_started", "{}", open.started);
    assert_eq!(call(&s, &client, "/v1/me").await.body["left"]["sessions"], 2);
    let unlimited = call(&s, &viewer, "/v1/me").await;
    assert_eq!((unlimited.status, unlimited.header("ratelimit-limit")), (200, None));
    assert!(unlimited.body["left"]["requests"].is_null(), "{}", unlimited.text);
    assert_eq!(s.get("/v1/me").await.error(), (401, "UNAUTHORIZED"));
}

#[tokio::test]
async fn a_token_with_a_rate_of_its_own_is_held_to_it() {
    let named = ["--role", "viewer", "--name", "slow"];
    let ((first, entry), (second, other)) = (new_token(&named).await, new_token(&named).await);
    let (fast, fast_entry) = new_token(&["--role", "viewer"]).await;
    let limits = "limits = { requests_per_second = 2 }\n";
    let s = Scheduler::from_toml(&format!("{entry}{limits}{other}{limits}{fast_entry}")).await;
    // Both tokens are those of one caller.
    let refused = within(async {
        loop {
            for token in [&first, &second] {
                let reply = call(&s, token, "/v1/nodes").await;
                if reply.status != 200 {
                    return reply;
                }
            }
        }
    })
    .await;
    assert_eq!(refused.error(), (429, "RATE_LIMITED"));
    assert_eq!(refused.header("ratelimit-remaining"), Some("0"));
    assert_eq!(refused.header("ratelimit-limit"), Some("2"));
    for _ in 0..20 {
        assert_eq!(call(&s, &fast, "/v1/nodes").await.status, 200, "others are not concerned");
    }
}
