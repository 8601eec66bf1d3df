//! Requests and responses on keep-alive connections.

use lingua_server::ServerOptions;
use serde_json::json;

use crate::client::{ServerClient, request};
use crate::server::{TestNode, TestServer, job};

#[tokio::test]
async fn requests_may_arrive_in_pieces_or_pipelined() {
    let server = TestServer::start().await;
    TestNode::register(&server, "n1").await.work();
    let mut client = ServerClient::connect(&server).await;
    let body = job().to_string();
    for character in request("POST", "/v1/translate", "X-Request-Id: mine\r\n", &body).chars() {
        client.send(&character.to_string()).await;
    }
    let response = client.response().await;
    assert_eq!((response.status, &response.json()["state"]), (200, &json!("DONE")));
    assert_eq!(response.header("x-request-id"), Some("mine"));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.header("date").is_some(), "{}", response.head);
    let named =
        |id: &str| request("POST", "/v1/translate", &format!("X-Request-Id: {id}\r\n"), &body);
    client.send(&[named("one"), named("two"), named("three")].concat()).await;
    for id in ["one", "two", "three"] {
        let response = client.response().await;
        assert_eq!(response.header("x-request-id"), Some(id), "responses keep the order");
        assert_eq!(response.json()["state"], "DONE");
    }
}

#[tokio::test]
async fn a_chunked_body_is_read_and_the_connection_stays_open() {
    let server = TestServer::start().await;
    TestNode::register(&server, "n1").await.work();
    let mut client = ServerClient::connect(&server).await;
    let body = job().to_string();
    client
        .send(
            "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
    client.send(&format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
    assert_eq!(client.response().await.json()["state"], "DONE");
    assert_eq!(client.get("/healthz").await.text, "ok\n");
}

#[tokio::test]
async fn two_lengths_in_one_request_are_refused() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    client.send(&request("POST", "/v1/translate", "Content-Length: 2\r\n", "{}....")).await;
    let response = client.response_or_end().await;
    assert!(response.is_none_or(|response| response.status == 400));
    assert!(client.closes().await, "nothing that follows is read as a request");
}

#[tokio::test]
async fn an_error_leaves_the_connection_open() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    let malformed = client.request("POST", "/v1/translate", "", "{").await;
    assert_eq!(malformed.error(), (400, "INVALID_REQUEST".to_owned()));
    let alone = client.post("/v1/translate", &job()).await;
    assert_eq!(alone.error(), (503, "NO_CAPABLE_NODE".to_owned()));
    TestNode::register(&server, "n1").await.work();
    assert_eq!(client.post("/v1/translate", &job()).await.json()["state"], "DONE");
}

#[tokio::test]
async fn a_wrong_method_is_told_which_methods_are_accepted() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    for (method, path, accepted) in [
        ("GET", "/v1/translate", "POST"),
        ("DELETE", "/v1/pools", "GET"),
        ("PUT", "/healthz", "GET"),
    ] {
        let response = client.request(method, path, "", "").await;
        assert_eq!(response.error(), (405, "INVALID_REQUEST".to_owned()));
        let detail = format!("method not allowed; this route accepts {accepted}");
        assert_eq!(response.json()["detail"], detail);
        let allow = response.header("allow").expect("an Allow header");
        assert!(allow.contains(&accepted.to_lowercase()), "{allow}");
    }
}

#[tokio::test]
async fn every_error_is_json() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    for (path, status) in [
        ("/no/such/route", 404),
        ("/v1/jobs?limit=many", 400),
        ("/v1/jobs/job-1?wait_ms=x", 400),
        ("/v1/jobs/%ff", 400),
        ("/v1/nodes/%ff", 400),
        ("/v1/node/n1/jobs?wait_ms=-1", 400),
        ("/v1/node/ws", 400),
        ("/v1/session/ws", 400),
    ] {
        let (seen, code) = client.get(path).await.error();
        assert_eq!((seen, code.as_str()), (status, "INVALID_REQUEST"), "{path}");
    }
}

#[tokio::test]
async fn the_body_limit_holds_for_every_request() {
    let options = ServerOptions { body_bytes_max: 100, ..ServerOptions::default() };
    let server = TestServer::with(options).await;
    let too_large = (413, "PAYLOAD_TOO_LARGE".to_owned());
    let long = "x".repeat(101);
    for (method, path) in [
        ("POST", "/v1/translate"),
        ("POST", "/v1/node/register"),
        ("POST", "/v1/jobs/job-1/cancel"),
        ("GET", "/healthz"),
    ] {
        let mut client = ServerClient::connect(&server).await;
        assert_eq!(client.request(method, path, "", &long).await.error(), too_large, "{path}");
    }
    let mut client = ServerClient::connect(&server).await;
    client
        .send(
            "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
    client.send(&format!("65\r\n{long}\r\n0\r\n\r\n")).await;
    assert_eq!(client.response().await.error(), too_large, "also without a length");
    let mut client = ServerClient::connect(&server).await;
    let fits = client.request("POST", "/v1/translate", "", &long[..100]).await;
    assert_eq!(fits.error(), (400, "INVALID_REQUEST".to_owned()));
}

#[tokio::test]
async fn the_api_reference_loads_nothing_from_elsewhere() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    let page = client.get("/docs?x=y").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").is_some_and(|csp| csp.contains("'self'")));
    assert!(!page.text.contains("x=y"), "the page does not repeat the query: {}", page.text);
    for asset in ["/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/openapi.json"] {
        assert!(page.text.contains(asset), "{}", page.text);
        assert_eq!(client.get(asset).await.status, 200, "{asset}");
    }
    assert!(!page.text.contains("//"), "no other host: {}", page.text);
}

#[tokio::test]
async fn a_response_names_its_request() {
    let server = TestServer::start().await;
    let mut client = ServerClient::connect(&server).await;
    let given = client.request("GET", "/no/such/route", "X-Request-Id: order-7\r\n", "").await;
    assert_eq!(given.header("x-request-id"), Some("order-7"));
    let (first, second) = (client.get("/healthz").await, client.get("/healthz").await);
    let (first, second) = (first.header("x-request-id"), second.header("x-request-id"));
    assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    let bad = client.request("GET", "/healthz", "X-Request-Id: two words\r\n", "").await;
    assert_eq!(bad.header("x-request-id").map(str::len), Some(32), "a new one");
}
