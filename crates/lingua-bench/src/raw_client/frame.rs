//! The part of the WebSocket protocol that a raw node needs.
//!
//! Start at [`take`] and [`put`]. Frames of a client are masked with zeros: unmasking costs
//! the server what it always costs, and masking costs the client nothing.

use bytes::{Buf, BytesMut};

/// Kinds of frames.
pub(super) const TEXT: u8 = 1;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// The frame is the whole message.
const FINAL: u8 = 0x80;

/// A mask follows the length.
const MASKED: u8 = 0x80;

/// Takes a frame from the front of the buffer: its kind and its payload.
pub(super) fn take(buffer: &mut BytesMut) -> Option<(u8, BytesMut)> {
    let (&kind, &short) = (buffer.first()?, buffer.get(1)?);
    let (head, length) = match short & !MASKED {
        126 => (4, usize::from(u16::from_be_bytes(*buffer.get(2..)?.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*buffer.get(2..)?.first_chunk()?) as usize),
        length => (2, usize::from(length)),
    };
    if buffer.len() < head + length {
        return None;
    }
    buffer.advance(head);
    Some((kind & 0x0f, buffer.split_to(length)))
}

/// Writes a frame whose payload comes in parts.
pub(super) fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(FINAL | kind);
    match length {
        0..126 => out.push(MASKED | length as u8),
        126..0x1_0000 => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame as a server sends it: without a mask.
    fn unmasked(payload: &[u8]) -> BytesMut {
        let mut out = vec![];
        put(&mut out, TEXT, &[payload]);
        out[1] &= !MASKED;
        let mask = out.len() - payload.len() - 4;
        out.drain(mask..mask + 4);
        BytesMut::from(&out[..])
    }

    #[test]
    fn frames_of_any_length_can_be_read() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let whole = unmasked(&payload);
            let mut short = BytesMut::from(&whole[..whole.len() - 1]);
            assert_eq!(take(&mut short), None);
            let mut buffer = whole;
            assert_eq!(take(&mut buffer), Some((TEXT, BytesMut::from(&payload[..]))));
            assert!(buffer.is_empty());
        }
    }
}
