//! Listens to what a server is asked (`MONITOR`).
//!
//! Start at [`listen`], then [`Listening::until_marked`]. Calls that a script makes are left out: they come by
//! themselves when the script is called.

use anyhow::{Context, ensure};
use tokio::task::JoinHandle;

use super::line::Line;
use super::reel::Reel;

/// The word that ends a recording.
const MARK: &str = "lingua-bench-end-of-tape";

/// Most calls that are recorded.
const CALLS_MAX: usize = 400_000;

/// A recording that goes on.
#[derive(Debug)]
pub(super) struct Listening(JoinHandle<anyhow::Result<Reel>>);

/// Begins to listen.
pub(super) async fn listen(mut line: Line) -> anyhow::Result<Listening> {
    line.ask(&["MONITOR"]).await.context("the server does not let us listen (MONITOR)")?;
    Ok(Listening(tokio::spawn(async move {
        let mut reel = Reel::default();
        loop {
            let said = line.text().await?;
            let Some(command) = command_in(&said) else { continue };
            if command.last().is_some_and(|word| word == MARK.as_bytes()) {
                return Ok(reel);
            }
            ensure!(
                reel.len() < CALLS_MAX,
                "the tape is full: record fewer jobs, with a lower --concurrency or --rate"
            );
            reel.record(&command);
        }
    })))
}

impl Listening {
    /// All that the server was asked up to now.
    pub(super) async fn until_marked(self, marker: &mut Line) -> anyhow::Result<Reel> {
        marker.ask(&["ECHO", MARK]).await?;
        self.0.await.context("a task failed")?
    }
}

/// The command in a line such as `+1700000000.000001 [0 127.0.0.1:1234] "GET" "a\x00"`; none if a script gave it,
/// or if the line is something else.
fn command_in(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let open = line.iter().position(|&byte| byte == b'[')?;
    let close = open + line[open..].windows(3).position(|three| three == b"] \"")?;
    if line[open..close].ends_with(b" lua") {
        return None;
    }
    let (mut words, mut rest) = (vec![], &line[close + 2..]);
    while let Some(text) = rest.strip_prefix(b"\"") {
        let (word, after) = unquote(text)?;
        words.push(word);
        rest = after.strip_prefix(b" ").unwrap_or(after);
    }
    Some(words)
}

/// Undoes the quoting of what stands before the next quote; gives what follows that.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut at) = (vec![], 0);
    loop {
        match text.get(at)? {
            b'"' => return Some((word, &text[at + 1..])),
            b'\\' => {
                let escaped = *text.get(at + 1)?;
                at += 2;
                word.push(match escaped {
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
                word.push(byte);
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
        let line = br#"+1794819474.596346 [0 127.0.0.1:37678] "EVALSHA" "" "a\"b\\c" "\x00\xff\n\r\t\a\b]" "] \"x""#;
        let words = command_in(line).unwrap();
        let expected: [&[u8]; 5] =
            [b"EVALSHA", b"", b"a\"b\\c", b"\x00\xff\n\r\t\x07\x08]", b"] \"x"];
        assert_eq!(words, expected);
        let other = br#"+1.5 [3 [::1]:80] "PING""#;
        assert_eq!(command_in(other).unwrap(), [b"PING"]);
    }

    #[test]
    fn what_scripts_ask_for_is_left_out() {
        assert_eq!(command_in(br#"+1794819474.596346 [0 lua] "HGET" "a" "b""#), None);
        assert_eq!(command_in(b"+OK"), None);
        assert_eq!(command_in(br#"+1.5 [0 127.0.0.1:1] "GET" "a\x0"#), None);
    }
}
