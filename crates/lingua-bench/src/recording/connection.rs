//! A connection to a Redis server that sends prepared bytes and reads little of the replies.
//!
//! Start at [`RawRedis::connect`]. Invariant: a reply is taken whole or not at all.

use anyhow::{Context, bail, ensure};
use bytes::{Buf, BytesMut};
use lingua_redis::{Address, StoreUrl, Topology};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for the replies to a batch.
const BUFFER_BYTES: usize = 64 << 10;

/// Longest reply, and longest line of `MONITOR`.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// How deep lists may be nested.
const DEPTH_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct RawRedis {
    stream: TcpStream,
    buffer: BytesMut,
}

/// The address of the server, if there is one and it needs no TLS.
pub(super) fn address(url: &StoreUrl) -> anyhow::Result<&Address> {
    ensure!(!url.tls, "--replay does not support TLS: give --store redis://…");
    match (&url.topology, &url.addresses[..]) {
        (Topology::Standalone, [address]) => Ok(address),
        _ => bail!("--replay needs a store on one server: give --store redis://…"),
    }
}

impl RawRedis {
    /// Connects and logs in.
    pub(super) async fn connect(url: &StoreUrl) -> anyhow::Result<Self> {
        let address = address(url)?;
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let mut connection = Self { stream, buffer: BytesMut::with_capacity(BUFFER_BYTES) };
        if let Some(password) = &url.login.password {
            let user = url.login.user.as_deref();
            let args: Vec<&str> =
                ["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect();
            connection.call(&args).await?;
        }
        if url.database != 0 {
            connection.call(&["SELECT", &url.database.to_string()]).await?;
        }
        Ok(connection)
    }

    /// Sends a command and waits for the reply.
    pub(super) async fn call(&mut self, args: &[&str]) -> anyhow::Result<()> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut out = BytesMut::new();
        put_command(&mut out, &args);
        self.send(&out).await?;
        self.reply().await.map(drop)
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).await.context("the server disconnected")
    }

    /// Waits for a reply; returns how it begins: a letter, `+`, `0`, `-`, `()`, `nil`.
    pub(super) async fn reply(&mut self) -> anyhow::Result<&'static str> {
        let end = loop {
            if let Some(end) = end_of(&self.buffer, 0, DEPTH_MAX)? {
                break end;
            }
            self.read().await?;
        };
        let taken = self.buffer.split_to(end);
        if let Some(error) = taken.strip_prefix(b"-") {
            bail!("the server reports: {}", String::from_utf8_lossy(error).trim_end());
        }
        Ok(first_of(&taken))
    }

    /// Waits for a line; returns it without its end.
    pub(super) async fn line(&mut self) -> anyhow::Result<BytesMut> {
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
            bail!("the server's reply is too long");
        }
        match self.stream.read_buf(&mut self.buffer).await.context("the server disconnected")? {
            0 => bail!("the server disconnected"),
            _ => Ok(()),
        }
    }
}

/// Appends a command in the protocol of the server.
pub(super) fn put_command(out: &mut BytesMut, args: &[impl AsRef<[u8]>]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args.iter().map(AsRef::as_ref) {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
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
        // A negative length means null.
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

/// How a whole reply, or the first item of a list, begins: a letter, a sign, `()` or `nil`.
fn first_of(reply: &[u8]) -> &'static str {
    let Some((head, next)) = line_at(reply, 0) else { return "?" };
    match head {
        b"*0" => "()",
        [b'*' | b'$', b'-', ..] => "nil",
        [b'*', ..] => first_of(&reply[next..]),
        b":0" => "0",
        [b':', b'-', ..] => "-",
        [b':', ..] => "+",
        [b'+', arg @ ..] => letter(arg),
        _ => letter(&reply[next..]),
    }
}

fn letter(arg: &[u8]) -> &'static str {
    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";
    let first = arg.first().map_or(0, u8::to_ascii_lowercase);
    match LETTERS.bytes().position(|letter| letter == first) {
        Some(at) => &LETTERS[at..=at],
        None => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_whole_and_known_by_their_beginning() {
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
    fn a_replay_needs_one_server_without_tls() {
        let error = |url: &str| address(&url.parse().unwrap()).err().map(|error| error.to_string());
        assert_eq!(error("redis://127.0.0.1:1"), None);
        for url in ["rediss://a", "redis+cluster://a:1,b:1", "redis+sentinel://a:1/main"] {
            assert!(
                error(url).is_some_and(|error| error.contains("give --store redis://")),
                "{url}"
            );
        }
    }

    #[test]
    fn a_command_is_a_list_of_strings() {
        let mut out = BytesMut::new();
        put_command(&mut out, &[b"ECHO".as_slice(), b"\x00\r\n"]);
        assert_eq!(&out[..], b"*2\r\n$4\r\nECHO\r\n$3\r\n\x00\r\n\r\n");
    }
}
