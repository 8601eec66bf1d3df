//! The SDK's session comes back by itself, over real sockets.

use lingua_sdk::session::{Session, SessionEvent, SessionSettings};
use lingua_wire::session::SessionStart;
use serde_json::json;

use crate::proxy::Proxy;
use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, within};
use crate::session::{frame, listener, sound};

/// What comes next that is a result, a missing one or a new connection; gives the number of a result.
async fn result(session: &mut Session) -> Option<u64> {
    loop {
        match within(session.next()).await.expect("the session goes on").expect("it is not over") {
            SessionEvent::Result(result) => return Some(result.seq),
            SessionEvent::Resumed => return None,
            SessionEvent::Accepted(_) | SessionEvent::Partial { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_session_whose_connection_is_cut_in_the_middle_of_a_turn_goes_on_by_itself() {
    // A pause that ends nothing here: the turn goes on over the next connection.
    let s = Scheduler::with(&[("SESSION__PAUSE_MS", "30000")]).await;
    let mut node = RawNode::join_with(&s, listener("n1")).await;
    let proxy = Proxy::to(&s.address).await;
    let options = SessionSettings::new(format!("ws://{}/v1/session/ws", proxy.address));
    let start = SessionStart {
        src_lang: Some("zh".into()),
        tgt_lang: Some("en".into()),
        ..SessionStart::default()
    };
    let mut session = Session::start(options, &start).await.expect("a session");
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
    assert_eq!(sound(&mut node, &assign, 6_400).await, frames[..10].concat());
    proxy.break_connections();
    assert_eq!(result(&mut session).await, None, "another connection");
    for frame in &frames[10..] {
        session.audio(frame.clone()).await;
    }
    session.turn_end().await;
    let rest = sound(&mut node, &assign, 6_400).await;
    assert_eq!(rest, frames[10..].concat(), "nothing is lost, and nothing comes twice");
    assert_eq!(node.expect("audio_end").await["bytes"], 12_800);

    // It ends while nobody is connected: what was missed comes, and nothing again.
    proxy.break_connections();
    node.report("job_done", &assign, json!({"result": {"text_translated": "hello"}})).await;
    s.ended(assign["job_id"].as_str().expect("an id")).await;
    assert_eq!(result(&mut session).await, None, "another connection");
    assert_eq!(result(&mut session).await, Some(2));
    session.text("三", None).await;
    node.work().await;
    assert_eq!(result(&mut session).await, Some(3));
    session.end().await;
    assert_eq!(within(session.next()).await, Ok(None));
}
