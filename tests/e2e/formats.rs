//! Data of another version of the program is refused with what to do, never misread.

use serde_json::Value;

use crate::redis::Redis;
use crate::scheduler::{Scheduler, run};

const FORMAT_KEY: &str = "lingua:v1:{hub}:format";

async fn serve_is_refused(store: &[&str]) -> String {
    let args = [&["serve", "--listen", "127.0.0.1:0"], store].concat();
    let (code, _, error) = run(&args, &[]).await;
    assert_eq!(code, Some(64), "{error}");
    error
}

/// Requirements: STORE-07.
#[tokio::test]
async fn a_store_of_another_format_is_refused_and_another_prefix_works() {
    let redis = Redis::start().await;
    let url = redis.url();
    assert_eq!(redis.command(&format!("SET {FORMAT_KEY} 99")).await, "+OK");
    let error = serve_is_refused(&["--store", &url]).await;
    for part in ["format 99", "store.key_prefix", "run the version that wrote them"] {
        assert!(error.contains(part), "{error}");
    }
    let settings = [("STORE__URL", &*url), ("STORE__KEY_PREFIX", "other:")];
    let s = Scheduler::with(&settings).await;
    s.until("/readyz", 200).await;
    assert_eq!(redis.command(&format!("GET {FORMAT_KEY}")).await, "$2", "it was not touched");
}

#[tokio::test]
async fn data_from_before_formats_had_numbers_is_refused() {
    let redis = Redis::start().await;
    assert_eq!(redis.command("HSET lingua:v1:{hub}:leader term 5").await, ":1");
    let error = serve_is_refused(&["--store", &redis.url()]).await;
    assert!(error.contains("format 0"), "{error}");
}

#[tokio::test]
async fn a_store_that_lost_its_data_gets_its_format_from_those_that_run() {
    let redis = Redis::start().await;
    let one = Scheduler::over(&redis.url(), "one").await;
    one.until("/readyz", 200).await;
    assert_eq!(redis.command("FLUSHALL").await, "+OK");
    // The first instance writes its data again, with or without its format.
    let leads = |body: &Value| body["leader"].is_string() || body["leader"].is_object();
    one.until_reply("/v1/cluster", |reply| leads(&reply.body)).await;
    let two = Scheduler::over(&redis.url(), "two").await;
    let both = |body: &Value| body["instances"].as_array().map(Vec::len) == Some(2);
    two.until_reply("/v1/cluster", |reply| both(&reply.body)).await;
}

#[tokio::test]
async fn a_data_directory_of_another_version_is_refused() {
    let dir = std::env::temp_dir().join(format!("lingua-e2e-format-{}", std::process::id()));
    std::fs::remove_dir_all(&dir).ok();
    let path = dir.to_str().expect("a path");
    let s = Scheduler::with(&[("STORE__DATA_DIR", path)]).await;
    assert_eq!(s.terminate().await, Some(0));
    {
        let database = redb::Database::open(dir.join("store.redb")).expect("a database");
        let transaction = database.begin_write().expect("a transaction");
        let meta = redb::TableDefinition::<&str, u64>::new("meta");
        transaction.open_table(meta).expect("a table").insert("version", 2).expect("written");
        transaction.commit().expect("committed");
    }
    let error = serve_is_refused(&["--data-dir", path]).await;
    assert!(error.contains("version 2") && error.contains("move the file away"), "{error}");
    std::fs::remove_dir_all(&dir).ok();
}
