//! The section `[session]`.

use lingua_engine::session::SessionOptions;
use lingua_server::options::SessionSocketOptions;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionConfig {
    /// A segment ends after this time without audio.
    pub(crate) pause_ms: u64,
    /// Longest segment; the turn goes on with the next one.
    pub(crate) segment_max_ms: u64,
    /// Detect voices, unless a session says otherwise: a segment ends after `silence_ms` without a
    /// voice. Only for raw audio.
    pub(crate) vad: bool,
    /// How long a silence ends a segment, with `vad`.
    pub(crate) silence_ms: u64,
    /// A segment without a result this long after its end counts as missing.
    pub(crate) deadline_ms: u64,
    /// How long a session can be resumed after its connection is lost.
    pub(crate) resume_ms: u64,
    /// A session without any message for this long is closed.
    pub(crate) idle_ms: u64,
    /// How many times faster than real time audio may arrive.
    pub(crate) rate_max: u64,
    /// Period over which `rate_max` is measured.
    pub(crate) rate_window_ms: u64,
    /// Longest frame of audio.
    pub(crate) frame_bytes_max: usize,
    /// Most undelivered segments of one session.
    pub(crate) open_segments_max: usize,
    /// Most sessions of one token.
    pub(crate) per_token_max: usize,
    /// Most sessions of this instance.
    pub(crate) sessions_max: usize,
    /// A client that does not read for this long is disconnected.
    pub(crate) write_ms: u64,
    /// Messages and frames that are read from one client in a second.
    pub(crate) messages_per_second: u32,
}

impl SessionConfig {
    /// The settings for the server.
    pub(crate) fn settings(&self) -> SessionSocketOptions {
        let mut rules = SessionOptions {
            deadline_ms: self.deadline_ms,
            resume_ms: self.resume_ms,
            idle_ms: self.idle_ms,
            rate_max: self.rate_max,
            rate_window_ms: self.rate_window_ms,
            open_segments_max: self.open_segments_max,
            per_token_max: self.per_token_max,
            sessions_max: self.sessions_max,
            ..SessionOptions::default()
        };
        rules.silence_ms = self.silence_ms;
        rules.segments.pause_ms = self.pause_ms;
        rules.segments.segment_max_ms = self.segment_max_ms;
        rules.segments.silence_ms = self.vad.then_some(self.silence_ms);
        let Self { frame_bytes_max, write_ms, messages_per_second, .. } = *self;
        SessionSocketOptions { rules, frame_bytes_max, write_ms, messages_per_second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_server() {
        let settings = super::super::Config::default().session.settings();
        assert_eq!(settings, SessionSocketOptions::default());
    }
}
