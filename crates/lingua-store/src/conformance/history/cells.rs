//! Random steps on cells.

use std::sync::Arc;

use lingua_core::job::AttemptOutcome;
use lingua_core::node::COST_MS_MAX;
use lingua_core::{
    Attempt, CELL_NODES_MAX, Capabilities, CellId, Epoch, Health, JobId, LabelSet, Lang, LangPair,
    LangSet, Load, Needs, Nmt, NodeLabel, Policy, Profile, Query, RequiredLabels, Service,
    ServiceSet, Slot, SlotSet, Source, Tenant, TokenName,
};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Classes, History, pick};
use crate::conformance::fixture::{FRESH_MS, RUN_MS, instance, node};
use crate::contract::{
    AssignRequest, HeartbeatReply, HeartbeatRequest, Incarnation, KeptLeases, LeaseKey, NodeClass,
    NodeCommand, NodeSpeed, Pin, Place, RegisterReply, RegisterRequest, ReserveOutcome,
    ReserveReply, ReserveRequest, Store,
};

impl<S: Store> History<S> {
    /// A new node, a node that comes back, a change of capabilities, or a message from the past.
    pub(super) async fn register(&mut self) {
        let n = self.rng.random_range(0..self.fleet);
        self.register_node(n).await;
    }

    pub(super) async fn register_node(&mut self, n: usize) {
        let known = self.places.iter().rev().find(|(known, _)| *known == n).copied();
        let place = match known {
            Some((_, place)) if self.rng.random_bool(0.4) => place,
            Some(_) if self.rng.random_bool(0.2) => pick(&mut self.rng, &self.places).1,
            _ => match self.assign(n).await {
                Some(place) => place,
                None => return,
            },
        };
        let registration = RegisterRequest {
            place,
            node: node(n),
            profile: random_profile(&mut self.rng),
            health: pick(
                &mut self.rng,
                &[
                    Health::Ready,
                    Health::Ready,
                    Health::Ready,
                    Health::Registering,
                    Health::Degraded,
                ],
            ),
            speed: random_speed(&mut self.rng),
            fresh_ms: FRESH_MS,
            version: pick(&mut self.rng, &[None, Some("3.0"), Some("语 ✓")]).map(Arc::from),
            via: instance(self.rng.random_range(1..4)),
            keep: self.some_kept(place),
        };
        let reply = self.world.store.register(registration.clone()).await.expect("a reply");
        self.note_reply("register", &registration, &reply);
        if matches!(&reply, RegisterReply::Registered { lost, .. } if !lost.is_empty()) {
            self.count("register", "lost leases");
        }
        let before = self.model.epoch_seen(place.cell, place.slot);
        assert_eq!(reply, self.model.expect_register(&registration));
        let has_leases = self.model.view(place.cell).leases.iter().any(|l| l.slot == place.slot);
        if matches!(reply, RegisterReply::Registered { .. }) && place.epoch > before && has_leases {
            self.count("register", "kept leases");
        }
    }

    /// Mostly nothing; else everything, or some of what the slot has and another attempt.
    fn some_kept(&mut self, place: Place) -> KeptLeases {
        if self.rng.random_bool(0.75) {
            return KeptLeases::NONE;
        }
        if self.rng.random_bool(0.4) {
            return KeptLeases::All;
        }
        let leases = self.model.view(place.cell).leases;
        let here = leases.iter().filter(|lease| lease.slot == place.slot);
        let mut kept: Vec<LeaseKey> =
            here.filter(|_| self.rng.random_bool(0.6)).map(|lease| lease.key).collect();
        if !self.asked.is_empty() {
            kept.push(pick(&mut self.rng, &self.asked).1);
        }
        KeptLeases::Only(kept)
    }

    /// A place for a node, unless it belongs to another token or its token has too many.
    async fn assign(&mut self, n: usize) -> Option<Place> {
        let incarnation = Incarnation(self.rng.random_range(0..3));
        let class = match self.classes {
            Classes::Two => NodeClass(u32::from(self.rng.random_bool(0.3))),
            Classes::One => NodeClass(0),
            Classes::Small => NodeClass((n % 5) as u32),
        };
        // While a fleet is filled, every node gets its place.
        let limited = self.places.len() >= self.fleet && self.rng.random_bool(0.2);
        let request = AssignRequest {
            owner: some_token(&mut self.rng),
            owned_max: limited.then_some(self.fleet / 2),
            ..AssignRequest::new(node(n), incarnation, class)
        };
        let reply = self.world.store.assign(request.clone()).await.expect("a reply");
        self.note_reply("assign", &request, &reply);
        self.model.check_assign(&request, reply);
        let again = self.world.store.assign(request.clone()).await.expect("a reply");
        assert_eq!(again, reply, "assign is idempotent");
        let place = reply.placed()?;
        let located = self.world.store.locate(&request.node).await.expect("a reply");
        assert_eq!(located, Some(place));
        self.places.push((n, place));
        Some(place)
    }

    /// Some place: mostly a node's newest, sometimes an old one or one with a made-up epoch.
    fn some_place(&mut self) -> Option<Place> {
        if self.places.is_empty() {
            return None;
        }
        let (n, mut place) = pick(&mut self.rng, &self.places);
        if self.rng.random_bool(0.8) {
            place = self.places.iter().rev().find(|(known, _)| *known == n)?.1;
        }
        if self.rng.random_bool(0.03) {
            place.epoch = Epoch(place.epoch.0 + 1);
        }
        Some(place)
    }

    fn some_cell(&mut self) -> Option<CellId> {
        Some(self.some_place()?.cell)
    }

    pub(super) async fn heartbeat(&mut self) {
        let Some(place) = self.some_place() else { return };
        let leases = self.model.view(place.cell).leases;
        let mut running: Vec<LeaseKey> = leases
            .iter()
            .filter(|lease| lease.slot == place.slot && self.rng.random_bool(0.8))
            .map(|lease| lease.key)
            .collect();
        if self.rng.random_bool(0.3) && !self.asked.is_empty() {
            running.push(pick(&mut self.rng, &self.asked).1);
        }
        let busy = self.rng.random_bool(0.15);
        let heartbeat = HeartbeatRequest {
            place,
            health: pick(
                &mut self.rng,
                &[
                    None,
                    None,
                    None,
                    Some(Health::Ready),
                    Some(Health::Ready),
                    Some(Health::Degraded),
                    Some(Health::Draining),
                ],
            ),
            load: self
                .rng
                .random_bool(0.85)
                .then(|| Load::new(0.3, if busy { 0.95 } else { 0.5 }, 0.2).expect("a load")),
            speed: self.rng.random_bool(0.7).then(|| random_speed(&mut self.rng)),
            running,
            fresh_ms: FRESH_MS,
            lease_ms: RUN_MS,
        };
        let reply = self.world.store.heartbeat(heartbeat.clone()).await.expect("a reply");
        self.note_reply("heartbeat", &heartbeat, &reply);
        if matches!(&reply, HeartbeatReply::Accepted { unknown, .. } if !unknown.is_empty()) {
            self.count("heartbeat", "unknown leases");
        }
        assert_eq!(reply, self.model.expect_heartbeat(&heartbeat));
    }

    pub(super) async fn order(&mut self) {
        let Some(place) = self.some_place() else { return };
        let order = pick(
            &mut self.rng,
            &[
                NodeCommand::Drain,
                NodeCommand::Resume,
                NodeCommand::Resume,
                NodeCommand::Offline,
                NodeCommand::Retire,
            ],
        );
        if order == NodeCommand::Retire {
            let tenant = self.model.view(place.cell).nodes.into_iter().find(|n| n.place == place);
            if let Some(tenant) = tenant {
                let released = self.world.store.release(&tenant.node, place.epoch).await;
                let expected = self.model.expect_release(&tenant.node, place.epoch);
                assert_eq!(released.expect("a reply"), expected);
            }
        }
        let reply = self.world.store.set_state(place, order).await.expect("a reply");
        self.note_reply("order", &(place, order), &reply);
        assert_eq!(reply, self.model.expect_set_state(place, order));
    }

    pub(super) async fn reserve(&mut self) {
        let Some(cell) = self.some_cell() else { return };
        let (cell, key) = self.some_attempt(cell);
        let request = ReserveRequest {
            key,
            query: random_query(&mut self.rng),
            pin: self.some_pin(cell),
            ack_lease_ms: pick(&mut self.rng, &[500, 5_000]),
            random: self.rng.random(),
        };
        let reply = self.world.store.reserve(cell, request.clone()).await.expect("a reply");
        self.note_reply("reserve", &request, &reply.outcome);
        self.count_rare(&reply);
        self.model.check_reserve(cell, &request, &reply);
        self.asked.push((cell, key));
        if let ReserveOutcome::Granted { grant, .. } = reply.outcome
            && self.rng.random_bool(0.1)
        {
            let again = self.world.store.reserve(cell, request.clone()).await.expect("a reply");
            assert_eq!(again.outcome, ReserveOutcome::Duplicate(grant), "invariant 9");
            self.model.check_reserve(cell, &request, &again);
        }
    }

    /// Cases that the name of the reply does not tell apart.
    fn count_rare(&mut self, reply: &ReserveReply) {
        if !reply.expired.is_empty() {
            self.count("reserve", "after expired leases");
        }
    }

    /// A new job, mostly; or another attempt of one that was there before, earlier or later.
    fn some_attempt(&mut self, cell: CellId) -> (CellId, LeaseKey) {
        if self.asked.is_empty() || self.rng.random_bool(0.7) {
            self.jobs_made += 1;
            let job = JobId::new(self.jobs_made);
            return (cell, LeaseKey { job, attempt: Attempt(self.rng.random_range(1..3)) });
        }
        let (cell, key) = self.some_lease();
        let attempt = key.attempt.0 + self.rng.random_range(0..3) - 1;
        (cell, LeaseKey { attempt: Attempt(attempt.max(1)), ..key })
    }

    /// A lease that was asked for: mostly a recent one.
    fn some_lease(&mut self) -> (CellId, LeaseKey) {
        let n = self.asked.len();
        let recent = n.saturating_sub(20);
        let at = if self.rng.random_bool(0.9) { recent } else { 0 };
        self.asked[self.rng.random_range(at..n)]
    }

    fn some_pin(&mut self, cell: CellId) -> Option<Pin> {
        if self.rng.random_bool(0.8) {
            return None;
        }
        let here: Vec<Place> = self
            .places
            .iter()
            .map(|(_, place)| *place)
            .filter(|place| place.cell == cell)
            .collect();
        let strict = self.rng.random_bool(0.5);
        if here.is_empty() || self.rng.random_bool(0.05) {
            let slot = Slot::new(self.rng.random_range(0..100))?;
            return Some(Pin { slot, epoch: Epoch(1), strict });
        }
        let Place { slot, epoch, .. } = pick(&mut self.rng, &here);
        Some(Pin { slot, epoch, strict })
    }

    pub(super) async fn commit(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let (cell, key) = self.some_lease();
        let reply = self.world.store.commit(cell, key, RUN_MS).await.expect("a reply");
        self.note_reply("commit", &key, &reply);
        assert_eq!(reply, self.model.expect_commit(cell, key, RUN_MS));
    }

    pub(super) async fn finish(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let (cell, key) = self.some_lease();
        let outcome = pick(
            &mut self.rng,
            &[AttemptOutcome::Succeeded, AttemptOutcome::Failed, AttemptOutcome::Unknown],
        );
        let reply = self.world.store.finish(cell, key, outcome).await.expect("a reply");
        self.note_reply("finish", &(key, outcome), &reply);
        assert_eq!(reply, self.model.expect_finish(cell, key, outcome));
        let again = self.world.store.finish(cell, key, outcome).await.expect("a reply");
        assert_eq!(again, None, "invariant 5: a second finish changes nothing");
    }

    pub(super) async fn reap(&mut self) {
        let Some(cell) = self.some_cell() else { return };
        let limit = pick(&mut self.rng, &[0, 1, 64]);
        let reply = self.world.store.reap(cell, limit).await.expect("a reply");
        self.note_reply("reap", &limit, &reply);
        assert_eq!(reply, self.model.expect_reap(cell, limit));
    }
}

fn random_speed(rng: &mut ChaCha8Rng) -> NodeSpeed {
    let costs = [0, 500, 700, 1000, 1100, 1299, 1300, 1301, 2000, 4000, COST_MS_MAX, u32::MAX];
    NodeSpeed {
        cost_ms: pick(rng, &costs),
        learned_ms: pick(rng, &costs),
        jobs: pick(rng, &[0, 9]),
    }
}

const LANGS: [&str; 4] = ["zh", "en", "ja", "fr"];

fn some_lang(rng: &mut ChaCha8Rng) -> Lang {
    Lang::new(pick(rng, &["zh", "zh", "en", "en", "ja", "fr"])).expect("a language")
}

fn some_langs(rng: &mut ChaCha8Rng) -> LangSet {
    let first = some_lang(rng);
    let rest = LANGS.into_iter().filter(|_| rng.random_bool(0.6));
    let rest: Vec<Lang> = rest.map(|tag| Lang::new(tag).expect("a language")).collect();
    rest.into_iter().chain([first]).collect()
}

fn random_profile(rng: &mut ChaCha8Rng) -> Arc<Profile> {
    let nmt = match rng.random_bool(0.7) {
        true => Nmt::AnyToAny,
        false => {
            let pairs: Vec<_> =
                (0..rng.random_range(1..8)).map(|_| (some_lang(rng), some_lang(rng))).collect();
            Nmt::pairs(pairs)
        }
    };
    let services = match rng.random_bool(0.85) {
        true => ServiceSet::ALL,
        false => ServiceSet::ALL.without(pick(rng, &Service::ALL)),
    };
    let caps = Capabilities::new(some_langs(rng), some_langs(rng), some_langs(rng), nmt, services);
    let slots = pick(rng, &[1, 1, 2, 2, 4, 20]);
    let caps = caps.expect("languages").with_labels(LabelSet::new(some_labels(rng)).expect("few"));
    let profile = Profile::new(caps, slots, rng.random_bool(0.85));
    let profile = profile.expect("slots").owned_by(some_tenant(rng));
    Arc::new(profile.registered_by(some_token(rng)))
}

/// Mostly two of three. They are drawn from a copy, so that a history without them stays the same.
fn some_labels(rng: &ChaCha8Rng) -> Vec<NodeLabel> {
    let mut rng = rng.clone();
    let all = ["eu", "gpu", "region:eu"].into_iter().filter(|_| rng.random_bool(0.7));
    all.map(|label| NodeLabel::new(label).expect("a label")).collect()
}

/// Mostly none.
fn required_labels(rng: &ChaCha8Rng) -> RequiredLabels {
    let mut rng = rng.clone();
    // What comes next decides other things.
    let luck: [u64; 8] = rng.random();
    match luck[7].is_multiple_of(8) {
        true => RequiredLabels::new(some_labels(&rng)).expect("few"),
        false => RequiredLabels::NONE,
    }
}

/// Mostly one token, so that nodes are refused and also placed.
fn some_token(rng: &mut ChaCha8Rng) -> Option<TokenName> {
    let name = match rng.random_range(0..20) {
        0 => Some("other:1@x"),
        1..4 => None,
        _ => Some("gpu"),
    };
    name.map(|name| TokenName::new(name).expect("a name"))
}

fn some_tenant(rng: &mut ChaCha8Rng) -> Tenant {
    match rng.random_bool(0.3) {
        true => Tenant::new("alice").expect("a name"),
        false => Tenant::default(),
    }
}

/// Mostly none; else two of the first slots, and any other one.
fn random_exclusion(rng: &mut ChaCha8Rng) -> SlotSet {
    match rng.random_bool(0.2) {
        true => SlotSet::from_mask(0b101 | 1 << rng.random_range(0..CELL_NODES_MAX)),
        false => SlotSet::EMPTY,
    }
}

fn random_query(rng: &mut ChaCha8Rng) -> Query {
    let src = match rng.random_bool(0.85) {
        true => Source::Known(some_lang(rng)),
        false => Source::Auto,
    };
    let policy = pick(
        rng,
        &[
            Policy::Balanced,
            Policy::Balanced,
            Policy::Balanced,
            Policy::LeastLoaded,
            Policy::Random,
            Policy::Sample { k: 2 },
            Policy::Sample { k: Policy::SAMPLE_K },
        ],
    );
    let rare = match src {
        Source::Known(_) => ServiceSet::EMPTY.with(Service::Tone),
        Source::Auto => ServiceSet::EMPTY.with(Service::Streaming),
    };
    Query {
        pair: LangPair { src, tgt: some_lang(rng) },
        needs: Needs {
            asr: rng.random_bool(0.8),
            tts: rng.random_bool(0.4),
            extra: if rng.random_bool(0.1) { rare } else { ServiceSet::EMPTY },
            labels: required_labels(rng),
        },
        public: rng.random_bool(0.7),
        tenant: some_tenant(rng),
        exclude: random_exclusion(rng),
        policy,
        keep_last: rng.random_bool(0.9),
    }
}
