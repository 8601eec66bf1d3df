//! What clients ask for, and the short answers.

use std::borrow::Cow;

use lingua_core::job::JobState;
use lingua_core::{Attempt, Service};
use lingua_wire::audio::Audio;
use lingua_wire::client::{CancelResponse, Dispatch, DispatchOptions, DispatchResponse};
use lingua_wire::{ErrorBody, ErrorCode, RequestError};

use super::Golden;
use crate::values::{JOB, node, some};

pub(super) fn all(golden: &mut Golden) {
    let contract = Dispatch {
        session_id: some("room-888"),
        src_lang: Cow::Borrowed("en"),
        tgt_lang: Cow::Borrowed("zh"),
        audio_ref: some("blob://one"),
        options: Some(DispatchOptions {
            require_tts: Some(false),
            strict: Some(false),
            exclude_node_ids: Some(vec![]),
            wait_ms: Some(2000),
            priority: Some(0),
            services: Some(vec![]),
            ..DispatchOptions::default()
        }),
        ..Dispatch::default()
    };
    golden.inbound("contract", &contract);
    let minimal = Dispatch {
        src_lang: Cow::Borrowed("auto"),
        tgt_lang: Cow::Borrowed("zh"),
        text: some("Hello."),
        ..Dispatch::default()
    };
    golden.both("text_minimal", &minimal);
    golden.both("explain", &Dispatch { text: None, ..minimal });
    golden.both(
        "audio_full",
        &Dispatch {
            audio_ref: None,
            audio: Some(Audio::inline("pcm16", Some(16_000), &[0, 1, 2, 3])),
            trace_id: some("4bf92f3577b34da6"),
            options: Some(DispatchOptions {
                require_tts: Some(true),
                preferred_node_id: Some(node("node-123")),
                strict: Some(true),
                exclude_node_ids: Some(vec![node("node-7")]),
                bind_key: Some("turn-7".to_owned()),
                wait_ms: Some(0),
                deadline_ms: Some(30_000),
                priority: Some(-5),
                public: Some(false),
                services: Some(vec![Service::Tone]),
                labels: Some(vec!["eu".parse().expect("a label")]),
            }),
            ..contract
        },
    );
    golden.both(
        "",
        &DispatchResponse { job_id: JOB, node_id: node("node-123"), attempt_id: Attempt(1) },
    );
    golden.both("", &CancelResponse { ok: true, state: JobState::Cancelled });

    let detail = "no node supports semantic(en) + nmt(en->zh); register one";
    golden.both("minimal", &ErrorBody::new(ErrorCode::NoCapableNode, detail));
    let full = RequestError::new(ErrorCode::InvalidLanguage, "tgt_lang", "\"x\" is no language");
    golden.both("full", &ErrorBody { retry_after_ms: Some(250), job_id: Some(JOB), ..full.into() });
}
