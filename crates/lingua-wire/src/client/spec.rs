//! Checks a dispatch body and turns it into a [`JobSpec`].
//!
//! Start at [`Dispatch::into_spec`]. Invariant: a spec from here is within all bounds and has
//! exactly one payload.

use std::borrow::Cow;
use std::sync::Arc;

use lingua_core::id::hex;
use lingua_core::job::{JobSpec, Payload};
use lingua_core::{JobId, Lang, LangPair, Needs, Service, ServiceSet, Source};

use super::{Dispatch, DispatchOptions};
use crate::audio::Audio;
use crate::error::{RequestError, invalid};
use crate::labels;
use crate::lang;
use crate::limits::{
    AUDIO_REF_BYTES_MAX, DEADLINE_MS_MAX, PRIORITY_MAX, TEXT_BYTES_MAX, WAIT_MS_MAX,
};
use crate::message::{at_most, check_optional_label};

/// The session of a job whose client did not name one.
const NO_SESSION: &str = "none";

impl Dispatch<'_> {
    /// Checks the body of a job. A job without a trace id is traced by its own id.
    pub fn into_spec(mut self, id: JobId) -> Result<JobSpec, RequestError> {
        check_optional_label("session_id", self.session_id.as_deref())?;
        check_optional_label("trace_id", self.trace_id.as_deref())?;
        let payload = check_payload(self.audio_ref.take(), self.audio.take(), self.text.take())?;
        let session = Arc::from(self.session_id.as_deref().unwrap_or(NO_SESSION));
        let trace = match self.trace_id.as_deref() {
            Some(trace) => Arc::from(trace),
            None => Arc::from(std::str::from_utf8(&hex(id.number())).unwrap_or_default()),
        };
        let texts = self.context.take().unwrap_or_default();
        for text in &texts {
            at_most("context", text, TEXT_BYTES_MAX)?;
        }
        let context = texts.into_iter().map(Arc::from).collect();
        let is_text = matches!(payload, Payload::Text(_));
        Ok(JobSpec { session, trace, context, ..self.requirements(is_text, payload)? })
    }

    /// Checks the body of a question about a job, which needs no payload.
    pub fn into_explain_spec(self) -> Result<JobSpec, RequestError> {
        self.audio.as_ref().map_or(Ok(()), |audio| audio.check_format("audio"))?;
        let is_text = self.text.is_some();
        self.requirements(is_text, Payload::Absent)
    }

    /// All that choosing a node depends on.
    fn requirements(self, is_text: bool, payload: Payload) -> Result<JobSpec, RequestError> {
        let src = lang::source("src_lang", &self.src_lang)?;
        let tgt = lang::language("tgt_lang", &self.tgt_lang)?;
        let pair = match &self.two_way {
            None => LangPair { src, tgt },
            Some(langs) => check_two_way(src, tgt, langs)?,
        };
        let mut given = self.options.unwrap_or_default();
        let priority = check_options(&given)?;
        let labels = labels::required("options.labels", given.labels.take())?;
        let extra: ServiceSet = given.services.iter().flatten().copied().collect();
        let tts = given.require_tts.unwrap_or(false) || extra.contains(Service::Tts);
        Ok(JobSpec {
            two_way: self.two_way.is_some(),
            needs: Needs { asr: !is_text, tts, extra, labels },
            preferred: given.preferred_node_id,
            strict: given.strict.unwrap_or(false),
            exclude: given.exclude_node_ids.unwrap_or_default(),
            bind_key: given.bind_key.map(Arc::from),
            wait_ms: given.wait_ms,
            deadline_ms: given.deadline_ms,
            priority,
            public: given.public.unwrap_or(true),
            ..JobSpec::new(pair, payload)
        })
    }
}

/// The direction that stands for both.
fn check_two_way(src: Source, tgt: Lang, langs: &[String]) -> Result<LangPair, RequestError> {
    let [a, b] = langs else {
        return Err(RequestError::invalid("two_way", "give exactly two languages"));
    };
    let (a, b) = (lang::language("two_way[0]", a)?, lang::language("two_way[1]", b)?);
    if src != Source::Auto || a == b || ![a, b].contains(&tgt) {
        let what = "give src_lang 'auto', two different languages, and one of them as tgt_lang";
        return Err(RequestError::invalid("two_way", what));
    }
    Ok(LangPair::known(if tgt == b { a } else { b }, tgt))
}

fn check_payload(
    audio_ref: Option<Cow<'_, str>>,
    audio: Option<Audio<'_>>,
    text: Option<Cow<'_, str>>,
) -> Result<Payload, RequestError> {
    match (audio_ref, audio, text) {
        (Some(audio_ref), None, None) => {
            if audio_ref.is_empty() {
                return Err(invalid!("audio_ref", "it is empty; say where the audio is"));
            }
            at_most("audio_ref", &audio_ref, AUDIO_REF_BYTES_MAX)?;
            Ok(Payload::AudioRef(audio_ref.into()))
        }
        (None, Some(audio), None) => {
            audio.check("audio")?;
            let data = audio.decode("audio")?.into();
            let format = audio.format.into();
            Ok(Payload::Audio { format, sample_rate: audio.sample_rate, data })
        }
        (None, None, Some(text)) => {
            if text.trim().is_empty() {
                return Err(invalid!("text", "it is empty; send the text to translate"));
            }
            at_most("text", &text, TEXT_BYTES_MAX)?;
            Ok(Payload::Text(text.into()))
        }
        (None, None, None) => {
            let what = "nothing to translate; give one of 'audio_ref', 'audio' and 'text'";
            Err(RequestError::invalid("audio_ref", what))
        }
        (_, _, text) => {
            let field = if text.is_some() { "text" } else { "audio" };
            let what = "more than one thing to translate; give only one of 'audio_ref', 'audio' \
                        and 'text'";
            Err(RequestError::invalid(field, what))
        }
    }
}

/// Checks the options; gives the priority.
fn check_options(given: &DispatchOptions) -> Result<i32, RequestError> {
    check_optional_label("options.bind_key", given.bind_key.as_deref())?;
    check_at_most("options.wait_ms", given.wait_ms, WAIT_MS_MAX)?;
    check_at_most("options.deadline_ms", given.deadline_ms, DEADLINE_MS_MAX)?;
    if given.deadline_ms == Some(0) {
        let what = "0 leaves no time; leave it out or give at least 1";
        return Err(RequestError::invalid("options.deadline_ms", what));
    }
    let priority = given.priority.unwrap_or(0);
    let in_range = (-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority);
    i32::try_from(priority).ok().filter(|_| in_range).ok_or_else(|| {
        let field = "options.priority";
        invalid!(field, "{priority} is out of range; use -{PRIORITY_MAX} to {PRIORITY_MAX}")
    })
}

fn check_at_most(field: &str, given: Option<u64>, max: u64) -> Result<(), RequestError> {
    match given {
        Some(ms) if ms > max => Err(invalid!(field, "{ms} ms is too long; use at most {max}")),
        _ => Ok(()),
    }
}
