//! The result of a job.
//!
//! Start at [`JobResult`]: the fields that the scheduler knows. The client that waits gets the
//! result unchanged, with all further fields; only [`embed_audio`] ever changes it. What is kept of
//! it afterwards is [`kept_result`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::audio::Audio;
use crate::error::RequestError;
use crate::message::read_json;
use crate::raw::RawJson;
use crate::wire_types::wire_types;

const AUDIO_FIELD: &str = "tts_audio";

wire_types! {
    /// The known fields of a result.
    #[derive(Default)]
    pub struct JobResult<'a> {
        /// The recognised text.
        pub text_asr: Option<Cow<'a, str>>,
        /// The text in the target language.
        pub text_translated: Option<Cow<'a, str>>,
        /// The translation as speech.
        pub tts_audio: Option<Audio<'a>>,
        /// The recognised language, if the source was `auto`.
        pub src_lang: Option<Cow<'a, str>>,
    }
}

impl<'a> JobResult<'a> {
    /// The names of the known fields.
    pub const FIELDS: [&'static str; 4] = ["text_asr", "text_translated", AUDIO_FIELD, "src_lang"];

    /// Reads the known fields of a result that a node sent.
    pub fn read(raw: &'a RawJson) -> Result<Self, RequestError> {
        let result = Self::read_kept(raw)?;
        result.check()?;
        Ok(result)
    }

    /// Reads the known fields of a result that was kept: its audio may be gone.
    pub fn read_kept(raw: &'a RawJson) -> Result<Self, RequestError> {
        read_json(raw.as_str()).map_err(in_result)
    }

    /// Checks the description of the audio.
    pub fn check(&self) -> Result<(), RequestError> {
        self.tts_audio.as_ref().map_or(Ok(()), |audio| audio.check("result.tts_audio"))
    }

    /// How many bytes the next binary frame must have; `None` if no frame follows.
    pub fn frame_bytes(&self) -> Option<usize> {
        self.tts_audio.as_ref().and_then(Audio::frame_bytes)
    }
}

/// Puts the audio of a binary frame into the result that announced it, for clients that get the
/// result as one message. All other fields stay as they are.
pub fn embed_audio(raw: &RawJson, audio: &[u8]) -> Result<RawJson, RequestError> {
    let Some(announced) = JobResult::read(raw)?.tts_audio else {
        let what = "a binary frame came, but no audio was announced; announce it with `bytes`";
        return Err(RequestError::invalid("result.tts_audio", what));
    };
    let expected = announced.frame_bytes();
    if expected != Some(audio.len()) {
        let what = format!(
            "the frame has {} bytes, but {} were announced; send what was announced",
            audio.len(),
            expected.map_or("none".to_owned(), |bytes| bytes.to_string()),
        );
        return Err(RequestError::invalid("result.tts_audio.bytes", &what));
    }
    let embedded = Audio::inline(&announced.format, announced.sample_rate, audio);
    let embedded = serde_json::value::to_raw_value(&embedded).expect("audio has text keys");
    let fields = read_json::<BTreeMap<Cow<'_, str>, &RawValue>>(raw.as_str());
    let mut fields = fields.map_err(in_result)?;
    fields.insert(Cow::Borrowed(AUDIO_FIELD), &embedded);
    RawJson::of(&fields)
}

/// What is kept of a result when its job has ended: the known fields, without audio. `None` if that
/// is all there is.
pub fn kept_result(raw: &RawJson) -> Result<Option<RawJson>, RequestError> {
    let known = JobResult::read(raw)?;
    let fields: BTreeMap<Cow<'_, str>, IgnoredAny> = read_json(raw.as_str()).map_err(in_result)?;
    let is_known = |name: &Cow<'_, str>| JobResult::FIELDS.contains(&&**name);
    if known.tts_audio.is_none() && fields.keys().all(is_known) {
        return Ok(None);
    }
    let tts_audio = known.tts_audio.as_ref().map(|_| Audio::gone());
    RawJson::of(&JobResult { tts_audio, ..known }).map(Some)
}

fn in_result(error: RequestError) -> RequestError {
    let field = if error.field.is_empty() { "result" } else { &format!("result.{}", error.field) };
    let prefix = format!("{}: ", error.field);
    let what = error.detail.strip_prefix(&prefix).unwrap_or(&error.detail);
    RequestError::new(error.code, field, what)
}
