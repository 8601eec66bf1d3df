//! Requests that no client sends: each gets one answer or none, nothing is smuggled behind it, and
//! others are served.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw_node::{RawNode, register};
use crate::scheduler::{Scheduler, job};

/// What has to follow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// A refusal, or the end of the connection; what comes after it is not read.
    Refused,
    /// An answer that is no failure of the server.
    Answered,
}

use Then::{Answered, Refused};

/// A request that registers a node, where no request should be seen.
fn smuggled() -> String {
    let body = register("smuggled", 1).to_string();
    let bytes = body.len();
    let head = "POST /v1/node/register HTTP/1.1\r\nHost: localhost";
    format!("{head}\r\nContent-Length: {bytes}\r\n\r\n{body}")
}

type Case = (&'static str, Vec<u8>, Then);

/// A POST with these headers and this body, and something behind it.
fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let behind = smuggled();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}{behind}").into_bytes()
}

fn lengths(path: &str) -> Vec<Case> {
    let case = |name, headers: &str| (name, post(path, headers, "{}"), Refused);
    let chunked = "Transfer-Encoding: chunked\r\n";
    let both = format!("Content-Length: 5\r\n{chunked}");
    let reversed = format!("{chunked}Content-Length: 5\r\n");
    vec![
        case("two lengths", "Content-Length: 2\r\nContent-Length: 40\r\n"),
        case("a list of lengths", "Content-Length: 2, 40\r\n"),
        case("a length with a sign", "Content-Length: +2\r\n"),
        case("a negative length", "Content-Length: -2\r\n"),
        case("a length with a base", "Content-Length: 0x2\r\n"),
        case("two numbers", "Content-Length: 2 2\r\n"),
        case("an empty length", "Content-Length: \r\n"),
        case("a length that is no number", "Content-Length: two\r\n"),
        case("a length beyond 64 bits", "Content-Length: 99999999999999999999999\r\n"),
        ("a length and chunks", post(path, &both, "0\r\n\r\n"), Refused),
        ("chunks and a length", post(path, &reversed, "0\r\n\r\n"), Refused),
        case("an unknown coding", "Transfer-Encoding: xchunked\r\n"),
        case("chunks that are not last", "Transfer-Encoding: chunked, identity\r\n"),
        case("a quoted coding", "Transfer-Encoding: \"chunked\"\r\n"),
        case("a space before the colon", "Transfer-Encoding : chunked\r\n"),
        case("a coding on a folded line", "Transfer-Encoding:\r\n chunked\r\n"),
        case("a vertical tab before the coding", "Transfer-Encoding: \u{b}chunked\r\n"),
        case("a length and an unknown coding", "Content-Length: 2\r\nTransfer-Encoding: x\r\n"),
    ]
}

fn chunks(path: &str) -> Vec<Case> {
    let case =
        |name, body: &str| (name, post(path, "Transfer-Encoding: chunked\r\n", body), Refused);
    let extension = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(100_000));
    let trailer = format!("2\r\n{{}}\r\n0\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    vec![
        case("a chunk without a size", "\r\n{}\r\n0\r\n\r\n"),
        case("a size that is no number", "zz\r\n{}\r\n0\r\n\r\n"),
        case("a negative size", "-2\r\n{}\r\n0\r\n\r\n"),
        case("a size with a base", "0x2\r\n{}\r\n0\r\n\r\n"),
        case("a size beyond 64 bits", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        case("a chunk longer than its size", "1\r\n{}\r\n0\r\n\r\n"),
        case("a size that ends with LF only", "2\n{}\r\n0\r\n\r\n"),
        case("an endless extension", &extension),
        case("an endless trailer", &trailer),
        case("NUL after the size", "2\0\r\n{}\r\n0\r\n\r\n"),
    ]
}

fn headers(path: &str) -> Vec<Case> {
    let case = |name, header: &str, then| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
        (name, request.into_bytes(), then)
    };
    let long = format!("X: {}", "x".repeat(2_000_000));
    let many = vec!["X: y"; 20_000].join("\r\n");
    vec![
        case("a folded header", "X: a\r\n b", Refused),
        case("NUL in a value", "X: a\0b", Refused),
        case("NUL in a name", "X\0: a", Refused),
        case("CR in a value", "X: a\rb", Refused),
        case("DEL in a value", "X: a\u{7f}b", Refused),
        case("a header without a colon", "X", Refused),
        case("a header without a name", ": a", Refused),
        case("a space in a name", "X Y: a", Refused),
        case("a letter beyond ASCII in a name", "Xé: a", Refused),
        case("a letter beyond ASCII in a value", "X: é", Answered),
        case("a header of two megabytes", &long, Refused),
        case("twenty thousand headers", &many, Refused),
        case("a second host", "Host: evil.example", Refused),
        case("a body that nobody expects", "Content-Length: 0\r\nExpect: 200-maybe", Answered),
        case("an upgrade to something else", "Connection: upgrade\r\nUpgrade: h2c", Answered),
    ]
}

fn first_lines() -> Vec<Case> {
    let case = |name, line: &str, then| {
        (name, format!("{line}\r\nHost: localhost\r\n\r\n").into_bytes(), then)
    };
    let long_path = format!("GET /{} HTTP/1.1", "x".repeat(1_000_000));
    let long_method = format!("{} / HTTP/1.1", "X".repeat(1_000_000));
    vec![
        case("another host in the address", "GET http://evil.example/v1/nodes HTTP/1.1", Refused),
        case("an address of its own", "GET http://localhost/healthz HTTP/1.1", Answered),
        case("a user in the address", "GET http://a:b@localhost/v1/nodes HTTP/1.1", Answered),
        case("a connection to elsewhere", "CONNECT evil.example:80 HTTP/1.1", Refused),
        case("a star", "OPTIONS * HTTP/1.1", Answered),
        case("no version", "GET /healthz", Refused),
        case("version 0.9", "GET /healthz HTTP/0.9", Refused),
        case("version 1.2", "GET /healthz HTTP/1.2", Refused),
        case("version 3.0", "GET /healthz HTTP/3.0", Refused),
        case("a version in small letters", "GET /healthz http/1.1", Refused),
        case("HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n", Refused),
        case("a method with a space", "G ET /healthz HTTP/1.1", Refused),
        case("a method that nobody knows", "BREW /healthz HTTP/1.1", Refused),
        case("TRACE", "TRACE /healthz HTTP/1.1", Refused),
        case("a path with a space", "GET /health z HTTP/1.1", Refused),
        case("a path with NUL", "GET /health\0z HTTP/1.1", Refused),
        case("a path with an encoded NUL", "GET /v1/nodes/%00 HTTP/1.1", Refused),
        case("a path that is no UTF-8", "GET /v1/nodes/%ff%fe HTTP/1.1", Refused),
        case("a path to the parent", "GET /../../etc/passwd HTTP/1.1", Refused),
        case("an encoded path to the parent", "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1", Refused),
        case("an empty segment", "GET //v1/nodes HTTP/1.1", Refused),
        case("a path of a megabyte", &long_path, Refused),
        case("a method of a megabyte", &long_method, Refused),
        ("no host", b"GET /v1/nodes HTTP/1.1\r\n\r\n".to_vec(), Refused),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20), Refused),
        ("NULs", vec![0; 1_000], Refused),
        ("line ends", b"\r\n".repeat(100_000), Refused),
    ]
}

/// Sends a case and reads until the end, or until nothing comes for a while.
async fn attack(s: &Scheduler, path: &str, (name, request, then): Case) -> Option<String> {
    let mut stream = TcpStream::connect(&s.address).await.expect("the scheduler accepts");
    // The server may close before it has read everything.
    tokio::time::timeout(Duration::from_secs(5), stream.write_all(&request)).await.ok();
    let (mut reply, mut buffer) = (vec![], vec![0; 64 << 10]);
    let is_ended = loop {
        let read = tokio::time::timeout(Duration::from_millis(1_500), stream.read(&mut buffer));
        match read.await {
            Ok(Ok(0) | Err(_)) => break true,
            Ok(Ok(bytes)) => reply.extend_from_slice(&buffer[..bytes]),
            Err(_) => break false,
        }
    };
    let reply = String::from_utf8_lossy(&reply);
    let status = reply.get(9..12).and_then(|status| status.parse::<u16>().ok());
    let is_right = match (then, status) {
        (Refused, None) => is_ended,
        (Refused, Some(status)) => (400..500).contains(&status),
        (Answered, status) => status.is_some_and(|status| status < 500),
    };
    let answers = reply.matches("HTTP/1.1 ").count();
    match is_right && answers <= 1 {
        true => None,
        false => Some(format!("{path}: {name}: {answers} answers, {:.200}", reply)),
    }
}

/// Requirements: SEC-19.
#[tokio::test]
async fn hostile_requests_are_refused_and_nothing_is_smuggled() {
    let s = Scheduler::with(&[("LIMITS__OPEN_REQUESTS_PER_SECOND", "100000")]).await;
    let mut wrong = vec![];
    for path in ["/v1/translate", "/v1/dispatch/f2f", "/v1/nodes", "/healthz"] {
        let cases = [lengths(path), chunks(path), headers(path)].concat();
        let attacks = cases.into_iter().map(|case| attack(&s, path, case));
        wrong.extend(join_all(attacks).await.into_iter().flatten());
    }
    let attacks = first_lines().into_iter().map(|case| attack(&s, "", case));
    wrong.extend(join_all(attacks).await.into_iter().flatten());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(s.get("/v1/nodes/smuggled").await.status, 404);
    let mut node = RawNode::join(&s, "n1", 1).await;
    s.dispatch(job()).await;
    node.work().await;
    let errors = s.log_lines(&[("level", "ERROR")]);
    assert!(errors.is_empty(), "{errors:?}");
}
