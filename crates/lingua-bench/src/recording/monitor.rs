//! Records the calls to a server (`MONITOR`).
//!
//! Start at [`start`], then [`Monitor::stop`]. Commands of scripts are left out: the server runs
//! them again when the script is called.

use anyhow::{Context, ensure};
use tokio::task::JoinHandle;

use super::calls::CallLog;
use super::connection::RawRedis;

/// The argument of the command that ends a recording.
const MARK: &str = "lingua-bench-end-of-recording";

/// Most calls of a recording.
const CALLS_MAX: usize = 400_000;

/// A recording in progress.
#[derive(Debug)]
pub(super) struct Monitor(JoinHandle<anyhow::Result<CallLog>>);

pub(super) async fn start(mut connection: RawRedis) -> anyhow::Result<Monitor> {
    connection.call(&["MONITOR"]).await.context("the server does not allow MONITOR")?;
    Ok(Monitor(tokio::spawn(async move {
        let mut calls = CallLog::default();
        loop {
            let line = connection.line().await?;
            let Some(command) = command_in(&line) else { continue };
            if command.last().is_some_and(|part| part == MARK.as_bytes()) {
                return Ok(calls);
            }
            ensure!(
                calls.len() < CALLS_MAX,
                "the recording is full; record fewer jobs with a lower --concurrency or --rate"
            );
            calls.record(&command);
        }
    })))
}

impl Monitor {
    /// Ends the recording; another connection sends the command that marks its end.
    pub(super) async fn stop(self, marker: &mut RawRedis) -> anyhow::Result<CallLog> {
        marker.call(&["ECHO", MARK]).await?;
        self.0.await.context("a task failed")?
    }
}

/// The command in a line such as `+1700000000.000001 [0 127.0.0.1:1234] "GET" "a\x00"`; none if a
/// script sent it, or if the line is something else.
fn command_in(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let open = line.iter().position(|&byte| byte == b'[')?;
    let close = open + line[open..].windows(3).position(|three| three == b"] \"")?;
    if line[open..close].ends_with(b" lua") {
        return None;
    }
    let (mut parts, mut rest) = (vec![], &line[close + 2..]);
    while let Some(text) = rest.strip_prefix(b"\"") {
        let (part, after) = unquote(text)?;
        parts.push(part);
        rest = after.strip_prefix(b" ").unwrap_or(after);
    }
    Some(parts)
}

/// Unquotes the text up to the next quote; returns it and the rest.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut part, mut at) = (vec![], 0);
    loop {
        match text.get(at)? {
            b'"' => return Some((part, &text[at + 1..])),
            b'\\' => {
                let escaped = *text.get(at + 1)?;
                at += 2;
                part.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'x' => {
                        let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
                        at += 2;
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    other => other,
                });
            }
            &byte => {
                part.push(byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_every_escape() {
        let line = br#"+17.5 [0 127.0.0.1:1] "EVALSHA" "" "a\"b\\c" "\x00\xff\n\r\t\a\b]" "] \"x""#;
        let parts = command_in(line).unwrap();
        let expected: [&[u8]; 5] =
            [b"EVALSHA", b"", b"a\"b\\c", b"\x00\xff\n\r\t\x07\x08]", b"] \"x"];
        assert_eq!(parts, expected);
        let other = br#"+1.5 [3 [::1]:80] "PING""#;
        assert_eq!(command_in(other).unwrap(), [b"PING"]);
    }

    #[test]
    fn commands_of_scripts_are_left_out() {
        assert_eq!(command_in(br#"+17.596346 [0 lua] "HGET" "a" "b""#), None);
        assert_eq!(command_in(b"+OK"), None);
        assert_eq!(command_in(br#"+1.5 [0 127.0.0.1:1] "GET" "a\x0"#), None);
    }
}
