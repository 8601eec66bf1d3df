//! Frames of audio: how long they are, and whether anything is said in them.
//!
//! Start at [`Format::measure`]. Nothing is decoded: the length of an Opus packet is in its first bytes (RFC 6716,
//! section 3.1), and one of at most two bytes is what an encoder sends while nobody speaks.

/// Sample rates of raw audio that a session takes.
pub const PCM_RATES: [u32; 4] = [8_000, 16_000, 24_000, 48_000];

/// Samples quieter than this are silence: 54 dB below the loudest.
const SILENT_PEAK: u16 = 64;

/// Longest Opus packet, in microseconds.
const OPUS_US_MAX: u64 = 120_000;

/// Opus packets of at most so many bytes say nothing.
const OPUS_SILENT_BYTES: usize = 2;

/// How audio is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Samples of 16 bits, little-endian, one channel.
    Pcm16 {
        /// Samples a second, one of [`PCM_RATES`].
        sample_rate: u32,
    },
    /// One Opus packet to a frame.
    Opus,
}

/// What a frame is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measure {
    /// How long it sounds, in microseconds.
    pub us: u64,
    /// Its size.
    pub bytes: usize,
    /// Whether anything is to be heard.
    pub speech: bool,
}

/// Why a frame is no audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Nothing in it.
    #[error("the frame is empty; send at least one sample")]
    Empty,
    /// Half a sample.
    #[error("the frame has {0} bytes; samples of 16 bits come in pairs of bytes")]
    OddBytes(usize),
    /// Not an Opus packet.
    #[error("the frame is no Opus packet; send one packet to a frame, without a container")]
    NotOpus,
}

impl FrameError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "INVALID_REQUEST"
    }
}

impl Format {
    /// How long a frame is, and whether anything is said in it.
    pub fn measure(self, frame: &[u8]) -> Result<Measure, FrameError> {
        if frame.is_empty() {
            return Err(FrameError::Empty);
        }
        let (us, speech) = match self {
            Self::Pcm16 { sample_rate } => {
                let (samples, rest) = frame.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(FrameError::OddBytes(frame.len()));
                }
                let is_loud = |&s: &[u8; 2]| i16::from_le_bytes(s).unsigned_abs() >= SILENT_PEAK;
                let us = samples.len() as u64 * 1_000_000 / u64::from(sample_rate.max(1));
                (us, samples.iter().any(is_loud))
            }
            Self::Opus => (opus_us(frame)?, frame.len() > OPUS_SILENT_BYTES),
        };
        Ok(Measure { us, bytes: frame.len(), speech })
    }
}

/// How long an Opus packet sounds.
fn opus_us(packet: &[u8]) -> Result<u64, FrameError> {
    let toc = packet[0];
    let one: u64 = match toc >> 3 {
        config @ 0..12 => [10_000, 20_000, 40_000, 60_000][usize::from(config % 4)],
        config @ 12..16 => [10_000, 20_000][usize::from(config % 2)],
        config => [2_500, 5_000, 10_000, 20_000][usize::from(config % 4)],
    };
    let count = match (toc & 3, packet.get(1)) {
        (0, _) => 1,
        (1 | 2, _) => 2,
        (_, Some(frames)) => u64::from(frames & 63),
        (_, None) => 0,
    };
    let us = one * count;
    match us {
        1..=OPUS_US_MAX => Ok(us),
        _ => Err(FrameError::NotOpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_audio_is_as_long_as_its_samples() {
        for (sample_rate, bytes) in [(8_000, 320), (16_000, 640), (24_000, 960), (48_000, 1_920)] {
            let silent = Format::Pcm16 { sample_rate }.measure(&vec![0; bytes]).unwrap();
            assert_eq!((silent.us, silent.bytes, silent.speech), (20_000, bytes, false));
            let mut said = vec![0; bytes];
            said[bytes - 1] = 0x40;
            assert!(Format::Pcm16 { sample_rate }.measure(&said).unwrap().speech);
        }
        let format = Format::Pcm16 { sample_rate: 16_000 };
        assert_eq!(format.measure(&[]), Err(FrameError::Empty));
        assert_eq!(format.measure(&[1, 2, 3]), Err(FrameError::OddBytes(3)));
        // The most negative sample has no positive counterpart.
        assert!(format.measure(&i16::MIN.to_le_bytes()).unwrap().speech);
    }

    #[test]
    fn an_opus_packet_says_how_long_it_is() {
        let us = |packet: &[u8]| Format::Opus.measure(packet).map(|measure| measure.us);
        assert_eq!(us(&[0b0000_1000, 1, 2]), Ok(20_000), "one frame of 20 ms");
        assert_eq!(us(&[0b1110_0001, 1, 2]), Ok(5_000), "two frames of 2.5 ms");
        assert_eq!(us(&[0b0001_1011, 2, 2]), Ok(120_000), "two frames of 60 ms");
        assert_eq!(us(&[0b0001_1011, 3, 2]), Err(FrameError::NotOpus), "longer than any may be");
        assert_eq!(us(&[0b0001_1011]), Err(FrameError::NotOpus));
        assert!(!Format::Opus.measure(&[0b0000_1000]).unwrap().speech, "a packet of silence");
    }
}
