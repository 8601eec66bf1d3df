//! What a stop does to connections.

use lingua_server::ServerOptions;
use tokio::net::TcpStream;

use crate::client::{ServerClient, request};
use crate::server::{TestNode, TestServer, job, within};

#[tokio::test]
async fn a_stop_lets_the_open_request_end_and_closes_idle_connections() {
    let server = TestServer::start().await;
    let address = server.address;
    let mut node = TestNode::register(&server, "n1").await;
    let (mut busy, mut idle) =
        (ServerClient::connect(&server).await, ServerClient::connect(&server).await);
    assert_eq!(idle.get("/healthz").await.status, 200);
    busy.send(&request("POST", "/v1/translate", "", &job().to_string())).await;
    let assign = node.accept().await;
    let stopping = server.stop();
    assert!(idle.closes().await);
    assert!(TcpStream::connect(address).await.is_err(), "no new connections");
    assert!(!stopping.is_finished(), "a request is open");
    node.finish(&assign).await;
    assert_eq!(busy.response().await.json()["state"], "DONE");
    assert!(busy.closes().await);
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let options = ServerOptions { stop_ms: 100, ..ServerOptions::default() };
    let server = TestServer::with(options).await;
    let mut node = TestNode::register(&server, "n1").await;
    let mut client = ServerClient::connect(&server).await;
    client.send(&request("POST", "/v1/translate", "", &job().to_string())).await;
    node.accept().await;
    within(server.stop()).await.unwrap();
}
