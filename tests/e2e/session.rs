//! The session WebSocket: turns become jobs, and results return in the order spoken.

use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};

use crate::json_socket::JsonSocket;
use crate::raw_node::RawNode;
use crate::scheduler::Scheduler;

/// A session client.
pub(crate) struct SessionClient {
    socket: JsonSocket,
    /// The first message of the scheduler.
    pub(crate) started: Value,
}

impl Deref for SessionClient {
    type Target = JsonSocket;

    fn deref(&self) -> &JsonSocket {
        &self.socket
    }
}

impl DerefMut for SessionClient {
    fn deref_mut(&mut self) -> &mut JsonSocket {
        &mut self.socket
    }
}

impl SessionClient {
    /// Connects and sends the first message.
    pub(crate) async fn open(address: &str, first: Value) -> Self {
        Self::open_as(address, first, None).await
    }

    pub(crate) async fn open_as(address: &str, first: Value, token: Option<&str>) -> Self {
        let url = format!("ws://{address}/v1/session/ws");
        let mut socket = JsonSocket::connect(&url, token).await;
        socket.send(first).await;
        let started = socket.next().await;
        Self { socket, started }
    }

    /// Starts a session from Chinese to English, with partial texts.
    pub(crate) async fn start(s: &Scheduler) -> Self {
        Self::start_with(s, json!({})).await
    }

    pub(crate) async fn start_with(s: &Scheduler, more: Value) -> Self {
        let mut start = json!({
            "type": "session_start", "src_lang": "zh", "tgt_lang": "en", "partials": true,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            start[key] = value.clone();
        }
        let client = Self::open(&s.address, start).await;
        assert_eq!(client.started["type"], "session_started", "{:?}", client.started);
        client
    }

    /// Resumes a session, at any instance.
    pub(crate) async fn resume(address: &str, started: &Value, last_seq: u64) -> Self {
        Self::open(
            address,
            json!({
                "type": "session_resume", "session_id": started["session_id"],
                "resume_token": started["resume_token"], "last_seq": last_seq,
            }),
        )
        .await
    }

    /// Sends speech of this length, in frames of 20 ms.
    pub(crate) async fn speak(&mut self, ms: usize) {
        for _ in 0..ms / 20 {
            self.send_bytes(frame(0x1000)).await;
        }
    }

    pub(crate) async fn turn(&mut self, ms: usize) {
        self.speak(ms).await;
        self.send(json!({"type": "turn_end"})).await;
    }

    /// The next result or missing segment.
    pub(crate) async fn outcome(&mut self) -> Value {
        loop {
            let message = self.next().await;
            assert!(!message.is_null(), "the socket closed");
            if message["type"] == "result" || message["type"] == "missing" {
                return message;
            }
        }
    }
}

/// 20 ms at 16 kHz.
pub(crate) fn frame(sample: i16) -> Vec<u8> {
    sample.to_le_bytes().repeat(320)
}

/// The turn of a segment, and its number in the turn.
fn segment_id(message: &Value) -> (u64, u64) {
    (message["turn"].as_u64().expect("a turn"), message["segment"].as_u64().expect("a segment"))
}

/// Requirements: JOB-01, JOB-06.
#[tokio::test]
async fn a_turn_becomes_a_job_and_its_result_returns() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 2).await;
    let mut client = SessionClient::start_with(&s, json!({"require_tts": true})).await;
    assert!(s.get("/metrics").await.text.contains("lingua_sessions 1"));
    client.turn(400).await;
    let accepted = client.expect("job_accepted").await;
    assert_eq!(segment_id(&accepted), (1, 1));
    let assign = node.expect("job_assign").await;
    assert_eq!(assign["job_id"], accepted["job_id"]);
    assert_eq!(assign["session_id"], client.started["session_id"]);
    assert_eq!(assign["options"]["require_tts"], true);
    let audio = &assign["audio"];
    assert_eq!((&audio["format"], &audio["sample_rate"]), (&json!("pcm16"), &json!(16_000)));
    assert_eq!(node.next().await["binary"].as_array().map(Vec::len), Some(400 * 32));
    node.report("job_ack", &assign, json!({})).await;
    node.report("job_partial", &assign, json!({"text": "hel"})).await;
    assert_eq!(client.expect("partial").await["text"], "hel");
    let tts = json!({"format": "pcm16", "sample_rate": 24_000, "data": "AAECAw=="});
    let result = json!({"text_asr": "你好", "text_translated": "hello", "tts_audio": tts});
    node.report("job_done", &assign, json!({"result": result})).await;
    let result = client.expect("result").await;
    assert_eq!((result["seq"].as_u64(), segment_id(&result)), (Some(1), (1, 1)));
    assert_eq!((&result["src_lang"], &result["tgt_lang"]), (&json!("zh"), &json!("en")));
    assert_eq!(
        (&result["text_asr"], &result["text_translated"]),
        (&json!("你好"), &json!("hello"))
    );
    assert_eq!(result["tts_audio"]["data"], "AAECAw==");
    assert!(result["timings"]["delay_ms"].is_u64() && result["timings"]["total_ms"].is_u64());
    // The segment's job is visible like any other job.
    let view = s.get(&format!("/v1/jobs/{}", result["job_id"].as_str().unwrap())).await;
    assert_eq!(view.body["state"], "DONE", "{:?}", view.body);

    client.send(json!({"type": "text", "text": "再见"})).await;
    let assign = node.work().await;
    assert_eq!(assign["text"], "再见");
    assert_eq!(segment_id(&client.outcome().await), (2, 1));
    client.send(json!({"type": "session_end"})).await;
    assert_eq!(client.next().await, Value::Null, "the session has ended");
    assert!(s.get("/metrics").await.text.contains("lingua_sessions 0"));
}

/// Requirements: BIND-01.
#[tokio::test]
async fn pauses_and_length_end_segments_and_silence_makes_no_job() {
    let s =
        Scheduler::with(&[("SESSION__PAUSE_MS", "300"), ("SESSION__SEGMENT_MAX_MS", "1000")]).await;
    let _nodes = [RawNode::join(&s, "n1", 9).await, RawNode::join(&s, "n2", 9).await]
        .map(|node| node.serve(9, std::time::Duration::ZERO));
    let mut client = SessionClient::start(&s).await;
    for _ in 0..50 {
        client.send_bytes(frame(0)).await;
    }
    client.send(json!({"type": "turn_end"})).await;
    client.send(json!({"type": "turn_start"})).await;
    client.turn(2_500).await;
    // Silence and the empty turn made no segments: these are the first.
    let outcomes = [client.outcome().await, client.outcome().await, client.outcome().await];
    assert_eq!(outcomes.each_ref().map(segment_id), [(1, 1), (1, 2), (1, 3)], "cut by length");
    client.speak(200).await;
    let paused = client.outcome().await;
    assert_eq!((paused["seq"].as_u64(), segment_id(&paused)), (Some(4), (2, 1)), "a pause ends it");

    let mut nodes = vec![];
    for outcome in &outcomes {
        let job = s.ended(outcome["job_id"].as_str().unwrap()).await;
        nodes.push(job["node_id"].as_str().unwrap().to_owned());
    }
    nodes.dedup();
    assert_eq!(nodes.len(), 1, "the segments of a turn go to one node: {nodes:?}");
}

#[tokio::test]
async fn results_come_in_the_order_spoken_and_missing_segments_name_the_error() {
    let s =
        Scheduler::with(&[("SESSION__DEADLINE_MS", "1500"), ("SCHEDULER__MAX_RETRY", "0")]).await;
    let mut node = RawNode::join(&s, "n1", 9).await;
    let mut client = SessionClient::start(&s).await;
    let mut assigns = vec![];
    for n in 0..4 {
        client.send(json!({"type": "text", "text": format!("句子 {n} 🎉")})).await;
        assigns.push(node.expect("job_assign").await);
        node.report("job_ack", &assigns[n], json!({})).await;
    }
    // The last job ends first, one fails, one never ends.
    node.report("job_done", &assigns[3], json!({"result": {"text_translated": "d"}})).await;
    node.report("job_fail", &assigns[2], json!({"reason": "NO_IDEA", "retryable": false})).await;
    node.report("job_done", &assigns[0], json!({"result": {"text_translated": "a"}})).await;
    let mut seen = vec![];
    for _ in 0..4 {
        let outcome = client.outcome().await;
        let what = [&outcome["text_translated"], &outcome["error"]];
        let what = what.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned();
        seen.push((outcome["seq"].as_u64().unwrap(), outcome["turn"].as_u64().unwrap(), what));
    }
    let expected = ["a", "DEADLINE_EXCEEDED", "NODE_FAILED", "d"];
    let expected: Vec<_> = (1..).zip(expected).map(|(n, what)| (n, n, what.to_owned())).collect();
    assert_eq!(seen, expected);
    assert_eq!(
        node.expect("job_cancel").await["job_id"],
        assigns[1]["job_id"],
        "its deadline has passed"
    );
}

/// Requirements: POOL-01, POOL-14, POOL-27, JOB-02, JOB-03.
#[tokio::test]
async fn each_speaker_of_a_two_way_session_is_translated_for_the_other() {
    let s = Scheduler::start().await;
    let mut one_way = RawNode::join_with(
        &s,
        json!({
            "type": "register", "node_id": "one-way", "asr_langs": ["zh"], "semantic_langs": ["zh"],
            "tts_langs": ["en"], "max_concurrent_jobs": 9,
        }),
    )
    .await;
    let mut node = RawNode::join(&s, "both", 1).await;
    let two = json!({"mode": "two_way", "lang_a": "zh", "lang_b": "en", "context": true});
    let mut client = SessionClient::start_with(&s, two).await;
    client.send(json!({"type": "turn_start", "speaker": "b"})).await;
    client.turn(100).await;
    let assign = node.work().await;
    assert_eq!((&assign["src_lang"], &assign["tgt_lang"]), (&json!("en"), &json!("zh")));
    let result = client.outcome().await;
    assert_eq!((&result["src_lang"], &result["tgt_lang"]), (&json!("en"), &json!("zh")));

    // Without a named speaker the node finds out, and must serve both directions.
    for (spoken, target) in [("en", "zh"), ("zh", "en")] {
        client.turn(100).await;
        let assign = node.expect("job_assign").await;
        assert_eq!(
            (&assign["src_lang"], &assign["two_way"]),
            (&json!("auto"), &json!(["zh", "en"]))
        );
        assert_eq!(assign["context"].as_array().map(Vec::is_empty), Some(false), "earlier texts");
        node.report("job_ack", &assign, json!({})).await;
        let result = json!({"src_lang": spoken, "text_asr": "x", "text_translated": "y"});
        node.report("job_done", &assign, json!({"result": result})).await;
        let result = client.outcome().await;
        assert_eq!((&result["src_lang"], &result["tgt_lang"]), (&json!(spoken), &json!(target)));
    }
    client.send(json!({"type": "turn_start", "speaker": "c"})).await;
    assert_eq!(client.expect("error").await["fatal"], false);
    client.send(json!({"type": "turn_start", "speaker": "a"})).await;
    client.turn(100).await;
    let on = tokio::select! {
        assign = one_way.work() => assign,
        assign = node.work() => assign,
    };
    assert_eq!((&on["src_lang"], &on["tgt_lang"]), (&json!("zh"), &json!("en")));
}

/// Requirements: PICK-17.
#[tokio::test]
async fn turns_of_one_session_spread_over_the_nodes() {
    let s = Scheduler::start().await;
    let mut nodes = vec![];
    for n in 0..4 {
        let node = RawNode::join(&s, &format!("n{n}"), 8).await;
        nodes.push(node.serve(8, std::time::Duration::from_millis(5)));
    }
    let mut client = SessionClient::start(&s).await;
    let mut used = std::collections::BTreeMap::new();
    for _ in 0..40 {
        client.turn(40).await;
        let outcome = client.outcome().await;
        let job = s.ended(outcome["job_id"].as_str().unwrap()).await;
        *used.entry(job["node_id"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(used.len(), 4, "{used:?}");
    assert!(used.values().all(|&count| count <= 25), "no node gets most turns: {used:?}");
}

#[tokio::test]
async fn a_broken_connection_is_resumed_without_loss_or_repeats() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 9).await;
    let mut client = SessionClient::start(&s).await;
    let text = |n: u64| json!({"type": "text", "text": format!("{n}")});
    client.send(text(1)).await;
    node.work().await;
    assert_eq!(client.outcome().await["seq"], 1);
    let started = client.started.clone();
    client.send(text(2)).await;
    let second = node.expect("job_assign").await;
    // The connection breaks within a turn, while a job is open.
    client.speak(200).await;
    let third = async {
        let assign = node.expect("job_assign").await;
        // The last frames may be lost with the connection.
        let received = node.next().await["binary"].as_array().map(Vec::len);
        assert!(received.is_some_and(|bytes| bytes > 0 && bytes % 640 == 0), "{received:?}");
        assign
    };
    drop(client);
    let third = third.await;
    for assign in [&third, &second] {
        node.report("job_ack", assign, json!({})).await;
        node.report("job_done", assign, json!({"result": {"text_translated": "x"}})).await;
    }
    let mut back = SessionClient::resume(&s.address, &started, 1).await;
    assert_eq!(
        (&back.started["type"], &back.started["resumed"]),
        (&json!("session_started"), &json!(true))
    );
    assert_eq!(back.outcome().await["seq"], 2);
    assert_eq!(back.outcome().await["seq"], 3);
    back.send(text(4)).await;
    node.work().await;
    assert_eq!(back.outcome().await["seq"], 4, "the session continues");

    // A client that saw less gets more; the new connection closes the older one.
    let mut again = SessionClient::resume(&s.address, &started, 2).await;
    assert_eq!(again.outcome().await["seq"], 3);
    assert_eq!(again.outcome().await["seq"], 4);
    let error = back.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("STALE_EPOCH"), &json!(true)));

    let mut guess = started.clone();
    guess["resume_token"] = json!("lingua_00");
    let wrong = SessionClient::resume(&s.address, &guess, 0).await;
    assert_eq!(
        (&wrong.started["error"], &wrong.started["fatal"]),
        (&json!("SESSION_NOT_FOUND"), &json!(true))
    );
    let theirs = SessionClient::start(&s).await;
    guess["resume_token"] = theirs.started["resume_token"].clone();
    let wrong = SessionClient::resume(&s.address, &guess, 0).await;
    assert_eq!(wrong.started["error"], "SESSION_NOT_FOUND", "the secret of another session");
}

#[tokio::test]
async fn a_streaming_node_gets_speech_as_it_arrives_and_the_next_one_gets_it_from_the_start() {
    let s = Scheduler::start().await;
    let mut first = RawNode::join_with(&s, streaming_node("first")).await;
    let mut client = SessionClient::start(&s).await;
    client.speak(100).await;
    let assign = first.expect("job_assign").await;
    assert_eq!(assign["audio"]["stream"], true, "{assign}");
    first.report("job_ack", &assign, json!({})).await;
    let received = streamed_audio(&mut first, &assign, 3_200).await;
    assert_eq!(received, frame(0x1000).repeat(5));
    first.report("job_partial", &assign, json!({"text": "so"})).await;
    assert_eq!(client.expect("partial").await["text"], "so", "while the client speaks");

    let mut second = RawNode::join_with(&s, streaming_node("second")).await;
    first.crash();
    client.speak(100).await;
    let again = second.expect("job_assign").await;
    assert_eq!((&again["job_id"], &again["attempt_id"]), (&assign["job_id"], &json!(2)));
    assert_eq!(again["audio"]["stream"], true);
    second.report("job_ack", &again, json!({})).await;
    client.send(json!({"type": "turn_end"})).await;
    assert_eq!(
        streamed_audio(&mut second, &again, 6_400).await,
        frame(0x1000).repeat(10),
        "from the start"
    );
    let end = second.expect("audio_end").await;
    assert_eq!((&end["job_id"], &end["bytes"]), (&assign["job_id"], &json!(6_400)));
    second.report("job_done", &again, json!({"result": {"text_translated": "so it is"}})).await;
    let result = client.outcome().await;
    assert_eq!(result["text_translated"], "so it is", "{result}");
}

/// The registration of a streaming node.
pub(crate) fn streaming_node(id: &str) -> Value {
    json!({
        "type": "register", "node_id": id, "max_concurrent_jobs": 1, "streaming": true,
        "asr_langs": ["zh", "en"], "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"],
    })
}

/// Reads streamed audio of a job until this many bytes have arrived.
pub(crate) async fn streamed_audio(node: &mut RawNode, assign: &Value, bytes: usize) -> Vec<u8> {
    let job = assign["job_id"].as_str().and_then(|id| id.strip_prefix("job-")).expect("an id");
    let number = u128::from_str_radix(job, 16).expect("hexadecimal").to_be_bytes();
    let attempt = (assign["attempt_id"].as_u64().expect("a number") as u32).to_be_bytes();
    let mut received = vec![];
    while received.len() < bytes {
        let frame = node.next().await;
        let frame = frame["binary"].as_array().unwrap_or_else(|| panic!("not audio: {frame}"));
        let frame: Vec<u8> =
            frame.iter().map(|byte| byte.as_u64().expect("a byte") as u8).collect();
        let (tag, audio) = frame.split_at(20);
        assert_eq!(tag, [&number[..], &attempt[..]].concat(), "the tag of the job");
        received.extend_from_slice(audio);
    }
    received
}
