//! Checks every operation of the store against the rules, from outside.
//!
//! Start at [`StoreChecker::cell`]: it compares a cell before and after one operation. It knows the
//! contract and nothing of the implementation.
//!
//! | rule | checker |
//! |---|---|
//! | `used` of a node is the number of its leases, at most its slots | S2 |
//! | after lost writes a node gets no job before it has reported | S2 |
//! | a node stops a job without a lease within 5 s of its report | S2 |
//! | an operation changes only the lease it names; stale ones change nothing; fences rise | S4 |
//! | a job is created once and ends once | S3 |
//! | only the current term publishes | S7 |

use std::collections::{BTreeMap, BTreeSet};

use lingua_core::job::Stage;
use lingua_core::{Attempt, CellId, Fence, InstanceId, JobId, NodeId, NodeState, Term};
use lingua_store::contract::{
    Bytes, CellRecord, ElectReply, LeaseKey, LeaseRecord, NodeRecord, Place, PublishReply,
    StoreIdentity,
};

use super::checker::Checker;

/// An operation on a cell.
#[derive(Debug, Clone)]
pub(super) enum CellOp {
    Register(Place),
    Heartbeat(Place, Vec<LeaseKey>),
    SetState(Place),
    Reserve(LeaseKey),
    Commit(LeaseKey),
    Finish(LeaseKey),
    Reap,
}

/// The rule and what broke it.
pub(super) type BrokenRule = (Checker, String);

/// How long after its report a node may run a job without a lease.
const REPAIRED_MS: u64 = 5_000;

/// After this many replies the node must have stopped; the first may belong to an older report.
const ANSWERS_ENOUGH: u32 = 2;

/// A job that a node runs without a lease, because a failover lost the lease.
#[derive(Debug)]
struct Unleased {
    identity: u64,
    since_ms: u64,
    /// Replies that reached the node since then.
    answers: u32,
}

/// An end, as it was written.
#[derive(Debug)]
struct SeenEnd {
    stage: Stage,
    outcome: Option<Bytes>,
}

impl SeenEnd {
    /// A lost end may be written again over a later attempt, but with the same outcome.
    fn is_same(&self, other: &Self) -> bool {
        self.stage.state == other.stage.state && self.outcome == other.outcome
    }
}

#[derive(Debug, Default)]
pub(super) struct StoreChecker {
    fences: BTreeMap<CellId, Fence>,
    /// The store identity at the last report of each node.
    reported: BTreeMap<NodeId, u64>,
    /// What each node process works on: a report that arrives late lists more.
    at_work: BTreeMap<u32, (NodeId, BTreeSet<LeaseKey>)>,
    /// Jobs that nodes reported and that have no lease.
    unleased: BTreeMap<(NodeId, LeaseKey), Unleased>,
    /// The store identity at the creation of each job.
    made: BTreeMap<JobId, u64>,
    ends: BTreeMap<JobId, SeenEnd>,
    /// The attempts in which each job ended: more than one if its end was lost.
    end_attempts: BTreeSet<(JobId, Attempt)>,
    term: Option<(Term, InstanceId)>,
}

impl StoreChecker {
    /// The store lost its last writes. Ends that no client has seen may change.
    pub(super) fn rolled_back(&mut self, was_told: impl Fn(JobId) -> bool) {
        self.term = None;
        self.ends.retain(|&job, _| was_told(job));
    }

    /// Checks one operation on a cell, by an instance that started when the store had the identity
    /// `born`.
    pub(super) fn cell(
        &mut self,
        op: &CellOp,
        (born, identity): (StoreIdentity, StoreIdentity),
        before: &CellRecord,
        after: &CellRecord,
    ) -> Result<(), BrokenRule> {
        counts(after, before)?;
        self.note_report(op, identity, after);
        self.repairs(op, identity, after)?;
        touches_only_its_own(op, before, after)?;
        let CellOp::Reserve(key) = op else { return Ok(()) };
        let Some(lease) = find(after, key.job).filter(|lease| lease.key == *key) else {
            return Ok(());
        };
        if before.leases.iter().any(|held| is_same(held, lease)) {
            return Ok(());
        }
        self.granted(lease, (born, identity), before, after)
    }

    fn note_report(&mut self, op: &CellOp, identity: StoreIdentity, after: &CellRecord) {
        let (CellOp::Register(place) | CellOp::Heartbeat(place, _)) = op else { return };
        let node = after.nodes.iter().find(|node| node.place == *place);
        if let Some(node) = node.filter(|node| node.heartbeat_ms == after.now_ms) {
            self.reported.insert(node.node.clone(), identity.0);
        }
    }

    /// A node process works on these jobs and on no others.
    pub(super) fn works(&mut self, process: u32, node: NodeId, running: BTreeSet<LeaseKey>) {
        match running.is_empty() {
            true => drop(self.at_work.remove(&process)),
            false => drop(self.at_work.insert(process, (node, running))),
        }
    }

    /// The reply to a report must end jobs without a lease.
    fn repairs(
        &mut self,
        op: &CellOp,
        identity: StoreIdentity,
        after: &CellRecord,
    ) -> Result<(), BrokenRule> {
        let CellOp::Heartbeat(place, running) = op else { return Ok(()) };
        let Some(node) = after.nodes.iter().find(|node| node.place == *place) else {
            return Ok(());
        };
        let has_lease = |key: &LeaseKey| {
            let of_place =
                |lease: &LeaseRecord| (lease.slot, lease.epoch) == (place.slot, place.epoch);
            after.leases.iter().any(|lease| lease.key == *key && of_place(lease))
        };
        let works_on = |key: &LeaseKey| {
            self.at_work.values().any(|(who, running)| *who == node.node && running.contains(key))
        };
        let unleased: Vec<LeaseKey> =
            running.iter().filter(|key| !has_lease(key) && works_on(key)).copied().collect();
        self.unleased.retain(|(who, key), _| *who != node.node || unleased.contains(key));
        for key in unleased {
            let now = Unleased { identity: identity.0, since_ms: after.now_ms, answers: 0 };
            let known = self.unleased.entry((node.node.clone(), key)).or_insert(now);
            if known.identity != identity.0 {
                *known = Unleased { identity: identity.0, since_ms: after.now_ms, answers: 0 };
            }
            let since_ms = after.now_ms - known.since_ms;
            if since_ms >= REPAIRED_MS && known.answers >= ANSWERS_ENOUGH {
                let text = format!(
                    "{} works on {key:?} without a lease {since_ms} ms after it said so",
                    node.node
                );
                return Err((Checker::S2, text));
            }
        }
        Ok(())
    }

    /// A reply to a report has reached its node.
    pub(super) fn answered(&mut self, node: &NodeId) {
        for ((who, _), unleased) in &mut self.unleased {
            unleased.answers += u32::from(who == node);
        }
    }

    fn granted(
        &mut self,
        lease: &LeaseRecord,
        (born, identity): (StoreIdentity, StoreIdentity),
        before: &CellRecord,
        after: &CellRecord,
    ) -> Result<(), BrokenRule> {
        let highest = self.fences.entry(after.cell).or_default();
        if lease.fence <= *highest {
            let text = format!("fence {} after {highest}", lease.fence);
            return Err((Checker::S4, text));
        }
        *highest = lease.fence;
        let Some(node) = at(after, lease) else {
            return Err((Checker::S2, format!("{:?} was granted on nobody", lease.key)));
        };
        let was = before.nodes.iter().find(|node| node.place == place_of(after, lease));
        let may = was.is_some_and(|node| {
            node.state == NodeState::Ready && node.fresh_until_ms >= after.now_ms
        });
        if !may {
            let text = format!("{:?} was granted on {}: {was:?}", lease.key, node.node);
            return Err((Checker::S4, text));
        }
        // An instance that started after the writes were lost cannot know of the loss.
        let knows = born != identity;
        if knows && self.reported.get(&node.node) != Some(&identity.0) {
            let text = format!(
                "{:?} was granted on {} before it reported to the new identity of the store",
                lease.key, node.node
            );
            return Err((Checker::S2, text));
        }
        Ok(())
    }

    /// Checks a created job.
    pub(super) fn created(
        &mut self,
        job: JobId,
        identity: StoreIdentity,
    ) -> Result<(), BrokenRule> {
        match self.made.insert(job, identity.0) {
            Some(before) if before == identity.0 => {
                Err((Checker::S3, format!("{job} was made a second time")))
            }
            _ => Ok(()),
        }
    }

    /// Checks a job's end. A lost end may be written again, but not another one.
    pub(super) fn advanced(
        &mut self,
        job: JobId,
        to: Stage,
        outcome: Option<Bytes>,
    ) -> Result<(), BrokenRule> {
        if !to.state.is_terminal() {
            return Ok(());
        }
        let end = SeenEnd { stage: to, outcome };
        let before = self.ends.get(&job).filter(|before| !before.is_same(&end));
        let text = before.map(|before| format!("{job} ended as {} and then as {to}", before.stage));
        self.end_attempts.insert((job, to.attempt));
        self.ends.insert(job, end);
        text.map_or(Ok(()), |text| Err((Checker::S3, text)))
    }

    /// Whether the job has ended in this attempt, whatever the store lost later.
    pub(super) fn has_ended_in(&self, job: JobId, attempt: Attempt) -> bool {
        self.end_attempts.contains(&(job, attempt))
    }

    pub(super) fn elected(&mut self, me: &InstanceId, election: &ElectReply) {
        let ElectReply::Leading { term, .. } = election else { return };
        self.term = Some((*term, me.clone()));
    }

    pub(super) fn published(
        &self,
        me: &InstanceId,
        term: Term,
        reply: PublishReply,
    ) -> Result<(), BrokenRule> {
        let PublishReply::Published(version) = reply else { return Ok(()) };
        match &self.term {
            Some(present) if *present != (term, me.clone()) => {
                let text =
                    format!("{me} published {version} in term {term}; {present:?} is present");
                Err((Checker::S7, text))
            }
            _ => Ok(()),
        }
    }
}

/// `used` is the number of leases and at most the number of slots. A node that reduced its slots
/// may keep its leases until they end.
fn counts(after: &CellRecord, before: &CellRecord) -> Result<(), BrokenRule> {
    for node in &after.nodes {
        let leases = after.leases.iter().filter(|lease| lease.slot == node.place.slot).count();
        let max = usize::from(node.profile.slots_max());
        let had = before.nodes.iter().find(|n| n.place == node.place).map_or(0, |n| n.used);
        if leases != usize::from(node.used) {
            let text = format!("{} counts {} with {leases} leases", node.node, node.used);
            return Err((Checker::S2, text));
        }
        if leases > max && leases > usize::from(had) {
            let text = format!("{} has {leases} leases for {max} slots", node.node);
            return Err((Checker::S2, text));
        }
    }
    Ok(())
}

fn touches_only_its_own(
    op: &CellOp,
    before: &CellRecord,
    after: &CellRecord,
) -> Result<(), BrokenRule> {
    let now_ms = after.now_ms;
    let wrong = |lease: &LeaseRecord, what: &str| {
        let text = format!("{op:?} {what} the lease {:?} on slot {}", lease.key, lease.slot);
        Err((Checker::S4, text))
    };
    for lease in &before.leases {
        let Some(now) = after.leases.iter().find(|now| is_same(now, lease)) else {
            let may = match op {
                CellOp::Register(place) | CellOp::SetState(place) => {
                    place.slot == lease.slot && place.epoch >= lease.epoch
                }
                CellOp::Reserve(key) => {
                    lease.deadline_ms < now_ms
                        || key.job == lease.key.job && key.attempt > lease.key.attempt
                }
                CellOp::Finish(key) => *key == lease.key,
                CellOp::Reap => lease.deadline_ms < now_ms,
                CellOp::Heartbeat(..) | CellOp::Commit(_) => false,
            };
            match may {
                true => continue,
                false => return wrong(lease, "ended"),
            }
        };
        let may = match op {
            CellOp::Commit(key) => *key == lease.key,
            CellOp::Heartbeat(place, running) => {
                let own = (place.slot, place.epoch) == (lease.slot, lease.epoch);
                own && running.contains(&lease.key)
            }
            // A lease that a registration keeps moves to the new epoch, and nothing else changes.
            CellOp::Register(place) => {
                let moved = LeaseRecord { epoch: place.epoch, ..*lease };
                place.slot == lease.slot && place.epoch > lease.epoch && *now == moved
            }
            _ => false,
        };
        if now != lease && !may {
            return wrong(lease, "changed");
        }
    }
    for lease in &after.leases {
        let is_new = !before.leases.iter().any(|held| is_same(held, lease));
        let may = matches!(op, CellOp::Reserve(key) if *key == lease.key);
        if is_new && !may {
            return wrong(lease, "made");
        }
    }
    stale_beats_change_nothing(op, before, after)
}

fn stale_beats_change_nothing(
    op: &CellOp,
    before: &CellRecord,
    after: &CellRecord,
) -> Result<(), BrokenRule> {
    let CellOp::Heartbeat(place, _) = op else { return Ok(()) };
    let is_known = before.nodes.iter().any(|node| node.place == *place);
    match is_known || before.nodes == after.nodes {
        true => Ok(()),
        false => Err((Checker::S4, format!("a heartbeat of {place:?}, which is over, counted"))),
    }
}

fn find(view: &CellRecord, job: JobId) -> Option<&LeaseRecord> {
    view.leases.iter().find(|lease| lease.key.job == job)
}

/// Whether both are the same lease, renewed or not. An attempt may get a second lease after its
/// first has expired.
fn is_same(a: &LeaseRecord, b: &LeaseRecord) -> bool {
    (a.key, a.fence) == (b.key, b.fence)
}

fn place_of(view: &CellRecord, lease: &LeaseRecord) -> Place {
    Place { cell: view.cell, slot: lease.slot, epoch: lease.epoch }
}

fn at<'a>(view: &'a CellRecord, lease: &LeaseRecord) -> Option<&'a NodeRecord> {
    let place = place_of(view, lease);
    view.nodes.iter().find(|node| node.place == place)
}
