//! The commands of the program.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http::Reply;
use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, binary, job, job_with, run};

/// Requirements: OBS-05.
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

#[cfg(unix)]
#[tokio::test]
async fn the_demo_prints_commands_that_can_be_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["demo", "--seconds", "1", "--listen", "127.0.0.1:0"];
    let search_path = folder.path().to_str().expect("a path");
    let with_path = async || run(&args, &[("PATH", search_path)]).await.1;
    let out = with_path().await;
    assert!(out.contains(&format!("    {} explain --src", binary())), "{out}");
    std::os::unix::fs::symlink(binary(), folder.path().join("lingua")).expect("a link");
    let out = with_path().await;
    assert!(out.contains("    lingua explain --src"), "{out}");
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
async fn a_benchmark_that_cannot_run_says_why() {
    for (args, expected) in [
        (vec!["--url", "http://127.0.0.1:1"], "lingua serve"),
        (vec!["--url", "127.0.0.1"], "http://127.0.0.1:7410"),
        (vec!["--nodes", "0"], "--src"),
    ] {
        let all = [vec!["bench", "--seconds", "1"], args.clone()].concat();
        let (code, out, error) = run(&all, &[]).await;
        assert_eq!(code, Some(1), "{args:?}: {out}{error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

/// Escape sequences, overrides of the writing direction and line ends, as a node may send them.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt\u{9b}31m\nJOB DONE\r";

fn assert_harmless(shown: &str) {
    let is_hidden =
        |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!shown.chars().any(is_hidden), "{shown:?}");
    assert!(!shown.lines().any(|line| line.trim_start().starts_with("JOB DONE")), "{shown:?}");
}

#[tokio::test]
async fn what_nodes_and_clients_send_does_not_reach_the_terminal() {
    let s = Scheduler::with(&[("SCHEDULER__MAX_RETRY", "0")]).await;
    let url = format!("http://{}", s.address);
    let mut message = register("n1", 1);
    message["version"] = json!("1\u{202e}0");
    let mut node = RawNode::join_with(&s, message).await;
    let mut hostile = job();
    hostile["session_id"] = json!("room\u{202e}1");
    let (id, _) = s.dispatch(hostile).await;
    let assign = node.expect("job_assign").await;
    node.done(&assign, HOSTILE).await;
    s.ended(&id).await;
    let (failed, _) = s.dispatch(job()).await;
    let assign = node.expect("job_assign").await;
    let reason = json!({"reason": HOSTILE, "retryable": false, "status": "error"});
    node.report("job_fail", &assign, reason).await;
    s.ended(&failed).await;
    for args in [
        vec!["jobs", "show", &id],
        vec!["jobs", "show", &failed],
        vec!["jobs", "show", &id, "--json"],
        vec!["jobs"],
        vec!["nodes"],
        vec!["nodes", "show", "n1"],
        vec!["nodes", "--json"],
    ] {
        let (code, out, err) = run(&[&args[..], &["--url", &url]].concat(), &[]).await;
        assert_eq!(code, Some(0), "{args:?}: {err}");
        assert_harmless(&out);
        assert_harmless(&err);
    }
    let args = ["say", "--text", "x", "--from", "zh", "--to", "en", "--url", &url];
    let working = async {
        let assign = node.expect("job_assign").await;
        node.done(&assign, HOSTILE).await;
    };
    let ((_, out, err), ()) = tokio::join!(run(&args, &[]), working);
    assert!(out.contains("txt"), "{out}");
    assert_harmless(&out);
    assert_harmless(&err);
}
