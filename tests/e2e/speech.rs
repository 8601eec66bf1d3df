//! Speech that nodes send back: clients get it, and nothing keeps it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::memory::resident_kib;
use crate::raw_node::RawNode;
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job, within};
use crate::session::SessionClient;

/// Results with speech in the test of memory.
const RESULTS: usize = 2_000;

/// Bytes of speech in each of them; as base64 in JSON they are a third more.
const SPEECH_BYTES: usize = 150_000;

/// The bound on undelivered speech in that test.
const HELD_BYTES_MAX: u64 = 32 << 20;

/// By how much the process may grow: the bound, buffers, and 2,000 records of text. With the speech
/// in the records it would be 400 MB.
const GROWTH_KIB_MAX: u64 = 120 << 10;

/// What Redis may keep of an ended job.
const REDIS_JOB_BYTES_MAX: u64 = 4_000;

/// Jobs on their way at a time.
const JOBS_AT_ONCE: usize = 16;

const SPEECH_HELD: &str = "lingua_held_bytes{kind=\"speech\"}";

/// Reports a job as done with these bytes of speech.
async fn done_with_speech(node: &mut RawNode, assign: &Value, speech: Vec<u8>) {
    let tts = json!({"format": "pcm16", "sample_rate": 16000, "bytes": speech.len()});
    let result = json!({"text_asr": "你好", "text_translated": "hello", "tts_audio": tts});
    node.report("job_done", assign, json!({"result": result})).await;
    node.send_bytes(speech).await;
}

/// Does the next job with three bytes of speech, `AQID` in base64.
async fn speak(node: &mut RawNode) {
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    done_with_speech(node, &assign, vec![1, 2, 3]).await;
    assert_eq!(node.expect("job_confirmed").await["accepted"], true);
}

/// Waits until the job's speech is gone; its text stays.
async fn until_gone(scheduler: &Scheduler, id: &Value) {
    let path = format!("/v1/jobs/{}", id.as_str().expect("an id"));
    let is_gone = |job: &Value| job["result"]["tts_audio"] == json!({"gone": true});
    let job = scheduler.until_reply(&path, |reply| is_gone(&reply.body)).await.body;
    assert_eq!(
        (&job["state"], &job["result"]["text_translated"]),
        (&json!("DONE"), &json!("hello"))
    );
    assert_eq!(job["result"]["text_asr"], "你好");
}

async fn translates_with_speech(s: &Scheduler, node: &mut RawNode) -> Value {
    let (reply, ()) = tokio::join!(s.post("/v1/translate", job()), speak(node));
    assert_eq!(reply.body["result"]["tts_audio"]["data"], "AQID", "{}", reply.body);
    assert_eq!(reply.body["result"]["tts_audio"]["format"], "pcm16");
    reply.body["job_id"].clone()
}

#[tokio::test]
async fn a_waiting_client_gets_the_speech_and_afterwards_it_is_gone() {
    let s = Scheduler::with(&[("SESSION__RESUME_MS", "1500")]).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let translated = translates_with_speech(&s, &mut node).await;

    // A client that asks later than the end gets it as well.
    let (id, _) = s.dispatch(job()).await;
    speak(&mut node).await;
    let ended = s.ended(&id).await;
    assert_eq!(ended["result"]["tts_audio"]["data"], "AQID", "{ended}");
    // A list never shows speech.
    let list = s.get("/v1/jobs").await.text;
    assert!(list.contains("你好") && !list.contains("AQID"), "{list}");
    for id in [translated, json!(id)] {
        until_gone(&s, &id).await;
    }
    s.until_metric(SPEECH_HELD, 0.0).await;
}

async fn instance(url: &str, name: &str) -> Scheduler {
    let own = [("STORE__URL", url), ("INSTANCE__ID", name), ("SESSION__RESUME_MS", "2000")];
    Scheduler::with(&own).await
}

async fn two_instances(redis: &Redis) -> (Scheduler, Scheduler) {
    let url = redis.url();
    let (one, two) = tokio::join!(instance(&url, "one"), instance(&url, "two"));
    for s in [&one, &two] {
        let both = |body: &Value| body["instances"].as_array().map(Vec::len) == Some(2);
        s.until_reply("/v1/cluster", |reply| both(&reply.body)).await;
    }
    (one, two)
}

#[tokio::test]
async fn a_session_that_resumes_at_another_instance_gets_its_speech() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 1).await;
    let mut client = SessionClient::start_with(&one, json!({"require_tts": true})).await;
    client.send(json!({"type": "text", "text": "你好"})).await;
    client.expect("job_accepted").await;
    let started = client.started.clone();
    drop(client);
    speak(&mut node).await;
    let mut back = SessionClient::resume(&two.address, &started, 0).await;
    let result = back.outcome().await;
    assert_eq!(result["tts_audio"]["data"], "AQID", "{result}");
}

#[tokio::test]
async fn every_instance_gets_speech_from_the_owner_of_the_job() {
    let redis = Redis::start().await;
    let (one, two) = two_instances(&redis).await;
    let mut node = RawNode::join(&two, "n1", 1).await;
    // The node is at one instance, the job at the other; both answer with the speech.
    let (id, _) = one.dispatch(job()).await;
    let (waited, ()) = tokio::join!(two.ended(&id), speak(&mut node));
    assert_eq!(waited["result"]["tts_audio"]["data"], "AQID", "{waited}");
    translates_with_speech(&one, &mut node).await;
    for s in [&one, &two] {
        until_gone(s, &json!(id)).await;
    }
    // Redis never had it.
    let count = "local n = 0; for _, key in ipairs(redis.call('KEYS', '*:job:*')) do \
                 local outcome = redis.call('HGET', key, 'o'); \
                 if outcome:find('AQID', 1, true) then n = n + 1000 else n = n + 1 end end \
                 return n";
    assert_eq!(redis.command(&format!("EVAL \"{count}\" 0")).await, ":2");
}

#[tokio::test]
async fn fields_that_nobody_knows_are_not_kept() {
    let redis = Redis::start().await;
    let url = redis.url();
    let settings = [("STORE__URL", &*url), ("SESSION__RESUME_MS", "1000")];
    let s = Scheduler::with(&settings).await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut padded = job();
    padded["padding"] = json!("x".repeat(100_000));
    let before = redis.used_memory().await;
    for _ in 0..20 {
        let work = async {
            let assign = node.expect("job_assign").await;
            let result = json!({"text_translated": "hello", "padding": "y".repeat(100_000)});
            node.report("job_done", &assign, json!({"result": result})).await;
        };
        let (reply, ()) = tokio::join!(s.post("/v1/translate", padded.clone()), work);
        assert_eq!(reply.body["result"]["padding"].as_str().map(str::len), Some(100_000));
    }
    let grown = redis.used_memory().await.saturating_sub(before);
    assert!(grown < 1_000_000, "{grown} bytes in Redis after 20 jobs");
    let jobs = s.get("/v1/jobs").await.body;
    let id = jobs["jobs"][0]["job_id"].as_str().expect("an id").to_owned();
    let kept =
        |reply: &crate::http::Reply| reply.body["result"] == json!({"text_translated": "hello"});
    s.until_reply(&format!("/v1/jobs/{id}"), kept).await;
}

/// Does jobs with much speech, as many as there are.
async fn speak_much(mut node: RawNode) {
    for n in 0.. {
        if n % 50 == 0 {
            node.send(json!({"type": "heartbeat"})).await;
        }
        let message = node.next().await;
        match message["type"].as_str() {
            Some("job_assign") => {
                node.ack(&message).await;
                done_with_speech(&mut node, &message, vec![7; SPEECH_BYTES]).await;
            }
            Some(_) => {}
            None => return,
        }
    }
}

/// Sends jobs, every other one without waiting for its end.
async fn send_jobs(s: &Scheduler, count: usize) {
    let client = s.new_client();
    let mut last = String::new();
    for n in 0..count {
        if n % 2 == 0 {
            let done = client.post("/v1/translate", job()).await;
            let data = done.body["result"]["tts_audio"]["data"].as_str().map(str::len);
            assert_eq!(data, Some(SPEECH_BYTES / 3 * 4), "{}", done.status);
        } else {
            let sent = client.post("/v1/dispatch/f2f", job()).await;
            assert_eq!(sent.status, 200, "{}", sent.body);
            last = sent.body["job_id"].as_str().expect("an id").to_owned();
        }
    }
    s.ended(&last).await;
}

async fn results_stay_small(s: &Scheduler) -> (u64, u64) {
    let nodes: Vec<RawNode> = vec![
        RawNode::join(s, "n1", JOBS_AT_ONCE).await,
        RawNode::join(s, "n2", JOBS_AT_ONCE).await,
    ];
    let working: Vec<_> = nodes.into_iter().map(|node| tokio::spawn(speak_much(node))).collect();
    send_jobs(s, 4 * JOBS_AT_ONCE).await;
    let before_kib = resident_kib(s);
    let mut peak_kib = before_kib;
    let senders = (0..JOBS_AT_ONCE).map(|_| send_jobs(s, RESULTS / JOBS_AT_ONCE));
    let sending = futures_util::future::join_all(senders);
    let watching = async {
        loop {
            let held = s.metric(SPEECH_HELD).await;
            assert!(held <= HELD_BYTES_MAX as f64, "{held} bytes of speech");
            peak_kib = peak_kib.max(resident_kib(s));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = sending => {}
        () = watching => {}
    }
    s.until_metric(SPEECH_HELD, 0.0).await;
    let (after_kib, done) = (resident_kib(s), s.metric("lingua_jobs_total{state=\"DONE\"}").await);
    assert_eq!(done, (RESULTS + 4 * JOBS_AT_ONCE) as f64);
    working.iter().for_each(tokio::task::JoinHandle::abort);
    (peak_kib.saturating_sub(before_kib), after_kib.saturating_sub(before_kib))
}

#[tokio::test]
async fn two_thousand_results_with_speech_leave_only_text() {
    let held_max = HELD_BYTES_MAX.to_string();
    let settings = [("SCHEDULER__SPEECH_BYTES_MAX", &*held_max), ("SESSION__RESUME_MS", "3000")];
    let s = Scheduler::with(&settings).await;
    let (peak_kib, after_kib) = results_stay_small(&s).await;
    assert!(peak_kib <= GROWTH_KIB_MAX && after_kib <= GROWTH_KIB_MAX, "{peak_kib}, {after_kib}");
}

#[tokio::test]
async fn two_thousand_results_with_speech_leave_only_text_in_redis() {
    let redis = Redis::start().await;
    let (url, held_max) = (redis.url(), HELD_BYTES_MAX.to_string());
    let settings = [
        ("STORE__URL", &*url),
        ("SCHEDULER__SPEECH_BYTES_MAX", &*held_max),
        ("SESSION__RESUME_MS", "3000"),
    ];
    let s = Scheduler::with(&settings).await;
    let before = redis.used_memory().await;
    let (peak_kib, after_kib) = results_stay_small(&s).await;
    assert!(peak_kib <= GROWTH_KIB_MAX && after_kib <= GROWTH_KIB_MAX, "{peak_kib}, {after_kib}");
    let grown = within(redis.used_memory()).await.saturating_sub(before);
    assert!(grown <= REDIS_JOB_BYTES_MAX * RESULTS as u64, "{grown} bytes in Redis");
}
