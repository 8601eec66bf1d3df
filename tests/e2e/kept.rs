//! What is kept of ended jobs, for how long, and how to have it erased.

use std::time::Duration;

use serde_json::{Value, json};

use crate::callers::{Caller, secret, token};
use crate::durable::directory;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, within};

const SAID: &str = "a secret that was said";
const ANSWER: &str = "ein Geheimnis";

fn tokens(rules: &str) -> String {
    token("alice-app", "client", "tenant = \"alice\"")
        + &token("alice-eye", "viewer", "tenant = \"alice\"")
        + &token("bob-app", "client", "tenant = \"bob\"")
        + &token("ops", "admin", "")
        + &format!("[[auth.tenants]]\nname = \"alice\"\n{rules}\n")
}

fn over(store: &str, instance: &str, rules: &str) -> String {
    format!("{store}\n[instance]\nid = \"{instance}\"\n{}", tokens(rules))
}

fn spoken(session: &str) -> Value {
    json!({
        "session_id": session, "src_lang": "zh", "tgt_lang": "en", "text": SAID,
        "context": ["what was said before"],
    })
}

async fn join(s: &Scheduler) -> RawNode {
    RawNode::join_at(&s.address, Some(&secret("ops")), register("n1", 8)).await
}

/// Dispatches a job and lets the node do it; gives its id.
async fn done(caller: &Caller<'_>, node: &mut RawNode, session: &str) -> String {
    let sent = caller.post("/v1/dispatch/f2f", spoken(session)).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let assign = node.expect("job_assign").await;
    assert_eq!(assign["text"], SAID, "the node gets it");
    node.ack(&assign).await;
    node.done(&assign, ANSWER).await;
    node.expect("job_confirmed").await;
    sent.body["job_id"].as_str().expect("an id").to_owned()
}

async fn until_gone(caller: &Caller<'_>, job: &str) {
    within(async {
        while caller.get(&format!("/v1/jobs/{job}")).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Who waits gets the result, on whichever instance; the record has none of the text.
#[tokio::test]
async fn without_keep_text_a_result_is_delivered_and_not_kept() {
    let redis = Redis::start().await;
    let store = format!("[store]\nurl = \"{}\"", redis.url());
    let one = Scheduler::from_toml(&over(&store, "one", "keep_text = false")).await;
    let two = Scheduler::from_toml(&over(&store, "two", "keep_text = false")).await;
    let mut node = join(&one).await;
    let (here, there) = (Caller::new(&one, "alice-app"), Caller::new(&two, "alice-app"));
    let sent = here.post("/v1/dispatch/f2f", spoken("room")).await;
    let id = sent.body["job_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/jobs/{id}?wait_ms=10000");
    let work = async {
        let assign = node.expect("job_assign").await;
        node.ack(&assign).await;
        node.done(&assign, ANSWER).await;
    };
    let (at_two, ()) = tokio::join!(there.get(&path), work);
    assert_eq!(at_two.body["result"]["text_translated"], ANSWER, "{}", at_two.text);
    assert_eq!(here.get(&path).await.body["result"]["text_translated"], ANSWER);
    let translate = async { here.post("/v1/translate", spoken("room")).await };
    let work = async {
        let assign = node.expect("job_assign").await;
        node.ack(&assign).await;
        node.done(&assign, ANSWER).await;
    };
    let (translated, ()) = tokio::join!(translate, work);
    assert_eq!(translated.body["result"]["text_translated"], ANSWER, "{}", translated.text);
    let list = here.get("/v1/jobs").await.text;
    assert!(list.contains(&id) && !list.contains(ANSWER) && !list.contains(SAID), "{list}");
    // Delivered, it is gone from memory soon; the record says only how the job ended.
    within(async {
        while here.get(&path).await.text.contains(ANSWER)
            || there.get(&path).await.text.contains(ANSWER)
        {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
    let shown = here.get(&path).await;
    assert_eq!((shown.status, &shown.body["state"]), (200, &json!("DONE")), "{}", shown.text);
    let dump = redis_dump(&redis).await;
    assert!(dump.contains("alice") && !dump.contains(ANSWER) && !dump.contains(SAID), "{dump}");
    assert!(!dump.contains("said before"), "{dump}");
}

/// All records of jobs, as text.
async fn redis_dump(redis: &Redis) -> String {
    let url = redis.url();
    let port = url.rsplit(':').next().expect("a port");
    let script = "local out = {} for _, k in ipairs(redis.call('KEYS', '*:job:*')) do \
                  for _, v in ipairs(redis.call('HGETALL', k)) do out[#out + 1] = v end end \
                  return table.concat(out, ' ')";
    let output = tokio::process::Command::new("redis-cli")
        .args(["-p", port, "--raw", "EVAL", script, "0"])
        .output()
        .await
        .expect("redis-cli runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn retention_ends_what_is_kept_of_a_job() {
    let redis = Redis::start().await;
    for store in [String::new(), format!("[store]\nurl = \"{}\"", redis.url())] {
        let s = Scheduler::from_toml(&over(&store, "one", "retention_ms = 700")).await;
        let mut node = join(&s).await;
        let (alice, bob) = (Caller::new(&s, "alice-app"), Caller::new(&s, "bob-app"));
        let short = done(&alice, &mut node, "room").await;
        let long = done(&bob, &mut node, "room").await;
        until_gone(&alice, &short).await;
        assert!(!alice.get("/v1/jobs").await.text.contains(&short));
        assert_eq!(bob.get(&format!("/v1/jobs/{long}")).await.status, 200, "only Alice's");
    }
}

/// Jobs end without a node: they are refused after they were accepted.
#[tokio::test]
async fn a_tenant_with_many_jobs_does_not_push_out_the_history_of_another() {
    let redis = Redis::start().await;
    for store in ["[store]".to_owned(), format!("[store]\nurl = \"{}\"", redis.url())] {
        let store = format!("{store}\nended_jobs_max = 96");
        let s = Scheduler::from_toml(&over(&store, "one", "")).await;
        let (alice, bob) = (Caller::new(&s, "alice-app"), Caller::new(&s, "bob-app"));
        let refused = bob.post("/v1/translate", spoken("room")).await;
        assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"));
        for _ in 0..200 {
            alice.post("/v1/translate", spoken("room")).await;
        }
        let count = async |caller: &Caller<'_>| {
            let page = caller.get("/v1/jobs?limit=1000").await;
            page.body["jobs"].as_array().map_or(0, Vec::len)
        };
        assert_eq!(count(&bob).await, 1, "{store}");
        let alices = count(&alice).await;
        assert!((16..=48).contains(&alices), "a share of three, not all: {alices}, {store}");
    }
}

async fn erases_on_request(s: &Scheduler) {
    let mut node = join(s).await;
    let (alice, bob) = (Caller::new(s, "alice-app"), Caller::new(s, "bob-app"));
    let first = done(&alice, &mut node, "room-1").await;
    let second = done(&alice, &mut node, "room-1").await;
    let third = done(&alice, &mut node, "room-2").await;
    let bobs = done(&bob, &mut node, "room-1").await;
    let at = |id: &str| format!("/v1/jobs/{id}");
    for (caller, id, status) in [("bob-app", &first, 404), ("alice-eye", &first, 403)] {
        let refused = Caller::new(s, caller).send("DELETE", &at(id), "").await;
        assert_eq!(refused.status, status, "{caller}: {}", refused.text);
    }
    let erased = alice.send("DELETE", &at(&first), "").await;
    assert_eq!(erased.body, json!({"ok": true, "erased": 1, "more": false}));
    assert_eq!(alice.get(&at(&first)).await.status, 404);
    assert_eq!(alice.send("DELETE", &at(&first), "").await.status, 404);

    // A session, of the caller's tenant alone.
    let erased = alice.send("DELETE", "/v1/jobs?session=room-1", "").await;
    assert_eq!(erased.body["erased"], 1, "{}", erased.text);
    assert_eq!(alice.get(&at(&second)).await.status, 404);
    assert_eq!(bob.get(&at(&bobs)).await.status, 200);

    // An open job is cancelled first.
    let open = alice.post("/v1/dispatch/f2f", spoken("room-3")).await;
    let open = open.body["job_id"].as_str().expect("an id").to_owned();
    node.expect("job_assign").await;
    let erased = alice.send("DELETE", &at(&open), "").await;
    assert_eq!(erased.body["erased"], 1, "{}", erased.text);
    node.expect("job_cancel").await;

    // A tenant: by itself or by an administrator, and by no other caller.
    for (caller, status) in [("bob-app", 403), ("alice-eye", 403)] {
        let refused = Caller::new(s, caller).send("DELETE", "/v1/jobs?tenant=alice", "").await;
        assert_eq!(refused.status, status, "{caller}: {}", refused.text);
    }
    assert_eq!(alice.send("DELETE", "/v1/jobs", "").await.error(), (400, "INVALID_REQUEST"));
    assert_eq!(alice.get(&at(&third)).await.status, 200);
    let ops = Caller::new(s, "ops");
    let erased = ops.send("DELETE", "/v1/jobs?tenant=alice", "").await;
    assert_eq!(erased.body, json!({"ok": true, "erased": 1, "more": false}));
    assert_eq!(ops.get("/v1/jobs").await.body["jobs"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn jobs_sessions_and_tenants_are_erased_on_request_and_it_is_recorded() {
    let dir = directory("erase");
    std::fs::create_dir_all(&dir).expect("a directory");
    let log = format!("{dir}/audit.jsonl");
    let config = format!("[audit]\nfile = \"{log}\"\n{}", tokens(""));
    erases_on_request(&Scheduler::from_toml(&config).await).await;
    let lines = std::fs::read_to_string(&log).expect("the log");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let text = |line: &Value, key: &str| line[key].as_str().expect("a text").to_owned();
    let told = lines.iter().filter(|line| line["count"].is_null()).map(|line| {
        let object = text(line, "object");
        let object = if object.starts_with("job-") { "a job" } else { &object }.to_owned();
        [text(line, "actor"), text(line, "action"), object, text(line, "outcome")]
    });
    let expected = [
        ["bob-app", "erase", "a job", "other_tenant"],
        ["alice-eye", "erase", "a job", "FORBIDDEN"],
        ["alice-app", "erase", "a job", "ok"],
        ["alice-app", "erase", "a job", "JOB_NOT_FOUND"],
        ["alice-app", "erase", "session room-1", "ok"],
        ["alice-app", "erase", "a job", "ok"],
        ["bob-app", "erase", "tenant alice", "FORBIDDEN"],
        // Alice's viewer is refused once more, which is counted with the time before.
        ["ops", "erase", "tenant alice", "ok"],
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected.map(|line| line.map(str::to_owned)));
    std::fs::remove_dir_all(dir).ok();
}

#[tokio::test]
async fn jobs_sessions_and_tenants_are_erased_on_request_over_redis() {
    let redis = Redis::start().await;
    let store = format!("[store]\nurl = \"{}\"", redis.url());
    let s = Scheduler::from_toml(&over(&store, "one", "")).await;
    erases_on_request(&s).await;
    let dump = redis_dump(&redis).await;
    assert!(!dump.contains("alice"), "{dump}");
}

/// What was erased does not come back with a restart.
#[tokio::test]
async fn an_erased_job_is_gone_from_the_disk_too() {
    let dir = directory("erased");
    let config = format!("[store]\ndata_dir = \"{dir}\"\n{}", tokens("keep_text = false"));
    let s = Scheduler::from_toml(&config).await;
    let mut node = join(&s).await;
    let alice = Caller::new(&s, "alice-app");
    let (kept, erased) =
        (done(&alice, &mut node, "room").await, done(&alice, &mut node, "room").await);
    assert_eq!(alice.send("DELETE", &format!("/v1/jobs/{erased}"), "").await.status, 200);
    s.terminate().await;
    let s = Scheduler::from_toml(&config).await;
    let alice = Caller::new(&s, "alice-app");
    assert_eq!(alice.get(&format!("/v1/jobs/{erased}")).await.status, 404);
    let shown = alice.get(&format!("/v1/jobs/{kept}")).await;
    assert_eq!((shown.status, shown.text.contains(ANSWER)), (200, false), "{}", shown.text);
    s.terminate().await;
    std::fs::remove_dir_all(dir).ok();
}
