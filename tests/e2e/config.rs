//! The configuration: what is refused, what is shown, what is documented.

use crate::scheduler::run;

/// Checks a configuration file; gives exit code and error output.
async fn check(text: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lingua.toml");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a path");
    let (code, _, error) = run(&["config", "check", "--config", path], &[]).await;
    (code, error)
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_with_the_range() {
    for (key, value, expected) in [
        ("selection.sample_k", "0", "1 to 100"),
        ("selection.keep_last", "\"never\"", "always, waiting"),
        ("selection.cpu_threshold", "0.0", "above 0"),
        ("selection.gpu_threshold", "1.5", "above 0, up to 1"),
        ("scheduler.heartbeat_stale_ms", "4000", "heartbeat_interval_ms"),
        ("scheduler.node_record_ms", "15000", "heartbeat_stale_ms"),
        ("scheduler.run_lease_ms", "5000", "heartbeat_interval_ms"),
        ("scheduler.reservation_ttl_ms", "0", "10 to"),
        ("scheduler.open_jobs_max", "0", "1 to"),
        ("pools.max_pools", "0", "1 to"),
        ("pools.min_nodes_per_pool", "0", "1 to"),
        ("session.pause_ms", "0", "1 to"),
        ("store.timeout_ms", "0", "1 to"),
        ("server.listen", "\"here\"", "host:port"),
        ("instance.id", "\"a b\"", "a b"),
        ("log.format", "\"xml\"", "text, json"),
        ("log.level", "\"infoo\"", "off, error, warn, info"),
    ] {
        let (section, name) = key.split_once('.').expect("a section");
        let (code, error) = check(&format!("[{section}]\n{name} = {value}\n")).await;
        assert_eq!(code, Some(64), "{key} = {value}: {error}");
        assert!(error.starts_with("lingua: bad configuration"), "{error}");
        assert!(error.contains(key) && error.contains(expected), "{key} = {value}: {error}");
    }
    let (code, error) = check("[log]\nlevel = \"info,lingua_engine=debug\"\n").await;
    assert_eq!(code, Some(0), "{error}");
}

#[tokio::test]
async fn a_file_that_is_missing_or_no_toml_is_named() {
    let (code, _, error) = run(&["config", "check", "--config", "/nowhere.toml"], &[]).await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("/nowhere.toml\" not found") && !error.contains("dump"), "{error}");
    let (code, error) = check("[scheduler]\nmax_retry = \n").await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("line 2") && !error.contains("dump"), "{error}");
}

#[tokio::test]
async fn a_server_does_not_start_with_values_that_make_no_sense() {
    let settings = [("LINGUA_SELECTION__SAMPLE_K", "0")];
    let (code, _, error) = run(&["serve", "--listen", "127.0.0.1:0"], &settings).await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("selection.sample_k"), "{error}");
}

/// Requirements: CONF-12.
#[tokio::test]
async fn names_of_the_documents_get_a_hint_with_our_name() {
    let (code, error) = check(
        "[scheduler.phase2]\nenabled = true\ninstance_id = \"scheduler-1\"\n\
         redis_url = \"redis://127.0.0.1:6379\"\nkey_prefix = \"lingua\"\n\
         [scheduler.phase3]\nenabled = true\nmode = \"two_level\"\n\
         auto_generate_language_pools = true\n\
         [scheduler.phase3.auto_pool_config]\nmin_nodes_per_pool = 1\nmax_pools = 50\n\
         require_semantic = true\nenable_mixed_pools = true\n",
    )
    .await;
    assert_eq!(code, Some(64), "{error}");
    for (theirs, ours) in [
        ("phase2.enabled", "store.url"),
        ("phase2.instance_id", "instance.id"),
        ("phase2.redis_url", "store.url"),
        ("phase2.key_prefix", "store.key_prefix"),
        ("phase3.enabled", "pools follow from the nodes"),
        ("phase3.mode", "selection.policy"),
        ("auto_generate_language_pools", "pools.generate"),
        ("min_nodes_per_pool", "pools.min_nodes_per_pool"),
        ("max_pools", "pools.max_pools"),
        ("require_semantic", "pools.semantic_rule"),
        ("enable_mixed_pools", "pools.mixed"),
    ] {
        let line = error.lines().find(|line| line.contains(theirs)).unwrap_or_default();
        assert!(line.contains(ours), "{theirs} has no hint {ours}:\n{error}");
    }
}

#[tokio::test]
async fn a_key_in_the_wrong_section_gets_a_hint() {
    let (code, error) = check("[scheduler]\nmax_pools = 7\nfrobnicate = 1\n").await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("use pools.max_pools"), "{error}");
    assert!(error.contains("scheduler.frobnicate") && error.contains("no such key"), "{error}");
}

/// Requirements: CONF-02, CONF-03, CONF-04, CONF-05.
#[tokio::test]
async fn the_dump_has_every_key_and_no_password() {
    let settings = [("LINGUA_STORE__URL", "redis://user:hunter2@127.0.0.1:6379/3")];
    let (code, dump, error) = run(&["config", "dump"], &settings).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(!dump.contains("hunter2"), "{dump}");
    assert!(dump.contains("url = \"redis://127.0.0.1:6379/3\""), "{dump}");
    for default in [
        "reservation_ttl_ms = 5000",
        "heartbeat_stale_ms = 15000",
        "sample_k = 20",
        "cpu_threshold = 0.9",
        "gpu_threshold = 0.9",
        "memory_threshold = 0.9",
        "policy = \"balanced\"",
    ] {
        assert!(dump.lines().any(|line| line == default), "{default}:\n{dump}");
    }
    let reference = page("configuration.md");
    let keys = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut count = 0;
    for key in keys {
        let is_there = |line: &str| {
            line.starts_with(&format!("{key} = ")) || line == format!("# {key} is not set")
        };
        assert!(dump.lines().any(is_there), "{key} is missing:\n{dump}");
        count += 1;
    }
    assert!(count > 40, "{count} keys");
}

#[tokio::test]
async fn the_references_of_settings_and_metrics_are_up_to_date() {
    let (code, docs, error) = run(&["config", "docs"], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(docs == page("configuration.md"), "out of date: run 'cargo xtask docs'");
    let (code, docs, error) = run(&["metrics", "docs"], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(docs == page("metrics.md"), "out of date: run 'cargo xtask docs'");
}

/// A page of the documentation.
fn page(name: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(folder.join(name)).expect("a page")
}
