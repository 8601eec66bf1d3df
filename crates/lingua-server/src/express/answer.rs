//! Answers of the express lane.

use std::time::{Duration, SystemTime};

use lingua_engine::request::JobStatus;
use lingua_wire::write_json;

use crate::convert;
use crate::reply::Failed;

/// Writes answers, one after the other, into the same buffer.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    body: Vec<u8>,
    /// The time in words, and which second that is.
    date: (u64, String),
}

/// Buffers larger than this are not kept for the next answer.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl Answers {
    /// The bytes of an answer to the request of this name.
    pub(super) fn write(
        &mut self,
        answer: &Result<JobStatus, Failed>,
        request_id: &[u8],
        is_last: bool,
        now_ms: u64,
    ) -> &[u8] {
        for buffer in [&mut self.bytes, &mut self.body] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES_MAX);
        }
        self.set_date(now_ms / 1000);
        match answer {
            Ok(view) => {
                write_json(&convert::job_view(view), &mut self.body);
                self.bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
            }
            Err(failed) => {
                failed.write_body(&mut self.body);
                let status = failed.status();
                let reason = status.canonical_reason().unwrap_or_default();
                self.add(&["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"]);
                if let Some(seconds) = failed.retry_after_s() {
                    self.add(&["retry-after: ", &seconds.to_string(), "\r\n"]);
                }
            }
        }
        if is_last {
            self.add(&["connection: close\r\n"]);
        }
        self.add(&["content-type: application/json\r\nx-request-id: "]);
        self.bytes.extend_from_slice(request_id);
        self.add(&["\r\ncontent-length: "]);
        add_number(&mut self.bytes, self.body.len());
        self.bytes.extend_from_slice(b"\r\ndate: ");
        self.bytes.extend_from_slice(self.date.1.as_bytes());
        self.bytes.extend_from_slice(b"\r\n\r\n");
        self.bytes.extend_from_slice(&self.body);
        &self.bytes
    }

    fn add(&mut self, texts: &[&str]) {
        for text in texts {
            self.bytes.extend_from_slice(text.as_bytes());
        }
    }

    fn set_date(&mut self, second: u64) {
        if self.date.0 != second {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            self.date = (second, httpdate::fmt_http_date(time));
        }
    }
}

fn add_number(bytes: &mut Vec<u8>, number: usize) {
    use std::io::Write;
    // Writing into memory does not fail.
    write!(bytes, "{number}").ok();
}
