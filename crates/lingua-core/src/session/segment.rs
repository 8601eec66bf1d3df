//! Cuts turns into segments; each segment becomes a job.
//!
//! Start at [`Segmenter::audio`]. The first speech of a turn opens a segment. The segment ends with
//! the turn, after a pause, after silence that a detector found, or at its maximum length; the rest
//! of the turn continues as the next segment. A turn that the client opened
//! ([`Segmenter::turn_start`]) continues after a pause; any other turn ends with the pause.
//!
//! Invariant: silence opens no segment; segments are numbered without gaps in the order spoken.

use std::fmt;

use super::encoding::FrameMeasure;

/// Who speaks in a session of two speakers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Speaker {
    /// The speaker whose language is `lang_a`.
    A,
    /// The speaker whose language is `lang_b`.
    B,
}

/// Identifies a segment within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Counts from 1 within the session.
    pub turn: u32,
    /// Counts from 1 within the turn.
    pub segment: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.segment)
    }
}

/// When a segment ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRules {
    /// After this time without a frame.
    pub pause_ms: u64,
    /// After this much audio.
    pub segment_max_ms: u64,
    /// After this many bytes.
    pub segment_bytes_max: usize,
    /// After this much silence in the audio; `None` switches the rule off.
    pub silence_ms: Option<u64>,
}

/// A segment that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentStart {
    /// Its place in the session.
    pub id: SegmentId,
    /// `None` if the client did not name the speaker.
    pub speaker: Option<Speaker>,
}

/// What a frame does to the segments, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameOutcome {
    /// The segment that ended before the frame, because of a pause.
    pub ended_before: Option<SegmentId>,
    /// The segment that begins with the frame.
    pub begins: Option<SegmentStart>,
    /// The frame belongs to the open segment; otherwise it is silence before one.
    pub is_kept: bool,
    /// The segment that ends with the frame.
    pub ends: Option<SegmentId>,
}

/// Cuts the audio of a session into segments.
#[derive(Debug, Clone)]
pub struct Segmenter {
    rules: SegmentRules,
    turns: u32,
    turn: Option<Turn>,
}

#[derive(Debug, Clone)]
struct Turn {
    number: u32,
    speaker: Option<Speaker>,
    /// The client opened it with `turn_start` and will end it.
    is_explicit: bool,
    segments: u32,
    open: Option<OpenSegment>,
    /// Sound of the turn, silence included.
    us: u64,
    last_frame_ms: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct OpenSegment {
    us: u64,
    bytes: usize,
    silent_us: u64,
}

impl Segmenter {
    /// For a session that has had this many turns.
    pub fn new(rules: SegmentRules, turns: u32) -> Self {
        Self { rules, turns, turn: None }
    }

    /// Number of turns so far.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Leaves out turn numbers that the client may have seen from another instance.
    pub fn skip_turns(&mut self, turns: u32) {
        self.turns = self.turns.saturating_add(turns);
    }

    /// How much sound of the open turn has arrived, in milliseconds; 0 if no turn is open.
    pub fn received_ms(&self) -> u64 {
        self.turn.as_ref().map_or(0, |turn| turn.us / 1000)
    }

    /// Whether a turn is open.
    pub fn is_turn_open(&self) -> bool {
        self.turn.is_some()
    }

    /// Takes a frame of audio.
    pub fn audio(&mut self, frame: FrameMeasure, now_ms: u64) -> FrameOutcome {
        let mut outcome =
            FrameOutcome { ended_before: self.tick(now_ms), ..FrameOutcome::default() };
        if self.turn.is_none() {
            if !frame.is_speech {
                return outcome;
            }
            self.begin(None, false, now_ms);
        }
        let rules = self.rules;
        let Some(turn) = &mut self.turn else { return outcome };
        turn.last_frame_ms = now_ms;
        turn.us += frame.us;
        if turn.open.is_none() {
            if !frame.is_speech {
                return outcome;
            }
            turn.segments += 1;
            turn.open = Some(OpenSegment::default());
            let id = SegmentId { turn: turn.number, segment: turn.segments };
            outcome.begins = Some(SegmentStart { id, speaker: turn.speaker });
        }
        let Some(open) = &mut turn.open else { return outcome };
        outcome.is_kept = true;
        open.us += frame.us;
        open.bytes += frame.bytes;
        open.silent_us = if frame.is_speech { 0 } else { open.silent_us + frame.us };
        let is_full =
            open.us >= rules.segment_max_ms * 1000 || open.bytes >= rules.segment_bytes_max;
        let is_silent = rules.silence_ms.is_some_and(|ms| open.silent_us >= ms * 1000);
        if is_full || is_silent {
            outcome.ends = turn.close();
            if is_silent && !turn.is_explicit {
                self.turn = None;
            }
        }
        outcome
    }

    /// When to call [`tick`](Self::tick), unless another frame arrives.
    pub fn due_ms(&self) -> Option<u64> {
        let turn = self.turn.as_ref()?;
        let waits = turn.open.is_some() || !turn.is_explicit;
        waits.then(|| turn.last_frame_ms.saturating_add(self.rules.pause_ms))
    }

    /// Ends the open segment if the pause is long enough.
    pub fn tick(&mut self, now_ms: u64) -> Option<SegmentId> {
        if self.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return None;
        }
        let turn = self.turn.as_mut()?;
        let ended = turn.close();
        if !turn.is_explicit {
            self.turn = None;
        }
        ended
    }

    /// The client opens a turn; returns the segment of the previous turn that ends with it.
    pub fn turn_start(&mut self, speaker: Option<Speaker>, now_ms: u64) -> Option<SegmentId> {
        let ended = self.turn_end();
        self.begin(speaker, true, now_ms);
        ended
    }

    /// The client ends its turn; returns the segment that ends with it.
    pub fn turn_end(&mut self) -> Option<SegmentId> {
        self.turn.take()?.close()
    }

    /// The client sends text, a turn of one segment. Also returns the segment that it ends.
    /// Without `speaker` it is by the speaker of the open turn.
    pub fn text(&mut self, speaker: Option<Speaker>) -> (Option<SegmentId>, SegmentStart) {
        let turn_speaker = self.turn.as_ref().and_then(|turn| turn.speaker);
        let ended = self.turn_end();
        self.turns += 1;
        let id = SegmentId { turn: self.turns, segment: 1 };
        (ended, SegmentStart { id, speaker: speaker.or(turn_speaker) })
    }

    fn begin(&mut self, speaker: Option<Speaker>, is_explicit: bool, now_ms: u64) {
        self.turns += 1;
        self.turn = Some(Turn {
            number: self.turns,
            speaker,
            is_explicit,
            segments: 0,
            open: None,
            us: 0,
            last_frame_ms: now_ms,
        });
    }
}

impl Turn {
    fn close(&mut self) -> Option<SegmentId> {
        self.open.take()?;
        Some(SegmentId { turn: self.number, segment: self.segments })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: SegmentRules = SegmentRules {
        pause_ms: 800,
        segment_max_ms: 10_000,
        segment_bytes_max: 1 << 20,
        silence_ms: None,
    };

    fn frame(is_speech: bool) -> FrameMeasure {
        FrameMeasure { us: 20_000, bytes: 640, is_speech }
    }

    fn id(turn: u32, segment: u32) -> Option<SegmentId> {
        Some(SegmentId { turn, segment })
    }

    #[test]
    fn a_pause_ends_a_turn_that_the_client_did_not_open() {
        let mut s = Segmenter::new(RULES, 0);
        assert_eq!(s.audio(frame(true), 0).begins.map(|start| start.id), id(1, 1));
        assert!(s.audio(frame(false), 20).is_kept, "silence within a segment belongs to it");
        assert_eq!(s.due_ms(), Some(820));
        assert_eq!(s.tick(819), None);
        assert_eq!(s.tick(820), id(1, 1));
        assert_eq!((s.tick(9_000), s.due_ms()), (None, None));
        let next = s.audio(frame(true), 20_000);
        assert_eq!(next.begins.map(|start| start.id), id(2, 1), "a new turn");
    }

    #[test]
    fn a_pause_ends_a_segment_but_not_a_turn_that_the_client_opened() {
        let mut s = Segmenter::new(RULES, 0);
        assert_eq!(s.turn_start(Some(Speaker::B), 0), None);
        s.audio(frame(true), 0);
        let late = s.audio(frame(true), 5_000);
        assert_eq!(late.ended_before, id(1, 1));
        let begins = late.begins.unwrap();
        assert_eq!((Some(begins.id), begins.speaker), (id(1, 2), Some(Speaker::B)));
        assert_eq!((s.is_turn_open(), s.received_ms()), (true, 40), "the whole turn");
        assert_eq!((s.turn_end(), s.turn_end()), (id(1, 2), None));
        assert_eq!((s.is_turn_open(), s.received_ms()), (false, 0));
    }

    #[test]
    fn a_long_turn_is_cut_into_segments() {
        let mut s = Segmenter::new(RULES, 0);
        let mut ended = vec![];
        for n in 0..1_250 {
            ended.extend(s.audio(frame(true), n * 20).ends);
        }
        assert_eq!(ended.iter().map(|&e| Some(e)).collect::<Vec<_>>(), [id(1, 1), id(1, 2)]);
        assert_eq!(s.turn_end(), id(1, 3));
    }

    #[test]
    fn silence_and_empty_turns_make_no_segments() {
        let mut s = Segmenter::new(RULES, 0);
        for n in 0..30_000 {
            assert_eq!(s.audio(frame(false), n * 20), FrameOutcome::default());
        }
        assert_eq!(s.turn_start(None, 0), None);
        assert_eq!(s.audio(frame(false), 0), FrameOutcome::default());
        assert_eq!((s.turn_end(), s.turn_end()), (None, None));
    }

    #[test]
    fn silence_ends_a_segment_if_the_rule_is_on() {
        let mut s = Segmenter::new(SegmentRules { silence_ms: Some(400), ..RULES }, 0);
        s.audio(frame(true), 0);
        let ended: Vec<_> =
            (1..=30).filter_map(|n| s.audio(frame(false), n * 20).ends.map(|_| n)).collect();
        assert_eq!(ended, [20], "after 400 ms, and only once");
        assert_eq!(s.audio(frame(true), 700).begins.map(|start| start.id), id(2, 1));
    }

    #[test]
    fn text_ends_the_open_segment_and_is_a_turn_of_its_own() {
        let mut s = Segmenter::new(RULES, 4);
        s.audio(frame(true), 0);
        let (ended, start) = s.text(Some(Speaker::A));
        assert_eq!((ended, Some(start.id), start.speaker), (id(5, 1), id(6, 1), Some(Speaker::A)));
    }

    proptest! {
        /// Whatever the client does, segments begin and end one at a time, with rising ids, and
        /// hold all speech and no more than `segment_max_ms`.
        #[test]
        fn segments_never_overlap(
            steps in prop::collection::vec((0..12_u8, any::<bool>(), 0..1_500_u64), 0..400)
        ) {
            let rules = SegmentRules { segment_max_ms: 200, silence_ms: Some(60), ..RULES };
            let mut s = Segmenter::new(rules, 0);
            let (mut now_ms, mut open, mut last, mut us) = (0, None, None, 0);
            for (step, is_speech, pass_ms) in steps {
                now_ms += if step == 0 { pass_ms } else { 5 };
                let end = |open: &mut Option<SegmentId>, ended: Option<SegmentId>| {
                    if ended.is_some() {
                        assert_eq!(std::mem::take(open), ended);
                    }
                };
                match step {
                    0 => end(&mut open, s.tick(now_ms)),
                    1 => end(&mut open, s.turn_end()),
                    2 => end(&mut open, s.turn_start(None, now_ms)),
                    3 => {
                        let (ended, start) = s.text(None);
                        end(&mut open, ended);
                        prop_assert!(open.is_none() && last < Some(start.id));
                        last = Some(start.id);
                    }
                    _ => {
                        let outcome = s.audio(frame(is_speech), now_ms);
                        end(&mut open, outcome.ended_before);
                        if let Some(start) = outcome.begins {
                            prop_assert!(is_speech && open.is_none() && last < Some(start.id));
                            (open, last, us) = (Some(start.id), Some(start.id), 0);
                        }
                        us += 20_000;
                        prop_assert!(us <= 200_000 || open.is_none());
                        prop_assert_eq!(outcome.is_kept, open.is_some());
                        prop_assert!(outcome.is_kept || !is_speech, "speech is kept");
                        end(&mut open, outcome.ends);
                    }
                }
            }
        }
    }
}
