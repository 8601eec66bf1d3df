//! WAV files: the input of `lingua say`, and the translated speech.
//!
//! Start at [`WavInput::read`] and [`write()`].

use std::path::Path;

use anyhow::{Context, bail};
use hound::{SampleFormat, WavReader, WavSpec, WavWriter};
use lingua_core::session::PCM_RATES;
use lingua_wire::audio::Audio;

/// The audio to send.
#[derive(Debug)]
pub(super) struct WavInput {
    pub(super) sample_rate: u32,
    samples: Vec<i16>,
}

impl WavInput {
    /// Reads a file and mixes its channels.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let reader = WavReader::open(path)
            .with_context(|| format!("cannot read {shown}; give a WAV file"))?;
        let spec = reader.spec();
        let is_known = PCM_RATES.contains(&spec.sample_rate)
            && (spec.bits_per_sample, spec.sample_format) == (16, SampleFormat::Int);
        if !is_known {
            let WavSpec { sample_rate, bits_per_sample, .. } = spec;
            bail!(
                "{shown} has {bits_per_sample}-bit samples at {sample_rate} Hz; convert it, for \
                 example with 'ffmpeg -i {shown} -ar 16000 -ac 1 -sample_fmt s16 converted.wav'"
            );
        }
        let all: Result<Vec<i16>, _> = reader.into_samples::<i16>().collect();
        let all = all.with_context(|| format!("{shown} is damaged"))?;
        let channels = usize::from(spec.channels.max(1));
        let mean = |of: &[i16]| {
            let sum: i32 = of.iter().map(|&sample| i32::from(sample)).sum();
            (sum / of.len() as i32) as i16
        };
        let samples = all.chunks(channels).map(mean).collect();
        Ok(Self { sample_rate: spec.sample_rate, samples })
    }

    /// The audio in frames of this many milliseconds.
    pub(super) fn frames(&self, ms: u64) -> impl Iterator<Item = Vec<u8>> {
        let samples = (u64::from(self.sample_rate) * ms / 1000).max(1) as usize;
        self.samples
            .chunks(samples)
            .map(|frame| frame.iter().flat_map(|sample| sample.to_le_bytes()).collect())
    }
}

/// Writes the speech of all results to a file and returns its length in milliseconds.
pub(super) fn write<'a>(
    path: &Path,
    speech: impl Iterator<Item = &'a Audio<'a>>,
) -> anyhow::Result<u64> {
    let (mut sample_rate, mut samples) = (None, vec![]);
    for audio in speech {
        if audio.format != "pcm16" {
            bail!("the speech is {}; only pcm16 can be saved as WAV", audio.format);
        }
        let rate = audio.sample_rate.context("the speech does not say its sample rate")?;
        if *sample_rate.get_or_insert(rate) != rate {
            bail!("results have different sample rates; nothing was saved");
        }
        let bytes = audio.decode("tts_audio")?;
        samples.extend(bytes.as_chunks().0.iter().map(|&pair| i16::from_le_bytes(pair)));
    }
    let Some(sample_rate) = sample_rate else {
        bail!("no result contains speech; do the nodes serve speech synthesis?");
    };
    let spec =
        WavSpec { channels: 1, sample_rate, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut writer = WavWriter::create(path, spec)?;
    for &sample in &samples {
        writer.write_sample(sample)?;
    }
    writer.finalize()?;
    Ok(samples.len() as u64 * 1000 / u64::from(sample_rate.max(1)))
}
