//! Finding a slot for a job, and waiting for one.
//!
//! Start at [`Runner::find_slot`]: look; if nothing is free, join the line, look once more, and then
//! look whenever somebody says that there is room.
//!
//! Invariant: a job is told that there is no slot only after every cell that could have one was asked.

use std::sync::Arc;

use lingua_core::job::{Grant, JobEvent, JobFailure};
use lingua_core::{CellId, LangPair, Needs, Query, RejectReason, Service, Slot, SlotSet, Source};
use lingua_store::Store;
use lingua_store::contract::{Pin, Place, ReserveOutcome, ReserveRequest};

use super::Runner;
use super::listen::Feed;
use crate::clock::Timer;
use crate::live::{Heard, ToJob};
use crate::queue::{Wake, Want};
use crate::state::timed;

/// Why the look for a slot ended without one.
pub(super) enum NoSlot {
    Failed(JobFailure, Option<String>),
    Interrupted(JobEvent),
}

/// A slot for the job.
pub(super) struct Found {
    pub(super) grant: Grant,
    /// Leases of the node, with this one.
    pub(super) used: u16,
    /// Slots that are left in the cell for the pair.
    pub(super) free: u32,
}

/// What a look around came to.
enum Looked {
    Found(Found),
    /// There are nodes for it; whether also others than those that were left out.
    Full {
        others: bool,
    },
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// Looks for a slot, and waits for one as long as the job may.
    pub(super) async fn find_slot(&mut self, started_ms: u64) -> Result<Found, NoSlot> {
        self.feed = Feed::default();
        let mut started_ms = started_ms;
        if let Some(speech) = self.unfinished() {
            if let Some(found) = Box::pin(self.listen_along(&speech)).await? {
                return Ok(found);
            }
            started_ms = self.shared.now_ms();
        }
        let wait_until_ms = started_ms.saturating_add(self.spec.wait_ms.unwrap_or(0));
        let give_up_ms = wait_until_ms.max(self.patient_until_ms).min(self.deadline_ms);
        let (pair, priority) = (self.spec.pair, self.spec.priority);
        if !self.shared.queue.has_line(pair, priority)
            && let Some(found) = self.look(true).await?
        {
            return Ok(found);
        }
        if give_up_ms <= started_ms {
            return Err(NoSlot::Failed(JobFailure::NoSlot, None));
        }
        // In a box, because most jobs do not wait.
        Box::pin(self.wait_for_slot(give_up_ms)).await
    }

    async fn wait_for_slot(&mut self, give_up_ms: u64) -> Result<Found, NoSlot> {
        let (pair, priority) = (self.spec.pair, self.spec.priority);
        let want = Want { pair, needs: self.spec.needs, public: self.spec.public };
        let shared = Arc::clone(&self.shared);
        let sleeper: Arc<dyn Wake> = Arc::clone(&self.live) as Arc<dyn Wake>;
        let (ticket, is_first) = shared.queue.park(want, priority, sleeper);
        shared.metrics.queue_jobs.set(shared.queue.len() as i64);
        // Look after having parked: what came free before is seen now, what comes later wakes.
        let mut look = is_first.then_some(true);
        loop {
            if let Some(keep_last) = look.take()
                && let Some(found) = self.look(keep_last).await?
            {
                if found.free > 0 {
                    ticket.leave_room();
                }
                return Ok(found);
            }
            let left_ms = give_up_ms.saturating_sub(self.shared.now_ms());
            if left_ms == 0 {
                return match self.look(false).await? {
                    Some(found) => Ok(found),
                    None if self.shared.now_ms() >= self.deadline_ms => {
                        Err(NoSlot::Interrupted(JobEvent::DeadlinePassed))
                    }
                    None => Err(NoSlot::Failed(JobFailure::NoSlot, None)),
                };
            }
            let heard = tokio::select! {
                biased;
                heard = self.live.next() => heard,
                () = self.alarm.at(&shared.timer, give_up_ms) => continue,
            };
            match heard {
                Heard::Room => {
                    ticket.take_wake();
                    // A slot came free for this job: last slots are for those who waited.
                    look = Some(false);
                }
                Heard::Word(word) => {
                    if let Some(event) = self.while_waiting(word) {
                        return Err(NoSlot::Interrupted(event));
                    }
                }
            }
        }
    }

    /// Words about earlier attempts are stale by now; only a cancel counts.
    pub(super) fn while_waiting(&mut self, message: ToJob) -> Option<JobEvent> {
        match message {
            ToJob::Cancel => Some(JobEvent::Cancel),
            ToJob::Node(word, answer) => {
                self.refuse(&word, answer);
                None
            }
            ToJob::Partial(_) => {
                self.refuse_partial();
                None
            }
            // Found out by the next write: nothing is held meanwhile.
            ToJob::NodeLost(_) | ToJob::NotSent(_) | ToJob::NotOurs => None,
        }
    }

    /// Asks the cells, once each. `Ok(None)` means that it is worth waiting.
    async fn look(&mut self, keep_last: bool) -> Result<Option<Found>, NoSlot> {
        // What most jobs do not need has a box of its own, here and below: a job's state stays small.
        let may_be_pinned = self.spec.preferred.is_some() || self.spec.bind_key.is_some();
        if may_be_pinned && let Some(found) = Box::pin(self.look_at_pinned()).await? {
            return Ok(Some(found));
        }
        let tried: Vec<_> = self.job.tried().to_vec();
        match self.look_everywhere(keep_last, &tried).await? {
            Looked::Found(found) => Ok(Some(found)),
            Looked::Full { others: true } => Ok(None),
            // Only nodes that failed it before are there: better one of those than none.
            Looked::Full { others: false } => {
                match Box::pin(self.look_everywhere(keep_last, &[])).await? {
                    Looked::Found(found) => Ok(Some(found)),
                    Looked::Full { .. } => Ok(None),
                }
            }
        }
    }

    async fn look_everywhere(
        &mut self,
        keep_last: bool,
        tried: &[(CellId, Slot)],
    ) -> Result<Looked, NoSlot> {
        let pair = self.spec.pair;
        for everywhere in [false, true] {
            let (mut any_capable, mut others) = (false, false);
            for cell in self.shared.routes.order(pair, self.shared.random(), everywhere) {
                let tried: SlotSet =
                    tried.iter().filter(|(c, _)| *c == cell).map(|(_, slot)| *slot).collect();
                let is_open = self.spec.exclude.is_empty() && !self.spec.two_way;
                let exclude = match is_open {
                    true => tried,
                    false => tried | Box::pin(self.excluded_in(cell)).await?,
                };
                match self.reserve(cell, exclude, None, keep_last).await? {
                    ReserveOutcome::Granted { grant, used, free, .. } => {
                        self.shared.routes.free(pair, cell, free);
                        return Ok(Looked::Found(Found { grant, used, free }));
                    }
                    ReserveOutcome::Duplicate(grant) => {
                        return Ok(Looked::Found(Found { grant, used: 1, free: 0 }));
                    }
                    ReserveOutcome::Full { capable, free } => {
                        self.shared.routes.free(pair, cell, free);
                        any_capable = true;
                        others |= usize::from(capable) > tried.len();
                    }
                    _ => self.shared.routes.incapable(pair, cell),
                }
            }
            if any_capable {
                return Ok(Looked::Full { others });
            }
        }
        // Nodes may be on their way back: this instance has just come, or the store has forgotten them.
        if self.shared.now_ms() < self.patient_until_ms || self.shared.is_after_failover() {
            return Ok(Looked::Full { others: true });
        }
        self.count_empty_pool();
        let missing = Box::pin(self.what_is_missing()).await;
        let detail = format!("no registered node can serve {pair}: {missing}");
        Err(NoSlot::Failed(JobFailure::NoCapableNode, Some(detail)))
    }

    /// The node that the client prefers, or the one that the turn is bound to.
    pub(super) async fn look_at_pinned(&mut self) -> Result<Option<Found>, NoSlot> {
        let spec = Arc::clone(&self.spec);
        let first_try = self.job.tried().is_empty();
        let (place, strict) = if let Some(node) = spec.preferred.as_ref().filter(|_| first_try) {
            match self.shared.store.locate(node).await.map_err(|_| store_down())? {
                Some(place) => (place, spec.strict),
                None => {
                    let detail = format!("the preferred node {node} is not registered");
                    return Err(NoSlot::Failed(JobFailure::PreferredNotCapable, Some(detail)));
                }
            }
        } else if let Some(place) =
            spec.bind_key.as_ref().and_then(|key| self.shared.bindings.get(key))
        {
            (place, false)
        } else {
            return Ok(None);
        };
        let Place { cell, slot, epoch } = place;
        let exclude = self.excluded_in(cell).await?;
        let pin = Pin { slot, epoch, strict: true };
        match self.reserve(cell, exclude, Some(pin), false).await? {
            ReserveOutcome::Granted { grant, used, free, .. } => {
                Ok(Some(Found { grant, used, free }))
            }
            ReserveOutcome::Duplicate(grant) => Ok(Some(Found { grant, used: 1, free: 0 })),
            ReserveOutcome::PinLost(why) if spec.preferred.is_some() => {
                self.preferred_lost(why, strict)
            }
            _ => Ok(None),
        }
    }

    fn preferred_lost(&self, why: RejectReason, strict: bool) -> Result<Option<Found>, NoSlot> {
        if why.is_incapable() {
            let detail = format!("the preferred node cannot serve {}: {why}", self.spec.pair);
            return Err(NoSlot::Failed(JobFailure::PreferredNotCapable, Some(detail)));
        }
        if strict {
            let detail = format!("the preferred node cannot take the job now: {why}");
            return Err(NoSlot::Failed(JobFailure::NoSlot, Some(detail)));
        }
        Ok(None)
    }

    /// The slots of a cell whose nodes the client does not want, or that can do one of two directions only.
    pub(super) async fn excluded_in(&self, cell: CellId) -> Result<SlotSet, NoSlot> {
        let mut slots = SlotSet::EMPTY;
        for node in &self.spec.exclude {
            let place = self.shared.store.locate(node).await.map_err(|_| store_down())?;
            if let Some(place) = place.filter(|place| place.cell == cell) {
                slots.insert(place.slot);
            }
        }
        match self.spec.two_way {
            true => Ok(slots | self.one_way_only(cell).await?),
            false => Ok(slots),
        }
    }

    async fn one_way_only(&self, cell: CellId) -> Result<SlotSet, NoSlot> {
        let LangPair { src: Source::Known(src), tgt } = self.spec.pair else {
            return Ok(SlotSet::EMPTY);
        };
        let (back, needs) = (LangPair::known(tgt, src), self.spec.needs);
        let (shared, question) = (&self.shared, (cell, back, needs));
        let now_ms = shared.now_ms();
        if let Some(known) = shared.one_way.get(&question, now_ms) {
            return Ok(known);
        }
        let view = shared.store.view(cell).await.map_err(|_| store_down())?;
        let rule = shared.options.rules.semantic;
        let lacks = view
            .nodes
            .iter()
            .filter(|n| n.profile.capabilities().missing(back, needs, rule).is_some());
        let slots: SlotSet = lacks.map(|node| node.place.slot).collect();
        shared.one_way.put(question, slots, now_ms);
        Ok(slots)
    }

    pub(super) async fn reserve(
        &self,
        cell: CellId,
        exclude: SlotSet,
        pin: Option<Pin>,
        keep_last: bool,
    ) -> Result<ReserveOutcome, NoSlot> {
        let exclude = match self.shared.is_after_failover() {
            false => exclude,
            true => {
                let doubted = Box::pin(self.shared.unreported_slots(cell)).await;
                exclude | doubted.map_err(|_| store_down())?
            }
        };
        let query = Query {
            pair: self.spec.pair,
            needs: self.needs(),
            public: self.spec.public,
            exclude,
            policy: self.shared.options.policy,
            keep_last,
        };
        let request = ReserveRequest {
            key: self.key(),
            query,
            pin,
            ack_lease_ms: self.shared.options.times.ack_ms,
            random: self.shared.random(),
        };
        let store = &self.shared.store;
        let (reply, _) = timed!(self.shared, "reserve", store.reserve(cell, request));
        let reply = reply.map_err(|_| store_down())?;
        self.shared.leases_lost(reply.expired.iter().map(|expired| expired.key));
        self.shared.metrics.reserve.count(outcome_name(&reply.outcome));
        Ok(reply.outcome)
    }

    /// What it takes, which is more while it is still being said.
    fn needs(&self) -> Needs {
        let needs = self.spec.needs;
        match self.feed.is_on {
            true => Needs { extra: needs.extra.with(Service::Streaming), ..needs },
            false => needs,
        }
    }

    /// Clients can ask for any pair: only those that the pool table knows get a label of their own.
    fn count_empty_pool(&self) {
        let pair = self.spec.pair.to_string();
        let table = self.shared.table.lock().clone();
        let known = table.is_some_and(|table| table.pools.iter().any(|pool| pool.pair == pair));
        let label = if known { pair } else { "other".to_owned() };
        self.shared.metrics.pool_empty.get_or_create(&vec![("pair", label)]).inc();
    }

    /// For people: the parts that no node has.
    async fn what_is_missing(&self) -> String {
        let mut lacks: Vec<String> = vec![];
        let cells = self.shared.store.cells().await.unwrap_or_default();
        for cell in cells.into_iter().take(8) {
            let Ok(view) = self.shared.store.view(cell).await else { continue };
            for node in &view.nodes {
                let caps = node.profile.capabilities();
                let rule = self.shared.options.rules.semantic;
                if let Some(lack) = caps.missing(self.spec.pair, self.spec.needs, rule) {
                    lacks.push(lack.to_string());
                }
            }
        }
        lacks.sort();
        lacks.dedup();
        lacks.truncate(5);
        match lacks.is_empty() {
            true => "no node is there".to_owned(),
            false => lacks.join(", "),
        }
    }
}

fn store_down() -> NoSlot {
    NoSlot::Failed(JobFailure::StoreDown, None)
}

fn outcome_name(outcome: &ReserveOutcome) -> &'static str {
    match outcome {
        ReserveOutcome::Granted { .. } => "granted",
        ReserveOutcome::Duplicate(_) => "duplicate",
        ReserveOutcome::Stale { .. } => "stale",
        ReserveOutcome::Full { .. } => "full",
        ReserveOutcome::NoneCapable => "none",
        ReserveOutcome::PinLost(_) => "pin_lost",
    }
}
