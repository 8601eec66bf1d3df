//! Schedulers that serve `https://` and `wss://`.

use std::path::PathBuf;
use std::process::Stdio;

use lingua_sdk::{Client, ClientError};
use lingua_wire::client::Dispatch;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::scheduler::{Scheduler, binary, run, within};

/// A self-signed certificate and its key, as files that are removed with the test.
struct CertFiles {
    folder: PathBuf,
}

impl CertFiles {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lingua-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        std::fs::write(folder.join("cert.pem"), made.cert.pem()).expect("a file");
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).expect("a file");
        Self { folder }
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().expect("a path").to_owned()
    }

    fn cert(&self) -> String {
        self.path("cert.pem")
    }

    fn key(&self) -> String {
        self.path("key.pem")
    }

    async fn scheduler(&self, settings: &[(&str, &str)]) -> Scheduler {
        let (cert, key) = (self.cert(), self.key());
        let mut all = vec![("SERVER__TLS_CERT", cert.as_str()), ("SERVER__TLS_KEY", key.as_str())];
        all.extend(settings);
        Scheduler::with(&all).await
    }
}

impl Drop for CertFiles {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

#[tokio::test]
async fn a_job_is_translated_over_tls() {
    let files = CertFiles::new("life");
    let s = files.scheduler(&[]).await;
    let (url, cert) = (format!("https://{}", s.address), files.cert());
    let mut node = Command::new(binary())
        .args(["node", "--url", &url, "--ca", &cert, "--work-ms", "1", "--id", "n1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("a node");
    let client = Client::new(&url).expect("an address").with_ca(cert.as_ref()).expect("a CA");
    within(async {
        while client.nodes().await.expect("a reply").nodes.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let job = Dispatch {
        src_lang: "zh".into(),
        tgt_lang: "en".into(),
        text: Some("你好".into()),
        ..Dispatch::default()
    };
    let done = client.translate(&job).await.expect("a translation");
    assert_eq!(done.state.as_str(), "DONE");
    let (code, out, err) = run(&["nodes", "--url", &url, "--ca", &cert], &[]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("n1"), "{out}");
    node.kill().await.ok();
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused_with_advice() {
    let (files, others) = (CertFiles::new("own"), CertFiles::new("strange"));
    let s = files.scheduler(&[]).await;
    let url = format!("https://{}", s.address);
    for ca in [None, Some(others.cert())] {
        let mut args = vec!["nodes", "--url", &url];
        if let Some(ca) = &ca {
            args.extend(["--ca", ca]);
        }
        let (code, _, error) = run(&args, &[]).await;
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("not trusted") && error.contains("--ca"), "{error}");
    }
    let missing = files.path("missing.pem");
    let (code, _, error) = run(&["nodes", "--url", &url, "--ca", &missing], &[]).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("missing.pem"), "{error}");
    let empty = Client::new(&url).expect("an address").with_ca(files.key().as_ref());
    assert!(matches!(empty, Err(ClientError::BadCa { .. })), "a key is not a certificate");
}

#[tokio::test]
async fn a_client_without_tls_is_disconnected() {
    let files = CertFiles::new("slow");
    let s = files.scheduler(&[("SERVER__FIRST_MESSAGE_MS", "300")]).await;
    for bytes in [&b""[..], b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
        stream.write_all(bytes).await.expect("sent");
        let mut answer = vec![];
        within(stream.read_to_end(&mut answer)).await.ok();
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    let client = Client::new(&format!("https://{}", s.address)).expect("an address");
    let client = client.with_ca(files.cert().as_ref()).expect("a CA");
    assert!(client.healthz().await.expect("a reply"), "other clients are served");
}

#[tokio::test]
async fn certificate_and_key_that_do_not_match_are_bad_configuration() {
    let (one, other) = (CertFiles::new("one"), CertFiles::new("other"));
    let (cert, key, wrong) = (one.cert(), one.key(), other.key());
    for (settings, words) in [
        (vec![("LINGUA_SERVER__TLS_CERT", &cert)], "or neither"),
        (
            vec![("LINGUA_SERVER__TLS_CERT", &cert), ("LINGUA_SERVER__TLS_KEY", &wrong)],
            "belong together",
        ),
        (vec![("LINGUA_SERVER__TLS_CERT", &key), ("LINGUA_SERVER__TLS_KEY", &key)], "PEM"),
        (vec![("LINGUA_SERVER__TLS_CERT", &cert), ("LINGUA_SERVER__TLS_KEY", &cert)], "PEM"),
    ] {
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (code, _, error) = run(&["config", "check"], &settings).await;
        assert_eq!(code, Some(64), "{settings:?}: {error}");
        assert!(error.contains(words), "{settings:?}: {error}");
    }
}

/// The log messages of a scheduler until it listens.
async fn first_messages(file: &str, settings: &[(&str, String)]) -> Vec<String> {
    let mut command = Command::new(binary());
    command.args(["serve", "--listen", "0.0.0.0:0", "--config", file]);
    command.env("LINGUA_LOG__FORMAT", "json").stderr(Stdio::piped()).kill_on_drop(true);
    command.envs(settings.iter().map(|(name, value)| (*name, value)));
    let mut child = command.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a log")).lines();
    let mut messages = vec![];
    loop {
        let line = within(lines.next_line())
            .await
            .expect("readable")
            .expect("the program logs its address");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        messages.push(line["fields"]["message"].as_str().expect("a message").to_owned());
        if messages.last().is_some_and(|message| message == "listening") {
            return messages;
        }
    }
}

#[tokio::test]
async fn tokens_without_tls_cause_a_warning() {
    let files = CertFiles::new("clear");
    let (_, config, _) = run(&["token", "new", "--role", "admin"], &[]).await;
    let file = files.path("lingua.toml");
    std::fs::write(&file, config).expect("a file");
    let warns =
        |messages: &[String]| messages.iter().any(|message| message.contains("without encryption"));
    assert!(warns(&first_messages(&file, &[]).await));
    let tls = [("LINGUA_SERVER__TLS_CERT", files.cert()), ("LINGUA_SERVER__TLS_KEY", files.key())];
    assert!(!warns(&first_messages(&file, &tls).await));
}

#[tokio::test]
async fn a_key_that_others_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;
    let files = CertFiles::new("modes");
    let settings =
        [("LINGUA_SERVER__TLS_CERT", &*files.cert()), ("LINGUA_SERVER__TLS_KEY", &*files.key())];
    for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true)] {
        std::fs::set_permissions(files.key(), PermissionsExt::from_mode(mode)).expect("changed");
        let (code, _, err) = run(&["config", "check"], &settings).await;
        assert_eq!((code, err.contains("other users can read")), (Some(0), is_open), "{err}");
    }
}
