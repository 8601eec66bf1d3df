//! A scheduler with a data directory is killed and started again.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, job_with, within};

pub(crate) fn directory(name: &str) -> String {
    let dir = std::env::temp_dir().join(format!("lingua-e2e-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    dir.to_str().expect("a path").to_owned()
}

/// The scheduler is killed while jobs run. After the restart every accepted job is known by its id
/// and ends exactly once.
#[tokio::test]
async fn a_killed_scheduler_loses_no_job_that_it_accepted() {
    let dir = directory("kill");
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let mut s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let mut accepted = vec![];
    for n in 0..4 {
        let key = format!("order-{n}");
        let body = job_with(json!({})).to_string();
        let headers = [("Idempotency-Key", key.as_str())];
        let reply = s.send("POST", "/v1/dispatch/f2f", &headers, &body).await;
        assert_eq!(reply.status, 200, "{:?}", reply.body);
        accepted.push(reply.body["job_id"].as_str().expect("an id").to_owned());
        node.expect("job_assign").await;
    }
    s.child.kill().await.expect("killed");
    drop(node);

    let s = Scheduler::with(&settings).await;
    let worker = RawNode::join(&s, "n1", 4).await.serve(4, Duration::from_millis(5));
    let mut states: HashMap<String, Value> = HashMap::new();
    for id in &accepted {
        states.insert(id.clone(), s.ended(id).await["state"].clone());
    }
    assert!(states.values().all(|state| state == "DONE"), "{states:?}");
    let headers = [("Idempotency-Key", "order-2")];
    let body = job_with(json!({})).to_string();
    let again = s.send("POST", "/v1/dispatch/f2f", &headers, &body).await;
    assert_eq!(again.body["job_id"], accepted[2].as_str(), "the key is still known");
    let jobs = s.get("/v1/jobs?limit=100").await.body;
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(4), "no job was created twice");
    worker.check();
    std::fs::remove_dir_all(dir).ok();
}

/// Requirements: JOB-24.
#[tokio::test]
async fn a_result_that_was_finished_during_a_crash_is_accepted_afterwards() {
    let dir = directory("held");
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let mut s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    let (id, _) = s.dispatch(job_with(json!({}))).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    s.child.kill().await.expect("killed");

    let s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 4).await;
    node.done(&assign, "kept").await;
    let confirmed = node.expect("job_confirmed").await;
    assert_eq!(confirmed["accepted"], true, "{confirmed:?}");
    let ended = s.ended(&id).await;
    assert_eq!((&ended["state"], &ended["attempt_id"]), (&json!("DONE"), &json!(1)));
    assert_eq!(ended["result"]["text_translated"], "kept");
    std::fs::remove_dir_all(dir).ok();
}

/// An old incarnation of a node must never pass for a new one.
#[tokio::test]
async fn epochs_rise_over_a_restart() {
    let dir = directory("epochs");
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let mut last = 0;
    for _ in 0..3 {
        let mut s = Scheduler::with(&settings).await;
        let node = RawNode::join(&s, "n1", 1).await;
        let epoch = node.registered["epoch"].as_u64().expect("an epoch");
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        s.child.kill().await.expect("killed");
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Requirements: NODE-33.
#[tokio::test]
async fn a_drained_node_stays_drained_after_a_crash() {
    let dir = directory("drain");
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let mut s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    assert_eq!(s.post("/v1/nodes/n1/drain", json!({})).await.status, 200);
    node.expect("drain").await;
    s.child.kill().await.expect("killed");

    let s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let shown = s.get("/v1/nodes/n1").await.body;
    assert_eq!((&shown["state"], &shown["drain_ordered"]), (&json!("draining"), &json!(true)));
    assert_eq!(node.heartbeat(json!({})).await["drain"], true);
    let refused = s.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
    assert_eq!(refused.status, 503, "{:?}", refused.body);
    assert_eq!(s.post("/v1/nodes/n1/resume", json!({})).await.body["state"], "ready");
    let (id, _) = s.dispatch(job_with(json!({}))).await;
    node.work().await;
    assert_eq!(s.ended(&id).await["state"], "DONE");
    std::fs::remove_dir_all(dir).ok();
}

/// Two processes on one directory would overwrite each other.
#[tokio::test]
async fn a_data_directory_belongs_to_one_process() {
    let dir = directory("lock");
    let _first = Scheduler::with(&[("STORE__DATA_DIR", dir.as_str())]).await;
    let mut second = tokio::process::Command::new(crate::scheduler::binary());
    second.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", &dir]).kill_on_drop(true);
    let output = within(second.output()).await.expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains(&dir), "{error}");
    std::fs::remove_dir_all(dir).ok();
}

#[tokio::test]
async fn a_corrupted_file_gives_a_clear_error() {
    let dir = directory("corrupt");
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(format!("{dir}/store.redb"), vec![0x5A; 100_000]).expect("a file");
    let mut command = tokio::process::Command::new(crate::scheduler::binary());
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir", &dir]).kill_on_drop(true);
    let output = within(command.output()).await.expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("store.redb") && !error.contains("panicked"), "{error}");
    std::fs::remove_dir_all(dir).ok();
}

#[tokio::test]
async fn only_the_owner_can_read_what_is_stored() {
    use std::os::unix::fs::PermissionsExt;
    let dir = directory("modes");
    let mode = |path: &str| {
        let found = std::fs::metadata(path).expect("it is there");
        found.permissions().mode() & 0o777
    };
    let settings = [("STORE__DATA_DIR", dir.as_str())];
    let file = format!("{dir}/store.redb");
    let s = Scheduler::with(&settings).await;
    assert_eq!(s.get("/readyz").await.status, 200);
    assert_eq!(s.terminate().await, Some(0));
    assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
    // A file that an earlier version created.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("changed");
    let s = Scheduler::with(&settings).await;
    assert_eq!(mode(&file), 0o600);
    drop(s);
    std::fs::remove_dir_all(&dir).ok();
}
