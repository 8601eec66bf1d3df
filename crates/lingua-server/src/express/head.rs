//! What a plain request looks like.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::app::Guarded;
use crate::front::REQUEST_ID_BYTES_MAX;
use crate::routes::jobs::TRANSLATE;

/// Most headers of a plain request.
const HEADERS_MAX: usize = 32;

/// What was found at the beginning of the bytes.
pub(super) enum Head<'a> {
    /// Not enough to say.
    Partial,
    /// A plain request.
    Plain(Plain<'a>),
    /// Something else, or nothing that makes sense.
    Other,
}

/// A plain request, but for its body.
pub(super) struct Plain<'a> {
    pub(super) head_bytes: usize,
    pub(super) body_bytes: usize,
    pub(super) said: Said<'a>,
}

/// What a plain request says of itself.
#[derive(Default)]
pub(super) struct Said<'a> {
    pub(super) guarded: Guarded<'a>,
    pub(super) key: Option<&'a [u8]>,
    request_id: Option<&'a [u8]>,
    length: Option<usize>,
}

impl Said<'_> {
    /// The name that the client gave the request.
    pub(super) fn request_id(&self) -> Option<Box<[u8]>> {
        self.request_id.filter(|id| id.len() <= REQUEST_ID_BYTES_MAX).map(Into::into)
    }
}

/// Looks at what has come.
pub(super) fn read(bytes: &[u8]) -> Head<'_> {
    if bytes.is_empty() {
        return Head::Partial;
    }
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let head_bytes = match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(head_bytes)) => head_bytes,
        Ok(Status::Partial) => return Head::Partial,
        // Hyper knows how to say what is wrong.
        Err(_) => return Head::Other,
    };
    let is_plain =
        (request.method, request.path, request.version) == (Some("POST"), Some(TRANSLATE), Some(1));
    let said = is_plain.then(|| said(request.headers)).flatten();
    match said.map(|said| (said.length, said)) {
        Some((Some(body_bytes), said)) => Head::Plain(Plain { head_bytes, body_bytes, said }),
        _ => Head::Other,
    }
}

/// Reads the headers; `None` if one of them changes what the request means.
fn said<'a>(headers: &[httparse::Header<'a>]) -> Option<Said<'a>> {
    let mut said = Said::default();
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = header.value;
        // By length first: most headers are none of these.
        match header.name.len() {
            4 if is("host") => keep_first(&mut said.guarded.host, value),
            6 if is("origin") => keep_first(&mut said.guarded.origin, value),
            6 if is("expect") => return None,
            7 if is("upgrade") || is("trailer") => return None,
            10 if is("connection") && !value.eq_ignore_ascii_case(b"keep-alive") => return None,
            12 if is("x-request-id") => keep_first(&mut said.request_id, value),
            13 if is("authorization") => keep_first(&mut said.guarded.authorization, value),
            14 if is("content-length") => {
                // Two of them may be an attempt to make two servers read different requests.
                let length = length(value).filter(|_| said.length.is_none())?;
                said.length = Some(length);
            }
            15 if is("idempotency-key") => keep_first(&mut said.key, value),
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
    }
    Some(said)
}

fn keep_first<'a>(kept: &mut Option<&'a [u8]>, value: &'a [u8]) {
    kept.get_or_insert(value);
}

/// Digits alone, and few enough.
fn length(value: &[u8]) -> Option<usize> {
    if value.is_empty() || value.len() > 9 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Head<'_> {
        read(text.as_bytes())
    }

    fn plain(text: &str) -> Option<Plain<'_>> {
        match read_text(text) {
            Head::Plain(plain) => Some(plain),
            _ => None,
        }
    }

    #[test]
    fn a_plain_request_is_read_and_its_pieces_are_not_enough() {
        let text = "POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-Request-Id: me\r\n\r\n";
        for end in 0..text.len() {
            assert!(matches!(read_text(&text[..end]), Head::Partial), "{end}");
        }
        let with_body = format!("{text}hello, and more");
        let plain = plain(&with_body).unwrap();
        assert_eq!((plain.head_bytes, plain.body_bytes), (text.len(), 5));
        assert_eq!(plain.said.request_id().as_deref(), Some(&b"me"[..]));
    }

    #[test]
    fn what_changes_the_meaning_of_a_request_is_left_to_hyper() {
        let asks = |first: &str, headers: &str| format!("{first}\r\nhost: a\r\n{headers}\r\n\r\n");
        let post = "POST /v1/translate HTTP/1.1";
        assert!(plain(&asks(post, "content-length: 5")).is_some());
        assert!(plain(&asks(post, "content-length: 5\r\nConnection: Keep-Alive")).is_some());
        for headers in [
            "accept: */*",
            "content-length: 5\r\ncontent-length: 5",
            "content-length: 5\r\ncontent-length: 6",
            "content-length: 5\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked",
            "content-length: +5",
            "content-length: -5",
            "content-length: 5, 5",
            "content-length: 0x5",
            "content-length:",
            "content-length: 99999999999999999999",
            "content-length: 5\r\nexpect: 100-continue",
            "content-length: 5\r\nconnection: close",
            "content-length: 5\r\nconnection: upgrade\r\nupgrade: websocket",
            "content-length: 5\r\nbad header",
            "content-length : 5",
        ] {
            assert!(matches!(read_text(&asks(post, headers)), Head::Other), "{headers}");
        }
        for first in [
            "GET /v1/translate HTTP/1.1",
            "POST /v1/translate HTTP/1.0",
            "POST /v1/translate?a=b HTTP/1.1",
            "POST /v1/jobs HTTP/1.1",
            "POST http://a/v1/translate HTTP/1.1",
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(matches!(read_text(&asks(first, "content-length: 5")), Head::Other), "{first}");
        }
        let many = "x: y\r\n".repeat(HEADERS_MAX + 1);
        assert!(matches!(read_text(&asks(post, &format!("{many}content-length: 5"))), Head::Other));
    }
}
