//! Random steps of instances that come, go, lead and publish.

use lingua_core::Term;
use rand::RngExt;

use super::{History, pick};
use crate::conformance::fixture::instance;
use crate::contract::{AnnounceRequest, ElectRequest, Incarnation, PublishRequest, Store};

impl<S: Store> History<S> {
    pub(super) async fn instance_step(&mut self) {
        let who = instance(self.rng.random_range(0..4));
        let incarnation = Incarnation(self.rng.random_range(0..2));
        if self.rng.random_bool(0.15) {
            let known = self.world.store.withdraw(&who, incarnation).await.expect("a reply");
            self.note_reply("withdraw", &who, &known);
            assert_eq!(known, self.model.expect_withdraw(&who, incarnation));
            return;
        }
        let presence = AnnounceRequest {
            instance: who,
            incarnation,
            address: pick(&mut self.rng, &["10.0.0.1:7410", "10.0.0.2:7410"]).to_owned(),
            lease_ms: pick(&mut self.rng, &[1_000, 9_000]),
        };
        let reply = self.world.store.announce(presence.clone()).await.expect("a reply");
        self.note_reply("announce", &presence, &reply);
        assert_eq!(reply, self.model.expect_announce(&presence));
    }

    pub(super) async fn leader_step(&mut self) {
        let who = instance(self.rng.random_range(0..3));
        match self.rng.random_range(0..10) {
            0..5 => {
                let candidate = ElectRequest {
                    instance: who,
                    incarnation: Incarnation(self.rng.random_range(0..2)),
                    lease_ms: pick(&mut self.rng, &[1_000, 9_000]),
                };
                let election = self.world.store.elect(candidate.clone()).await.expect("a reply");
                self.note_reply("elect", &candidate, &election);
                self.model.check_elect(&candidate, &election);
            }
            5..9 => {
                let version = self.model.expect_table().map_or(0, |table| table.version);
                let publish = PublishRequest {
                    instance: who,
                    term: self.some_term(),
                    replaces: version + u64::from(self.rng.random_bool(0.1)),
                    table: version.to_string().into(),
                };
                let reply = self.world.store.publish(publish.clone()).await.expect("a reply");
                self.note_reply("publish", &publish, &reply);
                assert_eq!(reply, self.model.expect_publish(&publish));
            }
            _ => {
                let term = self.some_term();
                let held = self.world.store.resign(&who, term).await.expect("a reply");
                self.note_reply("resign", &(&who, term), &held);
                assert_eq!(held, self.model.expect_resign(&who, term));
            }
        }
    }

    fn some_term(&mut self) -> Term {
        let Term(present) = self.model.last_term;
        Term(present.saturating_sub(u64::from(self.rng.random_bool(0.1))))
    }
}
