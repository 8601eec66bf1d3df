//! Tokens, configuration and exit codes.

use serde_json::json;

use crate::world::{Scheduler, job, request, run, within};

#[tokio::test]
async fn tokens_open_what_their_role_allows() {
    let mut tokens = vec![];
    let mut file = String::new();
    for role in ["node", "client", "admin"] {
        let (code, token, config) = run(&["token", "new", "--role", role], &[]).await;
        assert_eq!(code, Some(0));
        tokens.push(token.trim().to_owned());
        file += &config[config.find("[[auth").expect("what to put into the file")..];
    }
    assert!(tokens.iter().all(|token| !file.contains(token.as_str())), "only the hash is kept");
    let path = std::env::temp_dir().join(format!("lingua-e2e-{}.toml", std::process::id()));
    std::fs::write(&path, file).expect("a file");
    let s = Scheduler::from_file(path.to_str().expect("a path")).await;
    let body = job().to_string();
    let call = async |token: Option<&String>, method: &str, path: &str| {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            bearer.iter().map(|b| ("Authorization", b.as_str())).collect();
        request(&s.address, method, path, &headers, &body).await
    };
    let [node, client, admin] = &tokens[..] else { panic!("three tokens") };
    assert_eq!(call(None, "GET", "/healthz").await.status, 200, "everybody may ask for its health");
    let unknown = call(None, "POST", "/v1/dispatch/f2f").await;
    assert_eq!((unknown.status, &unknown.body["error"]), (401, &json!("UNAUTHORIZED")));
    let wrong = call(Some(node), "POST", "/v1/dispatch/f2f").await;
    assert_eq!((wrong.status, &wrong.body["error"]), (403, &json!("FORBIDDEN")));
    assert_eq!(
        call(Some(client), "POST", "/v1/dispatch/f2f").await.status,
        503,
        "let in; no node is there"
    );
    assert_eq!(call(Some(client), "POST", "/v1/nodes/x/drain").await.status, 403);
    assert_eq!(call(Some(admin), "POST", "/v1/nodes/x/drain").await.status, 404);
    assert_eq!(call(Some(admin), "GET", "/v1/nodes").await.status, 200);
    std::fs::remove_file(path).ok();
}

#[tokio::test]
async fn strange_pages_may_not_call() {
    let s = Scheduler::with(&[]).await;
    let evil = [("Origin", "https://evil.example")];
    let reply = request(&s.address, "GET", "/v1/nodes", &evil, "").await;
    assert_eq!((reply.status, &reply.body["error"]), (403, &json!("FORBIDDEN")));
    let own = format!("http://{}", s.address);
    assert_eq!(request(&s.address, "GET", "/v1/nodes", &[("Origin", &own)], "").await.status, 200);
}

#[tokio::test]
async fn it_refuses_to_be_open_to_everybody_by_accident() {
    let (code, _, error) = run(&["serve", "--listen", "0.0.0.0:0"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("without tokens") && error.contains("lingua token new"), "{error}");
}

#[tokio::test]
async fn exit_codes_tell_usage_from_configuration_from_failure() {
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
    assert_eq!(code, Some(0), "no section, no setting: ignored, and said so");
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
async fn slow_headers_are_hung_up_on() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let s = Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    let mut streams = vec![];
    for _ in 0..50 {
        let mut stream = tokio::net::TcpStream::connect(&s.address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.expect("it reads");
        streams.push(stream);
    }
    for mut stream in streams {
        let mut rest = vec![];
        within(stream.read_to_end(&mut rest)).await.ok();
    }
    assert_eq!(s.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_back() {
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
        assert_eq!((reply.status, &reply.body["error"]), (429, &json!("RATE_LIMITED")));
        let wait_ms = reply.body["retry_after_ms"].as_u64().expect("a time");
        assert!((1..=1000).contains(&wait_ms), "{wait_ms}");
        assert!(reply.head.contains("retry-after: 1"), "{}", reply.head);
    }
    assert_eq!(s.get("/healthz").await.status, 200, "whether it lives may always be asked");
}

#[tokio::test]
async fn each_token_has_a_limit_of_its_own() {
    let mut file = "[limits]\nrequests_per_second = 1\nburst = 3\n".to_owned();
    let mut tokens = vec![];
    for _ in 0..2 {
        let (_, token, config) = run(&["token", "new", "--role", "admin"], &[]).await;
        tokens.push(format!("Bearer {}", token.trim()));
        file += &config[config.find("[[auth").expect("what to put into the file")..];
    }
    let path = std::env::temp_dir().join(format!("lingua-limits-{}.toml", std::process::id()));
    std::fs::write(&path, file).expect("a file");
    let s = Scheduler::from_file(path.to_str().expect("a path")).await;
    let ask = async |token: &str| {
        let headers = [("Authorization", token)];
        request(&s.address, "GET", "/v1/nodes", &headers, "").await.status
    };
    // More than it gets back while it asks, on however slow a machine.
    while ask(&tokens[0]).await == 200 {}
    assert_eq!(ask(&tokens[1]).await, 200, "another token");
    assert_eq!(ask("Bearer guess").await, 401, "no token: by address, and that has asked little");
    while ask("Bearer guess").await == 401 {}
    assert_eq!(ask("Bearer another guess").await, 429, "guessing is limited, too");
    assert_eq!(ask(&tokens[1]).await, 200);
    let metrics =
        request(&s.address, "GET", "/metrics", &[("Authorization", &tokens[1])], "").await;
    assert!(metrics.text.contains("lingua_rate_limited_total "), "{}", metrics.text);
    std::fs::remove_file(path).ok();
}
