//! Audio that follows its job while it is being spoken.
//!
//! Start at [`tag`]: a binary frame of such audio begins with the job and the attempt that it
//! belongs to, because several jobs may be streamed at once. The audio of a job is all its frames
//! in order, without their tags.

use lingua_core::{Attempt, JobId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::As;
use crate::node::JobRef;

/// Bytes before the audio: 16 of the job's number and 4 of the attempt's, both big-endian.
pub const TAG_BYTES: usize = 20;

/// The bytes that a frame of this attempt begins with.
pub fn tag(job: JobRef) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag[..16].copy_from_slice(&job.job_id.number().to_be_bytes());
    tag[16..].copy_from_slice(&job.attempt_id.0.to_be_bytes());
    tag
}

/// The attempt that a frame belongs to, and its audio; `None` if the frame is too short for a tag.
pub fn untag(frame: &[u8]) -> Option<(JobRef, &[u8])> {
    let (tag, audio) = frame.split_first_chunk::<TAG_BYTES>()?;
    let (job, attempt) = tag.split_first_chunk::<16>()?;
    let job_id = JobId::new(u128::from_be_bytes(*job));
    let attempt_id = Attempt(u32::from_be_bytes(attempt.try_into().ok()?));
    Some((JobRef { job_id, attempt_id }, audio))
}

/// The audio of a streamed job is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename = "audio_end")]
#[schemars(rename = "AudioEnd")]
pub struct AudioEnd {
    /// The job.
    #[serde(with = "As::<JobId>")]
    pub job_id: JobId,
    /// The try of the job, from 1.
    #[serde(with = "As::<Attempt>")]
    pub attempt_id: Attempt,
    /// How many bytes the audio has, without tags.
    #[serde(default)]
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_reads_back_and_a_short_frame_has_none() {
        let job = JobRef { job_id: JobId::new(u128::MAX - 7), attempt_id: Attempt(3) };
        let frame = [&tag(job)[..], b"sound"].concat();
        assert_eq!(untag(&frame), Some((job, &b"sound"[..])));
        assert_eq!(untag(&tag(job)), Some((job, &b""[..])));
        assert_eq!(untag(&frame[..TAG_BYTES - 1]), None);
    }
}
