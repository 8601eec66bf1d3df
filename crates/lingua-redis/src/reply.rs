//! Reads the replies of scripts and commands; the client library converts single values.
//!
//! Invariant: a reply of another form is [`StoreError::Corrupt`], never a panic.

use std::str::FromStr;
use std::vec::IntoIter;

use lingua_core::JobId;
use lingua_core::id::hex;
use lingua_store::{Result, StoreError};
use redis::{FromRedisValue, ParsingError, Value};

/// Most characters of an unexpected value in an error.
const SHOWN_MAX: usize = 120;

/// A reply whose first parts say what the others are: the parts that are still unread.
#[derive(Debug)]
pub(crate) struct ScriptReply(IntoIter<Value>);

impl FromRedisValue for ScriptReply {
    fn from_redis_value(value: Value) -> std::result::Result<Self, ParsingError> {
        Ok(Self(Vec::from_redis_value(value)?.into_iter()))
    }
}

impl ScriptReply {
    pub(crate) fn next<T: FromRedisValue>(&mut self) -> Result<T> {
        convert(self.0.next().ok_or_else(|| corrupt("a reply that is too short"))?)
    }
}

/// The value as a `T`.
pub(crate) fn convert<T: FromRedisValue>(value: Value) -> Result<T> {
    redis::from_redis_value(value).map_err(|error| {
        let shown: String = error.to_string().chars().take(SHOWN_MAX).collect();
        corrupt(&shown)
    })
}

pub(crate) fn parse<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| corrupt(&format!("{text:?} cannot be parsed")))
}

/// A job's id in keys and scripts: 32 hexadecimal digits.
pub(crate) fn job_text(job: JobId) -> String {
    hex(job.number()).into_iter().map(char::from).collect()
}

pub(crate) fn read_job(text: &str) -> Result<JobId> {
    match u128::from_str_radix(text, 16) {
        Ok(number) if text.len() == 32 => Ok(JobId::new(number)),
        _ => Err(corrupt(&format!("{text:?} is not a job's id"))),
    }
}

pub(crate) fn corrupt(detail: &str) -> StoreError {
    StoreError::Corrupt { detail: detail.to_owned() }
}
