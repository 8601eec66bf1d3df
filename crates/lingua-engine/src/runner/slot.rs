//! Finding a slot for a job, and waiting for one.
//!
//! Start at [`Runner::find_slot`]: ask the cells; if none has a free slot, join the queue, ask once
//! more, and then ask again with every signal that a slot may be free.
//!
//! Invariant: a job fails for want of a slot only after every cell that could have one was asked,
//! or while jobs of tenants that come before its own wait for the same.

use std::sync::Arc;

use lingua_core::job::{Grant, JobEvent, JobFailure, JobSpec};
use lingua_core::roster::Capacity;
use lingua_core::{CellId, Needs, Query, Service, Slot, SlotSet};
use lingua_store::contract::{Pin, ReserveOutcome, ReserveRequest};
use lingua_store::{Store, StoreError};

use super::Runner;
use super::stream::StreamState;
use crate::clock::Timer;
use crate::live_jobs::JobMessage;
use crate::queue::{JobClass, SlotRequest};
use crate::routes::{AskedCells, RouteKey};
use crate::state::timed;
use crate::usage_limit::Usage;

/// Why the search for a slot ended without one.
pub(super) enum NoSlot {
    Failed(JobFailure, Option<String>),
    Interrupted(JobEvent),
}

impl From<StoreError> for NoSlot {
    fn from(_: StoreError) -> Self {
        Self::Failed(JobFailure::StoreDown, None)
    }
}

/// A slot for the job.
pub(super) struct Found {
    pub(super) grant: Grant,
    /// Leases of the node, including this one.
    pub(super) used: u16,
    /// Slots that are still free in the cell for the pair.
    pub(super) free: u32,
    /// The same by weight; `None` if the slot was taken by an earlier call.
    pub(super) left: Option<Capacity>,
    /// What the slot counts.
    pub(super) weight: u32,
}

/// What asking all cells found.
enum Search {
    Found(Found),
    /// Nodes can serve the job, but none has a free slot.
    Full {
        /// Some of them have not failed the job before.
        untried: bool,
    },
}

impl<S: Store, T: Timer> Runner<S, T> {
    /// Finds a slot, and waits for one as long as the job may.
    pub(super) async fn find_slot(&mut self, started_ms: u64) -> Result<Found, NoSlot> {
        self.stream = StreamState::default();
        let mut started_ms = started_ms;
        if let Some(speech) = self.unfinished_speech() {
            if let Some(found) = Box::pin(self.find_streaming_node(&speech)).await? {
                return Ok(found);
            }
            started_ms = self.engine.now_ms();
        }
        let wait_until_ms = started_ms.saturating_add(self.spec.wait_ms.unwrap_or(0));
        let give_up_ms = wait_until_ms.max(self.nodes_return_until_ms).min(self.deadline_ms);
        // A job that cannot wait may overtake those of its tenant that wait, and no slot is kept
        // from it unless `selection.keep_last` is `always`.
        let can_wait = give_up_ms > started_ms;
        let keep_last = self.engine.options.keep_last.applies(can_wait);
        let priority = can_wait.then_some(self.spec.priority);
        self.slot_count = self.engine.queue.enter(&self.slot_request(), priority);
        if self.slot_count.is_some()
            && let Some(found) = self.search(keep_last).await?
        {
            return Ok(found);
        }
        self.slot_count = None;
        if !can_wait {
            return Err(self.no_slot());
        }
        // In a box, because most jobs do not wait.
        Box::pin(self.wait_for_slot(give_up_ms)).await
    }

    async fn wait_for_slot(&mut self, give_up_ms: u64) -> Result<Found, NoSlot> {
        let engine = Arc::clone(&self.engine);
        let (request, bytes) = (&self.live.request, self.live.request.bytes());
        let full = |why: String| NoSlot::Failed(JobFailure::QueueFull, Some(why));
        let (tenant, token) = (request.spec.tenant, request.token.as_deref());
        let usage = engine.usage.take(tenant, token, &[(Usage::WaitingBytes, bytes)]);
        let _usage = usage.map_err(|error| full(error.to_string()))?;
        let held = engine.budgets.waiting_jobs.take(bytes);
        let _held = held.map_err(|error| full(error.to_string()))?;
        let (want, job) = (self.slot_request(), Arc::clone(&self.live));
        let (ticket, is_first) = engine.queue.park(want, self.spec.priority, job);
        engine.metrics.queue_jobs.set(engine.queue.len() as i64);
        // Search after joining the queue: a slot that came free before is found now, and one that
        // comes free later wakes the job.
        let mut search = is_first.then_some(true);
        loop {
            if let Some(keep_last) = search.take() {
                if let Some(found) = self.search(keep_last).await? {
                    self.slot_count = Some(ticket.leave_with_slot(found.free > 0));
                    return Ok(found);
                }
                ticket.found_none(!keep_last);
            }
            let left_ms = give_up_ms.saturating_sub(self.engine.now_ms());
            if left_ms == 0 {
                return match self.search(false).await? {
                    Some(found) => {
                        self.slot_count = Some(ticket.leave_with_slot(false));
                        Ok(found)
                    }
                    None if self.engine.now_ms() >= self.deadline_ms => {
                        Err(NoSlot::Interrupted(JobEvent::DeadlinePassed))
                    }
                    None => Err(self.no_slot()),
                };
            }
            let message = tokio::select! {
                biased;
                message = self.live.next() => message,
                () = self.sleep_until(give_up_ms) => continue,
            };
            if let JobMessage::Wake = message {
                ticket.take_wake();
                // Jobs that have waited may take the last slot of a node.
                search = Some(false);
            }
            self.on_message_while_waiting(message)?;
        }
    }

    pub(super) fn slot_request(&self) -> SlotRequest {
        let JobSpec { pair, needs, public, tenant, two_way, .. } = *self.spec;
        let only = self.spec.preferred.clone().filter(|_| self.is_strict());
        let is_restricted = two_way || !self.spec.exclude.is_empty();
        SlotRequest { pair, only, class: JobClass { needs, public, is_restricted, tenant } }
    }

    /// Only a cancel counts: all reports are about earlier attempts.
    pub(super) fn on_message_while_waiting(&mut self, message: JobMessage) -> Result<(), NoSlot> {
        match message {
            JobMessage::Cancel => return Err(NoSlot::Interrupted(JobEvent::Cancel)),
            JobMessage::Report(report, verdict_to) => self.refuse_report(&report, verdict_to),
            JobMessage::Partial(_) => self.count_stale_partial(),
            // The job holds no slot, and the next write finds out who owns it.
            JobMessage::NodeLost(..) | JobMessage::NotSent(_) | JobMessage::NotOwner => {}
            JobMessage::Wake => {}
        }
        Ok(())
    }

    /// Asks the cells, once each. `Ok(None)` means that it is worth waiting.
    async fn search(&mut self, keep_last: bool) -> Result<Option<Found>, NoSlot> {
        // What most jobs do not need is boxed, here and below, so that a job's state stays small.
        let may_be_pinned = self.spec.preferred.is_some() || self.spec.bind_key.is_some();
        if may_be_pinned && let Some(found) = Box::pin(self.ask_pinned_node()).await? {
            return Ok(Some(found));
        }
        if self.is_strict() {
            return Ok(None);
        }
        let tried: Vec<_> = self.machine.tried().to_vec();
        match self.ask_cells(keep_last, &tried).await? {
            Search::Found(found) => Ok(Some(found)),
            Search::Full { untried: true } => Ok(None),
            // Only nodes that failed it before are left: better one of those than none.
            Search::Full { untried: false } => {
                match Box::pin(self.ask_cells(keep_last, &[])).await? {
                    Search::Found(found) => Ok(Some(found)),
                    Search::Full { .. } => Ok(None),
                }
            }
        }
    }

    async fn ask_cells(
        &mut self,
        keep_last: bool,
        tried: &[(CellId, Slot)],
    ) -> Result<Search, NoSlot> {
        let why = loop {
            if let Some(search) = self.ask_known_cells(keep_last, tried).await? {
                return Ok(search);
            }
            if self.may_nodes_return() {
                return Ok(Search::Full { untried: true });
            }
            if let Some(why) = Box::pin(self.engine.why_no_node(&self.spec)).await {
                break why;
            }
        };
        self.count_empty_pool();
        let detail = format!("no registered node can serve {}: {why}", self.spec.pair);
        Err(NoSlot::Failed(JobFailure::NoCapableNode, Some(detail)))
    }

    /// Asks the cells that probably have a node, then all that are known; `None` if none has one.
    async fn ask_known_cells(
        &mut self,
        keep_last: bool,
        tried: &[(CellId, Slot)],
    ) -> Result<Option<Search>, NoSlot> {
        for everywhere in [false, true] {
            let mut full = None;
            for served in self.spec.pair.lookups() {
                self.served = served;
                match self.ask_cells_as_served(keep_last, tried, everywhere).await? {
                    Some(Search::Full { untried }) => full = Some(untried | full.unwrap_or(false)),
                    Some(found) => return Ok(Some(found)),
                    None => {}
                }
            }
            if let Some(untried) = full {
                return Ok(Some(Search::Full { untried }));
            }
        }
        Ok(None)
    }

    /// Asks the cells for nodes that registered the pair as the job is served now; `None` if no
    /// node did.
    async fn ask_cells_as_served(
        &self,
        keep_last: bool,
        tried: &[(CellId, Slot)],
        everywhere: bool,
    ) -> Result<Option<Search>, NoSlot> {
        let (mut any_capable, mut untried) = (false, false);
        let mut asked = AskedCells::default();
        while let Some(cell) = self.next_cell(&mut asked, everywhere) {
            let tried: SlotSet =
                tried.iter().filter(|(c, _)| *c == cell).map(|(_, slot)| *slot).collect();
            let is_open = self.spec.exclude.is_empty() && !self.spec.two_way;
            let exclude = match is_open {
                true => tried,
                false => tried | Box::pin(self.excluded_in(cell)).await?,
            };
            match self.ask_cell(cell, exclude, keep_last).await? {
                Ok(found) => return Ok(Some(Search::Found(found))),
                Err(ReserveOutcome::Full { capable, .. }) => {
                    any_capable = true;
                    untried |= usize::from(capable) > tried.len();
                }
                _ => {}
            }
        }
        Ok(any_capable.then_some(Search::Full { untried }))
    }

    /// Asks a cell for any of its nodes, and remembers what it tells about its capacity.
    pub(super) async fn ask_cell(
        &self,
        cell: CellId,
        exclude: SlotSet,
        keep_last: bool,
    ) -> Result<Result<Found, ReserveOutcome>, NoSlot> {
        let asked = self.engine.routes.version(cell);
        let reply = self.reserve(cell, exclude, None, keep_last).await?;
        let (routes, key, now_ms) = (&self.engine.routes, self.route_key(), self.engine.now_ms());
        match &reply {
            Ok(Found { left: Some(left), .. }) => routes.granted(key, cell, *left, now_ms),
            Ok(_) => {}
            Err(ReserveOutcome::Full { capacity, .. }) => {
                routes.full(key, cell, *capacity, now_ms);
            }
            Err(_) => routes.incapable_at(key, cell, asked),
        }
        Ok(reply)
    }

    /// The cell to ask next.
    pub(super) fn next_cell(&self, asked: &mut AskedCells, everywhere: bool) -> Option<CellId> {
        let (engine, key) = (&self.engine, self.route_key());
        let (random, now_ms) = (engine.random(), engine.now_ms());
        engine.routes.draw(key, asked, everywhere, random, now_ms, engine.typical_ms())
    }

    pub(super) fn route_key(&self) -> RouteKey {
        let JobSpec { public, tenant, .. } = *self.spec;
        let private_to = (!public).then_some(tenant);
        RouteKey { pair: self.served, needs: self.needs(), private_to }
    }

    /// Whether nodes may still be reconnecting: this instance has just started, or the store has
    /// forgotten them.
    pub(super) fn may_nodes_return(&self) -> bool {
        self.engine.now_ms() < self.nodes_return_until_ms || self.engine.is_after_failover()
    }

    /// The slots of a cell whose nodes the client excludes, or that serve only one direction of a
    /// two-way job.
    pub(super) async fn excluded_in(&self, cell: CellId) -> Result<SlotSet, NoSlot> {
        let mut slots = SlotSet::EMPTY;
        for node in &self.spec.exclude {
            let place = self.engine.store.locate(node).await?;
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
        let Some(back) = self.served.reversed() else { return Ok(SlotSet::EMPTY) };
        let needs = self.spec.needs;
        let (engine, question) = (&self.engine, (cell, back, needs));
        let now_ms = engine.now_ms();
        if let Some(known) = engine.one_way_nodes.get(&question, now_ms) {
            return Ok(known);
        }
        let view = engine.store.view(cell).await?;
        let rule = engine.options.rules.semantic;
        let lacks = view
            .nodes
            .iter()
            .filter(|n| n.profile.capabilities().missing(back, needs, rule).is_some());
        let slots: SlotSet = lacks.map(|node| node.place.slot).collect();
        engine.one_way_nodes.put(question, slots, now_ms);
        Ok(slots)
    }

    /// Asks a cell for a slot; the store's outcome if there is none.
    pub(super) async fn reserve(
        &self,
        cell: CellId,
        exclude: SlotSet,
        pin: Option<Pin>,
        keep_last: bool,
    ) -> Result<Result<Found, ReserveOutcome>, NoSlot> {
        let exclude = match self.engine.is_after_failover() {
            false => exclude,
            true => exclude | Box::pin(self.engine.unreported_slots(cell)).await?,
        };
        let query = self.engine.query(&self.spec, self.served, exclude, keep_last);
        let query = Query { needs: self.needs(), ..query };
        let request = ReserveRequest {
            key: self.key(),
            query,
            pin,
            ack_lease_ms: self.engine.options.times.ack_ms,
            random: self.engine.random(),
        };
        let store = &self.engine.store;
        let reply = timed!(self.engine, "reserve", store.reserve(cell, request))?;
        self.engine.leases_lost(reply.expired.iter().map(|expired| expired.key));
        self.engine.metrics.reserve.count(outcome_name(&reply.outcome));
        Ok(match reply.outcome {
            ReserveOutcome::Granted { grant, used, free, capacity, weight, .. } => {
                Ok(Found { grant, used, free, left: Some(capacity), weight })
            }
            ReserveOutcome::Duplicate(grant) => {
                Ok(Found { grant, used: 1, free: 0, left: None, weight: 0 })
            }
            other => Err(other),
        })
    }

    /// The services that a node must have, one more while the audio is still being spoken.
    fn needs(&self) -> Needs {
        let needs = self.spec.needs;
        match self.stream.is_on {
            true => Needs { extra: needs.extra.with(Service::Streaming), ..needs },
            false => needs,
        }
    }

    /// Clients can ask for any pair: only pairs that the pool table knows get a label of their own.
    fn count_empty_pool(&self) {
        let pair = self.spec.pair.to_string();
        let table = self.engine.table.lock().clone();
        let known = table.is_some_and(|table| table.knows(&pair));
        let label = if known { pair } else { "other".to_owned() };
        self.engine.metrics.pool_empty.get_or_create(&vec![("pair", label)]).inc();
    }
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
