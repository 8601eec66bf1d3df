//! The same jobs through Gearman and its protocol.
//!
//! Start at [`endpoint`] for clients and [`run_worker`] for workers. A packet is `\0REQ` or
//! `\0RES`, a type, a length, and arguments separated by zero bytes
//! (<https://gearman.org/protocol/>). A worker names its functions, sleeps until it is woken, and
//! grabs jobs until there are none. A node with several slots is as many connections, as with
//! Gearman's own libraries.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::broker::{JOB_BYTES, PAIRS};
use crate::raw_client::BrokerEndpoint;

/// Types of packets.
const CAN_DO: u32 = 1;
const PRE_SLEEP: u32 = 4;
const NOOP: u32 = 6;
const SUBMIT_JOB: u32 = 7;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const ERROR: u32 = 19;

const HEAD_BYTES: usize = 12;

/// A function for each language pair, jobs of the same length.
pub(crate) fn endpoint(address: SocketAddr) -> BrokerEndpoint {
    let payload = [b'x'; JOB_BYTES];
    let request = |(src, tgt): &(&str, &str)| {
        let function = format!("{src}:{tgt}");
        Bytes::from(packet(SUBMIT_JOB, &[function.as_bytes(), b"", &payload]))
    };
    BrokerEndpoint {
        address,
        requests: PAIRS.iter().map(request).collect(),
        reply: take_reply,
        node_token: None,
    }
}

/// A reply ends when the work is complete.
fn take_reply(buffer: &mut BytesMut) -> Option<Result<(), String>> {
    loop {
        match take(buffer)? {
            (WORK_COMPLETE, _) => return Some(Ok(())),
            (JOB_CREATED, _) => {}
            (ERROR, arguments) => {
                return Some(Err(String::from_utf8_lossy(&arguments).into_owned()));
            }
            (kind, _) => return Some(Err(format!("PACKET_{kind}"))),
        }
    }
}

/// Works until the server disconnects, which is an error: this worker never leaves.
pub(crate) async fn run_worker(address: SocketAddr, result: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await.context("a worker cannot connect")?;
    stream.set_nodelay(true).ok();
    let mut out = vec![];
    for (src, tgt) in PAIRS {
        out.extend(packet(CAN_DO, &[format!("{src}:{tgt}").as_bytes()]));
    }
    let (grab, sleep) = (packet(GRAB_JOB, &[]), packet(PRE_SLEEP, &[]));
    out.extend_from_slice(&sleep);
    let mut buffer = BytesMut::with_capacity(4 << 10);
    loop {
        if !out.is_empty() {
            stream.write_all(&out).await.context("a worker was disconnected")?;
            out.clear();
        }
        if stream.read_buf(&mut buffer).await.context("a worker lost its connection")? == 0 {
            bail!("gearmand disconnected a worker");
        }
        while let Some((kind, arguments)) = take(&mut buffer) {
            match kind {
                NOOP => out.extend_from_slice(&grab),
                JOB_ASSIGN => {
                    let handle = arguments[..].split(|&byte| byte == 0).next().unwrap_or_default();
                    out.extend(packet(WORK_COMPLETE, &[handle, result.as_bytes()]));
                    out.extend_from_slice(&grab);
                }
                NO_JOB => out.extend_from_slice(&sleep),
                ERROR => bail!("gearmand reports {}", String::from_utf8_lossy(&arguments)),
                _ => {}
            }
        }
    }
}

fn packet(kind: u32, arguments: &[&[u8]]) -> Vec<u8> {
    let body = arguments.join(&0);
    let mut out = b"\0REQ".to_vec();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

/// Takes a packet from the front of the buffer: its type and its arguments.
fn take(buffer: &mut BytesMut) -> Option<(u32, BytesMut)> {
    let kind = u32::from_be_bytes(*buffer.get(4..)?.first_chunk()?);
    let length = u32::from_be_bytes(*buffer.get(8..)?.first_chunk()?) as usize;
    if buffer.len() < HEAD_BYTES + length {
        return None;
    }
    buffer.advance(HEAD_BYTES);
    Some((kind, buffer.split_to(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_with_the_work() {
        let mut buffer = BytesMut::new();
        buffer.extend(packet(JOB_CREATED, &[b"H:1"]));
        assert_eq!(take_reply(&mut buffer), None);
        let done = packet(WORK_COMPLETE, &[b"H:1", b"result"]);
        buffer.extend_from_slice(&done[..done.len() - 1]);
        assert_eq!(take_reply(&mut buffer), None);
        buffer.extend_from_slice(&done[done.len() - 1..]);
        assert_eq!(take_reply(&mut buffer), Some(Ok(())));
        assert!(buffer.is_empty());
    }
}
