//! Nothing that is said, and no secret, is in the logs, at any level.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http::HttpClient;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::revocation::{TokensFile, bearer};
use crate::scheduler::{binary, new_token, run, within};
use crate::session::SessionClient;

/// Words that occur nowhere else.
const SPOKEN: &str = "kanarienvogel";
const HEARD: &str = "zeisigruf";
const TRANSLATED: &str = "budgerigar";
const PARTIAL: &str = "halbgefluegel";

const CONTEXT: &str = "vogelkunde";

/// A scheduler that writes its log into a file, as text or as JSON.
struct Logged {
    _child: Child,
    address: String,
    log: PathBuf,
}

impl Logged {
    async fn start(config: &str, name: &str, dir: &Path) -> Self {
        let (file, log) = (dir.join(format!("{name}.toml")), dir.join(format!("{name}.log")));
        std::fs::write(&file, config).expect("written");
        let stderr = std::fs::File::create(&log).expect("a log");
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let child = command.stderr(stderr).kill_on_drop(true).spawn().expect("it starts");
        let address = within(async {
            loop {
                let text = std::fs::read_to_string(&log).expect("the log");
                let after = text.split("http://").nth(1).unwrap_or_default();
                if let Some((address, _)) = after.split_once(['"', ' ', '\n']) {
                    return address.to_owned();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        Self { _child: child, address, log }
    }

    fn http(&self) -> HttpClient {
        HttpClient::new(&self.address)
    }
}

#[tokio::test]
async fn no_log_has_secrets_or_what_was_said() {
    nothing_is_logged("json", None).await;
}

#[tokio::test]
async fn no_log_as_text_has_secrets_or_what_was_said() {
    nothing_is_logged("text", None).await;
}

/// The node is at one instance, the clients are at another.
#[tokio::test]
async fn no_log_of_two_instances_over_redis_has_secrets_or_what_was_said() {
    let redis = Redis::start().await;
    nothing_is_logged("json", Some(&redis.url())).await;
}

/// Tokens, a key for grants, and where they stand.
struct Secrets {
    file: TokensFile,
    client: String,
    node: String,
    grant: String,
}

const KEY: &str = "canary-secret-of-the-key-0123456789abcdef";

impl Secrets {
    async fn new() -> Self {
        let (client, client_entry) = new_token(&["--role", "client"]).await;
        let (node, node_entry) = new_token(&["--role", "node"]).await;
        let file = TokensFile::new("");
        let key = file.add("alice.key", KEY, 0o600);
        let key_entry = format!("[[auth.keys]]\nid = \"k\"\nsecret_file = {key:?}\n");
        file.write(&format!("{client_entry}{node_entry}{key_entry}"));
        let args = ["grant", "new", "--key-id", "k", "--ttl", "10m", "--key-file", &key];
        let grant = run(&args, &[]).await.1.trim().to_owned();
        Self { file, client, node, grant }
    }
}

async fn nothing_is_logged(format: &str, redis: Option<&str>) {
    let secrets = Secrets::new().await;
    let dir = secrets.file.path().parent().expect("a directory").to_owned();
    let start = async |name: &str| {
        let store = redis.map(|url| format!("[store]\nurl = \"{url}\"\n")).unwrap_or_default();
        let config = format!(
            "{store}[instance]\nid = \"{name}\"\n[auth]\ntokens_file = {:?}\n[audit]\n\
             file = {:?}\n[log]\nlevel = \"trace\"\nformat = \"{format}\"\n",
            secrets.file.path(),
            dir.join(format!("{name}.audit")),
        );
        Logged::start(&config, name, &dir).await
    };
    let mut instances = vec![start("one").await];
    if redis.is_some() {
        instances.push(start("two").await);
    }
    let (at_node, at_client) = (&instances[0], instances.last().expect("an instance"));
    let join = RawNode::join_at(&at_node.address, Some(&secrets.node), register("n1", 4));
    let mut node = join.await;
    let resume_token = work(at_client, at_node, &mut node, &secrets).await;

    let signature = secrets.grant.rsplit('.').next().expect("a signature");
    let mut canaries: Vec<String> = [
        &*secrets.client,
        &secrets.node,
        &secrets.grant,
        signature,
        KEY,
        &resume_token,
        "canary-guess",
        "canary-idempotency",
        SPOKEN,
        HEARD,
        TRANSLATED,
        PARTIAL,
        CONTEXT,
    ]
    .map(str::to_owned)
    .into();
    for bytes in [sound(), speech()] {
        canaries.push(STANDARD.encode(&bytes[..48]));
        canaries.push(format!("{:?}", &bytes[..16]).trim_matches(['[', ']']).to_owned());
        canaries.extend([printed(&bytes[..16]), escaped(&bytes[..16])]);
    }
    for instance in &instances {
        let log = std::fs::read_to_string(&instance.log).expect("the log");
        assert!(log.contains("TRACE") || log.contains("DEBUG"), "the finest level");
        let is_heard = log.contains("register_complete") || log.contains("request done");
        assert!(is_heard, "the log is there");
        let audit = std::fs::read_to_string(instance.log.with_extension("audit"));
        for (name, text) in [("log", log), ("audit log", audit.expect("the audit log"))] {
            for canary in &canaries {
                let line = text.lines().find(|line| line.contains(canary));
                assert_eq!(line, None, "the {name} has {canary:?}");
            }
        }
    }
}

/// Says everything that must not be logged; gives the resume token of a session.
async fn work(client: &Logged, other: &Logged, node: &mut RawNode, secrets: &Secrets) -> String {
    let http = client.http();
    // A text over HTTP, with a context; its translation and its speech.
    let body = json!({
        "src_lang": "zh", "tgt_lang": "en", "text": SPOKEN, "context": [CONTEXT],
        "options": {"wait_ms": 15_000},
    });
    let bearer = bearer(&secrets.client);
    let headers = [("Authorization", &*bearer), ("Idempotency-Key", "canary-idempotency")];
    let body = body.to_string();
    let translate = http.send("POST", "/v1/translate", &headers, &body);
    let working = async {
        let assign = node.expect("job_assign").await;
        assert_eq!(assign["context"], json!([CONTEXT]), "{assign}");
        node.ack(&assign).await;
        node.report("job_partial", &assign, json!({"text": PARTIAL})).await;
        speak(node, &assign).await;
    };
    let (translated, ()) = tokio::join!(translate, working);
    let result = &translated.body["result"];
    assert_eq!(result["text_translated"], TRANSLATED, "{}", translated.text);
    assert!(result["tts_audio"]["data"].is_string(), "{}", translated.text);
    // Audio and a text in a session that a grant opened, and a resume at the other instance.
    let start = json!({
        "type": "session_start", "src_lang": "zh", "tgt_lang": "en", "partials": true,
        "context": true,
    });
    let mut session = SessionClient::open_as(&client.address, start, Some(&secrets.grant)).await;
    session.send_bytes(sound()).await;
    session.send(json!({"type": "turn_end"})).await;
    let assign = node.expect("job_assign").await;
    node.ack(&assign).await;
    speak(node, &assign).await;
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
    let resumed = SessionClient::open_as(&other.address, resume, Some(&secrets.grant)).await;
    assert_eq!(resumed.started["type"], "session_started", "{}", resumed.started);
    // What is refused, and what cannot be read.
    for body in [
        json!({"text": SPOKEN}).to_string(),
        format!("{{\"text\": \"{SPOKEN}\""),
        json!({"src_lang": "zh", "tgt_lang": "en", "text": [SPOKEN]}).to_string(),
        json!({"src_lang": "zh", "tgt_lang": "en", "text": SPOKEN, "context": CONTEXT}).to_string(),
    ] {
        let refused = http.send("POST", "/v1/translate", &headers[..1], &body).await;
        assert!((400..500).contains(&refused.status), "{refused:?}");
    }
    for instance in [client, other] {
        let guess = [("Authorization", "Bearer canary-guess")];
        instance.http().send("GET", "/v1/nodes", &guess, "").await;
    }
    started["resume_token"].as_str().expect("a token").to_owned()
}

/// Reports a result with speech.
async fn speak(node: &mut RawNode, assign: &Value) {
    let tts = json!({"format": "pcm16", "sample_rate": 16_000, "bytes": speech().len()});
    let result = json!({"text_asr": HEARD, "text_translated": TRANSLATED, "tts_audio": tts});
    node.report("job_done", assign, json!({"result": result})).await;
    node.send_bytes(speech()).await;
}

/// What a node says, with another pattern.
fn speech() -> Vec<u8> {
    (0..320_u16).flat_map(|n| (0x5d00 + n % 11 * 0x107).to_le_bytes()).collect()
}

/// 20 ms at 16 kHz with a pattern that can be searched for.
fn sound() -> Vec<u8> {
    (0..320_u16).flat_map(|n| (0x4b00 + n % 7 * 0x101).to_le_bytes()).collect()
}

/// As a `Bytes` is printed for debugging.
fn printed(bytes: &[u8]) -> String {
    let printed = format!("{:?}", bytes::Bytes::copy_from_slice(bytes));
    printed.trim_matches(['b', '"']).to_owned()
}

/// The same, written as JSON.
fn escaped(bytes: &[u8]) -> String {
    Value::String(printed(bytes)).to_string().trim_matches('"').to_owned()
}
