//! Tokens, roles, origins and the rate limit.

use std::num::NonZeroU32;

use lingua_server::ServerOptions;
use lingua_server::auth::{KnownToken, Role, TokenHash, Tokens};
use lingua_server::limit::RateLimit;

use crate::client::ServerClient;
use crate::server::TestServer;

fn with_tokens() -> ServerOptions {
    let roles = [
        ("node-secret", Role::Node),
        ("client-secret", Role::Client),
        ("viewer-secret", Role::Viewer),
        ("root", Role::Admin),
    ];
    let tokens = roles.map(|(token, role)| (TokenHash::of(token), role));
    let tokens = tokens.map(|(hash, role)| (hash, KnownToken::new(role)));
    ServerOptions { tokens: Tokens::new(tokens).into(), ..ServerOptions::default() }
}

async fn status(client: &mut ServerClient, method: &str, path: &str, token: &str) -> u16 {
    let authorization = format!("Authorization: Bearer {token}\r\n");
    client.request(method, path, &authorization, "").await.status
}

#[tokio::test]
async fn a_token_opens_the_routes_of_its_role() {
    let server = TestServer::with(with_tokens()).await;
    let mut client = ServerClient::connect(&server).await;
    let (register, jobs, metrics) = ("/v1/node/register", "/v1/jobs", "/metrics");
    // Status 400 means that the token was accepted and the empty body was not.
    for (token, expected) in [
        ("node-secret", [400, 403, 403]),
        ("client-secret", [403, 200, 403]),
        ("viewer-secret", [403, 200, 200]),
        ("root", [400, 200, 200]),
        ("guess", [401, 401, 401]),
    ] {
        let seen = [
            status(&mut client, "POST", register, token).await,
            status(&mut client, "GET", jobs, token).await,
            status(&mut client, "GET", metrics, token).await,
        ];
        assert_eq!(seen, expected, "{token}");
    }
    assert_eq!(client.get("/healthz").await.status, 200, "open to everybody");
}

#[tokio::test]
async fn a_missing_token_is_told_how_to_send_one() {
    let server = TestServer::with(with_tokens()).await;
    let mut client = ServerClient::connect(&server).await;
    let refused = client.get("/v1/jobs").await;
    assert_eq!(refused.error(), (401, "UNAUTHORIZED".to_owned()));
    assert_eq!(refused.header("www-authenticate"), Some("bearer"));
    let lower_case = "Authorization: bearer client-secret\r\n";
    assert_eq!(client.request("GET", "/v1/jobs", lower_case, "").await.status, 200);
}

#[tokio::test]
async fn only_known_origins_may_call() {
    let allowed_origins = vec!["https://app.example".to_owned()];
    let server =
        TestServer::with(ServerOptions { allowed_origins, ..ServerOptions::default() }).await;
    let mut client = ServerClient::connect(&server).await;
    for (origin, expected) in
        [("https://app.example", 200), ("http://localhost", 200), ("https://evil.example", 403)]
    {
        let headers = format!("Origin: {origin}\r\n");
        let response = client.request("GET", "/v1/jobs", &headers, "").await;
        assert_eq!(response.status, expected, "{origin}");
    }
}

#[tokio::test]
async fn a_caller_that_asks_too_often_is_told_when_to_come_back() {
    let (per_second, burst) = (NonZeroU32::MIN, NonZeroU32::new(2).unwrap());
    let rate_limit = Some(RateLimit { per_second, burst });
    let server = TestServer::with(ServerOptions { rate_limit, ..with_tokens() }).await;
    let mut client = ServerClient::connect(&server).await;
    for expected in [200, 200, 429] {
        assert_eq!(status(&mut client, "GET", "/v1/jobs", "client-secret").await, expected);
    }
    let authorization = "Authorization: Bearer client-secret\r\n";
    let refused = client.request("GET", "/v1/jobs", authorization, "").await;
    assert_eq!(refused.error(), (429, "RATE_LIMITED".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(status(&mut client, "GET", "/v1/jobs", "root").await, 200, "another caller");
    for expected in [401, 401, 429] {
        assert_eq!(status(&mut client, "GET", "/v1/jobs", "guess").await, expected);
    }
}
