//! Audio inside or beside a message.
//!
//! Start at [`Audio`]: the format, and either how many bytes follow in the next binary frame
//! (`bytes`), or the audio itself as base64 (`data`), or that it is streamed (`stream`). Audio that
//! is not kept any more is only `gone`.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::error::{ErrorCode, RequestError, invalid};
use crate::limits::{AUDIO_BYTES_MAX, AUDIO_FORMAT_BYTES_MAX, SAMPLE_RATE_RANGE};
use crate::message::at_most;
use crate::wire_types::wire_types;

/// Bare samples of 16 bits without a header: the message must give the sample rate.
const RAW_FORMAT: &str = "pcm16";

/// Accepts base64 with or without `=` at the end, because clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

wire_types! {
    /// A piece of audio.
    #[derive(Default)]
    #[schemars(extend("anyOf" = [{"required": ["format"]}, {"required": ["gone"]}]))]
    pub struct Audio<'a> {
        /// `pcm16`, `wav`, `opus`, …
        #[serde(default, skip_serializing_if = "str::is_empty")]
        pub format: Cow<'a, str>,
        /// Samples a second; formats with a header of their own may leave it out.
        pub sample_rate: Option<u32>,
        /// How many bytes the next binary frame has.
        pub bytes: Option<u64>,
        /// There was audio, and it is not kept any more. Only results of the scheduler say so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub gone: bool,
        /// The frames follow while it is being spoken, each tagged with the job, until `audio_end`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub stream: bool,
        /// The audio as base64.
        pub data: Option<Cow<'a, str>>,
    }
}

impl<'a> Audio<'a> {
    /// Audio that follows in a binary frame.
    pub fn in_next_frame(format: &'a str, sample_rate: Option<u32>, bytes: usize) -> Self {
        let bytes = Some(bytes as u64);
        Self { format: Cow::Borrowed(format), sample_rate, bytes, ..Self::default() }
    }

    /// Audio that is being spoken and follows in tagged frames.
    pub fn streamed(format: &'a str, sample_rate: Option<u32>) -> Self {
        Self { format: Cow::Borrowed(format), sample_rate, stream: true, ..Self::default() }
    }

    /// Audio inside the message.
    pub fn inline(format: &'a str, sample_rate: Option<u32>, audio: &[u8]) -> Self {
        let data = Some(Cow::Owned(BASE64.encode(audio)));
        Self { format: Cow::Borrowed(format), sample_rate, data, ..Self::default() }
    }

    /// Audio that is not kept any more.
    pub fn gone() -> Self {
        Self { gone: true, ..Self::default() }
    }

    /// The same, without borrowing from the message.
    pub fn into_owned(self) -> Audio<'static> {
        let Self { format, sample_rate, bytes, gone, stream, data } = self;
        let format = Cow::Owned(format.into_owned());
        let data = data.map(|data| Cow::Owned(data.into_owned()));
        Audio { format, sample_rate, bytes, gone, stream, data }
    }

    /// How many bytes the next binary frame must have; `None` if no frame follows.
    pub fn frame_bytes(&self) -> Option<usize> {
        match self.data {
            Some(_) => None,
            None => self.bytes.and_then(|bytes| usize::try_from(bytes).ok()),
        }
    }

    /// Decodes the audio inside the message.
    pub fn decode(&self, field: &str) -> Result<Vec<u8>, RequestError> {
        let field = format!("{field}.data");
        let Some(data) = self.data.as_deref().filter(|data| !data.is_empty()) else {
            return Err(RequestError::invalid(&field, "there is no audio; send it as base64"));
        };
        // Checked before decoding, to save the work.
        if data.len() / 4 * 3 > AUDIO_BYTES_MAX + 3 {
            return Err(too_large(&field));
        }
        let audio = BASE64.decode(data.as_bytes()).map_err(|error| {
            invalid!(&field, "it is not base64: {error}; encode the audio as base64")
        })?;
        if audio.len() > AUDIO_BYTES_MAX {
            return Err(too_large(&field));
        }
        Ok(audio)
    }

    /// Checks that the format is there.
    pub(crate) fn check_format(&self, field: &str) -> Result<(), RequestError> {
        let field = format!("{field}.format");
        if self.format.is_empty() {
            let what = "it is empty; name the format, for example 'pcm16'";
            return Err(RequestError::invalid(&field, what));
        }
        at_most(&field, &self.format, AUDIO_FORMAT_BYTES_MAX)
    }

    /// Checks everything but the audio itself.
    pub(crate) fn check(&self, field: &str) -> Result<(), RequestError> {
        let of = |name: &str| format!("{field}.{name}");
        self.check_format(field)?;
        match self.sample_rate {
            Some(rate) if !SAMPLE_RATE_RANGE.contains(&rate) => {
                let (low, high) = SAMPLE_RATE_RANGE.into_inner();
                let field = of("sample_rate");
                return Err(invalid!(&field, "{rate} is out of range; use {low} to {high}"));
            }
            None if self.format == RAW_FORMAT => {
                let what = "it is missing, and pcm16 has no header; give the samples a second";
                return Err(RequestError::invalid(&of("sample_rate"), what));
            }
            _ => {}
        }
        if self.bytes.is_some_and(|bytes| bytes > AUDIO_BYTES_MAX as u64) {
            return Err(too_large(&of("bytes")));
        }
        match (self.bytes, &self.data) {
            (None, None) => {
                let what = "there is no audio; give 'data' (base64), or 'bytes' and a binary frame";
                Err(RequestError::invalid(field, what))
            }
            (Some(_), Some(_)) => {
                Err(invalid!(field, "both 'data' and 'bytes' are given; give one of them"))
            }
            _ => Ok(()),
        }
    }
}

fn too_large(field: &str) -> RequestError {
    let what = format!(
        "the audio has more than {AUDIO_BYTES_MAX} bytes; cut it into segments or use audio_ref"
    );
    RequestError::new(ErrorCode::PayloadTooLarge, field, &what)
}
