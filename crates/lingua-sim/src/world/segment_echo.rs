//! The result that a node returns for a segment: its session, direction and frames.
//!
//! Start at [`SegmentEcho::of`].

use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::Source;
use lingua_core::job::{JobSpec, Payload};

use super::marked_audio;

/// What a node received, as its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentEcho {
    pub(super) job: JobId,
    pub(super) session: String,
    pub(super) pair: String,
    pub(super) two_way: bool,
    /// Ranges of frame numbers; other text if the audio is garbled.
    pub(super) frames: String,
}

impl SegmentEcho {
    /// The end of a node's result; `None` if the job is not of a session.
    pub(super) fn of(spec: &JobSpec, audio: &[u8]) -> Option<String> {
        let number: u32 = spec.session.strip_prefix('s')?.parse().ok()?;
        let frames = match &spec.payload {
            Payload::Text(text) => match text.split_once('/') {
                Some((of, item)) if of == number.to_string() => item.to_owned(),
                _ => format!("garbled:{text}"),
            },
            _ => marked_audio::decode(number, audio),
        };
        let frames = match has_own_context(spec) {
            true => frames.replace(' ', "_"),
            false => "garbled:context".to_owned(),
        };
        let src = match spec.pair.src {
            Source::Known(src) => src.to_string(),
            Source::Auto => "auto".to_owned(),
        };
        let (session, tgt, two_way) = (&spec.session, spec.pair.tgt, spec.two_way);
        Some(format!("{session} {src}:{tgt} {two_way} {frames}"))
    }

    /// Reads a result, after what nodes put in front of it.
    pub(super) fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [job, _attempt, _fence, _node, session, pair, two_way, frames] = words[..] else {
            return None;
        };
        Some(Self {
            job: JobId::new(job.strip_prefix('j')?.parse().ok()?),
            session: session.to_owned(),
            pair: pair.to_owned(),
            two_way: two_way.parse().ok()?,
            frames: frames.to_owned(),
        })
    }
}

/// Whether the texts that the job carries are of the same session.
fn has_own_context(spec: &JobSpec) -> bool {
    let mut of =
        spec.context.iter().map(|text: &Arc<str>| SegmentEcho::read(text).map(|echo| echo.session));
    of.all(|session| session.as_deref() == Some(&*spec.session))
}
