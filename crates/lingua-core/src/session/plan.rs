//! What a client asked for when it started its session.
//!
//! Start at [`SessionPlan::direction_of`].

use super::encoding::AudioEncoding;
use super::segment::Speaker;
use crate::id::NodeId;
use crate::label::RequiredLabels;
use crate::lang::{Lang, LangPair, Source};

/// Which way a session translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Direction {
    /// Every turn in the same direction.
    OneWay { src: Source, tgt: Lang },
    /// A conversation of two speakers; the words of each are translated for the other.
    TwoWay { a: Lang, b: Lang },
}

impl Direction {
    /// The one or two pairs that the session needs.
    pub fn pairs(self) -> impl Iterator<Item = LangPair> {
        let (there, back) = match self {
            Self::OneWay { src, tgt } => (LangPair { src, tgt }, None),
            Self::TwoWay { a, b } => (LangPair::known(a, b), Some(LangPair::known(b, a))),
        };
        std::iter::once(there).chain(back)
    }
}

/// The direction of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentDirection {
    /// Source and target.
    pub pair: LangPair,
    /// The client did not say who speaks: the node finds out, so it serves both directions.
    pub two_way: bool,
}

/// What a client asked for when it started its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlan {
    /// Which way to translate.
    pub direction: Direction,
    /// Each result must include synthesised speech.
    pub require_tts: bool,
    /// The client wants partial texts before the final one.
    pub partials: bool,
    /// Each job carries the last texts of the session.
    pub context: bool,
    /// Silence ends a turn; `None` means the server's setting.
    pub vad: Option<bool>,
    /// How the client encodes its audio.
    pub audio: AudioEncoding,
    /// The node that each segment should go to.
    pub preferred: Option<NodeId>,
    /// Whether nodes of others may run its jobs; `None` means the tenant's setting.
    pub public: Option<bool>,
    /// Labels that the nodes must have.
    pub labels: RequiredLabels,
}

impl SessionPlan {
    /// A session without any wishes.
    pub fn new(direction: Direction, audio: AudioEncoding) -> Self {
        Self {
            direction,
            require_tts: false,
            partials: false,
            context: false,
            vad: None,
            audio,
            preferred: None,
            public: None,
            labels: RequiredLabels::NONE,
        }
    }

    /// The direction of a segment; `speaker` is `None` if the client did not name one.
    pub fn direction_of(&self, speaker: Option<Speaker>) -> SegmentDirection {
        let one_way = |src, tgt| SegmentDirection { pair: LangPair { src, tgt }, two_way: false };
        match (self.direction, speaker) {
            (Direction::OneWay { src, tgt }, _) => one_way(src, tgt),
            (Direction::TwoWay { a, b }, Some(Speaker::A)) => one_way(Source::Known(a), b),
            (Direction::TwoWay { a, b }, Some(Speaker::B)) => one_way(Source::Known(b), a),
            (Direction::TwoWay { a, b }, None) => {
                SegmentDirection { pair: LangPair { src: Source::Known(a), tgt: b }, two_way: true }
            }
        }
    }
}

impl SegmentDirection {
    /// The languages of a result, given the source language that the node reported, if any.
    pub fn spoken(&self, reported: Option<Lang>) -> (Source, Lang) {
        let LangPair { src, tgt } = self.pair;
        match (src, reported) {
            (Source::Known(_), None) if self.two_way => (Source::Auto, tgt),
            (Source::Known(other), Some(spoken)) if self.two_way && spoken == tgt => {
                (Source::Known(spoken), other)
            }
            (Source::Known(_), Some(spoken)) if self.two_way => (Source::Known(spoken), tgt),
            (Source::Auto, Some(spoken)) => (Source::Known(spoken), tgt),
            _ => (src, tgt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lang(tag: &str) -> Lang {
        tag.parse().unwrap()
    }

    fn plan(direction: Direction) -> SessionPlan {
        SessionPlan::new(direction, AudioEncoding::Opus)
    }

    #[test]
    fn each_speaker_of_two_is_translated_for_the_other() {
        let (zh, en) = (lang("zh"), lang("en"));
        let plan = plan(Direction::TwoWay { a: zh, b: en });
        let pair = |speaker| plan.direction_of(speaker).pair.to_string();
        assert_eq!(
            (pair(Some(Speaker::A)), pair(Some(Speaker::B))),
            ("zh:en".into(), "en:zh".into())
        );
        let unknown = plan.direction_of(None);
        assert!(unknown.two_way && !plan.direction_of(Some(Speaker::A)).two_way);
        assert_eq!(unknown.spoken(Some(en)), (Source::Known(en), zh));
        assert_eq!(unknown.spoken(Some(zh)), (Source::Known(zh), en));
        assert_eq!(unknown.spoken(None), (Source::Auto, en));
    }

    #[test]
    fn a_reported_language_replaces_auto_only() {
        let (zh, en, fr) = (lang("zh"), lang("en"), lang("fr"));
        let auto = plan(Direction::OneWay { src: Source::Auto, tgt: en }).direction_of(None);
        assert_eq!(auto.spoken(Some(fr)), (Source::Known(fr), en));
        assert_eq!(auto.spoken(None), (Source::Auto, en));
        let known = plan(Direction::OneWay { src: Source::Known(zh), tgt: en }).direction_of(None);
        assert_eq!(known.spoken(Some(fr)), (Source::Known(zh), en));
    }
}
