//! A job that was asked for, checked and in the core's words.
//!
//! Start at [`Dispatch::into_order`]. Invariant: an [`Order`] is within all bounds and has exactly
//! one payload.

use std::borrow::Cow;

use lingua_core::{Lang, LangPair, Needs, NodeId, Service, ServiceSet, Source};

use super::dispatch::{Dispatch, DispatchOptions};
use crate::audio::Audio;
use crate::error::RequestError;
use crate::lang;
use crate::limits::{
    AUDIO_REF_BYTES_MAX, DEADLINE_MS_MAX, PRIORITY_MAX, TEXT_BYTES_MAX, WAIT_MS_MAX,
};
use crate::message::{at_most, check_label, check_optional_label};

/// A job to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The conversation that it belongs to.
    pub session_id: Option<String>,
    /// Follows the job through all logs.
    pub trace_id: Option<String>,
    /// What is to be translated.
    pub payload: Payload,
    /// What was said before, the oldest first.
    pub context: Vec<String>,
    /// What it takes.
    pub ask: Ask,
}

/// What a job takes: all that choosing a node depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Direction.
    pub pair: LangPair,
    /// It may also be the other direction: the node finds out.
    pub two_way: bool,
    /// Services.
    pub needs: Needs,
    /// Wishes.
    pub options: OrderOptions,
}

/// What is to be translated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Audio that lies elsewhere.
    AudioRef(String),
    /// Audio that came with the request.
    Audio {
        /// Its format.
        format: String,
        /// Samples a second.
        sample_rate: Option<u32>,
        /// The audio.
        bytes: Vec<u8>,
    },
    /// Text.
    Text(String),
}

/// Wishes about how a job is done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrderOptions {
    /// The node that should do it.
    pub preferred: Option<NodeId>,
    /// Rather fail than go to another one.
    pub strict: bool,
    /// Nodes that must not do it.
    pub exclude: Vec<NodeId>,
    /// Segments with one key go to one node while that is possible.
    pub bind_key: Option<String>,
    /// How long it may wait for a slot; `None` leaves it to the scheduler's configuration.
    pub wait_ms: Option<u64>,
    /// How long it may take altogether.
    pub deadline_ms: Option<u64>,
    /// More is more urgent.
    pub priority: i32,
}

impl Dispatch<'_> {
    /// Checks the body of a job that is to be done.
    pub fn into_order(mut self) -> Result<Order, RequestError> {
        check_optional_label("session_id", self.session_id.as_deref())?;
        check_optional_label("trace_id", self.trace_id.as_deref())?;
        let payload = (self.audio_ref.take(), self.audio.take(), self.text.take());
        let is_text = payload.2.is_some();
        let payload = check_payload(payload)?;
        let session_id = self.session_id.take().map(Cow::into_owned);
        let trace_id = self.trace_id.take().map(Cow::into_owned);
        let context = self.context.take().unwrap_or_default();
        for text in &context {
            at_most("context", text, TEXT_BYTES_MAX)?;
        }
        Ok(Order { session_id, trace_id, payload, context, ask: self.ask(is_text)? })
    }

    /// Checks the body of a question about a job, which needs no payload.
    pub fn into_ask(self) -> Result<Ask, RequestError> {
        let is_text = self.text.is_some();
        self.ask(is_text)
    }

    fn ask(self, is_text: bool) -> Result<Ask, RequestError> {
        let src = lang::source("src_lang", &self.src_lang)?;
        let tgt = lang::language("tgt_lang", &self.tgt_lang)?;
        let pair = match &self.two_way {
            None => LangPair { src, tgt },
            Some(langs) => both_ways(src, tgt, langs)?,
        };
        let given = self.options.unwrap_or_default();
        let extra: ServiceSet = given.services.iter().flatten().copied().collect();
        let tts = given.require_tts.unwrap_or(false) || extra.contains(Service::Tts);
        let needs = Needs { asr: !is_text, tts, extra };
        let two_way = self.two_way.is_some();
        Ok(Ask { pair, two_way, needs, options: check_options(given)? })
    }
}

/// The direction that stands for both.
fn both_ways(src: Source, tgt: Lang, langs: &[String]) -> Result<LangPair, RequestError> {
    let [a, b] = langs else {
        return Err(RequestError::invalid("two_way", "give exactly two languages"));
    };
    let (a, b) = (lang::language("two_way[0]", a)?, lang::language("two_way[1]", b)?);
    if src != Source::Auto || a == b || ![a, b].contains(&tgt) {
        let what = "it takes src_lang auto, two languages, and one of them as tgt_lang";
        return Err(RequestError::invalid("two_way", what));
    }
    Ok(LangPair::known(if tgt == b { a } else { b }, tgt))
}

type Payloads<'a> = (Option<Cow<'a, str>>, Option<Audio<'a>>, Option<Cow<'a, str>>);

fn check_payload(payloads: Payloads<'_>) -> Result<Payload, RequestError> {
    match payloads {
        (Some(audio_ref), None, None) => {
            if audio_ref.is_empty() {
                let what = "it is empty; say where the audio lies";
                return Err(RequestError::invalid("audio_ref", what));
            }
            at_most("audio_ref", &audio_ref, AUDIO_REF_BYTES_MAX)?;
            Ok(Payload::AudioRef(audio_ref.into_owned()))
        }
        (None, Some(audio), None) => {
            audio.check("audio")?;
            let bytes = audio.decode("audio")?;
            let format = audio.format.into_owned();
            Ok(Payload::Audio { format, sample_rate: audio.sample_rate, bytes })
        }
        (None, None, Some(text)) => {
            if text.trim().is_empty() {
                let what = "it is empty; send what is to be translated";
                return Err(RequestError::invalid("text", what));
            }
            at_most("text", &text, TEXT_BYTES_MAX)?;
            Ok(Payload::Text(text.into_owned()))
        }
        (None, None, None) => {
            let what = "nothing to translate; give one of 'audio_ref', 'audio' and 'text'";
            Err(RequestError::invalid("audio_ref", what))
        }
        (_, audio, text) => {
            let field = if text.is_some() { "text" } else { "audio" };
            debug_assert!(audio.is_some() || text.is_some());
            let what = "more than one thing to translate; give only one of 'audio_ref', 'audio' \
                        and 'text'";
            Err(RequestError::invalid(field, what))
        }
    }
}

fn check_options(given: DispatchOptions) -> Result<OrderOptions, RequestError> {
    if let Some(bind_key) = &given.bind_key {
        check_label("options.bind_key", bind_key)?;
    }
    check_at_most("options.wait_ms", given.wait_ms, WAIT_MS_MAX)?;
    check_at_most("options.deadline_ms", given.deadline_ms, DEADLINE_MS_MAX)?;
    if given.deadline_ms == Some(0) {
        let what = "0 leaves no time; leave it out or give at least 1";
        return Err(RequestError::invalid("options.deadline_ms", what));
    }
    let priority = given.priority.unwrap_or(0);
    let in_range =
        i32::try_from(priority).ok().filter(|_| (-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority));
    let Some(priority) = in_range else {
        let what = format!("{priority} is out of range; use -{PRIORITY_MAX} to {PRIORITY_MAX}");
        return Err(RequestError::invalid("options.priority", &what));
    };
    Ok(OrderOptions {
        preferred: given.preferred_node_id,
        strict: given.strict.unwrap_or(false),
        exclude: given.exclude_node_ids.unwrap_or_default(),
        bind_key: given.bind_key,
        wait_ms: given.wait_ms,
        deadline_ms: given.deadline_ms,
        priority,
    })
}

fn check_at_most(field: &str, given: Option<u64>, max: u64) -> Result<(), RequestError> {
    match given {
        Some(ms) if ms > max => {
            let what = format!("{ms} ms is too long; use at most {max}");
            Err(RequestError::invalid(field, &what))
        }
        _ => Ok(()),
    }
}
