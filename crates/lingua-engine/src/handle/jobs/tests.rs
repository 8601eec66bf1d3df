//! What the store refuses is refused to the client, and nothing else follows.

use lingua_core::InstanceId;
use lingua_core::job::{JobSpec, Payload};
use lingua_store::{Embedded, StoreLimits};
use prometheus_client::registry::Registry;

use super::*;
use crate::{EngineOptions, EngineService, TokioTimer};

#[tokio::test(start_paused = true)]
async fn a_refused_job_is_not_searched_for_in_the_store() {
    let timer = TokioTimer::starting_at(0);
    let limits = StoreLimits { open_jobs_max: 1, ..StoreLimits::default() };
    let store = Embedded::new(Default::default(), limits, timer.clone());
    let options = EngineOptions::new(InstanceId::new("a").unwrap(), 1);
    let service = EngineService::new(options, store, timer, &mut Registry::default());
    let handle = service.handle();
    handle.recovered.set(()).ok();
    let job = |n| {
        let payload = Payload::AudioRef("blob://1".into());
        let spec = JobSpec::new("zh:en".parse().unwrap(), payload);
        JobRequest::new(JobId::new(n), JobSpec { wait_ms: Some(60_000), ..spec })
    };
    handle.submit(job(1)).await.unwrap();
    let refused = handle.submit(job(2)).await.unwrap_err();
    assert_eq!(refused.code(), "RATE_LIMITED", "{refused}");
    assert!(!handle.reconciler.is_scan_requested(), "the store said that nothing was changed");
}
