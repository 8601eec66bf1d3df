//! Nothing that is said, and no secret, is in the logs, at any level.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::raw_node::{RawNode, register};
use crate::revocation::{TokensFile, bearer};
use crate::scheduler::{Scheduler, new_token, run};
use crate::session::SessionClient;

/// Words that occur nowhere else.
const SPOKEN: &str = "kanarienvogel";
const HEARD: &str = "zeisigruf";
const TRANSLATED: &str = "budgerigar";
const PARTIAL: &str = "halbgefluegel";

/// Everything that the process wrote.
fn whole_log(s: &Scheduler) -> String {
    let lines = s.log_lines(&[]);
    assert!(lines.iter().any(|line| line["level"] == "TRACE" || line["level"] == "DEBUG"));
    lines.iter().map(|line| line.to_string() + "\n").collect()
}

#[tokio::test]
async fn no_log_has_secrets_or_what_was_said() {
    let (client, client_entry) = new_token(&["--role", "client"]).await;
    let (node_token, node_entry) = new_token(&["--role", "node"]).await;
    let file = TokensFile::new("");
    let secret = "canary-secret-of-the-key-0123456789abcdef";
    let key = file.add("alice.key", secret, 0o600);
    let key_entry = format!("[[auth.keys]]\nid = \"k\"\nsecret_file = {key:?}\n");
    file.write(&format!("{client_entry}{node_entry}{key_entry}"));
    let path = file.path();
    let audit = path.with_file_name("audit.jsonl");
    let s = Scheduler::with(&[
        ("AUTH__TOKENS_FILE", path.to_str().expect("a path")),
        ("AUDIT__FILE", audit.to_str().expect("a path")),
        ("LOG__LEVEL", "trace"),
    ])
    .await;
    let args = ["grant", "new", "--key-id", "k", "--ttl", "10m", "--key-file", &key];
    let grant = run(&args, &[]).await.1.trim().to_owned();

    let mut node = RawNode::join_at(&s.address, Some(&node_token), register("n1", 4)).await;
    // A text over HTTP, and its translation.
    let body = json!({"src_lang": "zh", "tgt_lang": "en", "text": SPOKEN}).to_string();
    let bearer = bearer(&client);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "canary-idempotency")];
    let translate = s.send("POST", "/v1/translate", &headers, &body);
    let work = async {
        let assign = node.expect("job_assign").await;
        node.ack(&assign).await;
        node.report("job_partial", &assign, json!({"text": PARTIAL})).await;
        let result = json!({"result": {"text_asr": HEARD, "text_translated": TRANSLATED}});
        node.report("job_done", &assign, result).await;
    };
    let (translated, ()) = tokio::join!(translate, work);
    assert_eq!(translated.body["result"]["text_translated"], TRANSLATED, "{}", translated.text);
    // Audio and a text in a session that a grant opened, and a resume.
    let start =
        json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en", "partials": true});
    let mut session = SessionClient::open_as(&s.address, start, Some(&grant)).await;
    let sound = sound();
    session.send_bytes(sound.clone()).await;
    session.send(json!({"type": "turn_end"})).await;
    node.work().await;
    session.expect("result").await;
    session.send(json!({"type": "text", "text": SPOKEN})).await;
    node.work().await;
    session.expect("result").await;
    let started = session.started.clone();
    drop(session);
    let resume = json!({
        "type": "session_resume", "session_id": started["session_id"],
        "resume_token": started["resume_token"], "last_seq": 2,
    });
    let resumed = SessionClient::open_as(&s.address, resume, Some(&grant)).await;
    assert_eq!(resumed.started["type"], "session_started", "{}", resumed.started);
    // What is refused, and what cannot be read.
    for (path, body) in [
        ("/v1/translate", json!({"text": SPOKEN}).to_string()),
        ("/v1/translate", format!("{{\"text\": \"{SPOKEN}\"")),
        (
            "/v1/translate",
            json!({"src_lang": "zh", "tgt_lang": "en", "text": [SPOKEN]}).to_string(),
        ),
    ] {
        let refused = s.send("POST", path, &headers[..1], &body).await;
        assert!((400..500).contains(&refused.status), "{refused:?}");
    }
    s.send("GET", "/v1/nodes", &[("Authorization", "Bearer canary-guess")], "").await;

    let (log, audit) = (whole_log(&s), std::fs::read_to_string(audit).expect("the audit log"));
    assert!(log.contains("register_complete"), "the log is there");
    let resume_token = started["resume_token"].as_str().expect("a token");
    let signature = grant.rsplit('.').next().expect("a signature");
    let encoded = STANDARD.encode(&sound[..48]);
    for canary in [
        &client,
        &node_token,
        &grant,
        signature,
        secret,
        resume_token,
        "canary-guess",
        "canary-idempotency",
        SPOKEN,
        HEARD,
        TRANSLATED,
        PARTIAL,
        &encoded,
        format!("{:?}", &sound[..16]).trim_matches(['[', ']']),
        &escaped(&sound[..16]),
    ] {
        for (name, text) in [("log", &log), ("audit log", &audit)] {
            let line = text.lines().find(|line| line.contains(canary));
            assert_eq!(line, None, "the {name} has {canary:?}");
        }
    }
}

/// 20 ms at 16 kHz with a pattern that can be searched for.
fn sound() -> Vec<u8> {
    (0..320_u16).flat_map(|n| (0x4b00 + n % 7 * 0x101).to_le_bytes()).collect()
}

/// As a `Bytes` is printed for debugging, and then written as JSON.
fn escaped(bytes: &[u8]) -> String {
    let printed = format!("{:?}", bytes::Bytes::copy_from_slice(bytes));
    let json = Value::String(printed.trim_matches(['b', '"']).to_owned()).to_string();
    json.trim_matches('"').to_owned()
}
