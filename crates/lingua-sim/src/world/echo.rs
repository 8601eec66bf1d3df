//! What a node makes of a segment: whose it was, which way it went, and what was heard.
//!
//! Start at [`Echo::of`].

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::Source;
use lingua_core::job::{JobSpec, Payload};

use super::sound;

/// What was heard, said back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    pub(super) job: JobId,
    pub(super) session: String,
    pub(super) pair: String,
    pub(super) two_way: bool,
    /// Runs of numbers; something else if it makes no sense.
    pub(super) heard: String,
}

impl Echo {
    /// What a node says behind its name: nothing, if the job is not of a session.
    pub(super) fn of(spec: &JobSpec, sound: &[u8]) -> Option<String> {
        let number: u32 = spec.session.strip_prefix('s')?.parse().ok()?;
        let heard = match &spec.payload {
            Payload::Text(text) => match text.split_once('/') {
                Some((of, item)) if of == number.to_string() => item.to_owned(),
                _ => format!("garbled:{text}"),
            },
            _ => sound::hear(number, sound),
        };
        let heard = match is_context_its_own(spec) {
            true => heard.replace(' ', "_"),
            false => "garbled:context".to_owned(),
        };
        let src = match spec.pair.src {
            Source::Known(src) => src.to_string(),
            Source::Auto => "auto".to_owned(),
        };
        let (session, tgt, two_way) = (&spec.session, spec.pair.tgt, spec.two_way);
        Some(format!("{session} {src}:{tgt} {two_way} {heard}"))
    }

    /// Reads it back, behind the name that nodes give their results.
    pub(super) fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [job, _attempt, _fence, _node, session, pair, two_way, heard] = words[..] else {
            return None;
        };
        Some(Self {
            job: JobId::new(job.strip_prefix('j')?.parse().ok()?),
            session: session.to_owned(),
            pair: pair.to_owned(),
            two_way: two_way.parse().ok()?,
            heard: heard.to_owned(),
        })
    }
}

/// What was said before was said in the same session.
fn is_context_its_own(spec: &JobSpec) -> bool {
    let mut of =
        spec.context.iter().map(|text: &Arc<str>| Echo::read(text).map(|echo| echo.session));
    of.all(|session| session.as_deref() == Some(&*spec.session))
}
