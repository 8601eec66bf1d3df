//! The node WebSocket.

use lingua_server::ServerOptions;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::client::{ServerClient, request};
use crate::server::{TestNode, TestServer, job};

/// The next message has to be a fatal error, after which the socket is closed.
async fn is_refused(node: &mut TestNode, code: &str) -> String {
    let error = node.message().await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!(code), &json!(true)), "{error}");
    match node.frame().await {
        Some(Message::Close(Some(close))) => assert_eq!(u16::from(close.code), 1008),
        frame => panic!("no close frame: {frame:?}"),
    }
    error["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_node_has_to_register_first_and_in_time() {
    let options = ServerOptions { first_message_ms: 100, ..ServerOptions::default() };
    let server = TestServer::with(options).await;
    let mut silent = TestNode::connect(&server).await;
    let detail = is_refused(&mut silent, "INVALID_REQUEST").await;
    assert!(detail.starts_with("no `register` message within 100 ms"), "{detail}");
    let mut hasty = TestNode::connect(&server).await;
    hasty.send(json!({"type": "heartbeat"})).await;
    is_refused(&mut hasty, "NODE_NOT_REGISTERED").await;
    let mut binary = TestNode::connect(&server).await;
    binary.send_frame(Message::binary(&b"sound"[..])).await;
    is_refused(&mut binary, "INVALID_REQUEST").await;
}

#[tokio::test]
async fn a_second_registration_takes_over() {
    let server = TestServer::start().await;
    let mut first = TestNode::register(&server, "n1").await;
    let _second = TestNode::register(&server, "n1").await;
    is_refused(&mut first, "STALE_EPOCH").await;
}

#[tokio::test]
async fn a_bad_message_is_answered_and_the_socket_stays_open() {
    let server = TestServer::start().await;
    let mut node = TestNode::register(&server, "n1").await;
    for frame in [Message::text("{"), Message::text("{}"), Message::binary(&b"what"[..])] {
        node.send_frame(frame).await;
        let error = node.message().await;
        assert_eq!((&error["type"], &error["fatal"]), (&json!("error"), &json!(false)), "{error}");
    }
    node.send(json!({"type": "heartbeat"})).await;
    assert_eq!(node.message().await["type"], "heartbeat_ack");
}

#[tokio::test]
async fn audio_travels_in_the_frame_after_its_message() {
    let server = TestServer::start().await;
    let mut node = TestNode::register(&server, "n1").await;
    let mut client = ServerClient::connect(&server).await;
    let mut spoken = job();
    spoken.as_object_mut().unwrap().remove("text");
    spoken["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": "AQIDBA=="});
    client.send(&request("POST", "/v1/translate", "", &spoken.to_string())).await;
    let assign = node.message().await;
    assert_eq!((&assign["type"], &assign["audio"]["bytes"]), (&json!("job_assign"), &json!(4)));
    let audio = node.frame().await.expect("the audio");
    assert_eq!(audio, Message::binary(&[1, 2, 3, 4][..]));
    node.report("job_ack", &assign, json!({})).await;
    let result = json!({"tts_audio": {"format": "pcm16", "sample_rate": 16000, "bytes": 3}});
    node.report("job_done", &assign, json!({"result": result})).await;
    node.send_frame(Message::binary(&[7, 8, 9][..])).await;
    let done = client.response().await.json();
    assert_eq!(done["result"]["tts_audio"]["data"], "BwgJ", "{done}");
}
