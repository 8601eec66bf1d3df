//! What nodes say.

use std::borrow::Cow;

use lingua_core::{Attempt, Epoch, Fence, Health, NodeState};
use lingua_wire::node::{
    Bye, CapabilityFields, Heartbeat, HeartbeatResponse, JobAck, JobDone, JobFail, JobPartial,
    LanguageLists, LoadFields, Offline, OkResponse, Register, RegisterResponse,
};

use super::Golden;
use crate::values::{
    JOB, contract_capability, flat_capability, job_ref, node, pairs, raw, some, tags,
};

pub(super) fn all(golden: &mut Golden) {
    register(golden);
    heartbeat(golden);
    jobs(golden);
}

fn register(golden: &mut Golden) {
    let contract = Register {
        node_id: Some(node("node-123")),
        version: Some("3.0".to_owned()),
        health: Some(Health::Ready),
        running: None,
        capability: contract_capability(),
    };
    golden.inbound("contract", &contract);
    golden.both("nested_full", &contract);
    let lists = |nmt_pairs| LanguageLists {
        asr_languages: tags(&["zh", "en", "de"]),
        semantic_languages: tags(&["zh", "en"]),
        tts_languages: tags(&["zh", "en", "ja"]),
        nmt_pairs,
    };
    let nested = |language_capabilities| CapabilityFields {
        language_capabilities: Some(language_capabilities),
        ..CapabilityFields::default()
    };
    let minimal = Register { capability: nested(lists(None)), ..Register::default() };
    golden.both("nested_minimal", &minimal);
    golden.inbound(
        "foreign_nested",
        &Register { version: Some("3.0".to_owned()), ..minimal.clone() },
    );
    golden.inbound(
        "foreign_flat",
        &Register {
            node_id: Some(node("node-123")),
            health: Some(Health::Ready),
            capability: CapabilityFields {
                nmt_pairs: pairs(&[("en", "zh"), ("zh", "en")]),
                max_concurrent_jobs: Some(2),
                ..flat_capability()
            },
            ..Register::default()
        },
    );
    golden.both("flat_minimal", &Register { capability: flat_capability(), ..Register::default() });
    golden.both(
        "flat_full",
        &Register {
            node_id: Some(node("node-123")),
            version: Some("3.0".to_owned()),
            health: Some(Health::Draining),
            capability: CapabilityFields {
                language_capabilities: None,
                asr_langs: tags(&["zh_CN", "eng"]),
                nmt_pairs: pairs(&[("zh-CN", "en")]),
                ..CapabilityFields { ..contract_with_flat_lists() }
            },
            running: Some(vec![job_ref(1)]),
        },
    );
    golden.both(
        "mixed",
        &Register {
            capability: CapabilityFields {
                asr_langs: tags(&["fr"]),
                tts_langs: tags(&["fr"]),
                ..nested(LanguageLists { tts_languages: None, ..lists(None) })
            },
            ..Register::default()
        },
    );
    golden.both(
        "",
        &RegisterResponse {
            ok: true,
            node_id: node("node-A1B2C3D4"),
            epoch: Epoch(1_763_240_000_000),
            status: NodeState::Ready,
            pairs: 9,
            heartbeat_interval_ms: 5000,
        },
    );
}

fn contract_with_flat_lists() -> CapabilityFields {
    CapabilityFields {
        semantic_langs: tags(&["zh-CN", "en"]),
        tts_langs: tags(&["zh-CN", "en"]),
        ..contract_capability()
    }
}

fn heartbeat(golden: &mut Golden) {
    let minimal = Heartbeat { node_id: Some(node("node-123")), ..Heartbeat::default() };
    golden.both("minimal", &minimal);
    golden.inbound("foreign_nested", &Heartbeat { node_id: Some(node("node-abc123")), ..minimal });
    let seed = Heartbeat {
        node_id: Some(node("node-123")),
        health: Some(NodeState::Ready),
        current_load: Some(LoadFields { gpu: Some(0.52), cpu: Some(0.33), memory: None }),
        capability: CapabilityFields {
            nmt_pairs: pairs(&[("en", "zh"), ("zh", "en")]),
            max_concurrent_jobs: Some(2),
            ..flat_capability()
        },
        ..Heartbeat::default()
    };
    golden.inbound("foreign_flat", &seed);
    golden.both(
        "full",
        &Heartbeat {
            epoch: Some(Epoch(7)),
            health: Some(NodeState::Degraded),
            current_load: Some(LoadFields { cpu: Some(0.3), gpu: Some(0.5), memory: Some(0.4) }),
            running: Some(vec![job_ref(1), job_ref(2)]),
            capability: contract_capability(),
            ..seed
        },
    );
    golden.both("", &HeartbeatResponse { ok: true, cancel: vec![job_ref(1)], drain: false });
    golden.both("", &Offline { node_id: node("node-123") });
    golden.both("", &OkResponse::OK);
}

fn jobs(golden: &mut Golden) {
    let (job_id, attempt_id) = (JOB, Attempt(2));
    let ack = JobAck { job_id, attempt_id, node_id: None, fence: None };
    golden.both("minimal", &ack);
    let (node_id, fence) = (Some(node("node-123")), Some(Fence(12)));
    golden.inbound("contract", &JobAck { node_id: node_id.clone(), ..ack.clone() });
    golden.both("full", &JobAck { node_id: node_id.clone(), fence, ..ack });
    let text = Cow::Borrowed("你好，世");
    golden.both("", &JobPartial { job_id, attempt_id, node_id: None, fence: None, text });

    let done =
        JobDone { job_id, attempt_id, node_id: None, fence: None, status: None, result: None };
    golden.both("minimal", &done);
    let result = concat!(
        r#"{"src_lang":"en","text_asr":"Hello, world.","text_translated":"你好，世界。","#,
        r#""tts_audio":{"bytes":32000,"format":"pcm16","sample_rate":16000},"#,
        r#""x_model":{"name":"m2","score":0.97}}"#
    );
    let full = JobDone {
        node_id: node_id.clone(),
        fence,
        status: some("ok"),
        result: Some(raw(result)),
        ..done
    };
    golden.both("full", &full);
    let inline = concat!(
        r#"{"text_translated":"你好。","#,
        r#""tts_audio":{"data":"AAEC","format":"pcm16","sample_rate":16000}}"#
    );
    golden.both("inline_audio", &JobDone { result: Some(raw(inline)), ..full.clone() });
    golden.inbound("contract", &JobDone { fence: None, result: Some(raw("{}")), ..full });

    let fail = JobFail {
        job_id,
        attempt_id,
        node_id: None,
        fence: None,
        status: None,
        reason: Cow::Borrowed(JobFail::BUSY),
        detail: None,
        retryable: None,
    };
    golden.both("busy", &fail);
    let fail = JobFail {
        node_id: node_id.clone(),
        status: some("error"),
        reason: Cow::Borrowed("MODEL_LOAD_FAILED"),
        ..fail
    };
    golden.inbound("contract", &JobFail { retryable: Some(true), ..fail.clone() });
    let detail = some("out of memory");
    golden.both("full", &JobFail { fence, detail, retryable: Some(false), ..fail });
    golden.both("minimal", &Bye::default());
    golden.both("full", &Bye { reason: some("shutdown") });
}
