//! Reads the reply of a script, one part after the other.
//!
//! Invariant: a reply of another form is [`StoreError::Corrupt`], never a panic.

use std::str::FromStr;
use std::vec::IntoIter;

use lingua_core::JobId;
use lingua_core::id::hex;
use lingua_store::{Result, StoreError};
use redis::Value;

/// The parts of a reply that are still unread.
#[derive(Debug)]
pub(crate) struct ScriptReply(IntoIter<Value>);

impl ScriptReply {
    pub(crate) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(parts) => Ok(Self(parts.into_iter())),
            Value::Nil => Ok(Self(vec![].into_iter())),
            other => Err(unexpected("a list", &other)),
        }
    }

    /// How many parts are left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the next part is a text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.0.as_slice().first(), Some(Value::BulkString(_) | Value::SimpleString(_)))
    }

    fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(|| corrupt("a reply that is too short"))
    }

    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) => Ok(Some(text.into_bytes())),
            Value::Nil => Ok(None),
            other => Err(unexpected("a text", &other)),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>> {
        self.maybe_bytes()?.ok_or_else(|| corrupt("a missing text"))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| corrupt("a text that is not UTF-8"))
    }

    /// A text that parses as `T`.
    pub(crate) fn parse<T: FromStr>(&mut self) -> Result<T> {
        let text = self.text()?;
        text.parse().map_err(|_| corrupt(&format!("{text:?} cannot be parsed")))
    }

    /// A number, as an integer or as text.
    pub(crate) fn number(&mut self) -> Result<u64> {
        match self.next()? {
            Value::Int(number @ 0..) => Ok(number as u64),
            Value::Double(number) if number >= 0.0 => Ok(number as u64),
            Value::BulkString(bytes) => {
                let text = std::str::from_utf8(&bytes).ok();
                let number = text.and_then(|text| text.parse().ok());
                number.ok_or_else(|| unexpected("a number", &Value::BulkString(bytes)))
            }
            other => Err(unexpected("a number", &other)),
        }
    }

    /// A number that fits into `T`.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| corrupt(&format!("the number {number} is too large")))
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn list(&mut self) -> Result<Self> {
        Self::new(self.next()?)
    }

    pub(crate) fn job(&mut self) -> Result<JobId> {
        read_job(&self.text()?)
    }
}

/// A whole number, negative or not.
pub(crate) fn whole_number(value: Value) -> Result<i64> {
    match value {
        Value::Int(number) => Ok(number),
        other => Err(unexpected("a number", &other)),
    }
}

/// A single number.
pub(crate) fn number_of(value: Value) -> Result<u64> {
    ScriptReply(vec![value].into_iter()).number()
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

/// Most characters of an unexpected value in an error.
const SHOWN_MAX: usize = 120;

fn unexpected(expected: &str, found: &Value) -> StoreError {
    let found: String = format!("{found:?}").chars().take(SHOWN_MAX).collect();
    corrupt(&format!("expected {expected} and found {found}"))
}
