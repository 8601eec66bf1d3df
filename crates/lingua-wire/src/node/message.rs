//! Any frame that a node sends.
//!
//! Start at [`NodeMessage::parse`]. It looks for the type first and then reads the one struct that
//! belongs to it; serde's own tagged enums would build a tree of the whole message in between.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Bye, Heartbeat, JobAck, JobDone, JobFail, JobPartial, Register};
use crate::error::{RequestError, shown};
use crate::message::{Message, parse_text, read_json};

/// A frame from a node to the scheduler.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum NodeMessage<'a> {
    /// It introduces itself.
    Register(Register),
    /// It is alive.
    Heartbeat(Heartbeat),
    /// It has a job.
    JobAck(JobAck),
    /// It has a part of a job's text.
    JobPartial(JobPartial<'a>),
    /// It is done with a job.
    JobDone(JobDone<'a>),
    /// It gave up on a job, or refused it.
    JobFail(JobFail<'a>),
    /// It leaves.
    Bye(Bye<'a>),
}

impl<'a> NodeMessage<'a> {
    /// The types that there are.
    pub const TYPES: [&'static str; 7] = [
        Register::NAME,
        Heartbeat::NAME,
        JobAck::NAME,
        JobPartial::NAME,
        JobDone::NAME,
        JobFail::NAME,
        Bye::NAME,
    ];

    /// Reads a frame and checks its bounds.
    pub fn parse(text: &'a str) -> Result<Self, RequestError> {
        let kind = peek_type(text)?;
        match kind.as_ref() {
            Register::NAME => parse_text(text).map(Self::Register),
            Heartbeat::NAME => parse_text(text).map(Self::Heartbeat),
            JobAck::NAME => parse_text(text).map(Self::JobAck),
            JobPartial::NAME => parse_text(text).map(Self::JobPartial),
            JobDone::NAME => parse_text(text).map(Self::JobDone),
            JobFail::NAME => parse_text(text).map(Self::JobFail),
            Bye::NAME => parse_text(text).map(Self::Bye),
            unknown => Err(unknown_type(unknown, &Self::TYPES)),
        }
    }

    /// The frame as text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a message has text keys and writes into memory")
    }
}

pub(crate) fn unknown_type(found: &str, known: &[&str]) -> RequestError {
    let what = format!("{} is unknown; use one of {}", shown(found), known.join(", "));
    RequestError::invalid("type", &what)
}

/// The type of a frame.
pub(crate) fn peek_type(text: &str) -> Result<Cow<'_, str>, RequestError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }

    // Our own writers put it first. A type with an escape in it is none of ours, so looking for the
    // next quote is enough.
    let first = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"'));
    match first {
        Some((kind, _)) => Ok(Cow::Borrowed(kind)),
        None => read_json::<Head<'_>>(text).map(|head| head.kind),
    }
}
