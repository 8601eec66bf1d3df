//! How sockets end: an error, a close frame with its code, and nothing lost on the way.

use serde_json::json;

use crate::json_socket::JsonSocket;
use crate::raw_node::{RawNode, register};
use crate::scheduler::Scheduler;

async fn session(s: &Scheduler) -> JsonSocket {
    let mut socket = JsonSocket::connect(&format!("ws://{}/v1/session/ws", s.address), None).await;
    let start = json!({
        "type": "session_start", "src_lang": "zh", "tgt_lang": "en",
        "audio": {"format": "pcm16", "sample_rate": 16000},
    });
    socket.send(start).await;
    socket.expect("session_started").await;
    socket
}

#[tokio::test]
async fn a_close_frame_is_answered() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    node.send_close(1000).await;
    assert_eq!(node.close_code().await, Some(1000));
    let mut client = session(&s).await;
    client.send_close(1001).await;
    assert_eq!(client.close_code().await, Some(1001));
}

#[tokio::test]
async fn bye_and_a_takeover_end_with_a_close_frame() {
    let s = Scheduler::start().await;
    let mut leaver = RawNode::join(&s, "n1", 1).await;
    leaver.send(json!({"type": "bye"})).await;
    assert_eq!(leaver.close_code().await, Some(1000));
    let mut first = RawNode::join(&s, "n2", 1).await;
    let _second = RawNode::join_with(&s, register("n2", 1)).await;
    let error = first.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("STALE_EPOCH"), &json!(true)));
    assert_eq!(first.close_code().await, Some(1008));
}

#[tokio::test]
async fn a_server_that_stops_says_that_it_goes_away() {
    let s = Scheduler::with(&[("SCHEDULER__DRAIN_MS", "100")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut client = session(&s).await;
    s.begin_stop().await;
    assert_eq!(node.close_code().await, Some(1001));
    assert_eq!(client.close_code().await, Some(1001));
    assert_eq!(s.exit_code().await, Some(0));
}

/// The client sends on while the server refuses it: the refusal must not be lost to a reset.
#[tokio::test]
async fn a_client_that_speaks_too_fast_learns_why_it_is_cut_off() {
    let s = Scheduler::start().await;
    for _ in 0..5 {
        let mut client = session(&s).await;
        // Far more than a speaker can say in this time.
        for _ in 0..300 {
            client.try_send_bytes(vec![0; 32_000]).await;
        }
        let error = client.expect("error").await;
        assert_eq!((&error["error"], &error["fatal"]), (&json!("RATE_LIMITED"), &json!(true)));
        assert_eq!(client.close_code().await, Some(1013));
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_its_socket_with_the_reason() {
    let s = Scheduler::start().await;
    let mut client = session(&s).await;
    client.try_send_bytes(vec![0; 3 << 20]).await;
    let error = client.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("PAYLOAD_TOO_LARGE"), &json!(true)));
    assert_eq!(client.close_code().await, Some(1009));
}

#[tokio::test]
async fn a_stop_right_after_the_start_is_a_stop_in_good_order() {
    for _ in 0..10 {
        let s = Scheduler::start().await;
        assert_eq!(s.terminate().await, Some(0));
    }
}
