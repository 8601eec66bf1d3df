//! Random steps on bindings: few keys, so that jobs of one key meet.

use lingua_core::Tenant;
use rand::RngExt;

use super::{History, pick};
use crate::conformance::fixture::node;
use crate::contract::{BindRequest, BindingRecord, Store};

impl<S: Store> History<S> {
    pub(super) async fn binding_step(&mut self) {
        if self.places.is_empty() {
            return;
        }
        let tenant = match self.rng.random_bool(0.3) {
            true => Tenant::new("alice").expect("a name"),
            false => Tenant::default(),
        };
        let key = pick(&mut self.rng, &["turn-1", "turn/2 }x{ 语"]);
        let bound = self.world.store.binding(tenant, key).await.expect("a reply");
        assert_eq!(bound, self.model.expect_binding(tenant, key));
        let (n, place) = pick(&mut self.rng, &self.places);
        let replaces = match self.rng.random_bool(0.8) {
            true => bound.map(|binding| binding.node),
            false => pick(&mut self.rng, &[None, Some(node(0))]),
        };
        let to = BindingRecord { node: node(n), place };
        let keep_ms = pick(&mut self.rng, &[1_000, 3_600_000]);
        let request = BindRequest { tenant, key: key.into(), replaces, to, keep_ms };
        let reply = self.world.store.bind(request.clone()).await.expect("a reply");
        self.note_reply("bind", &request, &reply);
        assert_eq!(reply, self.model.expect_bind(&request));
    }
}
