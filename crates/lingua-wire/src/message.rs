//! Reading and writing messages.
//!
//! Start at [`parse`] and [`to_json`]. Reading is one pass in the good case; only when it fails, a
//! second pass finds out which field is wrong.
//!
//! Invariant: what [`parse`] gives has passed the bounds of its type ([`Message::check`]); no input
//! panics.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::error::{ErrorCode, RequestError, shown};
use crate::limits::LABEL_BYTES_MAX;
use crate::plain::NO_JOB_ID;

/// Room that a message is given at first: nearly all fit without another allocation.
const USUAL_BYTES: usize = 768;

/// A message: the body of a request, an answer, or a frame of a socket.
pub trait Message {
    /// Its name: the `type` of a frame, and the name of its golden files.
    const NAME: &'static str;

    /// Checks the bounds that its fields' types do not.
    fn check(&self) -> Result<(), RequestError> {
        Ok(())
    }
}

/// A message that can be read from text.
pub trait Inbound<'a>: Message + Sized {
    /// Reads it without checking its bounds; use [`parse`].
    fn read(text: &'a str) -> Result<Self, RequestError>;
}

impl<'a, M: Message + Deserialize<'a>> Inbound<'a> for M {
    fn read(text: &'a str) -> Result<Self, RequestError> {
        read_json(text)
    }
}

/// Reads a message and checks its bounds.
pub fn parse<'a, M: Inbound<'a>>(body: &'a [u8]) -> Result<M, RequestError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let what = format!("byte {} is not UTF-8; send JSON as UTF-8", error.valid_up_to());
        RequestError::invalid("", &what)
    })?;
    parse_text(text)
}

/// Reads a message that is known to be UTF-8, and checks its bounds.
pub fn parse_text<'a, M: Inbound<'a>>(text: &'a str) -> Result<M, RequestError> {
    let message = M::read(text)?;
    message.check()?;
    Ok(message)
}

/// Writes a message.
pub fn to_json<M: Message + Serialize>(message: &M) -> String {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    write_json(message, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Writes a message behind what is in the buffer already.
pub fn write_json<M: Message + Serialize>(message: &M, out: &mut Vec<u8>) {
    serde_json::to_writer(out, message).expect("a message has text keys and writes into memory");
}

/// Checks the length of a field, in bytes.
pub(crate) fn at_most(field: &str, text: &str, bytes_max: usize) -> Result<(), RequestError> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    let what = format!("it has {} bytes; at most {bytes_max} are allowed", text.len());
    Err(RequestError::invalid(field, &what))
}

/// Checks a session id, bind key, trace id or idempotency key: any text that fits on a log line.
pub fn check_label(field: &str, text: &str) -> Result<(), RequestError> {
    at_most(field, text, LABEL_BYTES_MAX)?;
    if text.is_empty() {
        return Err(RequestError::invalid(field, "it is empty; leave it out or give it a value"));
    }
    if text.chars().any(char::is_control) {
        let what = format!("{} has a control character; remove it", shown(text));
        return Err(RequestError::invalid(field, &what));
    }
    Ok(())
}

/// Checks a field that may be absent with [`check_label`].
pub(crate) fn check_optional_label(field: &str, text: Option<&str>) -> Result<(), RequestError> {
    text.map_or(Ok(()), |text| check_label(field, text))
}

pub(crate) fn read_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, RequestError> {
    // serde would take a list for a struct, field by field.
    if text.trim_start().starts_with('[') {
        return Err(RequestError::invalid("", "it is a list; send one JSON object"));
    }
    serde_json::from_str(text).map_err(|error| explain::<T>(text, &error))
}

/// Says which field is wrong. It reads the text again, which only happens to bad messages.
#[cold]
fn explain<'a, T: Deserialize<'a>>(text: &'a str, error: &serde_json::Error) -> RequestError {
    // The reader blames the syntax for some lists that are merely too long.
    if error.classify() != Category::Data
        && let Err(error) = serde_json::from_str::<IgnoredAny>(text)
    {
        return RequestError::invalid("", &format!("not JSON: {error}; send one JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let (path, message) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(found) => (found.path().to_string(), found.inner().to_string()),
        Ok(_) => (String::new(), error.to_string()),
    };
    let path = path.strip_suffix('.').unwrap_or(&path);
    let message = plain_words(&message);
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    match missing {
        Some((name, _)) if path.is_empty() => missing_field(name),
        Some((name, _)) => missing_field(&format!("{path}.{name}")),
        // What cannot be the name of a job is the name of no job.
        None if path == "job_id" && message.contains(NO_JOB_ID) => {
            RequestError::new(ErrorCode::JobNotFound, path, &message)
        }
        None => RequestError::invalid(path, &message),
    }
}

pub(crate) fn missing_field(field: &str) -> RequestError {
    RequestError::invalid(field, "the field is missing; add it")
}

/// The reader's message in words that do not assume Rust.
fn plain_words(message: &str) -> String {
    let mut words = message.to_owned();
    for number in ["u64", "u32", "u16", "i64", "i32"] {
        words = words.replace(&format!("expected {number}"), "expected a whole number in range");
    }
    let words = words.replace("trailing characters", "too many entries");
    words.replace("expected f64", "expected a number").replace("expected struct ", "expected a ")
}
