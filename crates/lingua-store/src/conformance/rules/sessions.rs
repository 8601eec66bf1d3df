//! Session records.

use crate::conformance::World;
use crate::contract::{
    SESSION_BYTES_MAX, SaveSessionReply, SaveSessionRequest, SessionRecord, Store,
};
use crate::error::StoreError;

fn save(replaces: u64, body: &str, keep_ms: u64) -> SaveSessionRequest {
    SaveSessionRequest { id: "sess-1".to_owned(), replaces, body: body.to_owned().into(), keep_ms }
}

impl<S: Store> World<S> {
    async fn save(&self, replaces: u64, body: &str) -> SaveSessionReply {
        self.store.save_session(save(replaces, body, 60_000)).await.expect("a reply")
    }

    async fn session(&self) -> Option<SessionRecord> {
        self.store.session("sess-1").await.expect("a reply")
    }
}

/// One of two instances takes over a session.
pub async fn a_session_is_taken_over_by_one_of_two<S: Store>(w: World<S>) {
    assert_eq!(w.session().await, None);
    assert_eq!(w.save(1, "of nobody").await, SaveSessionReply::Conflict { version: 0 });
    assert_eq!(w.save(0, "first").await, SaveSessionReply::Saved);
    assert_eq!(w.save(0, "first").await, SaveSessionReply::Saved, "the same call once more");
    assert_eq!(w.save(0, "other").await, SaveSessionReply::Conflict { version: 1 });
    assert_eq!(w.save(1, "second").await, SaveSessionReply::Saved);
    assert_eq!(w.save(1, "rival").await, SaveSessionReply::Conflict { version: 2 });
    let record = w.session().await.expect("a record");
    assert_eq!((record.version, &*record.body), (2, &b"second"[..]));
}

/// A record is kept for the requested time after its last write; 0 removes it.
pub async fn a_session_is_kept_for_the_requested_time<S: Store>(w: World<S>) {
    w.save(0, "a").await;
    w.clock.advance(60_000);
    assert!(w.session().await.is_some(), "in its last moment");
    w.save(1, "b").await;
    w.clock.advance(60_001);
    assert_eq!(w.session().await, None);
    assert_eq!(w.save(2, "too late").await, SaveSessionReply::Conflict { version: 0 });
    w.save(0, "anew").await;
    let gone = w.store.save_session(save(1, "", 0)).await.expect("a reply");
    assert_eq!((gone, w.session().await), (SaveSessionReply::Saved, None));
}

/// An oversized record is refused and changes nothing.
pub async fn an_oversized_session_is_refused<S: Store>(w: World<S>) {
    w.save(0, "a").await;
    let huge = "x".repeat(SESSION_BYTES_MAX + 1);
    let refused = w.store.save_session(save(1, &huge, 1_000)).await;
    assert!(matches!(refused, Err(StoreError::LimitReached { .. })), "{refused:?}");
    assert_eq!(w.session().await.map(|record| record.version), Some(1));
}
