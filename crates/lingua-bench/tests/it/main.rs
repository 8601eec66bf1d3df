//! The benchmarks, each run for a second against the real program.
//!
//! Start at [`bench`].

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};

// The tests of lingua-redis start the same servers.
#[allow(dead_code, clippy::unwrap_used, reason = "the tests of lingua-redis use the rest")]
#[path = "../../../lingua-redis/tests/it/servers.rs"]
mod servers;

use servers::Server;

/// The scheduler's program beside `lingua-bench`; built first if it is not there.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = PathBuf::from(env!("CARGO_BIN_EXE_lingua-bench")).with_file_name("lingua");
        if !path.is_file() {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "--package", "lingua"])
                .status()
                .expect("cargo runs");
            assert!(built.success(), "cargo cannot build lingua");
        }
        path.to_str().expect("a path in UTF-8").to_owned()
    })
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lingua-bench"))
        .args(args)
        .args(["--seconds", "1", "--no-pin", "--json"])
        .output()
        .expect("lingua-bench runs")
}

/// Runs a benchmark that must succeed.
fn measure(args: &[&str]) -> Value {
    let output = bench(&[args, &["--program", program()]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {report}"))
}

#[test]
fn a_load_is_measured() {
    let report = measure(&["load", "--concurrency", "4"]);
    assert!(number(&report, "/done") > 0.0 && number(&report, "/cpu_us_per_job") > 0.0, "{report}");
    assert_eq!(report["failed"], 0, "{report}");
}

#[tokio::test]
async fn a_load_over_a_shared_store_shows_the_work_of_its_servers() {
    let server = Server::start(&[]).await;
    for mode in [["--concurrency", "20"], ["--rate", "50"]] {
        let args = ["load", "--work-ms", "5", "--store", &server.url()];
        let report = measure(&[args.as_slice(), &mode].concat());
        assert!(number(&report, "/latency_ms/p50") >= 5.0, "a node's work counts: {report}");
        assert!(number(&report, "/store/reservations_per_job") >= 1.0, "{report}");
        let calls = number(&report, "/store/round_trips_per_job");
        assert!(calls > 0.0 && number(&report, "/store/commands_per_job") > calls, "{report}");
        assert!(number(&report, "/store/store_cpu_us_per_job") > 0.0, "{report}");
    }
}

#[tokio::test]
async fn calls_to_the_store_are_recorded_and_replayed() {
    let server = Server::start(&[]).await;
    let report = measure(&["load", "--concurrency", "8", "--replay", "--store", &server.url()]);
    let replay = &report["replay"];
    assert!(number(replay, "/calls_per_job") >= 4.0, "every step of a job is recorded: {replay}");
    assert!(number(replay, "/jobs_per_s") > 0.0 && number(replay, "/scheduler_share") > 0.0);
    assert!(number(replay, "/store_cpu_us_per_job") > 0.0, "{replay}");
    // With a slot for each client no reservation is refused, so none may be refused here.
    let jobs = number(replay, "/jobs") * number(replay, "/passes");
    assert_eq!(number(replay, "/replies/g"), jobs, "{replay}");
    for refusal in ["n", "-", "()", "nil"] {
        assert_eq!(replay["replies"][refusal], Value::Null, "{replay}");
    }
    let ratio = number(replay, "/commands_per_job") / number(&report, "/store/commands_per_job");
    assert!((ratio - 1.0).abs() < 0.1, "{report}");
}

#[tokio::test]
async fn several_instances_are_measured_as_one() {
    let server = Server::start(&[]).await;
    let report = measure(&["load", "--instances", "2", "--store", &server.url()]);
    assert!(number(&report, "/done") > 0.0, "{report}");
    assert_eq!(report["failed"], 0, "{report}");
    assert!(number(&report, "/store/reservations_per_job") >= 1.0, "{report}");
    let instances: u64 =
        server.ask(&["SCARD", "lingua:v1:{hub}:instances"]).await.expect("a count");
    assert_eq!(instances, 2);
}

#[test]
fn a_comparison_with_the_relay_has_ratios_and_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("report.html");
    let file = page.to_str().expect("a path in UTF-8");
    let args = ["compare", "--clients", "2", "--rounds", "1", "--rate", "50", "--peers", "relay"];
    let report = measure(&[args.as_slice(), &["--report", file]].concat());
    assert!(number(&report, "/open/added_p50_us").is_finite(), "{report}");
    assert!(number(&report, "/closed/0/brokers/scheduler/ratio") > 0.0, "{report}");
    for broker in ["relay", "scheduler"] {
        let (closed, open) =
            (format!("/closed/0/brokers/{broker}"), format!("/open/brokers/{broker}"));
        assert!(number(&report, &format!("{closed}/jobs_per_s")) > 0.0, "{report}");
        assert!(number(&report, &format!("{open}/latency_ms/p50")) > 0.0, "{report}");
        assert_eq!(number(&report, &format!("{closed}/failed")), 0.0, "{report}");
        assert_eq!(number(&report, &format!("{open}/failed")), 0.0, "{report}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    assert_eq!(html.matches("<svg").count(), 4, "plots");
    assert!(html.contains("prefers-color-scheme") && html.contains("99.9"));
    assert!(!html.contains("http://") && !html.contains("https://"), "nothing from elsewhere");
}

#[tokio::test]
async fn two_programs_on_one_store_are_measured_in_turn() {
    let server = Server::start(&[]).await;
    let args = ["compare", "--clients", "2", "--rounds", "2", "--rate", "0"];
    let more = ["--store", &server.url(), "--program", program()];
    let report = measure(&[args.as_slice(), &more].concat());
    let closed = &report["closed"][0]["brokers"];
    for broker in ["A", "B"] {
        assert_eq!(closed[broker]["rounds"].as_array().map(Vec::len), Some(2), "{report}");
        assert!(number(closed, &format!("/{broker}/store_cpu_us_per_job")) > 0.0, "{report}");
    }
    assert_eq!(number(closed, "/A/ratio"), 1.0);
    assert!(number(closed, "/B/cpu_ratio") > 0.0, "{report}");
}

#[test]
fn a_fleet_costs_memory_and_loses_no_job() {
    let fleet = measure(&["fleet", "40", "--rate", "50"]);
    assert!(number(&fleet, "/node_kib") > 0.0 && number(&fleet, "/heartbeats_per_s") > 0.0);
    assert_eq!((&fleet["nodes"], &fleet["failed"]), (&json!(40), &json!(0)), "{fleet}");
    assert_eq!(fleet["heartbeat"], Value::Null, "there is no shared store: {fleet}");
}

#[tokio::test]
async fn a_fleet_over_a_shared_store_shows_the_cost_of_a_heartbeat() {
    let server = Server::start(&[]).await;
    let fleet = measure(&["fleet", "40", "--concurrency", "4", "--store", &server.url()]);
    for name in ["round_trips", "commands", "store_cpu_us", "store_bytes_per_node"] {
        assert!(number(&fleet, &format!("/heartbeat/{name}")) > 0.0, "{name}: {fleet}");
    }
    assert!(number(&fleet, "/store/reservations_per_job") >= 1.0, "{fleet}");
}

#[test]
fn talking_sessions_get_all_results() {
    let output = Command::new(env!("CARGO_BIN_EXE_lingua-bench"))
        .args(["sessions", "4", "--seconds", "5", "--no-pin", "--json", "--program", program()])
        .output()
        .expect("lingua-bench runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(number(&report, "/turns") > 0.0, "{report}");
    assert_eq!(report["missing"], 0, "{report}");
}

#[test]
fn a_benchmark_that_cannot_run_says_why() {
    let program = program();
    for (args, expected) in [
        (vec!["load", "--store", "paper:", "--program", program], "cannot start scheduler: "),
        (vec!["load", "--report", "/no/such/folder/x.html"], "--report"),
        (vec!["load", "--program", "/no/such/program"], "/no/such/program"),
        (vec!["load", "--program", program, "--program", program], "compare"),
    ] {
        let output = bench(&args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
