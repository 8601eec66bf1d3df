//! Reading and writing messages.
//!
//! Start at [`parse`] and [`to_json`]. A good message is read in one pass. Only a bad one is read
//! again, to find out which field is wrong.
//!
//! Invariant: what [`parse`] gives has passed the bounds of its type ([`Message::check`]); no input
//! panics.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::error::{ErrorCode, RequestError, invalid, shown};
use crate::json::NO_JOB_ID;
use crate::limits::LABEL_BYTES_MAX;

/// Room that a message is given at first: nearly all fit without another allocation.
const USUAL_BYTES: usize = 768;

/// A message: the body of a request or of a response, or a frame of a socket.
pub trait Message {
    /// Its name: the `type` of a frame, and the name of its golden files.
    const NAME: &'static str;

    /// Checks the bounds that the types of its fields do not.
    fn check(&self) -> Result<(), RequestError> {
        Ok(())
    }
}

/// Reads a message and checks its bounds.
pub fn parse<'a, M: Message + Deserialize<'a>>(body: &'a [u8]) -> Result<M, RequestError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        invalid!("", "byte {} is not UTF-8; send JSON as UTF-8", error.valid_up_to())
    })?;
    parse_text(text)
}

/// Reads a message that is known to be UTF-8, and checks its bounds.
pub fn parse_text<'a, M: Message + Deserialize<'a>>(text: &'a str) -> Result<M, RequestError> {
    let message: M = read_json(text)?;
    message.check()?;
    Ok(message)
}

/// Writes a message.
pub fn to_json<M: Message + Serialize>(message: &M) -> String {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    write_json(message, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Appends a message to the buffer.
pub fn write_json<M: Message + Serialize>(message: &M, out: &mut Vec<u8>) {
    serde_json::to_writer(out, message).expect("a message has text keys and writes into memory");
}

/// Checks a session id, bind key, trace id or idempotency key: any text that fits on a log line.
pub fn check_label(field: &str, text: &str) -> Result<(), RequestError> {
    at_most(field, text, LABEL_BYTES_MAX)?;
    if text.is_empty() {
        return Err(RequestError::invalid(field, "it is empty; leave it out or give it a value"));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid!(field, "{} has a control character; remove it", shown(text)));
    }
    Ok(())
}

/// Checks a field that may be absent with [`check_label`].
pub(crate) fn check_optional_label(field: &str, text: Option<&str>) -> Result<(), RequestError> {
    text.map_or(Ok(()), |text| check_label(field, text))
}

/// Checks the length of a field, in bytes.
pub(crate) fn at_most(field: &str, text: &str, bytes_max: usize) -> Result<(), RequestError> {
    match text.len() {
        bytes if bytes <= bytes_max => Ok(()),
        bytes => Err(invalid!(field, "it has {bytes} bytes; send at most {bytes_max}")),
    }
}

pub(crate) fn missing_field(field: &str) -> RequestError {
    RequestError::invalid(field, "the field is missing; add it")
}

pub(crate) fn read_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, RequestError> {
    // serde would take a list for a struct, field by field.
    if text.trim_start().starts_with('[') {
        return Err(RequestError::invalid("", "it is a list; send one JSON object"));
    }
    serde_json::from_str(text).map_err(|error| explain::<T>(text, &error))
}

/// The `type` of a frame.
pub(crate) fn frame_type(text: &str) -> Result<Cow<'_, str>, RequestError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }

    // Our own writers put it first. No known type has an escape in it, so looking for the next
    // quote is enough.
    let first = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"'));
    match first {
        Some((kind, _)) => Ok(Cow::Borrowed(kind)),
        None => read_json::<Head<'_>>(text).map(|head| head.kind),
    }
}

pub(crate) fn unknown_type(found: &str, known: &[&str]) -> RequestError {
    invalid!("type", "{} is unknown; use one of {}", shown(found), known.join(", "))
}

/// Says which field is wrong. It reads the text again, which only happens to bad messages.
#[cold]
fn explain<'a, T: Deserialize<'a>>(text: &'a str, error: &serde_json::Error) -> RequestError {
    // The reader blames the syntax for some lists that are merely too long.
    if error.classify() != Category::Data
        && let Err(error) = serde_json::from_str::<IgnoredAny>(text)
    {
        return invalid!("", "not JSON: {error}; send one JSON object");
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let (path, message) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(found) => (found.path().to_string(), found.inner().to_string()),
        Ok(_) => (String::new(), error.to_string()),
    };
    let path = path.strip_suffix('.').unwrap_or(&path);
    let message = without_rust_words(&message);
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    match missing {
        Some((name, _)) if path.is_empty() => missing_field(name),
        Some((name, _)) => missing_field(&format!("{path}.{name}")),
        // What cannot be the id of a job is the id of no job.
        None if path == "job_id" && message.contains(NO_JOB_ID) => {
            RequestError::new(ErrorCode::JobNotFound, path, &message)
        }
        None => RequestError::invalid(path, &message),
    }
}

/// serde's message in words that do not assume Rust.
fn without_rust_words(message: &str) -> String {
    let mut words = without_text(message);
    for number in ["u64", "u32", "u16", "i64", "i32"] {
        words = words.replace(&format!("expected {number}"), "expected a whole number in range");
    }
    let words = words.replace("trailing characters", "too many entries");
    words.replace("expected f64", "expected a number").replace("expected struct ", "expected a ")
}

/// The message without a text that stands where something else belongs: it may be what somebody
/// said, and messages are logged.
fn without_text(message: &str) -> String {
    let text = message.split_once("string \"").and_then(|(before, rest)| {
        let (_, after) = rest.rsplit_once("\", expected")?;
        Some(format!("{before}a string, expected{after}"))
    });
    text.unwrap_or_else(|| message.to_owned())
}

/// Declares the enum of all frames that one side of a socket sends.
///
/// It looks for the type first and then reads the one struct that belongs to it; serde's own
/// tagged enums would build a tree of the whole message in between.
macro_rules! frames {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident { $($(#[$doc:meta])* $Variant:ident($Frame:ty),)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[serde(untagged)]
        pub enum $Name<'a> {
            $($(#[$doc])* $Variant($Frame),)*
        }

        impl<'a> $Name<'a> {
            /// The `type` of every frame that this version knows.
            pub const TYPES: &'static [&'static str] =
                &[$(<$Frame as $crate::message::Message>::NAME),*];

            /// The `type` and the schema of every frame.
            pub fn schemas(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, schemars::Schema)> {
                let schemas = [$(generator.subschema_for::<$Frame>()),*];
                Self::TYPES.iter().copied().zip(schemas).collect()
            }

            /// Reads a frame and checks its bounds.
            pub fn parse(text: &'a str) -> Result<Self, $crate::error::RequestError> {
                let kind = $crate::message::frame_type(text)?;
                $(if kind == <$Frame as $crate::message::Message>::NAME {
                    return $crate::message::parse_text(text).map(Self::$Variant);
                })*
                Err($crate::message::unknown_type(&kind, Self::TYPES))
            }

            /// The frame as text.
            pub fn to_json(&self) -> String {
                serde_json::to_string(self).expect("a message has text keys")
            }
        }
    };
}

pub(crate) use frames;
