//! What a message costs.
//!
//! `job_assign`, `job_ack` and `job_done` are written or read once for every job.

use std::borrow::Cow;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lingua_core::{Attempt, Fence, JobId, Lang, Source};
use lingua_wire::client::Dispatch;
use lingua_wire::lang::language;
use lingua_wire::node::{Heartbeat, NodeMessage};
use lingua_wire::scheduler::{AssignOptions, JobAssign};
use lingua_wire::{parse, write_json};

fn assign(c: &mut Criterion) {
    let lang = |tag| Lang::new(tag).expect("a language");
    let job = JobAssign {
        job_id: JobId::new(0x0192_1f3e_0000_7000_8000_0000_0000_0001),
        attempt_id: Attempt(1),
        fence: Fence(1_763_240_000_017),
        session_id: Cow::Borrowed("room-888"),
        src_lang: Source::Known(lang("en")),
        tgt_lang: lang("zh-CN"),
        audio_ref: Some(Cow::Borrowed("blob://bucket/one")),
        audio: None,
        text: None,
        options: AssignOptions::default(),
        deadline_ms: Some(30_000),
        bind: None,
        two_way: None,
        context: vec![],
        trace_id: Cow::Borrowed("4bf92f3577b34da6a3ce929d0e0e4736"),
    };
    let mut out = Vec::with_capacity(1024);
    c.bench_function("write job_assign", |b| {
        b.iter(|| {
            out.clear();
            write_json(black_box(&job), &mut out);
        });
    });
}

fn frames(c: &mut Criterion) {
    const JOB: &str = r#""job_id":"job-01921f3e000070008000000000000001","attempt_id":1"#;
    let result = r#"{"text_asr":"Hello, world.","text_translated":"你好，世界。","model":"m2"}"#;
    for (name, text) in [
        ("job_ack", format!(r#"{{"type":"job_ack",{JOB}}}"#)),
        ("job_ack, type last", format!(r#"{{{JOB},"type":"job_ack"}}"#)),
        ("job_done", format!(r#"{{"type":"job_done",{JOB},"result":{result}}}"#)),
        ("heartbeat", r#"{"type":"heartbeat","epoch":7,"current_load":{"cpu":0.5}}"#.to_owned()),
    ] {
        c.bench_function(&format!("read {name}"), |b| {
            b.iter(|| NodeMessage::parse(black_box(&text)).expect("a frame"));
        });
    }
    let beat = r#"{"node_id":"node-123","epoch":7,"health":"ready","max_concurrent_jobs":4}"#;
    c.bench_function("read heartbeat by HTTP", |b| {
        b.iter(|| parse::<Heartbeat>(black_box(beat.as_bytes())).expect("a heartbeat"));
    });
}

fn dispatch(c: &mut Criterion) {
    let body = concat!(
        r#"{"session_id":"room-888","src_lang":"en","tgt_lang":"zh","audio_ref":"blob://one","#,
        r#""options":{"require_tts":false,"wait_ms":2000,"exclude_node_ids":[]}}"#
    );
    c.bench_function("read dispatch", |b| {
        b.iter(|| {
            let dispatch: Dispatch<'_> = parse(black_box(body.as_bytes())).expect("a dispatch");
            dispatch.into_spec(JobId::new(1)).expect("a spec")
        });
    });
    for tag in ["zh", "zh-CN", "eng"] {
        c.bench_function(&format!("language {tag}"), |b| {
            b.iter(|| language("src_lang", black_box(tag)).expect("a language"));
        });
    }
}

criterion_group!(benches, assign, frames, dispatch);
criterion_main!(benches);
