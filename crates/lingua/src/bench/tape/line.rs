//! A connection to a Redis server that sends prepared bytes and reads as much of the replies as is needed.
//!
//! Start at [`Line::connect`]. Invariant: a reply is taken whole or not at all.

use anyhow::{Context, bail, ensure};
use bytes::{Buf, BytesMut};
use lingua_redis::{Address, StoreUrl, Topology};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for the replies to a batch.
const BUFFER_BYTES: usize = 64 << 10;

/// Longest reply, and longest line of a monitor.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// How deep lists may be in each other.
const DEPTH_MAX: u32 = 8;

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    buffer: BytesMut,
}

/// Where the server is, if there is one that speaks in the clear.
pub(super) fn address(url: &StoreUrl) -> anyhow::Result<&Address> {
    ensure!(!url.tls, "--tape does not speak TLS: give --store redis://…");
    match &url.topology {
        Topology::Standalone(address) => Ok(address),
        _ => bail!("--tape needs a store on one server: give --store redis://…"),
    }
}

impl Line {
    /// Connects and logs in.
    pub(super) async fn connect(url: &StoreUrl) -> anyhow::Result<Self> {
        let address = address(url)?;
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let mut line = Self { stream, buffer: BytesMut::with_capacity(BUFFER_BYTES) };
        if let Some(password) = &url.login.password {
            let user = url.login.user.as_deref();
            let words: Vec<&str> =
                ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            line.ask(&words).await?;
        }
        if url.database != 0 {
            line.ask(&["SELECT", &url.database.to_string()]).await?;
        }
        Ok(line)
    }

    /// Says something and waits for the answer.
    pub(super) async fn ask(&mut self, words: &[&str]) -> anyhow::Result<()> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = BytesMut::new();
        put_command(&mut out, &words);
        self.send(&out).await?;
        self.reply().await.map(drop)
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).await.context("the server hung up")
    }

    /// Waits for a reply and tells what it begins with: a letter, `+`, `0`, `-`, `()`, `nil`.
    pub(super) async fn reply(&mut self) -> anyhow::Result<&'static str> {
        let end = loop {
            if let Some(end) = end_of(&self.buffer, 0, DEPTH_MAX)? {
                break end;
            }
            self.read().await?;
        };
        let taken = self.buffer.split_to(end);
        if let Some(error) = taken.strip_prefix(b"-") {
            bail!("the server says: {}", String::from_utf8_lossy(error).trim_end());
        }
        Ok(first_of(&taken))
    }

    /// Waits for a line without its end.
    pub(super) async fn text(&mut self) -> anyhow::Result<BytesMut> {
        let mut seen = 0;
        loop {
            if let Some(length) = self.buffer[seen..].iter().position(|&byte| byte == b'\n') {
                let mut line = self.buffer.split_to(seen + length);
                self.buffer.advance(1);
                line.truncate(line.strip_suffix(b"\r").map_or(line.len(), <[u8]>::len));
                return Ok(line);
            }
            seen = self.buffer.len();
            self.read().await?;
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        if self.buffer.len() > REPLY_BYTES_MAX {
            bail!("the server's reply does not end");
        }
        match self.stream.read_buf(&mut self.buffer).await.context("the server hung up")? {
            0 => bail!("the server hung up"),
            _ => Ok(()),
        }
    }
}

/// Writes a command as the server reads it.
pub(super) fn put_command(out: &mut BytesMut, words: &[impl AsRef<[u8]>]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The line that begins here, without its end, and where the next one begins.
fn line_at(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(at..)?;
    let length = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

/// Where the reply that begins here ends, if all of it is there.
fn end_of(buffer: &[u8], at: usize, depth: u32) -> anyhow::Result<Option<usize>> {
    let Some((head, next)) = line_at(buffer, at) else { return Ok(None) };
    let count = || -> anyhow::Result<Option<usize>> {
        let text = std::str::from_utf8(&head[1..]).context("a reply without a length")?;
        let count: i64 = text.parse().context("a reply without a length")?;
        // A negative one means that there is nothing.
        Ok(usize::try_from(count).ok())
    };
    match head.first() {
        Some(b'+' | b'-' | b':') => Ok(Some(next)),
        Some(b'$') => {
            let end = count()?.map_or(next, |length| next + length + 2);
            Ok((buffer.len() >= end).then_some(end))
        }
        Some(b'*') if depth > 0 => {
            let mut end = next;
            for _ in 0..count()?.unwrap_or(0) {
                match end_of(buffer, end, depth - 1)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => bail!("a reply of an unknown kind: {}", String::from_utf8_lossy(head)),
    }
}

/// What a whole reply, or the first part of a list, begins with: a letter, a sign, or what stands for nothing.
fn first_of(reply: &[u8]) -> &'static str {
    let Some((head, next)) = line_at(reply, 0) else { return "?" };
    match head {
        b"*0" => "()",
        [b'*' | b'$', b'-', ..] => "nil",
        [b'*', ..] => first_of(&reply[next..]),
        b":0" => "0",
        [b':', b'-', ..] => "-",
        [b':', ..] => "+",
        [b'+', word @ ..] => letter(word),
        _ => letter(&reply[next..]),
    }
}

fn letter(word: &[u8]) -> &'static str {
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";
    let first = word.first().map_or(0, u8::to_ascii_lowercase);
    match LETTERS.bytes().position(|letter| letter == first) {
        Some(at) => &LETTERS[at..=at],
        None => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_whole_and_known_by_what_they_begin_with() {
        for (reply, first) in [
            ("*2\r\n$7\r\ngranted\r\n*2\r\n:1\r\n$-1\r\n", "g"),
            ("$4\r\ng\r\n\0\r\n", "g"),
            ("*2\r\n:3\r\n:1\r\n", "+"),
            (":-1\r\n", "-"),
            (":0\r\n", "0"),
            ("+OK\r\n", "o"),
            ("*0\r\n", "()"),
            ("$-1\r\n", "nil"),
            ("$0\r\n\r\n", "?"),
        ] {
            let reply = reply.as_bytes();
            for part in 0..reply.len() {
                assert_eq!(end_of(&reply[..part], 0, DEPTH_MAX).unwrap(), None, "{part}");
            }
            let more = [reply, b"+next\r\n"].concat();
            assert_eq!(end_of(&more, 0, DEPTH_MAX).unwrap(), Some(reply.len()));
            assert_eq!(first_of(reply), first);
        }
        assert!(end_of(b"?\r\n", 0, DEPTH_MAX).is_err());
    }

    #[test]
    fn a_tape_needs_one_server_in_the_clear() {
        let why = |url: &str| address(&url.parse().unwrap()).err().map(|error| error.to_string());
        assert_eq!(why("redis://127.0.0.1:1"), None);
        for url in ["rediss://a", "redis+cluster://a:1,b:1", "redis+sentinel://a:1/main"] {
            assert!(why(url).is_some_and(|why| why.contains("give --store redis://")), "{url}");
        }
    }

    #[test]
    fn commands_are_lists_of_texts() {
        let mut out = BytesMut::new();
        put_command(&mut out, &[b"ECHO".as_slice(), b"\x00\r\n"]);
        assert_eq!(&out[..], b"*2\r\n$4\r\nECHO\r\n$3\r\n\x00\r\n\r\n");
    }
}
