//! How a node process does its jobs, or does not.
//!
//! Start at [`Process::admit`], the last admission check.

use std::sync::Arc;
use std::time::Duration;

use lingua_core::Fence;
use lingua_engine::node::Assignment;
use lingua_store::contract::LeaseKey;

use super::{Link, Process, UnconfirmedResult, Work};
use crate::world::connection::{ProcessEvent, SimNodeMessage};
use crate::world::job_audio::JobAudio;
use crate::world::plan::Fault;
use crate::world::planted::NodeBug;
use crate::world::trace::Subject;

/// How the node treats a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobBehaviour {
    Well,
    Twice,
    WrongAttemptFirst,
    WrongFenceFirst,
    LateAck,
    NoAck,
    Never,
    Hangs,
    Fails { retryable: bool },
}

impl Process {
    /// The last admission check.
    pub(super) fn admit(&mut self, assignment: &Assignment) {
        let Assignment { job, attempt, fence, .. } = *assignment;
        let key = LeaseKey { job, attempt };
        if self.running.get(&key).is_some_and(|work| work.fence == fence) {
            return self.send(SimNodeMessage::Ack(key, fence));
        }
        if let Some(unconfirmed) = self.unconfirmed.get(&key) {
            return self.send(unconfirmed.message.clone());
        }
        let is_stale = fence <= self.fence_highest && !self.world.has_bug(NodeBug::NoFence);
        // A node that is seldom told whether the order still holds leaves it to the scheduler.
        let is_draining = self.draining && self.habits.lists_running;
        let is_full = self.running.len() >= usize::from(self.plan.slots) || is_draining;
        let is_full = is_full && !self.world.has_bug(NodeBug::NoAdmission);
        self.fence_highest = self.fence_highest.max(fence);
        let about = Subject::both(job.number() as usize, self.node);
        if is_stale || is_full {
            let reason = if is_stale { "STALE_FENCE" } else { "BUSY" };
            self.note(about, format_args!("refuses {about} a{attempt}: {reason}"));
            return self.send(SimNodeMessage::Fail(key, fence, reason, true));
        }
        let behaviour = self.choose_behaviour();
        if behaviour == JobBehaviour::Never {
            return self.note(about, format_args!("ignores {about} a{attempt}"));
        }
        self.begin(key, fence, behaviour, JobAudio::of(assignment));
        if !self.habits.lists_running {
            // Nobody can tell it that a job is over whose cancellation was lost.
            let ms = assignment.deadline_ms.saturating_sub(self.world.now_ms());
            self.send_later(ms, ProcessEvent::OutOfTime(key, self.serial));
        }
    }

    /// Sends the process an event.
    fn send_later(&self, ms: u64, event: ProcessEvent) {
        let to = self.handle.to.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            to.send(event).await.ok();
        });
    }

    fn choose_behaviour(&mut self) -> JobBehaviour {
        const BAD: [JobBehaviour; 9] = [
            JobBehaviour::Twice,
            JobBehaviour::WrongAttemptFirst,
            JobBehaviour::WrongFenceFirst,
            JobBehaviour::LateAck,
            JobBehaviour::NoAck,
            JobBehaviour::Never,
            JobBehaviour::Hangs,
            JobBehaviour::Fails { retryable: true },
            JobBehaviour::Fails { retryable: false },
        ];
        let (is_bad, bad) = (self.rng.permille(200), *self.rng.pick(&BAD));
        if !is_bad || self.world.is_quiet() || !self.world.plan.has(Fault::BadNodes) {
            return JobBehaviour::Well;
        }
        self.world.count_fault(Fault::BadNodes);
        bad
    }

    fn begin(&mut self, key: LeaseKey, fence: Fence, behaviour: JobBehaviour, audio: JobAudio) {
        self.serial += 1;
        let serial = self.serial;
        let is_open = audio.is_open();
        self.running.insert(key, Work { fence, serial, behaviour, audio });
        self.count();
        let job = key.job.number() as usize;
        let about = Subject::both(job, self.node);
        let attempt = key.attempt;
        self.note(about, format_args!("begins {about} a{attempt} ({behaviour:?})"));
        self.world.began(job, self.node, self.handle.number, fence, self.running.len());
        match behaviour {
            JobBehaviour::NoAck => {}
            JobBehaviour::LateAck => {
                if let Link::Connected { conn, .. } = &self.link {
                    let (conn, ms) = (Arc::clone(conn), self.rng.between(4_000, 8_000));
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        conn.send(SimNodeMessage::Ack(key, fence));
                    });
                }
            }
            _ => self.send(SimNodeMessage::Ack(key, fence)),
        }
        if !is_open {
            self.work(key, serial, behaviour);
        }
    }

    /// Finishes the work after a while.
    pub(super) fn work(&mut self, key: LeaseKey, serial: u64, behaviour: JobBehaviour) {
        let ms = match behaviour {
            JobBehaviour::Hangs => return,
            JobBehaviour::LateAck => self.rng.between(5_000, 9_000),
            _ => self.rng.between(20, 900) * self.rng.between(1, 3),
        };
        self.send_later(ms, ProcessEvent::WorkFinished(key, serial));
    }

    pub(super) fn on_work_finished(&mut self, key: LeaseKey, serial: u64, now_ms: u64) {
        let Some(work) = self.running.get(&key).filter(|work| work.serial == serial) else {
            return;
        };
        let (fence, behaviour) = (work.fence, work.behaviour);
        let (is_incomplete, made) =
            (work.audio.is_incomplete(), work.audio.echo(result(key, fence, self.node)));
        self.running.remove(&key);
        self.count();
        let about = Subject::both(key.job.number() as usize, self.node);
        self.note(about, format_args!("has worked on {about} a{}", key.attempt));
        let wrong = || WRONG.to_owned();
        match behaviour {
            JobBehaviour::WrongAttemptFirst => {
                let other =
                    if self.rng.permille(500) { key.attempt.0 + 1 } else { key.attempt.0 - 1 };
                let other = LeaseKey { job: key.job, attempt: lingua_core::Attempt(other) };
                self.send(SimNodeMessage::Done(other, fence, wrong()));
            }
            JobBehaviour::WrongFenceFirst => {
                self.send(SimNodeMessage::Done(key, Fence(fence.0 - 1), wrong()))
            }
            _ => {}
        }
        let message = match behaviour {
            JobBehaviour::Fails { retryable } => {
                SimNodeMessage::Fail(key, fence, "MODEL_LOAD_FAILED", retryable)
            }
            _ if is_incomplete => SimNodeMessage::Fail(key, fence, "AUDIO_INCOMPLETE", true),
            _ => SimNodeMessage::Done(key, fence, made),
        };
        if behaviour == JobBehaviour::Twice {
            self.send(message.clone());
        }
        self.send(message.clone());
        self.unconfirmed.insert(key, UnconfirmedResult { message, sent_ms: now_ms });
    }
}

/// The result of a report that must not count.
pub(in crate::world) const WRONG: &str = "wrong";

/// The result of a job, which names its attempt.
pub(super) fn result(key: LeaseKey, fence: Fence, node: usize) -> String {
    format!("j{} a{} f{fence} n{node}", key.job.number(), key.attempt)
}
