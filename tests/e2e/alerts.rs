//! The alerts and panels that are shipped: they name what the program shows, and each alert fires
//! when it should and not otherwise.
//!
//! Start at [`every_metric_of_alerts_and_panels_is_shown`].

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, job_with, within};

/// A file or folder of `deploy`.
fn deployed(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deployed(path)).expect("a file")
}

/// The expressions of all panels.
fn panel_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/lingua.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array());
    let text = |target: &Value| target["expr"].as_str().expect("an expression").to_owned();
    targets.flatten().map(text).collect()
}

/// The expressions of all alerts, and whatever else the file says.
fn alert_expressions() -> String {
    let lines = read("prometheus/alerts.yml");
    lines.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// A metric with the values of a label, as an expression names it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Selector {
    metric: String,
    /// Names of labels, and one of the values that each may have.
    labels: Vec<(String, String)>,
}

/// What stands in the brackets: `state="ready"`, `reason=~"A|B"`.
fn matchers(text: &str) -> Vec<(String, Vec<String>)> {
    let each = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let matcher = |part: &str| {
        let (name, value) = part.split_once('=').expect("a matcher");
        let values = value.trim_start_matches('~').trim_matches('"').split('|');
        (name.trim().to_owned(), values.map(str::to_owned).collect())
    };
    each.map(matcher).collect()
}

/// Every metric that an expression names, once for each value of its labels.
fn selectors(expression: &str) -> BTreeSet<Selector> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_part) {
        let word = rest[at..].split(|c| !is_part(c)).next().expect("a word");
        rest = &rest[at + word.len()..];
        if !["lingua_", "process_"].iter().any(|start| word.starts_with(start)) {
            continue;
        }
        let labels = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let labels = labels.map_or_else(Vec::new, |(labels, _)| matchers(labels));
        let metric = || word.to_owned();
        found.insert(Selector { metric: metric(), labels: vec![] });
        for (name, values) in labels {
            for value in values {
                found.insert(Selector { metric: metric(), labels: vec![(name.clone(), value)] });
            }
        }
    }
    found
}

impl Selector {
    /// Whether a line of the metrics has this name and these labels.
    fn fits(&self, line: &str) -> bool {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let has = |(name, value): &(String, String)| line.contains(&format!("{name}=\"{value}\""));
        line[..end] == self.metric && self.labels.iter().all(has)
    }
}

/// The metrics of two instances over one Redis, where everything has happened that is counted.
async fn eventful(redis: &Redis) -> Vec<String> {
    let url = redis.url();
    let settings = |name| {
        [
            ("STORE__URL", url.as_str()),
            ("INSTANCE__ID", name),
            ("SCHEDULER__RESERVATION_TTL_MS", "300"),
            ("SCHEDULER__AUDIO_BYTES_MAX", "300000"),
        ]
    };
    let (one, two) = (settings("one"), settings("two"));
    let (one, two) = tokio::join!(Scheduler::with(&one), Scheduler::with(&two));
    let mut node = RawNode::join(&two, "n1", 1).await;
    node.heartbeat(json!({"current_load": {"cpu": 0.99}})).await;
    node.heartbeat(json!({"current_load": {"cpu": 0.1}})).await;
    // Refused, then not acknowledged, then done; the first attempt reports once more.
    let patient = job_with(json!({"wait_ms": 15_000}));
    let (id, _) = one.dispatch(patient).await;
    let refused = node.expect("job_assign").await;
    node.report("job_fail", &refused, json!({"reason": "BUSY"})).await;
    node.expect("job_assign").await;
    let full = one.post("/v1/dispatch/f2f", job_with(json!({"wait_ms": 0}))).await;
    assert_eq!(full.error(), (503, "ALL_CANDIDATES_FULL_OR_FAILED"), "{full:?}");
    node.work().await;
    assert_eq!(one.ended(&id).await["state"], "DONE");
    node.report("job_done", &refused, json!({})).await;
    let mut nobody = job_with(json!({"wait_ms": 0}));
    nobody["src_lang"] = json!("ko");
    let none = one.post("/v1/dispatch/f2f", nobody).await;
    assert_eq!(none.error(), (503, "NO_CAPABLE_NODE"), "{none:?}");
    let mut loud = job();
    let data = "A".repeat(500_000);
    loud["audio_ref"] = Value::Null;
    loud["audio"] = json!({"format": "pcm16", "sample_rate": 16000, "data": data});
    assert_eq!(one.post("/v1/dispatch/f2f", loud).await.error(), (413, "PAYLOAD_TOO_LARGE"));
    one.send("GET", "/v1/nodes", &[("Origin", "https://evil.example")], "").await;
    for s in [&one, &two] {
        s.until_reply("/metrics", |reply| reply.text.contains("lingua_pool_slots{")).await;
    }
    node.close().await;
    // The leader shows the fleet, and both take the table over.
    let mut lines = vec![];
    for s in [&one, &two] {
        lines.extend(s.get("/metrics").await.text.lines().map(str::to_owned));
    }
    lines
}

/// Requirements: OBS-27, OBS-28, OBS-29, OBS-30.
#[tokio::test]
async fn every_metric_of_alerts_and_panels_is_shown() {
    let redis = Redis::start().await;
    let shown = eventful(&redis).await;
    let mut named = selectors(&alert_expressions());
    panel_expressions().iter().for_each(|expression| named.extend(selectors(expression)));
    assert!(named.len() > 40, "{named:#?}");
    let missing: Vec<&Selector> =
        named.iter().filter(|selector| !shown.iter().any(|line| selector.fits(line))).collect();
    assert!(missing.is_empty(), "{missing:#?}\n{}", shown.join("\n"));
}

/// Requirements: OBS-27, OBS-28, OBS-29.
#[tokio::test]
async fn each_alert_fires_when_it_should_and_not_otherwise() {
    let rules = read("prometheus/alerts.yml");
    let tests = read("prometheus/alerts_test.yml");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(tests.contains(&format!("  - name: {alert}\n")), "{alert} is not seen to fire");
        let quiet = format!("alertname: {alert}, exp_alerts: [] }}");
        assert!(tests.contains(&quiet), "{alert} is not seen to be quiet");
        let page = std::fs::read_to_string(deployed("../docs/operations.md")).expect("a page");
        assert!(page.contains(&format!("| `{alert}` |")), "{alert} is not in docs/operations.md");
    }
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let mut promtool = Command::new("promtool");
        promtool.args(args).current_dir(deployed("prometheus")).kill_on_drop(true);
        let output = within(promtool.output()).await.expect("promtool is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn selectors_name_each_value_of_a_label() {
    let found = selectors(r#"sum by (le) (rate(lingua_x_bucket{a="b",c=~"d|e"}[5m])) > $y"#);
    let with = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let all = [vec![], with("a", "b"), with("c", "d"), with("c", "e")];
    let all = all.map(|labels| Selector { metric: "lingua_x_bucket".to_owned(), labels });
    assert_eq!(found, BTreeSet::from(all));
}
