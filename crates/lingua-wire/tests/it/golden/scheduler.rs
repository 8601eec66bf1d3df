//! What the scheduler says to nodes.

use std::borrow::Cow;

use lingua_core::{Attempt, Epoch, Fence, Service, ServiceSet, Source};
use lingua_wire::ErrorCode;
use lingua_wire::audio::Audio;
use lingua_wire::scheduler::{
    AssignOptions, AudioEnd, Bind, Drain, ErrorMessage, HeartbeatAck, JobAssign, JobCancel,
    JobConfirmed, NodeJobs, Registered,
};

use super::Golden;
use crate::values::{JOB, job_ref, lang, node, some};

pub(super) fn all(golden: &mut Golden) {
    golden.both(
        "",
        &Registered {
            node_id: node("node-A1B2C3D4"),
            epoch: Epoch(1_763_240_000_000),
            heartbeat_interval_ms: 5000,
            pairs: 9,
        },
    );
    golden.both("quiet", &HeartbeatAck::default());
    golden.both("cancel", &HeartbeatAck { cancel: vec![job_ref(1), job_ref(2)], drain: true });
    golden.both(
        "",
        &JobCancel { job_id: JOB, attempt_id: Attempt(1), reason: Cow::Borrowed("deadline") },
    );
    golden.both("", &JobConfirmed { job_id: JOB, attempt_id: Attempt(1), accepted: true });
    golden.both("", &Drain {});
    let detail = "another connection registered as node-123; this one is closed";
    golden.both("", &ErrorMessage::new(ErrorCode::StaleEpoch, detail, true));
    assign(golden);
}

fn assign(golden: &mut Golden) {
    let by_reference = JobAssign {
        job_id: JOB,
        attempt_id: Attempt(1),
        fence: Fence(1_763_240_000_017),
        session_id: Cow::Borrowed("room-888"),
        src_lang: Source::Known(lang("en")),
        tgt_lang: lang("zh-CN"),
        audio_ref: some("blob://bucket/one"),
        audio: None,
        text: None,
        options: AssignOptions::default(),
        deadline_ms: None,
        bind: None,
        two_way: None,
        context: vec![],
        trace_id: Cow::Borrowed("4bf92f3577b34da6"),
    };
    golden.both("audio_ref", &by_reference);
    let spoken = JobAssign {
        src_lang: Source::Auto,
        audio_ref: None,
        audio: Some(Audio::in_next_frame("pcm16", Some(16_000), 32_000)),
        options: AssignOptions {
            require_tts: true,
            services: ServiceSet::EMPTY.with(Service::Tone),
            priority: 5,
            labels: vec!["eu".parse().expect("a label")],
        },
        deadline_ms: Some(28_500),
        bind: Some(Bind { bind_key: Cow::Borrowed("turn-7"), moved: true }),
        two_way: Some(vec![lang("en"), lang("zh-CN")]),
        context: vec!["早上好".into(), "Good morning.".into()],
        ..by_reference.clone()
    };
    golden.both("audio_full", &spoken);
    let streamed = Audio::streamed("pcm16", Some(16_000));
    golden.both("stream", &JobAssign { audio: Some(streamed), ..spoken.clone() });
    golden.both("", &AudioEnd { job_id: JOB, attempt_id: Attempt(1), bytes: 64_000 });
    golden.both("text", &JobAssign { audio_ref: None, text: some("Hello."), ..by_reference });
    let polled = JobAssign { audio: Some(Audio::inline("opus", None, &[0, 1, 2])), ..spoken };
    golden.both("", &NodeJobs { jobs: vec![polled] });
    golden.both("empty", &NodeJobs { jobs: vec![] });
}
