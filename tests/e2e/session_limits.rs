//! What a session refuses, and its limits.

use std::time::Duration;

use serde_json::{Value, json};

use crate::raw_node::RawNode;
use crate::scheduler::{Scheduler, within};
use crate::session::{SessionClient, frame};

#[tokio::test]
async fn a_malformed_frame_gets_an_error_and_the_session_continues() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut client = SessionClient::start(&s).await;
    for nonsense in ["{", "[]", "hello, is this on?", r#"{"type":"dance"}"#, r#"{"type":"text"}"#] {
        client.send_text(nonsense).await;
        let error = client.expect("error").await;
        assert_eq!((&error["error"], &error["fatal"]), (&json!("INVALID_REQUEST"), &json!(false)));
        assert!(error["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
    client.send_bytes(vec![1, 2, 3]).await;
    assert_eq!(client.expect("error").await["error"], "INVALID_REQUEST", "half a sample");
    client.send_bytes(vec![1; 65 << 10]).await;
    assert_eq!(client.expect("error").await["error"], "PAYLOAD_TOO_LARGE");
    client.send(json!({"type": "text", "text": "语".repeat(5_462)})).await;
    assert_eq!(client.expect("error").await["error"], "INVALID_REQUEST", "more than 16 KiB");
    client.turn(40).await;
    node.work().await;
    assert_eq!(client.outcome().await["seq"], 1, "nothing else has changed");
}

#[tokio::test]
async fn long_texts_in_any_script_arrive_complete() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 1).await;
    let mut client = SessionClient::start_with(&s, json!({"context": true})).await;
    for letter in ["语", "ع", "👩‍👩‍👧‍👦"] {
        let text = letter.repeat(16 * 1024 / letter.len());
        client.send(json!({"type": "text", "text": text})).await;
        let assign = node.expect("job_assign").await;
        assert_eq!(assign["text"].as_str(), Some(text.as_str()));
        let context = assign["context"].as_array().cloned().unwrap_or_default();
        assert!(context.iter().all(|text| text.as_str().is_some_and(|t| t.len() <= 1024)));
        node.report("job_ack", &assign, json!({})).await;
        node.report("job_partial", &assign, json!({"text": text})).await;
        let partial = client.expect("partial").await;
        assert_eq!(partial["text"].as_str(), Some(text.as_str()));
        let result = json!({"text_asr": text, "text_translated": text});
        node.report("job_done", &assign, json!({"result": result})).await;
        assert_eq!(client.outcome().await["text_translated"].as_str(), Some(text.as_str()));
    }
}

#[tokio::test]
async fn malformed_first_messages_are_refused() {
    let s = Scheduler::with(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    for (first, code) in [
        (json!({"type": "turn_end"}), "INVALID_REQUEST"),
        (json!({"type": "session_start", "src_lang": "zh"}), "INVALID_REQUEST"),
        (json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "x!"}), "INVALID_LANGUAGE"),
        (
            json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en",
                   "audio": {"format": "pcm16", "sample_rate": 44_100}}),
            "INVALID_REQUEST",
        ),
        (
            json!({"type": "session_resume", "session_id": "sess-1", "resume_token": "x"}),
            "SESSION_NOT_FOUND",
        ),
    ] {
        let mut client = SessionClient::open(&s.address, first).await;
        assert_eq!(
            (client.started["error"].as_str(), &client.started["fatal"]),
            (Some(code), &json!(true))
        );
        assert_eq!(client.next().await, Value::Null);
    }
}

#[tokio::test]
async fn audio_much_faster_than_real_time_is_refused() {
    let s = Scheduler::start().await;
    let mut node = RawNode::join(&s, "n1", 9).await;
    // The client declares 8 kHz and sends more than that.
    let declared = json!({"audio": {"format": "pcm16", "sample_rate": 8_000}});
    let mut client = SessionClient::start_with(&s, declared).await;
    client.turn(40).await;
    node.work().await;
    assert_eq!(client.outcome().await["seq"], 1);
    let started = client.started.clone();
    // More than the rate limit allows at once.
    for _ in 0..21_000 / 40 {
        client.try_send_bytes(frame(0)).await;
    }
    let error = client.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("RATE_LIMITED"), &json!(true)));
    assert!(error["detail"].as_str().is_some_and(|d| d.contains("sample rate")), "{error}");
    let back = SessionClient::resume(&s.address, &started, 1).await;
    assert_eq!(back.started["type"], "session_started", "the session is not lost");
}

#[tokio::test]
async fn sessions_are_counted_by_token_and_open_segments_by_session() {
    let token = "lingua_test";
    let hash = {
        use sha2::{Digest, Sha256};
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lingua.toml");
    let config = format!(
        "[session]\nper_token_max = 2\nopen_segments_max = 3\n\
         [[auth.tokens]]\nname = \"all\"\nrole = \"admin\"\nsha256 = \"{hash}\"\n"
    );
    std::fs::write(&file, config).expect("a file");
    let s = Scheduler::from_file(file.to_str().expect("a path")).await;
    let start = || json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let mut one = SessionClient::open_as(&s.address, start(), Some(token)).await;
    let two = SessionClient::open_as(&s.address, start(), Some(token)).await;
    assert_eq!(
        (&one.started["type"], &two.started["type"]),
        (&json!("session_started"), &json!("session_started"))
    );
    let three = SessionClient::open_as(&s.address, start(), Some(token)).await;
    assert_eq!(three.started["error"], "RATE_LIMITED", "{:?}", three.started);

    let register = json!({"type": "register", "node_id": "n1", "max_concurrent_jobs": 9,
        "semantic_langs": ["zh", "en"], "tts_langs": ["zh", "en"]});
    let mut node = RawNode::join_at(&s.address, Some(token), register).await;
    let mut assigns = vec![];
    for n in 0..5 {
        one.send(json!({"type": "text", "text": format!("{n}")})).await;
        if n < 3 {
            assigns.push(node.expect("job_assign").await);
        }
    }
    // Messages are handled in order: after this reply the scheduler has seen all five texts.
    one.send(json!({"type": "nonsense"})).await;
    one.expect("error").await;
    for assign in &assigns {
        node.report("job_done", assign, json!({"result": {"text_translated": "x"}})).await;
        node.expect("job_confirmed").await;
    }
    let mut errors = vec![];
    for _ in 0..5 {
        let outcome = one.outcome().await;
        errors.push(outcome["error"].as_str().unwrap_or("").to_owned());
    }
    assert_eq!(errors, ["", "", "", "RATE_LIMITED", "RATE_LIMITED"]);
    one.send(json!({"type": "text", "text": "again"})).await;
    node.work().await;
    assert_eq!(one.outcome().await["seq"], 6, "a segment is accepted again");
}

#[tokio::test]
async fn idle_sessions_and_sessions_that_nobody_resumes_end() {
    let s = Scheduler::with(&[("SESSION__IDLE_MS", "300"), ("SESSION__RESUME_MS", "300")]).await;
    let mut client = SessionClient::start(&s).await;
    let error = client.expect("error").await;
    assert_eq!((&error["error"], &error["fatal"]), (&json!("SESSION_IDLE"), &json!(true)));
    let gone = SessionClient::start(&s).await;
    let started = gone.started.clone();
    drop(gone);
    let none_left = async {
        while !s.get("/metrics").await.text.contains("lingua_sessions 0") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(none_left).await;
    let late = SessionClient::resume(&s.address, &started, 0).await;
    assert_eq!(late.started["error"], "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected_and_gets_everything_after_it_resumes() {
    let s =
        Scheduler::with(&[("SESSION__WRITE_MS", "300"), ("SESSION__DEADLINE_MS", "60000")]).await;
    let mut node = RawNode::join(&s, "n1", 20).await;
    let mut client = SessionClient::start(&s).await;
    let started = client.started.clone();
    let data = "AAAA".repeat(150_000);
    let tts = json!({"format": "pcm16", "sample_rate": 24_000, "data": data});
    let result = json!({"text_translated": "long", "tts_audio": tts});
    let mut assigns = vec![];
    for _ in 0..20 {
        client.send(json!({"type": "text", "text": "说"})).await;
        assigns.push(node.expect("job_assign").await);
    }
    for assign in &assigns {
        node.report("job_ack", assign, json!({})).await;
        node.report("job_done", assign, json!({"result": result})).await;
        node.expect("job_confirmed").await;
    }
    let is_disconnected = async {
        while !s.get("/metrics").await.text.contains("lingua_connections{kind=\"session\"} 0") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(is_disconnected).await;
    assert!(s.get("/metrics").await.text.contains("lingua_sessions 1"), "the session is kept");
    let mut back = SessionClient::resume(&s.address, &started, 0).await;
    for seq in 1..=20 {
        let outcome = back.outcome().await;
        assert_eq!((outcome["seq"].as_u64(), &outcome["type"]), (Some(seq), &json!("result")));
        assert_eq!(outcome["tts_audio"]["data"].as_str().map(str::len), Some(600_000));
    }
}
