//! Turns become segments, and each segment a job.
//!
//! Start at [`Segmenter::audio`]. A segment opens with the first sound of a turn and ends by the end of the turn, by
//! a pause, by silence that a detector found, or by its length; then the rest of the turn goes on as the next
//! segment. A turn that the client opened ([`Segmenter::turn_start`]) outlives pauses; any other ends with one.
//!
//! Invariant: nothing that is silent opens a segment; segments are numbered without gaps in the order spoken.

use std::fmt;

use super::sound::Measure;

/// Who speaks in a conversation of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Speaker {
    /// The first.
    A,
    /// The second.
    B,
}

/// Names a segment within its session; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Which turn.
    pub turn: u32,
    /// Which part of it.
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
    /// After so long without a frame.
    pub pause_ms: u64,
    /// After so much audio.
    pub segment_max_ms: u64,
    /// After so many bytes.
    pub segment_bytes_max: usize,
    /// After so much silence in the audio; never if there is none.
    pub silence_ms: Option<u64>,
}

/// A segment that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Which.
    pub id: SegmentId,
    /// Who speaks, if the client said so.
    pub speaker: Option<Speaker>,
}

/// What becomes of a frame, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heard {
    /// This segment ended before the frame.
    pub ended_before: Option<SegmentId>,
    /// This segment begins with it.
    pub begins: Option<Cut>,
    /// The frame belongs to the segment; else it is silence before one.
    pub is_kept: bool,
    /// This segment ends with it.
    pub ends: Option<SegmentId>,
}

/// Cuts what is said into segments.
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
    /// The client opened it, and will end it.
    is_announced: bool,
    segments: u32,
    open: Option<Open>,
    heard_ms: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Open {
    us: u64,
    bytes: usize,
    silent_us: u64,
}

impl Segmenter {
    /// For a session that has had so many turns.
    pub fn new(rules: SegmentRules, turns: u32) -> Self {
        Self { rules, turns, turn: None }
    }

    /// How many turns there were.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// There were so many turns more that are not known here.
    pub fn skip_turns(&mut self, turns: u32) {
        self.turns = self.turns.saturating_add(turns);
    }

    /// A frame of audio.
    pub fn audio(&mut self, frame: Measure, now_ms: u64) -> Heard {
        let ended_before = self.tick(now_ms);
        let mut heard = Heard { ended_before, ..Heard::default() };
        if self.turn.is_none() {
            if !frame.speech {
                return heard;
            }
            self.begin(None, false, now_ms);
        }
        let rules = self.rules;
        let Some(turn) = &mut self.turn else { return heard };
        turn.heard_ms = now_ms;
        if turn.open.is_none() {
            if !frame.speech {
                return heard;
            }
            turn.segments += 1;
            turn.open = Some(Open::default());
            let id = SegmentId { turn: turn.number, segment: turn.segments };
            heard.begins = Some(Cut { id, speaker: turn.speaker });
        }
        let Some(open) = &mut turn.open else { return heard };
        heard.is_kept = true;
        open.us += frame.us;
        open.bytes += frame.bytes;
        open.silent_us = if frame.speech { 0 } else { open.silent_us + frame.us };
        let is_full =
            open.us >= rules.segment_max_ms * 1000 || open.bytes >= rules.segment_bytes_max;
        let is_over = rules.silence_ms.is_some_and(|ms| open.silent_us >= ms * 1000);
        if is_full || is_over {
            heard.ends = turn.close();
            if is_over && !turn.is_announced {
                self.turn = None;
            }
        }
        heard
    }

    /// When [`tick`](Self::tick) has something to do, unless another frame comes.
    pub fn due_ms(&self) -> Option<u64> {
        let turn = self.turn.as_ref()?;
        let waits = turn.open.is_some() || !turn.is_announced;
        waits.then(|| turn.heard_ms.saturating_add(self.rules.pause_ms))
    }

    /// Time has passed: a pause ends a segment.
    pub fn tick(&mut self, now_ms: u64) -> Option<SegmentId> {
        if self.due_ms().is_none_or(|due_ms| now_ms < due_ms) {
            return None;
        }
        let turn = self.turn.as_mut()?;
        let ended = turn.close();
        if !turn.is_announced {
            self.turn = None;
        }
        ended
    }

    /// The client opens a turn; gives the segment of the turn before that ends with it.
    pub fn turn_start(&mut self, speaker: Option<Speaker>, now_ms: u64) -> Option<SegmentId> {
        let ended = self.turn_end();
        self.begin(speaker, true, now_ms);
        ended
    }

    /// The client ends its turn; gives the segment that ends with it.
    pub fn turn_end(&mut self) -> Option<SegmentId> {
        self.turn.take()?.close()
    }

    /// The client writes instead of speaking: a turn of one segment. Gives the segment that it ends, too.
    pub fn text(&mut self, speaker: Option<Speaker>) -> (Option<SegmentId>, Cut) {
        let said_by = self.turn.as_ref().and_then(|turn| turn.speaker);
        let ended = self.turn_end();
        self.turns += 1;
        let id = SegmentId { turn: self.turns, segment: 1 };
        (ended, Cut { id, speaker: speaker.or(said_by) })
    }

    fn begin(&mut self, speaker: Option<Speaker>, is_announced: bool, now_ms: u64) {
        self.turns += 1;
        self.turn = Some(Turn {
            number: self.turns,
            speaker,
            is_announced,
            segments: 0,
            open: None,
            heard_ms: now_ms,
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

    fn frame(speech: bool) -> Measure {
        Measure { us: 20_000, bytes: 640, speech }
    }

    fn id(turn: u32, segment: u32) -> Option<SegmentId> {
        Some(SegmentId { turn, segment })
    }

    #[test]
    fn a_pause_ends_a_turn_that_nobody_announced() {
        let mut s = Segmenter::new(RULES, 0);
        assert_eq!(s.audio(frame(true), 0).begins.map(|cut| cut.id), id(1, 1));
        assert!(s.audio(frame(false), 20).is_kept, "what is quiet in between belongs to it");
        assert_eq!(s.due_ms(), Some(820));
        assert_eq!(s.tick(819), None);
        assert_eq!(s.tick(820), id(1, 1));
        assert_eq!((s.tick(9_000), s.due_ms()), (None, None));
        let next = s.audio(frame(true), 20_000);
        assert_eq!(next.begins.map(|cut| cut.id), id(2, 1), "another turn");
    }

    #[test]
    fn a_pause_ends_a_segment_but_not_an_announced_turn() {
        let mut s = Segmenter::new(RULES, 0);
        assert_eq!(s.turn_start(Some(Speaker::B), 0), None);
        s.audio(frame(true), 0);
        let late = s.audio(frame(true), 5_000);
        assert_eq!(late.ended_before, id(1, 1));
        let begins = late.begins.unwrap();
        assert_eq!((Some(begins.id), begins.speaker), (id(1, 2), Some(Speaker::B)));
        assert_eq!((s.turn_end(), s.turn_end()), (id(1, 2), None));
    }

    #[test]
    fn a_long_turn_goes_on_as_further_segments() {
        let mut s = Segmenter::new(RULES, 0);
        let mut ended = vec![];
        for n in 0..1_250 {
            ended.extend(s.audio(frame(true), n * 20).ends);
        }
        assert_eq!(ended.iter().map(|&e| Some(e)).collect::<Vec<_>>(), [id(1, 1), id(1, 2)]);
        assert_eq!(s.turn_end(), id(1, 3));
    }

    #[test]
    fn silence_opens_nothing_and_empty_turns_leave_nothing() {
        let mut s = Segmenter::new(RULES, 0);
        for n in 0..30_000 {
            assert_eq!(s.audio(frame(false), n * 20), Heard::default());
        }
        assert_eq!(s.turn_start(None, 0), None);
        assert_eq!(s.audio(frame(false), 0), Heard::default());
        assert_eq!((s.turn_end(), s.turn_end()), (None, None));
    }

    #[test]
    fn a_detector_ends_segments_by_silence() {
        let mut s = Segmenter::new(SegmentRules { silence_ms: Some(400), ..RULES }, 0);
        s.audio(frame(true), 0);
        let ended: Vec<_> =
            (1..=30).filter_map(|n| s.audio(frame(false), n * 20).ends.map(|_| n)).collect();
        assert_eq!(ended, [20], "after 400 ms, and nothing more");
        assert_eq!(s.audio(frame(true), 700).begins.map(|cut| cut.id), id(2, 1));
    }

    #[test]
    fn text_is_a_turn_of_its_own() {
        let mut s = Segmenter::new(RULES, 4);
        s.audio(frame(true), 0);
        let (ended, cut) = s.text(Some(Speaker::A));
        assert_eq!((ended, Some(cut.id), cut.speaker), (id(5, 1), id(6, 1), Some(Speaker::A)));
    }

    proptest! {
        /// Whatever is done, segments begin and end in turn, one at a time, with rising names, and hold
        /// everything that was said and no more than they may.
        #[test]
        fn segments_never_overlap(steps in prop::collection::vec((0..12_u8, any::<bool>(), 0..1_500_u64), 0..400)) {
            let rules = SegmentRules { segment_max_ms: 200, silence_ms: Some(60), ..RULES };
            let mut s = Segmenter::new(rules, 0);
            let (mut now_ms, mut open, mut last, mut us) = (0, None, None, 0);
            for (what, speech, pass_ms) in steps {
                now_ms += if what == 0 { pass_ms } else { 5 };
                let end = |open: &mut Option<SegmentId>, ended: Option<SegmentId>| {
                    if ended.is_some() {
                        assert_eq!(std::mem::take(open), ended);
                    }
                };
                match what {
                    0 => end(&mut open, s.tick(now_ms)),
                    1 => end(&mut open, s.turn_end()),
                    2 => end(&mut open, s.turn_start(None, now_ms)),
                    3 => {
                        let (ended, cut) = s.text(None);
                        end(&mut open, ended);
                        prop_assert!(open.is_none() && last < Some(cut.id));
                        last = Some(cut.id);
                    }
                    _ => {
                        let heard = s.audio(frame(speech), now_ms);
                        end(&mut open, heard.ended_before);
                        if let Some(cut) = heard.begins {
                            prop_assert!(speech && open.is_none() && last < Some(cut.id));
                            (open, last, us) = (Some(cut.id), Some(cut.id), 0);
                        }
                        us += 20_000;
                        prop_assert!(us <= 200_000 || open.is_none());
                        prop_assert_eq!(heard.is_kept, open.is_some());
                        prop_assert!(heard.is_kept || !speech, "what is said is kept");
                        end(&mut open, heard.ends);
                    }
                }
            }
        }
    }
}
