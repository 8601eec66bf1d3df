//! Grants: what users of an app may do with a JWT that the app's server signed.

use std::process::Stdio;

use rcgen::{KeyPair, PKCS_ED25519};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::browsers::open;
use crate::raw_node::{RawNode, register};
use crate::revocation::{TokensFile, call};
use crate::scheduler::{Scheduler, new_token, run, within};
use crate::session::SessionClient;

const SECRET: &str = "a secret of an app, as long as it has to be\n";

/// A key with its file, and schedulers that know it.
struct Key {
    file: TokensFile,
    admin: String,
    /// Its entry of the tokens file.
    admin_entry: String,
}

impl Key {
    async fn new() -> Self {
        let file = TokensFile::new("");
        let secret = file.add("alice.key", SECRET, 0o600);
        let key = format!("id = \"alice-key\"\ntenant = \"alice\"\nsecret_file = {secret:?}\n");
        let (admin, admin_entry) = new_token(&["--role", "admin"]).await;
        file.write(&format!("[[auth.keys]]\n{key}{admin_entry}"));
        Self { file, admin, admin_entry }
    }

    /// Signs a grant with the program.
    async fn sign(&self, args: &[&str]) -> String {
        let path = self.file.path();
        let settings = [("LINGUA_AUTH__TOKENS_FILE", path.to_str().expect("a path"))];
        let all = [&["grant", "new", "--key-id", "alice-key"], args].concat();
        let (code, grant, error) = run(&all, &settings).await;
        assert_eq!(code, Some(0), "{error}");
        grant.trim().to_owned()
    }
}

fn start(src: &str, tgt: &str) -> Value {
    json!({"type": "session_start", "src_lang": src, "tgt_lang": tgt})
}

async fn session(s: &Scheduler, grant: &str, first: Value) -> SessionClient {
    SessionClient::open_as(&s.address, first, Some(grant)).await
}

#[tokio::test]
async fn a_grant_opens_sessions_and_nothing_else() {
    let key = Key::new().await;
    let s = key.file.scheduler().await;
    let grant = key.sign(&["--ttl", "10m", "--sub", "ann"]).await;
    let mut node = RawNode::join_at(&s.address, Some(&key.admin), register("n1", 1)).await;
    let first = session(&s, &grant, start("zh", "en")).await;
    assert_eq!(first.started["type"], "session_started", "{}", first.started);
    let mut second = session(&s, &grant, start("zh", "en")).await;
    assert_eq!(second.started["error"], "RATE_LIMITED", "one at a time: {}", second.started);
    assert_eq!(second.close_code().await, Some(1013));
    let bob = key.sign(&["--ttl", "10m", "--sub", "bob", "--sessions", "2"]).await;
    let offered = format!("lingua.v1, lingua.token.{bob}");
    let (mut third, selected) =
        open(&s, "/v1/session/ws", &offered, None).await.expect("as a protocol");
    assert_eq!(selected.as_deref(), Some("lingua.v1"));
    third.send(start("zh", "en")).await;
    assert_eq!(third.next().await["type"], "session_started");
    third.send(json!({"type": "text", "text": "你好"})).await;
    node.work().await;
    assert_eq!(third.expect("result").await["text_translated"], "hello");

    for path in ["/v1/jobs", "/v1/nodes", "/v1/pools", "/v1/events", "/metrics", "/v1/node/ws"] {
        assert_eq!(call(&s, &grant, path).await.error(), (403, "FORBIDDEN"), "{path}");
    }
    let (head, rest) = grant.split_once('.').expect("a JWT");
    for forged in [
        format!("{head}.{rest}x"),
        // {"alg":"none","typ":"JWT"}
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{rest}"),
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{}.", rest.split_once('.').expect("3").0),
    ] {
        assert_eq!(call(&s, &forged, "/v1/session/ws").await.error(), (401, "UNAUTHORIZED"));
    }
    let metrics = call(&s, &key.admin, "/metrics").await.text;
    assert!(metrics.contains(r#"reason="bad_grant"} 3"#), "{metrics}");
}

#[tokio::test]
async fn a_grant_is_limited_to_its_languages() {
    let key = Key::new().await;
    let s = key.file.scheduler().await;
    let args = ["--ttl", "10m", "--langs", "zh:en,fr:de", "--sessions", "9"];
    let grant = key.sign(&args).await;
    for (src, tgt) in [("zh", "en"), ("zh-CN", "en"), ("fr", "de")] {
        let opened = session(&s, &grant, start(src, tgt)).await;
        assert_eq!(opened.started["type"], "session_started", "{src}: {}", opened.started);
    }
    let both = json!({"type": "session_start", "mode": "two_way", "lang_a": "zh", "lang_b": "en"});
    for first in [start("en", "zh"), start("auto", "en"), start("zh", "de"), both] {
        let mut refused = session(&s, &grant, first).await;
        assert_eq!(refused.started["error"], "FORBIDDEN", "{}", refused.started);
        assert_eq!(refused.close_code().await, Some(1008));
    }
}

#[tokio::test]
async fn sessions_end_with_their_grant_and_with_its_key() {
    let key = Key::new().await;
    let s = key.file.scheduler().await;
    // Within the 30 s that clocks may be apart.
    let exp = jiff::Timestamp::now().as_second() - 27;
    let short = sign(json!({"iss": "alice-key", "sub": "ann", "exp": exp}));
    let mut session_1 = session(&s, &short, start("zh", "en")).await;
    assert_eq!(session_1.started["type"], "session_started", "{}", session_1.started);
    assert_eq!(session_1.close_code().await, Some(1008));
    assert_eq!(call(&s, &short, "/v1/session/ws").await.error(), (401, "UNAUTHORIZED"));

    let grant = key.sign(&["--ttl", "1h"]).await;
    let mut session_2 = session(&s, &grant, start("zh", "en")).await;
    assert_eq!(session_2.started["type"], "session_started");
    key.file.add("alice.key", "another secret, which is as long as it has to be", 0o600);
    assert_eq!(session_2.close_code().await, Some(1008), "the key was replaced");
    let grant = key.sign(&["--ttl", "1h", "--sub", "cleo"]).await;
    let mut session_3 = session(&s, &grant, start("zh", "en")).await;
    assert_eq!(session_3.started["type"], "session_started");
    key.file.write(&key.admin_entry);
    assert_eq!(session_3.close_code().await, Some(1008), "the key was removed");
    assert_eq!(call(&s, &grant, "/v1/session/ws").await.error(), (401, "UNAUTHORIZED"));
}

#[tokio::test]
async fn a_private_key_signs_what_the_server_checks_with_the_public_one() {
    let pair = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let key = Key::new().await;
    let public = key.file.add("alice.pub", &pair.public_key_pem(), 0o644);
    let private = key.file.add("alice.pem", &pair.serialize_pem(), 0o600);
    key.file.write(&format!("[[auth.keys]]\nid = \"ed\"\npublic_key_file = {public:?}\n"));
    let s = key.file.scheduler().await;
    let args = ["grant", "new", "--key-id", "ed", "--ttl", "10m", "--key-file", &private];
    let (code, grant, error) = run(&args, &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let opened = session(&s, grant.trim(), start("zh", "en")).await;
    assert_eq!(opened.started["type"], "session_started", "{}", opened.started);
    // Whoever has the public key must not be able to sign with it as if it were a secret.
    key.file.write(&format!("[[auth.keys]]\nid = \"ed\"\nsecret_file = {private:?}\n"));
    let path = key.file.path();
    let settings = [("LINGUA_AUTH__TOKENS_FILE", path.to_str().expect("a path"))];
    let (code, _, error) = run(&["config", "check"], &settings).await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("public_key_file") && !error.contains("BEGIN"), "{error}");
}

#[tokio::test]
async fn a_secret_that_everybody_can_read_is_a_bad_configuration() {
    let key = Key::new().await;
    key.file.add("alice.key", SECRET, 0o644);
    let path = key.file.path();
    let settings = [("LINGUA_AUTH__TOKENS_FILE", path.to_str().expect("a path"))];
    let (code, _, error) = run(&["config", "check"], &settings).await;
    assert_eq!(code, Some(64), "{error}");
    assert!(error.contains("chmod 600"), "{error}");
}

/// The first block of code in this language in docs/security.md.
fn documented(language: &str) -> String {
    let page = include_str!("../../docs/security.md");
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block of code");
    rest.split_once("```").expect("its end").0.to_owned()
}

/// Runs a documented program with the id of the key and its file.
async fn run_documented(interpreter: &str, language: &str, secret: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("sign");
    std::fs::write(&script, documented(language)).expect("written");
    let mut command = Command::new(interpreter);
    command.arg(&script).args(["alice-key", secret]).stdin(Stdio::null()).kill_on_drop(true);
    let output = within(command.output()).await;
    let output = output.unwrap_or_else(|error| panic!("{interpreter} is needed: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{interpreter}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Signs claims as an app does, without this program.
fn sign(claims: Value) -> String {
    let claims: lingua_server::auth::GrantClaims = serde_json::from_value(claims).expect("claims");
    lingua_server::auth::sign_grant(&claims, SECRET.as_bytes()).expect("signed")
}

#[tokio::test]
async fn the_documented_programs_sign_grants() {
    let key = Key::new().await;
    let secret = key.file.add("alice.key", SECRET, 0o600);
    let s = key.file.scheduler().await;
    let mut grants = vec![key.sign(&["--ttl", "10m", "--sub", "rust"]).await];
    for (interpreter, language) in [("python3", "python"), ("node", "js")] {
        grants.push(run_documented(interpreter, language, &secret).await);
    }
    for grant in grants {
        let opened = session(&s, &grant, start("zh", "en")).await;
        assert_eq!(opened.started["type"], "session_started", "{grant}: {}", opened.started);
    }
}
