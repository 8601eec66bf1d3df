//! The commands of the program.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http::Reply;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, binary, job, job_with, run};

#[tokio::test]
async fn tables_and_json_show_the_same() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "worker-1", 3).await;
    let (id, _) = s.dispatch(job()).await;
    let url = format!("http://{}", s.address);
    for (args, expected) in [
        (vec!["nodes"], "worker-1"),
        (vec!["nodes", "show", "worker-1"], "worker-1"),
        (vec!["pools", "show", "zh:en"], "zh:en"),
        (vec!["jobs"], id.as_str()),
        (vec!["jobs", "show", &id], "worker-1"),
        (vec!["instances"], "lingua-"),
        (vec!["explain", "--src", "zh", "--tgt", "en"], "worker-1"),
    ] {
        let mut plain = args.clone();
        plain.extend(["--url", &url]);
        let (code, out, error) = run(&plain, &[]).await;
        assert_eq!(code, Some(0), "{args:?}: {error}");
        assert!(out.contains(expected), "{args:?} does not show {expected}:\n{out}");
        assert!(!out.contains('\u{1b}'), "colours only on a terminal:\n{out}");
        plain.push("--json");
        let (code, out, error) = run(&plain, &[]).await;
        assert_eq!(code, Some(0), "{args:?}: {error}");
        let parsed: Value = serde_json::from_str(&out).expect("JSON");
        assert!(parsed.to_string().contains(expected), "{args:?}: {out}");
    }
    let (code, _, error) = run(&["drain", "worker-1", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    node.expect("drain").await;
    assert_eq!(s.get("/v1/nodes/worker-1").await.body["state"], "draining");
    let (code, _, error) = run(&["resume", "worker-1", "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let (code, _, error) = run(&["cancel", &id, "--url", &url], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(s.ended(&id).await["state"], "CANCELLED");
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let (code, _, error) = run(&["nodes", "--url", "http://127.0.0.1:1"], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("lingua serve"), "{error}");
    let s = Scheduler::start().await;
    let url = format!("http://{}", s.address);
    let unknown = "job-000000000000000000000000000000ff";
    for args in [["nodes", "show", "nobody"], ["jobs", "show", unknown]] {
        let mut args = args.to_vec();
        args.extend(["--url", &url]);
        let (code, _, error) = run(&args, &[]).await;
        assert_eq!(code, Some(1), "{args:?}: {error}");
        assert!(error.starts_with("lingua: ") && error.lines().count() <= 3, "{error}");
    }
}

fn node_process(url: &str, name: &str) -> Child {
    Command::new(binary())
        .args(["node", "--url", url, "--id", name, "--slots", "3", "--work-ms", "15"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts")
}

/// Node processes are killed under load. Every accepted job still ends exactly once.
#[tokio::test]
async fn node_processes_killed_under_load_lose_no_job() {
    let s = Scheduler::start().await;
    let url = format!("ws://{}/v1/node/ws", s.address);
    let mut nodes: Vec<Child> = (0..4).map(|n| node_process(&url, &format!("n{n}"))).collect();
    let nodes_len = |reply: &Reply| reply.body["nodes"].as_array().map_or(0, Vec::len);
    s.until_reply("/v1/nodes", |reply| nodes_len(reply) == 4).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = s.new_client();
        clients.spawn(async move {
            let mut replies = vec![];
            for _ in 0..40 {
                let job = job_with(json!({"wait_ms": 10_000}));
                replies.push(client.post("/v1/translate", job).await);
            }
            replies
        });
    }
    for (n, node) in nodes.iter_mut().enumerate().take(3) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        node.kill().await.expect("killed with -9");
        *node = node_process(&url, &format!("n{n}"));
    }
    let mut done = 0;
    while let Some(replies) = clients.join_next().await {
        for reply in replies.expect("a client") {
            let exhausted = reply.body["error"] == "ALL_CANDIDATES_FULL_OR_FAILED";
            assert!(reply.body["state"] == "DONE" || exhausted, "{:?}", reply.body);
            done += u32::from(reply.status == 200);
        }
    }
    assert!(done >= 230, "only {done} of 240 jobs were done");
    let jobs = s.get("/v1/jobs?limit=1000").await.body;
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 240);
    assert!(jobs.iter().all(|job| job["state"] == "DONE" || job["state"] == "FAILED"));
    s.until_unused().await;
}

#[tokio::test]
async fn the_demo_does_jobs_and_ends_by_itself() {
    let (code, out, error) = run(&["demo", "--seconds", "4", "--listen", "127.0.0.1:0"], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("http://127.0.0.1:"), "it does not say where it is:\n{out}");
    assert!(out.contains("done"), "{out}");
}

#[tokio::test]
async fn a_short_benchmark_measures_and_ends() {
    let (code, out, error) =
        run(&["bench", "--concurrency", "4", "--seconds", "1", "--json"], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert!(report["done"].as_u64() > Some(0), "{report}");
    assert_eq!(report["failed"], 0, "{report}");
}

#[tokio::test]
async fn a_benchmark_over_a_shared_store_says_what_its_servers_did() {
    let redis = Redis::start().await;
    let store = redis.url();
    for how in [["--concurrency", "20"], ["--rate", "50"]] {
        let mut args =
            vec!["bench", "--store", &store, "--seconds", "1", "--work-ms", "5", "--json"];
        args.extend(how);
        let (code, out, error) = run(&args, &[]).await;
        assert_eq!(code, Some(0), "{error}");
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert!(
            report["latency_ms"]["p50"].as_f64() >= Some(5.0),
            "a node's work counts: {report}"
        );
        let of = |name: &str| report["store"][name].as_f64().expect("a figure");
        assert!(of("reservations_per_job") >= 1.0, "{report}");
        assert!(of("round_trips_per_job") > 0.0, "{report}");
        assert!(of("commands_per_job") > of("round_trips_per_job"), "{report}");
        assert!(of("store_cpu_us_per_job") > 0.0, "{report}");
    }
}

#[tokio::test]
async fn a_tape_of_the_store_is_recorded_and_played() {
    let redis = Redis::start().await;
    let store = redis.url();
    let short = ["--concurrency", "8", "--seconds", "1", "--tape", "--json"];
    let args = [vec!["bench", "--store", &store], short.to_vec()].concat();
    let (code, out, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let tape = &report["tape"];
    let of = |name: &str| tape[name].as_f64().expect("a figure");
    assert!(of("calls_per_job") >= 4.0, "every step of a job is on it: {tape}");
    assert!(of("jobs_per_s") > 0.0 && of("scheduler_share") > 0.0, "{tape}");
    assert!(of("store_cpu_us_per_job") > 0.0, "{tape}");
    // With a slot for each client nothing is refused in life, so nothing may be here.
    assert_eq!(tape["replies"]["g"].as_f64(), Some(of("jobs") * of("passes")), "{tape}");
    for nothing in ["n", "-", "()", "nil"] {
        assert_eq!(tape["replies"][nothing], Value::Null, "{tape}");
    }
    let life = report["store"]["commands_per_job"].as_f64().expect("a figure");
    assert!((of("commands_per_job") / life - 1.0).abs() < 0.1, "{report}");
}

#[tokio::test]
async fn several_instances_are_measured_as_one() {
    let redis = Redis::start().await;
    let store = redis.url();
    let args = ["bench", "--store", &store, "--instances", "2", "--seconds", "1", "--json"];
    let (code, out, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert!(report["done"].as_u64() > Some(0), "{report}");
    assert_eq!(report["failed"], 0, "{report}");
    // Each instance has half of the clients and of the nodes, and both are counted.
    assert!(report["store"]["reservations_per_job"].as_f64() >= Some(1.0), "{report}");
    assert_eq!(redis.command("SCARD lingua:v1:{hub}:instances").await, ":2");
}

#[tokio::test]
async fn a_scheduler_that_runs_can_be_measured() {
    let s = Scheduler::start().await;
    let url = format!("http://{}", s.address);
    for how in [["--concurrency", "4"], ["--rate", "100"]] {
        let mut args = vec!["bench", "--url", &url, "--seconds", "1", "--json"];
        args.extend(how);
        let (code, out, error) = run(&args, &[]).await;
        assert_eq!(code, Some(0), "{error}");
        let report: Value = serde_json::from_str(&out).expect("JSON");
        assert!(report["done"].as_u64() > Some(0), "{report}");
        assert_eq!(report["failed"], 0, "{report}");
    }
}

#[tokio::test]
async fn a_comparison_ends_with_ratios_and_a_page() {
    let page = std::env::temp_dir().join(format!("lingua-bench-{}.html", std::process::id()));
    let file = page.to_str().expect("a name");
    let short = ["--clients", "2", "--rounds", "1", "--seconds", "1", "--gearman", "never"];
    let mut args = vec!["bench", "--compare", "--rate", "50", "--json", "--report", file];
    args.extend(short);
    let (code, out, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let (closed, open) = (&report["comparison"]["closed"][0], &report["comparison"]["open"]);
    assert!(closed["ratio"].as_f64() > Some(0.0), "{report}");
    assert!(open["added_p50_us"].is_number(), "{report}");
    for broker in ["relay", "scheduler"] {
        let (closed, open) = (&closed["brokers"][broker], &open["brokers"][broker]);
        assert!(closed["jobs_per_s"].as_f64() > Some(0.0), "{report}");
        assert!(open["latency_ms"]["p50"].as_f64() > Some(0.0), "{report}");
        assert_eq!((&closed["failed"], &open["failed"]), (&json!(0), &json!(0)), "{report}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    std::fs::remove_file(&page).expect("our own file");
    assert_eq!(html.matches("<svg").count(), 4, "plots");
    assert!(html.contains("prefers-color-scheme") && html.contains("99.9"));
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing from elsewhere");
}

#[tokio::test]
async fn a_fleet_costs_memory_and_loses_no_job() {
    let args = ["bench", "--fleet", "40", "--rate", "50", "--seconds", "1", "--no-pin", "--json"];
    let (code, out, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let fleet = &serde_json::from_str::<Value>(&out).expect("JSON")["fleet"];
    assert!(fleet["node_kib"].as_f64() > Some(0.0), "{fleet}");
    assert!(fleet["heartbeats_per_s"].as_f64() > Some(0.0), "{fleet}");
    assert_eq!((&fleet["nodes"], &fleet["failed"]), (&json!(40), &json!(0)), "{fleet}");
    assert_eq!(fleet["heartbeat"], Value::Null, "nobody else has to hear of them: {fleet}");
}

#[tokio::test]
async fn a_fleet_over_a_shared_store_says_what_a_heartbeat_costs() {
    let redis = Redis::start().await;
    let store = redis.url();
    let short = ["--concurrency", "4", "--seconds", "1", "--no-pin", "--json"];
    let args = [vec!["bench", "--fleet", "40", "--store", &store], short.to_vec()].concat();
    let (code, out, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let fleet = &serde_json::from_str::<Value>(&out).expect("JSON")["fleet"];
    for name in ["round_trips", "commands", "store_cpu_us", "store_bytes_per_node"] {
        assert!(fleet["heartbeat"][name].as_f64() > Some(0.0), "{name}: {fleet}");
    }
    assert!(fleet["store"]["reservations_per_job"].as_f64() >= Some(1.0), "{fleet}");
}

#[tokio::test]
async fn benchmarks_that_cannot_run_say_why() {
    for (args, expected) in [
        (vec!["--url", "http://127.0.0.1:1"], "lingua serve"),
        (vec!["--url", "127.0.0.1"], "http://127.0.0.1:7410"),
        (vec!["--store", "paper:"], "cannot start the scheduler: "),
        (
            vec!["--compare", "--gearman", "never", "--store", "paper:"],
            "cannot start the scheduler: ",
        ),
        (vec!["--report", "/no/such/folder/x.html"], "--report"),
        (vec!["--nodes", "0"], "--url"),
    ] {
        let mut all = vec!["bench", "--seconds", "1"];
        all.extend(&args);
        let (code, out, error) = run(&all, &[]).await;
        assert_eq!(code, Some(1), "{args:?}: {out}{error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
