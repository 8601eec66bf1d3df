//! The SDK resumes a session by itself, over real sockets.

use lingua_sdk::session::{Session, SessionEvent, SessionSettings};
use lingua_wire::session::SessionStart;
use serde_json::json;

use crate::proxy::Proxy;
use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, within};
use crate::session::{frame, streamed_audio, streaming_node};

/// The `seq` of the next result; `None` if the session resumed before it.
async fn result(session: &mut Session) -> Option<u64> {
    loop {
        match within(session.next()).await.expect("no error").expect("not the end") {
            SessionEvent::Result(result) => return Some(result.seq),
            SessionEvent::Resumed => return None,
            SessionEvent::Accepted(_) | SessionEvent::Partial(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_session_whose_connection_breaks_within_a_turn_resumes_by_itself() {
    // The pause is long, so that the turn continues over the next connection.
    let s = Scheduler::with(&[("SESSION__PAUSE_MS", "30000")]).await;
    let mut node = RawNode::join_with(&s, streaming_node("n1")).await;
    let proxy = Proxy::to(&s.address).await;
    let settings = SessionSettings::new(format!("ws://{}/v1/session/ws", proxy.address));
    let start = SessionStart {
        src_lang: Some("zh".into()),
        tgt_lang: Some("en".into()),
        ..SessionStart::default()
    };
    let mut session = Session::start(settings, &start).await.expect("a session");
    session.text("一", None).await;
    node.work().await;
    assert_eq!(result(&mut session).await, Some(1));

    session.turn_start(None).await;
    let frames: Vec<Vec<u8>> = (0..20).map(|n| frame(0x1000 + n)).collect();
    for frame in &frames[..10] {
        session.audio(frame.clone()).await;
    }
    let assign = node.expect("job_assign").await;
    node.report("job_ack", &assign, json!({})).await;
    assert_eq!(streamed_audio(&mut node, &assign, 6_400).await, frames[..10].concat());
    proxy.break_connections();
    assert_eq!(result(&mut session).await, None, "it resumed");
    for frame in &frames[10..] {
        session.audio(frame.clone()).await;
    }
    session.turn_end().await;
    let rest = streamed_audio(&mut node, &assign, 6_400).await;
    assert_eq!(rest, frames[10..].concat(), "nothing is lost or repeated");
    assert_eq!(node.expect("audio_end").await["bytes"], 12_800);

    // The job ends while no client is connected; the client still gets its result, once.
    proxy.break_connections();
    node.report("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    s.ended(assign["job_id"].as_str().expect("an id")).await;
    assert_eq!(result(&mut session).await, None, "it resumed");
    assert_eq!(result(&mut session).await, Some(2));
    session.text("三", None).await;
    node.work().await;
    assert_eq!(result(&mut session).await, Some(3));
    session.end().await;
    assert_eq!(within(session.next()).await, Ok(None));
}
