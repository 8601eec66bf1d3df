//! Bindings of keys to nodes.

use lingua_core::Tenant;

use crate::conformance::World;
use crate::conformance::fixture::node;
use crate::contract::{BindReply, BindRequest, BindingRecord, Place, Store};

const KEEP_MS: u64 = 60_000;

impl<S: Store> World<S> {
    async fn bind(&self, replaces: Option<usize>, to: &BindingRecord) -> BindReply {
        let request = BindRequest {
            tenant: Tenant::default(),
            key: "turn {1}".into(),
            replaces: replaces.map(node),
            to: to.clone(),
            keep_ms: KEEP_MS,
        };
        self.store.bind(request).await.expect("a reply")
    }

    async fn bound(&self) -> Option<BindingRecord> {
        self.store.binding(Tenant::default(), "turn {1}").await.expect("a reply")
    }

    async fn two_bindings(&self) -> [BindingRecord; 2] {
        let places: [Place; 2] = [self.join(0, "zh en", 1).await, self.join(1, "zh en", 1).await];
        [0, 1].map(|n| BindingRecord { node: node(n), place: places[n] })
    }
}

/// A key is bound to a new node only by a caller that knows where it was bound before. The same
/// call may come twice.
pub async fn a_binding_moves_only_from_the_node_that_the_caller_knows<S: Store>(w: World<S>) {
    let [first, second] = w.two_bindings().await;
    assert_eq!(w.bound().await, None);
    assert_eq!(w.bind(Some(1), &first).await, BindReply::Conflict(None));
    assert_eq!(w.bind(None, &first).await, BindReply::Bound);
    assert_eq!(w.bind(None, &first).await, BindReply::Bound, "the same call once more");
    assert_eq!(w.bind(None, &second).await, BindReply::Conflict(Some(first.clone())));
    assert_eq!(w.bound().await, Some(first.clone()));
    assert_eq!(w.bind(Some(0), &second).await, BindReply::Bound);
    assert_eq!(w.bind(Some(0), &second).await, BindReply::Bound, "the same call once more");
    assert_eq!(w.bound().await, Some(second.clone()));
    // The node has another place by now.
    let anew = BindingRecord { place: w.join(2, "zh en", 1).await, ..second };
    assert_eq!(w.bind(Some(1), &anew).await, BindReply::Bound);
    assert_eq!(w.bound().await, Some(anew));
}

/// A binding is kept for the requested time after it was last used.
pub async fn a_binding_is_kept_for_the_requested_time<S: Store>(w: World<S>) {
    let [first, second] = w.two_bindings().await;
    w.bind(None, &first).await;
    w.clock.advance(KEEP_MS - 1);
    assert_eq!(w.bind(Some(0), &first).await, BindReply::Bound);
    w.clock.advance(KEEP_MS);
    assert_eq!(w.bound().await, Some(first), "in its last moment");
    w.clock.advance(1);
    assert_eq!(w.bound().await, None);
    assert_eq!(w.bind(Some(0), &second).await, BindReply::Conflict(None));
    assert_eq!(w.bind(None, &second).await, BindReply::Bound);
}

/// Two tenants that use the same key have two bindings.
pub async fn each_tenant_has_its_own_keys<S: Store>(w: World<S>) {
    let [first, _] = w.two_bindings().await;
    w.bind(None, &first).await;
    let alice = Tenant::new("alice").expect("a name");
    assert_eq!(w.store.binding(alice, "turn {1}").await, Ok(None));
    assert_eq!(w.store.binding(Tenant::default(), "turn {2}").await, Ok(None));
}
