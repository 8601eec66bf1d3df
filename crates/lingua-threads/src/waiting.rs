//! Races of waiting jobs and freed slots.
//!
//! Start at [`every_waiter_that_could_get_a_slot_gets_it`]. A waiter does what a runner does: it
//! looks for a slot if no other job waits, parks, looks again if it is first, and waits. A lost
//! wake leaves a thread unwoken for ever, which ends the schedule as a deadlock.

use std::sync::Arc;

use lingua_core::job::{JobMachine, JobSpec, JobState, Payload};
use lingua_core::{JobId, Needs, Profile, SemanticRule, Tenant};
use lingua_store::conformance::fixture::{pair, profile};
use shuttle::future::block_on;
use shuttle::thread;

use crate::live_jobs::{JobMessage, LiveJob, Milestone};
use crate::locks::Mutex;
use crate::queue::{JobClass, Queue, SlotRequest};
use crate::race;
use crate::request::{JobEnd, JobRequest, Progress};
use crate::tenants::TenantTable;

/// Messages that may wait for a job.
const INBOX_MAX: usize = 4;

/// A node with a number of free slots, and the jobs that wait for them.
struct Node {
    queue: Arc<Queue>,
    free: Mutex<usize>,
    profile: Arc<Profile>,
}

impl Node {
    fn new() -> Arc<Self> {
        let queue = Queue::new(SemanticRule::Source, TenantTable::default());
        let profile = profile("zh en", 8);
        Arc::new(Self { queue, free: Mutex::new(0), profile })
    }

    fn give_back(&self) {
        *self.free.lock() += 1;
        self.queue.wake_for(&self.profile);
    }

    /// Takes a slot if one is free; returns how many are left.
    fn take(&self) -> Option<usize> {
        let mut free = self.free.lock();
        *free = free.checked_sub(1)?;
        Some(*free)
    }

    /// Waits for a slot as a runner does; says whether it got one before it was cancelled.
    fn wait_for_slot(&self, live: &Arc<LiveJob>) -> bool {
        let (needs, tenant) = (Needs::SPEECH_TO_TEXT, live.request.spec.tenant);
        let class = JobClass { needs, public: true, is_restricted: false, tenant };
        let request = SlotRequest { pair: pair("zh:en"), only: None, class };
        if self.queue.enter(&request, Some(0)).is_some() && self.take().is_some() {
            return true;
        }
        let sleeper = Arc::clone(live);
        let (ticket, mut look) = self.queue.park(request, 0, sleeper);
        let mut was_woken = false;
        loop {
            if look {
                if let Some(left) = self.take() {
                    drop(ticket.leave_with_slot(left > 0));
                    return true;
                }
                ticket.found_none(was_woken);
            }
            match block_on(live.next()) {
                JobMessage::Wake => {
                    ticket.take_wake();
                    (look, was_woken) = (true, true);
                }
                _ => return false,
            }
        }
    }
}

/// A job; odd and even ones belong to different tenants.
fn job(n: u128) -> Arc<LiveJob> {
    let mut spec = JobSpec::new(pair("zh:en"), Payload::Absent);
    if n % 2 == 1 {
        spec.tenant = Tenant::new("other").expect("a valid name");
    }
    let request = JobRequest::new(JobId::new(n), spec);
    let progress = Progress::at(JobMachine::new().stage());
    Arc::new(LiveJob::new(request, 0, progress, INBOX_MAX))
}

/// One slot for three jobs, each of which releases it: all three get it without the clean-up.
pub fn every_waiter_that_could_get_a_slot_gets_it(schedules: usize) {
    race(schedules, || {
        let node = Node::new();
        let waiters: Vec<_> = (0..3)
            .map(|n| {
                let node = Arc::clone(&node);
                thread::spawn(move || {
                    assert!(node.wait_for_slot(&job(n)));
                    node.give_back();
                })
            })
            .collect();
        node.give_back();
        for thread in waiters {
            thread.join().expect("it got its slot");
        }
        assert_eq!((*node.free.lock(), node.queue.len()), (1, 0));
    });
}

/// Three slots come free at once for three jobs. The first job may find a slot that came free
/// before it parked; then only that job can wake the ones behind it.
pub fn a_slot_found_without_a_wake_wakes_the_next(schedules: usize) {
    race(schedules, || {
        let node = Node::new();
        let waiters: Vec<_> = (0..3)
            .map(|n| {
                let node = Arc::clone(&node);
                thread::spawn(move || assert!(node.wait_for_slot(&job(n))))
            })
            .collect();
        (0..3).for_each(|_| node.give_back());
        for thread in waiters {
            thread.join().expect("it got its slot");
        }
        assert_eq!((*node.free.lock(), node.queue.len()), (0, 0));
    });
}

/// One slot for two jobs. The first may be cancelled in the moment in which it is woken: the other
/// one gets the slot.
pub fn an_unused_wake_is_passed_on(schedules: usize) {
    race(schedules, || {
        let node = Node::new();
        let (leaver, stayer) = (job(1), job(2));
        let leaves = {
            let (node, live) = (Arc::clone(&node), Arc::clone(&leaver));
            thread::spawn(move || {
                if node.wait_for_slot(&live) {
                    node.give_back();
                }
            })
        };
        let stays = {
            let node = Arc::clone(&node);
            thread::spawn(move || assert!(node.wait_for_slot(&stayer)))
        };
        let gives = {
            let node = Arc::clone(&node);
            thread::spawn(move || node.give_back())
        };
        leaver.send(JobMessage::Cancel).expect("room in the inbox");
        for thread in [leaves, stays, gives] {
            thread.join().expect("the other job got the slot");
        }
        assert_eq!((*node.free.lock(), node.queue.len()), (0, 0));
    });
}

/// Every waiter learns of a job's end, however the wait and the end interleave.
pub fn every_waiter_learns_of_the_end(schedules: usize) {
    race(schedules, || {
        let live = job(1);
        let waiters: Vec<_> = [Milestone::Sent, Milestone::Ended]
            .map(|milestone| {
                let live = Arc::clone(&live);
                thread::spawn(move || assert!(block_on(live.wait_reached(milestone))))
            })
            .into();
        live.set_progress(|progress| progress.state = JobState::Selecting);
        live.set_progress(|progress| {
            progress.state = JobState::Done;
            progress.ended = Some(Arc::new(JobEnd::default()));
        });
        live.close();
        for waiter in waiters {
            waiter.join().expect("it learned of the end");
        }
    });
}
