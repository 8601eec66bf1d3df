//! Checks `session_start` and turns it into a [`SessionPlan`].
//!
//! Start at [`SessionStart::into_plan`]. Invariant: a plan has canonical languages and an audio
//! encoding that sessions accept.

use lingua_core::session::{AudioEncoding, Direction, PCM_RATES, SessionPlan, Speaker};

use super::request::{AudioFormat, SessionStart};
use crate::error::{RequestError, shown};
use crate::lang;
use crate::message::missing_field;

/// In Hz.
const SAMPLE_RATE_DEFAULT: u32 = 16_000;

impl SessionStart {
    /// Checks the message.
    pub fn into_plan(self) -> Result<SessionPlan, RequestError> {
        let language = |field: &str, value: &Option<String>| match value {
            Some(value) => lang::language(field, value),
            None => Err(missing_field(field)),
        };
        let direction = match self.mode.as_deref() {
            None | Some("one_way") => {
                let src = self.src_lang.as_deref().ok_or_else(|| missing_field("src_lang"))?;
                let src = lang::source("src_lang", src)?;
                Direction::OneWay { src, tgt: language("tgt_lang", &self.tgt_lang)? }
            }
            Some("two_way") => {
                let a = language("lang_a", &self.lang_a)?;
                let b = language("lang_b", &self.lang_b)?;
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
        Ok(SessionPlan {
            direction,
            require_tts: self.require_tts.unwrap_or(false),
            partials: self.partials.unwrap_or(false),
            context: self.context.unwrap_or(false),
            audio: encoding(self.audio.as_ref())?,
        })
    }
}

fn encoding(audio: Option<&AudioFormat>) -> Result<AudioEncoding, RequestError> {
    let (format, sample_rate) = match audio {
        Some(audio) => (audio.format.as_str(), audio.sample_rate.unwrap_or(SAMPLE_RATE_DEFAULT)),
        None => ("pcm16", SAMPLE_RATE_DEFAULT),
    };
    match format {
        "pcm16" if PCM_RATES.contains(&sample_rate) => Ok(AudioEncoding::Pcm16 { sample_rate }),
        "pcm16" => {
            let known = PCM_RATES.map(|rate| rate.to_string()).join(", ");
            let what = format!("{sample_rate} is not supported; use one of {known}");
            Err(RequestError::invalid("audio.sample_rate", &what))
        }
        "opus" => Ok(AudioEncoding::Opus),
        other => {
            let what = format!("{} is unknown; use pcm16 or opus", shown(other));
            Err(RequestError::invalid("audio.format", &what))
        }
    }
}

/// Reads the `speaker` of `turn_start` or `text`, for a session of this direction.
pub fn parse_speaker(
    name: Option<&str>,
    direction: Direction,
) -> Result<Option<Speaker>, RequestError> {
    match (name, direction) {
        (None, _) => Ok(None),
        (Some(_), Direction::OneWay { .. }) => {
            let what = "a one-way session has one speaker; leave the field out, or start the \
                        session in mode two_way";
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
