//! How a session's audio is encoded: how long a frame is, and whether it is silent.
//!
//! Start at [`AudioEncoding::measure`]. Nothing is decoded: the first bytes of an Opus packet tell
//! its length (RFC 6716, section 3.1), and encoders send packets of at most two bytes for silence.

/// Sample rates that a session accepts for `pcm16`, in Hz.
pub const PCM_RATES: [u32; 4] = [8_000, 16_000, 24_000, 48_000];

/// Samples below this amplitude are silence: 54 dB below full scale.
const SILENT_PEAK: u16 = 64;

/// Longest Opus packet, in microseconds.
const OPUS_US_MAX: u64 = 120_000;

/// Opus packets of at most this size are silence.
const OPUS_SILENT_BYTES: usize = 2;

/// How audio is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AudioEncoding {
    /// 16-bit little-endian samples, one channel.
    Pcm16 {
        /// In Hz; one of [`PCM_RATES`].
        sample_rate: u32,
    },
    /// One Opus packet per frame.
    Opus,
}

/// The length of an audio frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameMeasure {
    /// Playing time in microseconds.
    pub us: u64,
    /// Bytes of the frame as it was sent.
    pub bytes: usize,
    /// False if the frame is silent.
    pub is_speech: bool,
}

/// Why a frame is not valid audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It has no bytes.
    #[error("the frame is empty; send at least one sample")]
    Empty,
    /// It ends with half a sample.
    #[error("the frame has {0} bytes; pcm16 needs two bytes per sample")]
    OddBytes(usize),
    /// It does not start as an Opus packet does.
    #[error("the frame is not an Opus packet; send one packet per frame, without a container")]
    NotOpus,
}

impl FrameError {
    /// The error code that clients see.
    pub fn code(&self) -> &'static str {
        "INVALID_REQUEST"
    }
}

impl AudioEncoding {
    /// Measures one frame.
    pub fn measure(self, frame: &[u8]) -> Result<FrameMeasure, FrameError> {
        if frame.is_empty() {
            return Err(FrameError::Empty);
        }
        let (us, is_speech) = match self {
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
        Ok(FrameMeasure { us, bytes: frame.len(), is_speech })
    }
}

/// Playing time of an Opus packet.
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
    fn pcm16_is_as_long_as_its_samples() {
        for (sample_rate, bytes) in [(8_000, 320), (16_000, 640), (24_000, 960), (48_000, 1_920)] {
            let silent = AudioEncoding::Pcm16 { sample_rate }.measure(&vec![0; bytes]).unwrap();
            assert_eq!((silent.us, silent.bytes, silent.is_speech), (20_000, bytes, false));
            let mut loud = vec![0; bytes];
            loud[bytes - 1] = 0x40;
            assert!(AudioEncoding::Pcm16 { sample_rate }.measure(&loud).unwrap().is_speech);
        }
        let format = AudioEncoding::Pcm16 { sample_rate: 16_000 };
        assert_eq!(format.measure(&[]), Err(FrameError::Empty));
        assert_eq!(format.measure(&[1, 2, 3]), Err(FrameError::OddBytes(3)));
        // The most negative sample has no positive counterpart.
        assert!(format.measure(&i16::MIN.to_le_bytes()).unwrap().is_speech);
    }

    #[test]
    fn the_header_of_an_opus_packet_gives_its_length() {
        let us = |packet: &[u8]| AudioEncoding::Opus.measure(packet).map(|measure| measure.us);
        assert_eq!(us(&[0b0000_1000, 1, 2]), Ok(20_000), "one frame of 20 ms");
        assert_eq!(us(&[0b1110_0001, 1, 2]), Ok(5_000), "two frames of 2.5 ms");
        assert_eq!(us(&[0b0001_1011, 2, 2]), Ok(120_000), "two frames of 60 ms");
        assert_eq!(
            us(&[0b0001_1011, 3, 2]),
            Err(FrameError::NotOpus),
            "longer than a packet may be"
        );
        assert_eq!(us(&[0b0001_1011]), Err(FrameError::NotOpus));
        assert!(
            !AudioEncoding::Opus.measure(&[0b0000_1000]).unwrap().is_speech,
            "a packet of silence"
        );
    }
}
