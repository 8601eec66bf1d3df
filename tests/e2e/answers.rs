//! Every answer of the API has one form, whatever was wrong with the request.

use crate::http::Reply;
use crate::scheduler::{Scheduler, new_token};

fn check_error(reply: &Reply, status: u16, what: &str) {
    assert_eq!(reply.status, status, "{what}: {}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/json"), "{what}: {}", reply.text);
    let code = reply.body["error"].as_str().unwrap_or_default();
    assert!(!code.is_empty(), "{what}: no code in {}", reply.text);
    let detail = reply.body["detail"].as_str().unwrap_or_default();
    assert!(detail.len() > 10, "{what}: no detail in {}", reply.text);
    assert!(reply.text.ends_with("}\n"), "{what}: {:?}", reply.text);
}

#[tokio::test]
async fn every_error_is_json_with_a_code_and_a_detail() {
    let s = Scheduler::start().await;
    let document = s.get("/openapi.json").await.body;
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, methods) in paths.iter().filter(|(path, _)| path.starts_with("/v1/")) {
        let methods = methods.as_object().expect("methods");
        let wrong = if methods.contains_key("get") { "POST" } else { "GET" };
        if !methods.contains_key(&wrong.to_lowercase()) {
            let at = path.replace("{pair}", "zh:en").replace("{id}", "x");
            check_error(&s.send(wrong, &at, &[], "").await, 405, path);
            check_error(&s.send("PUT", &at, &[], "").await, 405, path);
        }
        if path.contains('{') {
            let at = path.replace("{pair}", "%ff").replace("{id}", "%ff");
            let method = if methods.contains_key("get") { "GET" } else { "POST" };
            check_error(&s.send(method, &at, &[], "").await, 400, &at);
        }
        if path.ends_with("/ws") {
            let reply = s.get(path).await;
            check_error(&reply, reply.status, path);
            assert!([400, 426].contains(&reply.status), "{}", reply.status);
            let detail = reply.body["detail"].as_str().unwrap_or_default();
            assert!(detail.contains("WebSocket") && detail.contains("ws://"), "{detail}");
        }
    }
    for (query, detail) in [
        ("/v1/jobs?limit=many", "limit: not a whole number"),
        ("/v1/jobs/job-1?wait_ms=soon", "wait_ms: not a whole number"),
        ("/v1/node/n/jobs?wait_ms=-1", "wait_ms: not a whole number"),
        ("/v1/nodes/%ff", "the path is not UTF-8"),
    ] {
        let reply = s.get(query).await;
        check_error(&reply, 400, query);
        assert!(reply.text.contains(detail), "{query}: {}", reply.text);
    }
    check_error(&s.get("/v1/nowhere").await, 404, "an unknown route");
    check_error(&s.send("POST", "/v1/translate", &[], "{").await, 400, "half a body");
}

#[tokio::test]
async fn answers_end_with_a_newline() {
    let s = Scheduler::start().await;
    for path in ["/v1/nodes", "/v1/jobs", "/v1/cluster", "/v1/pools", "/healthz", "/openapi.json"] {
        let reply = s.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.text.ends_with('\n'), "{path}: {:?}", reply.text.chars().last());
    }
}

#[tokio::test]
async fn a_bearer_token_is_read_in_any_case_and_a_401_says_how_to_log_in() {
    let (token, config) = new_token(&["--role", "client"]).await;
    let s = Scheduler::from_toml(&config).await;
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let value = format!("{scheme} {token}");
        let reply = s.send("GET", "/v1/jobs", &[("Authorization", &value)], "").await;
        assert_eq!(reply.status, 200, "{scheme}");
    }
    for headers in
        [&[][..], &[("Authorization", "Bearer guess")], &[("Authorization", "Basic eA==")]]
    {
        let reply = s.send("GET", "/v1/jobs", headers, "").await;
        check_error(&reply, 401, "no token");
        assert_eq!(reply.body["error"], "UNAUTHORIZED");
        assert!(reply.header("www-authenticate").expect("a scheme").starts_with("Bearer"));
    }
}

#[tokio::test]
async fn the_schema_lets_clients_accept_codes_that_are_newer_than_themselves() {
    let s = Scheduler::start().await;
    let document = s.get("/openapi.json").await.body;
    let code = &document["components"]["schemas"]["ErrorCode"];
    let choices = code["anyOf"].as_array().expect("known codes, or any other");
    let known = |name: &str| choices.iter().any(|choice| choice["const"] == name);
    assert!(known("NO_CAPABLE_NODE") && known("IDEMPOTENCY_KEY_REUSED"), "{code}");
    let is_open =
        |choice: &serde_json::Value| choice["type"] == "string" && choice.get("const").is_none();
    assert!(choices.iter().any(is_open), "{code}");
}
