//! The messages of the session socket.

use lingua_core::{LangPair, Source};
use lingua_wire::audio::Audio;
use lingua_wire::session::{
    AudioFormat, JobAccepted, SegmentMissing, SegmentResult, SegmentTimings, SessionEnd,
    SessionPartial, SessionResume, SessionStart, SessionStarted, TextTurn, TurnEnd, TurnStart,
};
use lingua_wire::view::Timings;

use super::Golden;
use crate::values::{JOB, lang, node, some};

const SESSION: &str = "sess-01921f3e000070008000000000000001";
const SECRET: &str = "lingua_5b41";

pub(super) fn all(golden: &mut Golden) {
    let text = |text: &str| Some(text.to_owned());
    let one_way =
        SessionStart { src_lang: text("en"), tgt_lang: text("es"), ..SessionStart::default() };
    golden.both("minimal", &one_way);
    let audio = AudioFormat { format: "pcm16".into(), sample_rate: Some(24_000) };
    let two_way = SessionStart {
        mode: text("two_way"),
        lang_a: text("zh"),
        lang_b: text("en"),
        require_tts: Some(true),
        partials: Some(true),
        context: Some(true),
        vad: Some(true),
        audio: Some(audio),
        preferred_node_id: Some(node("node-123")),
        public: Some(false),
        labels: Some(vec!["eu".parse().expect("a label")]),
        ..SessionStart::default()
    };
    golden.both("two_way", &two_way);
    let resume =
        SessionResume { session_id: SESSION.into(), resume_token: SECRET.into(), last_seq: 12 };
    golden.both("", &resume);
    golden.both("minimal", &TurnStart::default());
    golden.both("full", &TurnStart { speaker: text("a") });
    golden.both("", &TurnEnd {});
    golden.both("minimal", &TextTurn { text: "你好 👋🏽".into(), speaker: None });
    golden.both("full", &TextTurn { text: "مرحبا".into(), speaker: text("b") });
    golden.both("", &SessionEnd {});
    updates(golden);
}

fn updates(golden: &mut Golden) {
    let started = SessionStarted {
        session_id: SESSION.into(),
        resume_token: SECRET.into(),
        resume_ms: 60_000,
        resumed: false,
        received_ms: None,
        turns: None,
        turn_open: None,
        warning: None,
    };
    golden.both("", &started);
    let (received_ms, warning) = (Some(1_240), Some("no registered node serves zh:ko".to_owned()));
    let (turns, turn_open) = (Some(3), Some(true));
    let resumed = SessionStarted { resumed: true, received_ms, turns, turn_open, ..started };
    golden.both("full", &SessionStarted { warning, ..resumed });
    golden.both("", &JobAccepted { turn: 1, segment: 2, job_id: JOB });
    golden.both("", &SessionPartial { turn: 1, segment: 2, text: "hola a".into() });
    let short = SegmentResult {
        seq: 3,
        turn: 2,
        segment: 1,
        job_id: JOB,
        src_lang: Source::Auto,
        tgt_lang: lang("es"),
        served_as: None,
        text_asr: None,
        text_translated: None,
        tts_audio: None,
        timings: SegmentTimings::default(),
    };
    golden.both("minimal", &short);
    let timings = SegmentTimings {
        speech_ms: Some(1_840),
        delay_ms: Some(310),
        job: Timings { queue_ms: Some(1), total_ms: Some(2_150), ..Timings::default() },
    };
    let full = SegmentResult {
        src_lang: Source::Known(lang("zh-CN")),
        served_as: Some(LangPair::known(lang("zh"), lang("es"))),
        text_asr: some("你好"),
        text_translated: some("hola"),
        tts_audio: Some(Audio::inline("pcm16", Some(24_000), &[0, 1, 2, 3])),
        timings,
        ..short
    };
    golden.both("full", &full);
    let missing = SegmentMissing {
        seq: 4,
        turn: 2,
        segment: 2,
        job_id: Some(JOB),
        error: "DEADLINE_EXCEEDED".into(),
        detail: "no result within 15000 ms; say it again".into(),
    };
    golden.both("full", &missing);
    golden.both("minimal", &SegmentMissing { job_id: None, ..missing });
}
