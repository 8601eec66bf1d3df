//! What somebody meets who uses the program for the first time.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::{Child, Command};

use crate::scheduler::{Scheduler, binary, run, within};

/// `lingua node` with these arguments.
fn node(args: &[&str]) -> Child {
    let mut command = Command::new(binary());
    command.arg("node").args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

fn lines<R: AsyncRead + Unpin>(stream: Option<R>) -> Lines<BufReader<R>> {
    BufReader::new(stream.expect("a pipe")).lines()
}

async fn next_line<R: AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> String {
    within(lines.next_line()).await.expect("readable").expect("a line")
}

#[tokio::test]
async fn a_node_says_when_it_is_connected_whatever_form_the_address_has() {
    let s = Scheduler::start().await;
    let expected = format!("2 of 2 connected to ws://{}/v1/node/ws", s.address);
    for url in ["http://HOST", "ws://HOST", "ws://HOST/", "ws://HOST/v1/node/ws"] {
        let url = url.replace("HOST", &s.address);
        let mut child = node(&["--url", &url, "--count", "2"]);
        let mut out = lines(child.stdout.take());
        while next_line(&mut out).await != expected {}
    }
}

#[tokio::test]
async fn a_mix_up_of_plain_and_encrypted_addresses_is_told() {
    let s = Scheduler::start().await;
    let secure = format!("https://{}", s.address);
    let (code, _, error) = run(&["nodes", "--url", &secure], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("does not speak TLS; use http://"), "{error}");
    let mut child = node(&["--url", &secure.replace("https", "wss")]);
    let mut log = lines(child.stderr.take());
    let line = next_line(&mut log).await;
    assert!(line.contains("does not speak TLS"), "{line}");
    let mut child = node(&["--url", &format!("ws://{}/elsewhere", s.address)]);
    let mut log = lines(child.stderr.take());
    let line = next_line(&mut log).await;
    assert!(line.contains("/v1/node/ws"), "{line}");
}

/// Makes a certificate as `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost` does: it
/// calls itself an authority, and its only name is the common name.
fn self_signed(folder: &std::path::Path) -> [String; 2] {
    let mut params = rcgen::CertificateParams::new(vec![]).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
    let key = rcgen::KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate");
    [("cert.pem", cert.pem()), ("key.pem", key.serialize_pem())].map(|(name, pem)| {
        let path = folder.join(name);
        std::fs::write(&path, pem).expect("a file");
        path.display().to_string()
    })
}

#[tokio::test]
async fn a_self_signed_certificate_of_openssl_works_with_ca() {
    let folder = tempfile::tempdir().expect("a folder");
    let [cert, key] = self_signed(folder.path());
    let s = Scheduler::with(&[("SERVER__TLS_CERT", &cert), ("SERVER__TLS_KEY", &key)]).await;
    let url = format!("https://{}", s.address);
    let (code, _, error) = run(&["nodes", "--url", &url, "--ca", &cert], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let mut child = node(&["--url", &url, "--ca", &cert]);
    let mut out = lines(child.stdout.take());
    assert!(next_line(&mut out).await.contains("1 of 1 connected to wss://"));
    // Another certificate of the same name is not trusted.
    let other = tempfile::tempdir().expect("a folder");
    let [foreign, _] = self_signed(other.path());
    let (code, _, error) = run(&["nodes", "--url", &url, "--ca", &foreign], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("not trusted"), "{error}");
    let plain = format!("http://{}", s.address);
    let (code, _, error) = run(&["nodes", "--url", &plain], &[]).await;
    assert_eq!(code, Some(1));
    assert!(error.contains("if it speaks TLS, use https://"), "{error}");
}

#[tokio::test]
async fn said_text_comes_back_as_a_tone_from_simulated_nodes() {
    let s = Scheduler::start().await;
    let url = format!("http://{}", s.address);
    let mut child = node(&["--url", &url, "--work-ms", "5"]);
    let mut out = lines(child.stdout.take());
    next_line(&mut out).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.wav").display().to_string();
    let args = ["say", "--text", "hello", "--src", "en", "--tgt", "zh", "--out", &path];
    let (code, shown, error) = run(&[&args[..], &["--url", &url]].concat(), &[]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(shown.contains("TOTAL MS"), "{shown}");
    let mut sound = hound::WavReader::open(&path).expect("a WAV file");
    let loudest = sound.samples::<i16>().filter_map(Result::ok).max();
    assert!(loudest > Some(1000), "{loudest:?}");
    for names in [["--src", "--tgt"], ["--from", "--to"]] {
        let args = ["explain", names[0], "en", names[1], "zh", "--url", &url];
        let (code, _, error) = run(&args, &[]).await;
        assert_eq!(code, Some(0), "{error}");
    }
}

#[tokio::test]
async fn the_output_of_token_new_is_a_configuration() {
    let (code, entry, secret) =
        run(&["token", "new", "--role", "client", "--name", "x"], &[]).await;
    assert_eq!(code, Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lingua.toml").display().to_string();
    std::fs::write(&path, format!("[log]\nlevel = \"warn\"\n{entry}")).expect("a file");
    let (code, _, error) = run(&["config", "check", "--config", &path], &[]).await;
    assert_eq!(code, Some(0), "{error}");
    let token = secret.lines().last().expect("a token");
    assert!(token.len() >= 32 && !entry.contains(token), "{secret}");
}
