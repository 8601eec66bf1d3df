//! Many callers at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use lingua_core::Rules;
use lingua_core::job::AttemptOutcome;

use crate::clock::ManualClock;
use crate::conformance::World;
use crate::conformance::fixture::{RUN_MS, key, reserve};
use crate::contract::{CommitReply, ReserveOutcome, ReserveRequest, Store};

const CALLERS: u64 = 8;
const NODES: usize = 10;
const SLOTS: u64 = 2;

/// How many jobs the callers run in total.
const JOBS: u64 = 8_000;

/// Eight callers reserve, run and finish on one cell. The nodes count for themselves, as real ones
/// do: none ever has more at once than its slots, and at the end nothing is held.
pub async fn racing_instances_never_oversell<S, F, Fut>(factory: F)
where
    S: Store,
    F: Fn(Rules, ManualClock) -> Fut,
    Fut: Future<Output = S>,
{
    let world = World::new(factory, Rules::default()).await;
    let mut cell = None;
    for n in 0..NODES {
        cell = Some(world.join(n, "zh en", SLOTS).await.cell);
    }
    let cell = cell.expect("nodes joined");
    let store = Arc::new(world.store);
    let running: Arc<[AtomicU16]> = (0..NODES).map(|_| AtomicU16::new(0)).collect();
    let (next, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (store, running) = (Arc::clone(&store), Arc::clone(&running));
        let (next, refused) = (Arc::clone(&next), Arc::clone(&refused));
        callers.spawn(async move {
            loop {
                let job = next.fetch_add(1, Ordering::SeqCst);
                if job >= JOBS {
                    return;
                }
                let key = key(job.into());
                let random = (job as u32).wrapping_mul(0x9E37_79B9);
                let request = ReserveRequest { random, ..reserve(key) };
                match store.reserve(cell, request).await.expect("a reply").outcome {
                    ReserveOutcome::Granted { grant, used, max, .. } => {
                        assert!(used <= max);
                        let node = &running[grant.slot.index()];
                        let at_once = node.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(u64::from(at_once) <= SLOTS, "{} runs {at_once}", grant.node);
                        let commit = store.commit(cell, key, RUN_MS).await.expect("a reply");
                        assert_eq!(commit, CommitReply::Committed(grant.fence));
                        tokio::task::yield_now().await;
                        node.fetch_sub(1, Ordering::SeqCst);
                        let freed = store.finish(cell, key, AttemptOutcome::Succeeded).await;
                        assert!(freed.expect("a reply").is_some());
                    }
                    ReserveOutcome::Full { capable, .. } => {
                        assert_eq!(usize::from(capable), NODES);
                        refused.fetch_add(1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.expect("a caller failed");
    }
    let view = store.view(cell).await.expect("a view");
    assert!(view.leases.is_empty() && view.nodes.iter().all(|node| node.used == 0));
    assert!(refused.load(Ordering::SeqCst) < JOBS, "nobody got anything");
}
