//! What a session was started with, checked and in the core's words.
//!
//! Start at [`SessionStart::into_plan`]. Invariant: a [`Plan`] has languages that are canonical, and audio that a
//! session can take.

use lingua_core::session::{Format, PCM_RATES, Speaker};
use lingua_core::{Lang, Source};

use super::client::{AudioFormat, SessionStart};
use crate::error::{RequestError, shown};
use crate::lang;
use crate::message::missing_field;

/// Samples a second of audio whose client does not say.
const SAMPLE_RATE_DEFAULT: u32 = 16_000;

/// Which way is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Always the same.
    OneWay {
        /// What is spoken.
        src: Source,
        /// What it becomes.
        tgt: Lang,
    },
    /// Each speaker hears the other.
    TwoWay {
        /// What the first speaks.
        a: Lang,
        /// What the second speaks.
        b: Lang,
    },
}

/// What a session was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Which way.
    pub direction: Direction,
    /// The answer has to be spoken.
    pub require_tts: bool,
    /// Parts of a text are wanted before it is whole.
    pub partials: bool,
    /// The last texts go along with each job.
    pub context: bool,
    /// How audio is coded.
    pub audio: Format,
}

impl SessionStart<'_> {
    /// Checks what was asked for.
    pub fn into_plan(self) -> Result<Plan, RequestError> {
        let required = |field: &str, value: Option<&str>| match value {
            Some(value) => lang::language(field, value),
            None => Err(missing_field(field)),
        };
        let direction = match self.mode.as_deref() {
            None | Some("one_way") => {
                let src = self.src_lang.as_deref().ok_or_else(|| missing_field("src_lang"))?;
                let src = lang::source("src_lang", src)?;
                Direction::OneWay { src, tgt: required("tgt_lang", self.tgt_lang.as_deref())? }
            }
            Some("two_way") => {
                let a = required("lang_a", self.lang_a.as_deref())?;
                let b = required("lang_b", self.lang_b.as_deref())?;
                if a == b {
                    let what = format!("both speakers speak {a}; give two languages");
                    return Err(RequestError::invalid("lang_b", &what));
                }
                Direction::TwoWay { a, b }
            }
            Some(other) => {
                let what = format!("{} is unknown; use one_way or two_way", shown(other));
                return Err(RequestError::invalid("mode", &what));
            }
        };
        Ok(Plan {
            direction,
            require_tts: self.require_tts.unwrap_or(false),
            partials: self.partials.unwrap_or(false),
            context: self.context.unwrap_or(false),
            audio: format(self.audio.as_ref())?,
        })
    }
}

impl Plan {
    /// Who speaks, as a message names it.
    pub fn speaker(&self, name: Option<&str>) -> Result<Option<Speaker>, RequestError> {
        match (name, self.direction) {
            (None, _) => Ok(None),
            (Some(_), Direction::OneWay { .. }) => {
                let what =
                    "this session has one speaker; leave it out, or start one in mode two_way";
                Err(RequestError::invalid("speaker", what))
            }
            (Some("a"), _) => Ok(Some(Speaker::A)),
            (Some("b"), _) => Ok(Some(Speaker::B)),
            (Some(other), _) => {
                let what = format!("{} is unknown; use a or b", shown(other));
                Err(RequestError::invalid("speaker", &what))
            }
        }
    }
}

fn format(audio: Option<&AudioFormat<'_>>) -> Result<Format, RequestError> {
    let Some(audio) = audio else {
        return Ok(Format::Pcm16 { sample_rate: SAMPLE_RATE_DEFAULT });
    };
    match (audio.format.as_ref(), audio.sample_rate) {
        ("pcm16", Some(sample_rate)) if PCM_RATES.contains(&sample_rate) => {
            Ok(Format::Pcm16 { sample_rate })
        }
        ("pcm16", None) => Ok(Format::Pcm16 { sample_rate: SAMPLE_RATE_DEFAULT }),
        ("pcm16", Some(rate)) => {
            let known = PCM_RATES.map(|rate| rate.to_string()).join(", ");
            let what = format!("{rate} is not supported; use one of {known}");
            Err(RequestError::invalid("audio.sample_rate", &what))
        }
        ("opus", _) => Ok(Format::Opus),
        (other, _) => {
            let what = format!("{} is unknown; use pcm16 or opus", shown(other));
            Err(RequestError::invalid("audio.format", &what))
        }
    }
}
