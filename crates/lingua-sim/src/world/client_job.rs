//! The jobs that clients submit.
//!
//! Start at [`ClientJob::of`]: the job of a number is the same in every run of a seed.

use std::sync::Arc;

use lingua_core::job::{JobSpec, Payload};
use lingua_core::{JobId, NodeId, Tenant};
use lingua_engine::request::JobRequest;

use super::plan::{Fault, GROUPS, WorldPlan};
use super::rng::SimRng;

/// Whether a job is public, and whose it is.
pub(super) type JobOwner = (bool, Tenant);

/// A job and the behaviour of its client.
#[derive(Debug, Clone)]
pub(super) struct ClientJob {
    pub(super) number: usize,
    /// The instance whose nodes serve its languages.
    pub(super) home: usize,
    pub(super) request: JobRequest,
    /// The instance that gets it first.
    pub(super) first_at: usize,
    /// The client cancels it after this time.
    pub(super) cancel_after_ms: Option<u64>,
    /// The client disconnects this long after it first submitted the job.
    pub(super) hangs_up_ms: Option<u64>,
    /// The client is away for this long after the job was accepted.
    pub(super) gone_ms: Option<u64>,
}

impl ClientJob {
    /// A job of the time in which faults happen.
    pub(super) fn of(plan: &WorldPlan, number: usize) -> Self {
        let mut luck = SimRng::new(plan.seed, &format!("turn {number}"));
        let home = luck.between(0, plan.instances as u64 - 1) as usize;
        let other = luck.between(0, plan.instances as u64 - 1) as usize;
        let first_at = if luck.permille(150) { other } else { home };
        let bad = plan.has(Fault::BadClients);
        let mut spec = spec(home, luck.permille(500));
        spec.deadline_ms = Some(luck.between(2_000, 12_000));
        spec.wait_ms = Some(*luck.pick(&[0, 500, 2_000, 6_000]));
        spec.priority = *luck.pick(&[0, 0, 0, 5]);
        if luck.permille(200) {
            let (format, data) = (Arc::from("pcm16"), "audio".into());
            spec.payload = Payload::Audio { format, sample_rate: Some(16_000), data };
        }
        if luck.permille(250) {
            spec.bind_key = Some(format!("turn-{home}-{}", luck.between(0, 3)).into());
        }
        if luck.permille(50) {
            let node = luck.between(0, plan.nodes.len() as u64 - 1) as usize;
            spec.preferred = Some(node_id(node));
        }
        if let Some(fleet) = &plan.fleet {
            fleet.own_job(&mut spec, &mut SimRng::new(plan.seed, &format!("owner {number}")));
        }
        let request = JobRequest::new(JobId::new(number as u128), spec);
        let cancel_after_ms = Some(luck.between(0, 3_000)).filter(|_| luck.permille(100) && bad);
        let gone_ms = Some(luck.between(100, 5_000)).filter(|_| luck.permille(200) && bad);
        let hangs_up_ms = Some(luck.between(2, 8)).filter(|_| luck.permille(100) && bad);
        Self { number, home, request, first_at, cancel_after_ms, hangs_up_ms, gone_ms }
    }

    /// A job of the quiet end: all of these must succeed, wherever they are submitted. A private
    /// one belongs to `private_to`.
    pub(super) fn last(
        plan: &WorldPlan,
        number: usize,
        home: usize,
        private_to: Option<Tenant>,
    ) -> Self {
        let mut spec = spec(home, number.is_multiple_of(2));
        spec.public = private_to.is_none();
        let some_tenant = plan.fleet.as_ref().map(|fleet| fleet.tenant(number));
        spec.tenant = private_to.or(some_tenant).unwrap_or_default();
        spec.deadline_ms = Some(LAST_MS);
        spec.wait_ms = Some(LAST_MS);
        let request = JobRequest::new(JobId::new(number as u128), spec);
        let (cancel_after_ms, hangs_up_ms, gone_ms) = (None, None, None);
        let first_at = number % plan.instances;
        Self { number, home, request, first_at, cancel_after_ms, hangs_up_ms, gone_ms }
    }

    pub(super) fn owner(&self) -> JobOwner {
        (self.request.spec.public, self.request.spec.tenant)
    }
}

/// Deadline of a job of the quiet end: enough for every queue.
pub(super) const LAST_MS: u64 = 20_000;

pub(super) fn node_id(node: usize) -> NodeId {
    NodeId::new(&format!("n{node}")).expect("a name of a node")
}

fn spec(home: usize, there: bool) -> JobSpec {
    let [a, b] = GROUPS[home];
    let pair = if there { format!("{a}:{b}") } else { format!("{b}:{a}") };
    let pair = pair.parse().expect("a pair of the world");
    JobSpec {
        session: Arc::from("room"),
        trace: Arc::from("trace"),
        ..JobSpec::new(pair, Payload::AudioRef(Arc::from("blob://1")))
    }
}
