//! What the world knows of its jobs and faults.
//!
//! Start at [`World::check_overdue`].

use std::sync::atomic::Ordering;

use lingua_core::{Fence, JobId};
use lingua_store::Store;
use lingua_store::embedded::LostWrites;

use super::checker::{Checker, JobFacts, ObservedEnd};
use super::client_job::{ClientJob, JobOwner};
use super::plan::Fault;
use super::trace::Subject;
use super::{World, node};

/// How long after its deadline a job may end.
const GRACE_MS: u64 = 2_000;

/// How long jobs may be late after a fault of store or instances: the record of a dead instance
/// expires (9 s), another looks for orphans (3 s) and waits for their nodes (5 s).
const TAKEOVER_MS: u64 = 17_000;

/// How long after the end its client may learn of it: it may be away (5 s), and messages may be
/// lost.
const DELIVERY_MS: u64 = 25_000;

impl World {
    /// The number of the next job.
    pub(super) fn next_job(&self) -> usize {
        let mut jobs = self.jobs.lock();
        jobs.push(JobFacts { asked_ms: self.now_ms(), ..JobFacts::default() });
        self.begun.lock().push(false);
        jobs.len() - 1
    }

    /// The number of the next job that is a segment of a session.
    pub(super) fn next_segment(&self) -> usize {
        let number = self.next_job();
        let facts = &mut self.jobs.lock()[number];
        (facts.is_segment, facts.held) = (true, true);
        number
    }

    /// The client of a segment got a result.
    pub(super) fn saw_segment(&self, job: usize, seen: ObservedEnd) {
        self.jobs.lock()[job].seen = Some(seen);
    }

    /// The store has saved a session.
    pub(super) fn saved_session(&self, id: &str) {
        let now_ms = self.now_ms();
        let mut session_checkers = self.session_checkers.lock();
        if let Some(checker) = session_checkers.iter_mut().find(|checker| checker.name == id) {
            checker.saved_ms = now_ms;
        }
    }

    pub(super) fn count_speech(&self, what: &str) {
        *self.tally.lock().speech.entry(what.to_owned()).or_default() += 1;
    }

    /// Whether the store lost session records since then.
    pub(super) fn has_forgotten_sessions_since(&self, ms: u64) -> bool {
        let loses = |lost| matches!(lost, LostWrites::Everything | LostWrites::Cluster);
        self.rollbacks.lock().iter().any(|&(_, at_ms, lost)| loses(lost) && at_ms >= ms)
    }

    /// Checks that accepted segments get an outcome in time, while nothing delays their connection.
    pub(super) fn check_session_delays(&self) {
        let now_ms = self.now_ms();
        let is_bad = self.network.lock().is_bad(now_ms);
        let mut found = Ok(());
        for checker in self.session_checkers.lock().iter_mut().filter(|checker| !checker.is_over) {
            let run = checker.at.and_then(|(i, run)| self.run(i).filter(|l| l.number == run));
            match run {
                Some(run) if !run.faults.is_paused() && !is_bad => {
                    found = found.and(checker.check_overdue(now_ms));
                }
                _ => checker.disturbed(now_ms),
            }
        }
        if let Err((checker, text)) = found {
            self.fail(checker, Subject::default(), text);
        }
    }

    pub(super) fn accepted(&self, turn: &ClientJob, held: bool) {
        let now_ms = self.now_ms();
        let facts = &mut self.jobs.lock()[turn.number];
        facts.accepted_ms.get_or_insert(now_ms);
        facts.held |= held;
        facts.deadline_ms = now_ms + turn.request.spec.deadline_ms.unwrap_or(0);
    }

    pub(super) fn client_saw(&self, job: usize, seen: ObservedEnd) {
        let now_ms = self.now_ms();
        let facts = {
            let facts = &mut self.jobs.lock()[job];
            (facts.seen, facts.seen_ms) = (Some(seen), now_ms);
            facts.clone()
        };
        let accepted_ms = facts.accepted_ms.unwrap_or(now_ms);
        let mut tally = self.tally.lock();
        for &(fault, at_ms) in self.injected.lock().iter() {
            if (accepted_ms..=now_ms).contains(&at_ms) {
                tally.outlived(fault, now_ms - at_ms, self.plan.seed);
            }
        }
    }

    pub(super) fn began(
        &self,
        job: usize,
        node: usize,
        process: u32,
        fence: Fence,
        running: usize,
    ) {
        self.begun.lock()[job] = true;
        let slots = self.plan.nodes[node].slots;
        let found = self.observer.lock().began(process, fence, running, slots);
        if let Some((checker, text)) = found {
            self.fail(checker, Subject::both(job, node), format!("n{node} {text}"));
        }
    }

    pub(super) fn has_begun(&self, job: usize) -> bool {
        self.begun.lock()[job]
    }

    /// Whether a job was sent after the faults.
    pub(super) fn is_last(&self, job: usize) -> bool {
        let is_segment = self.jobs.lock()[job].is_segment;
        job >= self.last_from.load(Ordering::Relaxed) && !is_segment
    }

    pub(super) fn facts(&self) -> Vec<(usize, JobFacts)> {
        self.jobs.lock().iter().cloned().enumerate().collect()
    }

    pub(super) fn all_seen(&self) -> bool {
        let jobs = self.jobs.lock();
        let from = self.last_from.load(Ordering::Relaxed).min(jobs.len());
        jobs[from..].iter().all(|facts| facts.seen.is_some() || facts.is_segment)
    }

    pub(super) fn present(&self) -> Vec<(usize, node::ProcessHandle)> {
        let processes = self.processes.lock();
        let present = processes.present.iter().enumerate();
        present.filter_map(|(node, seen)| Some((node, seen.clone()?))).collect()
    }

    /// The free slots of a language group on nodes that take one of these jobs.
    pub(super) fn free_slots(&self, home: usize, owners: &[JobOwner]) -> usize {
        let free = |(node, seen): (usize, node::ProcessHandle)| {
            let slots = usize::from(self.plan.nodes[node].slots);
            let is_there = seen.at_home.load(Ordering::Relaxed);
            if is_there { slots.saturating_sub(seen.running.load(Ordering::Relaxed)) } else { 0 }
        };
        let takes_one = |node| {
            let profile = self.profile(node);
            owners.iter().any(|&(public, tenant)| profile.admits(public, tenant))
        };
        let here = self.present().into_iter();
        let here = here.filter(|(node, _)| self.plan.nodes[*node].home == home && takes_one(*node));
        here.map(free).sum()
    }

    /// Records a fault that lasts until `until_ms`.
    pub(super) fn fault_injected(&self, fault: Fault, until_ms: u64) {
        self.count_fault(fault);
        self.injected.lock().push((fault, self.now_ms()));
        if fault.delays_ends() {
            let mut disturbed = self.disturbed_until_ms.lock();
            *disturbed = until_ms.max(*disturbed);
        }
    }

    pub(super) fn count_fault(&self, fault: Fault) {
        *self.tally.lock().faults.entry(fault).or_default() += 1;
    }

    /// Whether a job may be lost: the store lost its record, and no instance that knew of it
    /// survived.
    pub(super) fn may_be_lost(&self, facts: &JobFacts) -> bool {
        let deaths = self.deaths.lock();
        self.rollbacks.lock().iter().any(|&(from_ms, at_ms, lost)| {
            let loses_jobs = matches!(lost, LostWrites::Everything | LostWrites::Jobs);
            let touches = loses_jobs && facts.asked_ms <= at_ms;
            touches && (!facts.held || deaths.iter().any(|&(_, died_ms)| died_ms >= from_ms))
        })
    }

    pub(super) fn may_have_lost(&self, job: JobId) -> bool {
        let facts = self.jobs.lock()[job.number() as usize].clone();
        self.may_be_lost(&facts)
    }

    /// Checks that jobs end by their deadline, except during faults of store or instances.
    pub(super) async fn check_overdue(&self) {
        let now_ms = self.now_ms();
        let disturbed_ms = *self.disturbed_until_ms.lock();
        for (job, facts) in self.facts() {
            let late_ms = facts.deadline_ms + GRACE_MS;
            if facts.accepted_ms.is_none()
                || facts.seen.is_some()
                || facts.excused
                || now_ms < late_ms
            {
                continue;
            }
            let is_excused = disturbed_ms > 0 && now_ms < disturbed_ms + TAKEOVER_MS + GRACE_MS;
            if is_excused {
                continue;
            }
            let about = Subject::job(job);
            let record = self.store.job(JobId::new(job as u128)).await.ok().flatten();
            let has_ended = record.as_ref().is_some_and(|r| r.stage.state.is_terminal());
            let is_delivered_late = now_ms > late_ms.max(disturbed_ms + TAKEOVER_MS) + DELIVERY_MS;
            let is_unseen = has_ended && is_delivered_late && !self.is_quiet();
            if has_ended && !is_unseen {
                continue;
            }
            if self.may_be_lost(&facts) {
                self.jobs.lock()[job].excused = true;
                continue;
            }
            let stands = record.map(|record| (record.stage, record.owner));
            self.fail(Checker::S3, about, format!("{about} is overdue; the store says {stands:?}"));
        }
    }

    pub(super) fn count_outcomes(&self) {
        let mut tally = self.tally.lock();
        tally.worlds = 1;
        tally.sim_ms = self.now_ms() - super::START_MS;
        for facts in self.jobs.lock().iter().filter(|facts| !facts.is_segment) {
            let outcome = match &facts.seen {
                Some(seen) => match &seen.error {
                    Some(error) => format!("{} {error}", seen.state),
                    None => seen.state.to_string(),
                },
                None if facts.excused => "lost in a failover with a crash".to_owned(),
                None if facts.accepted_ms.is_none() => "not accepted".to_owned(),
                None => "end not seen".to_owned(),
            };
            *tally.outcomes.entry(outcome).or_default() += 1;
        }
    }
}
