//! What tenants have used: jobs, audio, characters.
//!
//! Start at [`Engine::count_usage`]. The owner of a job counts it once it has written its end.
//! Counts are added up in memory and written behind, in numbered batches.
//!
//! Invariant: a batch is written again under its number until the store has confirmed it, so that
//! it counts once. What was counted since the last batch is lost if the process is killed.

use std::collections::BTreeMap;

use lingua_core::Tenant;
use lingua_core::job::{JobState, Payload};
use lingua_core::session::AudioEncoding;
use lingua_store::Store;
use lingua_store::contract::{USAGE_TENANTS_MAX, UsageBatch, UsageCounts, UsageRecord};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::request::{JobRequest, ResultJson};
use crate::{Engine, SubmitError, Timer};

/// How often counts are written.
pub(crate) const WRITE_EVERY_MS: u64 = 2_000;

/// Bytes of a sample of `pcm16`.
const SAMPLE_BYTES: u64 = 2;

/// Bytes before the samples of a usual `wav`, and where its bytes per second are.
const WAV_HEAD: usize = 44;
const WAV_RATE: std::ops::Range<usize> = 28..32;

#[derive(Debug, Default)]
pub(crate) struct UsageCounter(Mutex<Unwritten>);

#[derive(Debug, Default)]
struct Unwritten {
    counts: BTreeMap<Tenant, UsageCounts>,
    /// The number of the last batch.
    sequence: u64,
    /// The batch that the store has not confirmed.
    pending: Option<UsageBatch>,
}

impl<S: Store, T: Timer> Engine<S, T> {
    /// Counts a job whose end is written.
    pub(crate) fn count_usage(
        &self,
        request: &JobRequest,
        state: JobState,
        result: Option<&ResultJson>,
    ) {
        let mut counts = UsageCounts::default();
        match state {
            JobState::Done => counts = volume(request, result),
            JobState::Cancelled => counts.cancelled = 1,
            _ => counts.failed = 1,
        }
        self.usage_counter.0.lock().counts.entry(request.spec.tenant).or_default().add(counts);
    }

    /// Writes what was counted.
    pub(crate) async fn write_usage(&self) -> lingua_store::Result<()> {
        while let Some(batch) = self.next_usage_batch() {
            self.store.add_usage(batch).await?;
            self.usage_counter.0.lock().pending = None;
        }
        Ok(())
    }

    fn next_usage_batch(&self) -> Option<UsageBatch> {
        let mut unwritten = self.usage_counter.0.lock();
        if unwritten.pending.is_none() && !unwritten.counts.is_empty() {
            let mut counts = vec![];
            while counts.len() < USAGE_TENANTS_MAX
                && let Some(next) = unwritten.counts.pop_first()
            {
                counts.push(next);
            }
            unwritten.sequence += 1;
            let (incarnation, sequence) = (self.incarnation, unwritten.sequence);
            unwritten.pending = Some(UsageBatch { incarnation, sequence, counts });
        }
        unwritten.pending.clone()
    }

    /// What was counted, by day, then by tenant. The last seconds may be missing.
    pub async fn usage(&self, tenant: Option<Tenant>) -> Result<Vec<UsageRecord>, SubmitError> {
        Ok(self.store.usage(tenant).await?)
    }
}

/// What a result says, as far as it is counted.
#[derive(Default, Deserialize)]
struct CountedResult<'a> {
    text_asr: Option<String>,
    text_translated: Option<String>,
    #[serde(borrow)]
    tts_audio: Option<CountedAudio<'a>>,
}

#[derive(Deserialize)]
struct CountedAudio<'a> {
    format: Option<String>,
    sample_rate: Option<u32>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl CountedAudio<'_> {
    /// Playing time in milliseconds; 0 if the format does not tell.
    fn ms(&self) -> u64 {
        let data = self.data.map_or("", RawValue::get).trim_matches('"').trim_end_matches('=');
        match (self.format.as_deref(), self.sample_rate) {
            (Some("pcm16"), Some(rate)) => pcm_ms(data.len() as u64 * 3 / 4, rate),
            _ => 0,
        }
    }
}

fn pcm_ms(bytes: u64, rate: u32) -> u64 {
    bytes * 1000 / (SAMPLE_BYTES * u64::from(rate.max(1)))
}

/// What a job that is done counts.
fn volume(request: &JobRequest, result: Option<&ResultJson>) -> UsageCounts {
    let json = result.map_or("{}", ResultJson::as_str);
    // A result that is only a string is the translation.
    let counted =
        serde_json::from_str::<CountedResult<'_>>(json).unwrap_or_else(|_| CountedResult {
            text_translated: serde_json::from_str(json).ok(),
            ..CountedResult::default()
        });
    let chars = |text: &str| text.chars().count() as u64;
    let recognised = counted.text_asr.as_deref().map_or(0, chars);
    UsageCounts {
        done: 1,
        audio_in_ms: audio_in_ms(request),
        audio_out_ms: counted.tts_audio.map_or(0, |audio| audio.ms()),
        chars_source: match &request.spec.payload {
            Payload::Text(text) => chars(text),
            _ => recognised,
        },
        chars_translated: counted.text_translated.as_deref().map_or(0, chars),
        ..UsageCounts::default()
    }
}

/// Playing time of the audio that was sent; 0 if it is stored elsewhere or in a format that does
/// not tell.
fn audio_in_ms(request: &JobRequest) -> u64 {
    if let Some(speech) = &request.speech {
        return match &*speech.format {
            "pcm16" => pcm_ms(speech.len() as u64, speech.sample_rate),
            _ => opus_ms(&speech.to_bytes()),
        };
    }
    match &request.spec.payload {
        Payload::Audio { format, sample_rate: Some(rate), data } if **format == *"pcm16" => {
            pcm_ms(data.len() as u64, *rate)
        }
        Payload::Audio { format, data, .. } if **format == *"wav" => wav_ms(data),
        _ => 0,
    }
}

pub(crate) fn wav_ms(data: &[u8]) -> u64 {
    let rate = data.get(WAV_RATE).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let samples = data.len().saturating_sub(WAV_HEAD) as u64;
    rate.map_or(0, |rate| samples * 1000 / u64::from(rate.max(1)))
}

/// Packets, each after its length in two bytes.
pub(crate) fn opus_ms(mut packets: &[u8]) -> u64 {
    let mut us = 0;
    while let Some((length, rest)) = packets.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
        let (packet, rest) = rest.split_at(length);
        us += AudioEncoding::Opus.measure(packet).map_or(0, |measure| measure.us);
        packets = rest;
    }
    us / 1000
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lingua_core::job::JobSpec;
    use lingua_core::{JobId, LangPair};

    use super::*;
    use crate::speech::Speech;

    fn request(payload: Payload) -> JobRequest {
        let pair: LangPair = "zh:en".parse().unwrap();
        JobRequest::new(JobId::new(1), JobSpec::new(pair, payload))
    }

    fn audio(format: &str, rate: Option<u32>, data: Vec<u8>) -> Payload {
        Payload::Audio { format: format.into(), sample_rate: rate, data: data.into() }
    }

    #[test]
    fn characters_and_seconds_are_those_of_the_texts_and_the_audio() {
        // 24,000 bytes at 8 kHz are 1.5 s; 32,000 bytes in base64 at 16 kHz are 1 s.
        let data = "A".repeat(42_666) + "w==";
        let json = format!(
            r#"{{"text_asr": "你好 👋", "text_translated": "hello\u00e9", "tts_audio":
                {{"format": "pcm16", "sample_rate": 16000, "data": "{data}"}}}}"#
        );
        let counts = volume(
            &request(audio("pcm16", Some(8_000), vec![0; 24_000])),
            Some(&ResultJson::from(json)),
        );
        assert_eq!((counts.done, counts.audio_in_ms, counts.audio_out_ms), (1, 1_500, 1_000));
        assert_eq!((counts.chars_source, counts.chars_translated), (4, 6));
        let text = volume(
            &request(Payload::Text("four".into())),
            Some(&ResultJson::from("\"vier!\"".to_owned())),
        );
        assert_eq!((text.chars_source, text.chars_translated, text.audio_in_ms), (4, 5, 0));
    }

    #[test]
    fn formats_that_tell_their_length_are_counted() {
        let mut wav = vec![0; 44 + 16_000];
        wav[28..32].copy_from_slice(&32_000_u32.to_le_bytes());
        assert_eq!(audio_in_ms(&request(audio("wav", None, wav))), 500);
        assert_eq!(audio_in_ms(&request(audio("wav", None, vec![1, 2]))), 0);
        assert_eq!(audio_in_ms(&request(audio("mp3", None, vec![1; 99]))), 0);
        let mut spoken = request(Payload::Absent);
        let speech = Speech::new("opus_packets".into(), 0);
        // Two packets of 20 ms.
        speech.push([vec![0, 3, 8, 1, 2].into(), vec![0, 2, 8, 1].into()]);
        spoken.speech = Some(Arc::new(speech));
        assert_eq!(audio_in_ms(&spoken), 40);
    }
}
