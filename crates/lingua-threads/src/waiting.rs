//! Races in the park and wake path of the waiting queue.
//!
//! Start at [`every_waiter_that_could_get_a_slot_gets_it`]. A waiter does here what a runner does: look if there is
//! no line, park, look again if it is first, wait. A wake that is lost leaves a thread asleep for ever, which ends
//! the schedule as a deadlock.

use std::sync::Arc;

use lingua_core::job::{JobMachine, JobSpec, JobState, Payload};
use lingua_core::{JobId, Needs, Profile, SemanticRule};
use lingua_store::conformance::fixture::{pair, profile};
use shuttle::future::block_on;
use shuttle::thread;

use crate::live_jobs::{JobMessage, JobSignal, LiveJob, Milestone};
use crate::locks::Mutex;
use crate::queue::{Queue, Want};
use crate::race;
use crate::request::{JobEnd, JobRequest, Progress};

/// The words that may wait for a job.
const WORDS_MAX: usize = 4;

/// A node with a number of free slots, and the line before it.
struct Node {
    queue: Arc<Queue>,
    free: Mutex<usize>,
    profile: Arc<Profile>,
}

impl Node {
    fn new() -> Arc<Self> {
        let (queue, profile) = (Queue::new(SemanticRule::Source), profile("zh en", 8));
        Arc::new(Self { queue, free: Mutex::new(0), profile })
    }

    fn give_back(&self) {
        *self.free.lock() += 1;
        self.queue.wake_for(&self.profile);
    }

    /// Takes a slot, if one is free; says how many are left.
    fn take(&self) -> Option<usize> {
        let mut free = self.free.lock();
        *free = free.checked_sub(1)?;
        Some(*free)
    }

    /// What a runner does; whether it got a slot before it was called off.
    fn wait_for_slot(&self, live: &Arc<LiveJob>) -> bool {
        let want = Want { pair: pair("zh:en"), needs: Needs::SPEECH_TO_TEXT, public: true };
        if !self.queue.has_waiter_ahead(want.pair, 0) && self.take().is_some() {
            return true;
        }
        let sleeper = Arc::clone(live);
        let (ticket, mut look) = self.queue.park(want, 0, sleeper);
        loop {
            if look && let Some(left) = self.take() {
                if left > 0 {
                    ticket.leave_with_slots_free();
                }
                return true;
            }
            match block_on(live.next()) {
                JobSignal::SlotFreed => {
                    ticket.take_wake();
                    look = true;
                }
                JobSignal::Message(_) => return false,
            }
        }
    }
}

fn job(n: u128) -> Arc<LiveJob> {
    let request = JobRequest::new(JobId::new(n), JobSpec::new(pair("zh:en"), Payload::Absent));
    let progress = Progress::at(JobMachine::new().stage());
    Arc::new(LiveJob::new(request, 0, progress, WORDS_MAX))
}

/// One slot for three jobs, each of which gives it back when it has had it: all three get it, without any help of
/// the clean-up.
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

/// Three slots come free at once for three jobs. The first in line may find one that came free before it parked, and
/// nobody tells those behind it of the others but itself.
pub fn room_that_nobody_told_of_is_passed_on(schedules: usize) {
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

/// One slot for two, of whom the first may be called off in the moment in which it is woken: the other gets the slot.
pub fn a_wake_that_is_not_used_is_passed_on(schedules: usize) {
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
        leaver.send(JobMessage::Cancel).expect("room for a word");
        for thread in [leaves, stays, gives] {
            thread.join().expect("the one who stays got the slot");
        }
        assert_eq!((*node.free.lock(), node.queue.len()), (0, 0));
    });
}

/// Whoever waits for a job's end hears of it, however the wait and the end fall together.
pub fn whoever_waits_for_an_end_hears_of_it(schedules: usize) {
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
            waiter.join().expect("it heard of the end");
        }
    });
}
