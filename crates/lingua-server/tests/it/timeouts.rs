//! Peers that are slow or silent. The tests compare what happens first, not how long it takes: a
//! second connection that stays silent shows when the time for a request head has passed.

use lingua_server::ServerOptions;

use crate::client::{ServerClient, request};
use crate::server::{TestNode, TestServer, job};

/// A head limit that a silent connection reaches soon.
fn short_head() -> ServerOptions {
    ServerOptions { first_message_ms: 100, ..ServerOptions::default() }
}

#[tokio::test]
async fn a_connection_without_a_complete_head_is_closed() {
    let server = TestServer::with(short_head()).await;
    let mut silent = ServerClient::connect(&server).await;
    let mut slow = ServerClient::connect(&server).await;
    slow.send("GET /healthz HTTP/1.1\r\nHost:").await;
    assert!(silent.closes().await && slow.closes().await);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_last_response() {
    let server = TestServer::with(short_head()).await;
    let mut client = ServerClient::connect(&server).await;
    assert_eq!(client.get("/healthz").await.status, 200);
    assert!(client.closes().await);
}

#[tokio::test]
async fn a_slow_body_outlives_the_time_for_a_head() {
    let server = TestServer::with(short_head()).await;
    TestNode::register(&server, "n1").await.work();
    let mut client = ServerClient::connect(&server).await;
    let text = request("POST", "/v1/translate", "", &job().to_string());
    let (start, rest) = text.split_at(text.len() - 10);
    client.send(start).await;
    assert!(ServerClient::connect(&server).await.closes().await);
    client.send(rest).await;
    assert_eq!(client.response().await.json()["state"], "DONE");
}

#[tokio::test]
async fn a_slow_response_outlives_the_time_for_a_head() {
    let server = TestServer::with(short_head()).await;
    let mut node = TestNode::register(&server, "n1").await;
    let mut client = ServerClient::connect(&server).await;
    client.send(&request("POST", "/v1/translate", "", &job().to_string())).await;
    let assign = node.accept().await;
    assert!(ServerClient::connect(&server).await.closes().await);
    node.finish(&assign).await;
    assert_eq!(client.response().await.json()["state"], "DONE");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let options = ServerOptions { body_ms: 100, ..ServerOptions::default() };
    let server = TestServer::with(options).await;
    let mut client = ServerClient::connect(&server).await;
    let text = request("POST", "/v1/translate", "", &job().to_string());
    client.send(&text[..text.len() - 10]).await;
    let response = client.response().await;
    assert_eq!(response.error(), (408, "INVALID_REQUEST".to_owned()));
    let detail = "the body did not arrive within 100 ms; send it again";
    assert_eq!(response.json()["detail"], detail);
    assert!(client.closes().await, "the rest of the body is not read as a request");
}
