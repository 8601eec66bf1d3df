//! A job whose runner panics, because of a bug, fails alone.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lingua_core::job::{AttemptReport, JobState};
use lingua_core::{InstanceId, NodeId};
use lingua_engine::handle::{NodeRegistration, Waited};
use lingua_engine::node::ToNode;
use lingua_engine::options::EngineOptions;
use lingua_engine::{EngineService, Timer, TokioTimer};
use lingua_store::{Clock, Embedded, StoreLimits};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::world::{error_of, job, profile};

/// A clock that panics once after it was armed.
#[derive(Debug, Clone)]
struct FaultyTimer {
    timer: TokioTimer,
    is_armed: Arc<AtomicBool>,
}

impl Clock for FaultyTimer {
    fn now_ms(&self) -> u64 {
        assert!(!self.is_armed.swap(false, Ordering::SeqCst), "the clock is broken");
        self.timer.now_ms()
    }
}

impl Timer for FaultyTimer {
    fn sleep(&self, ms: u64) -> impl Future<Output = ()> + Send {
        self.timer.sleep(ms)
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_panics_fails_its_job_and_releases_the_slot() {
    let timer = TokioTimer::starting_at(1_800_000_000_000);
    let store = Embedded::new(Default::default(), StoreLimits::default(), timer.clone());
    let is_armed = Arc::new(AtomicBool::new(false));
    let timer = FaultyTimer { timer, is_armed: Arc::clone(&is_armed) };
    let options = EngineOptions::new(InstanceId::new("instance-1").unwrap(), 7);
    let service = EngineService::new(options, store, timer, &mut Registry::default());
    let engine = service.handle();
    let running = tokio::spawn(service.run(std::future::pending()));
    let (outbox, mut inbox) = mpsc::channel(8);
    let node = NodeId::new("a").unwrap();
    let registration = NodeRegistration::new(node.clone(), profile("zh en", 1), outbox);
    engine.register(registration).await.unwrap();

    // In the search for a slot, and after the slot was taken.
    for is_sent in [false, true] {
        let id = engine.submit(job(u128::from(is_sent), "zh:en")).await.unwrap().id;
        if is_sent {
            let Some(ToNode::Assign(assignment)) = inbox.recv().await else { panic!("no job") };
            let attempt = assignment.attempt;
            let report = AttemptReport { attempt, node: node.clone(), fence: None };
            is_armed.store(true, Ordering::SeqCst);
            engine.acked(id, report, false).await.unwrap();
        } else {
            is_armed.store(true, Ordering::SeqCst);
        }
        let Waited::Reached(status) = engine.wait_ended(id, 60_000).await.unwrap() else {
            panic!("the job did not end");
        };
        assert!(!is_armed.load(Ordering::SeqCst), "the clock was read");
        assert_eq!(status.progress.state, JobState::Failed);
        assert_eq!(error_of(&status), "INTERNAL");
        tokio::task::yield_now().await;
        assert_eq!(engine.open_jobs(), 0, "it is no longer a live job");
        let nodes = &engine.nodes().await.unwrap().nodes;
        assert!(nodes.iter().all(|node| node.used == 0), "its slot is free");
        if is_sent {
            assert!(matches!(inbox.recv().await, Some(ToNode::Cancel { .. })));
        }
    }
    running.abort();
}
