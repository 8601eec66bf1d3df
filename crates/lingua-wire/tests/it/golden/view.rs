//! What people and tools are shown.

use lingua_core::job::JobState;
use lingua_core::roster::NodeVerdict;
use lingua_core::{
    Attempt, Epoch, InstanceId, LangPair, Load, MissingCapability, NodeState, RejectReason, Source,
    Term,
};
use lingua_wire::ErrorCode;
use lingua_wire::view::{
    AttemptView, ClusterView, DayUsage, EraseResponse, ExplainResponse, ExplainedNode,
    InstanceView, JobCounts, JobList, JobUpdate, JobUpdateKind, JobView, LeaderUpdate, LeftView,
    LimitsView, MeView, NodeList, NodeUpdate, NodeView, PoolCell, PoolList, PoolUpdate, PoolView,
    StoreView, TenantUsage, Timings, UsageTotals, UsageView,
};

use super::Golden;
use crate::values::{JOB, contract_capability, lang, node, raw};

const NOW_MS: u64 = 1_763_240_000_000;

pub(super) fn all(golden: &mut Golden) {
    jobs(golden);
    nodes(golden);
    cluster(golden);
    me(golden);
    explain(golden);
    events(golden);
}

fn jobs(golden: &mut Golden) {
    let new = JobView {
        job_id: JOB,
        state: JobState::New,
        session_id: None,
        src_lang: Source::Auto,
        tgt_lang: lang("zh"),
        served_as: None,
        node_id: None,
        attempt_id: Attempt(1),
        instance_id: None,
        trace_id: None,
        attempts: vec![],
        timings: Timings::default(),
        partial: None,
        result: None,
        error: None,
        detail: None,
        created_ms: NOW_MS,
        updated_ms: NOW_MS,
        deadline_at_ms: None,
    };
    golden.both("minimal", &new);
    let running = JobView {
        state: JobState::Acked,
        node_id: Some(node("node-123")),
        partial: Some("你好".to_owned()),
        ..new.clone()
    };
    golden.both("partial", &running);
    let first = AttemptView {
        attempt_id: Attempt(1),
        node_id: Some(node("node-7")),
        state: JobState::Failed,
        reason: Some("ack_timeout".to_owned()),
        reserved_ms: Some(NOW_MS + 1),
        dispatched_ms: Some(NOW_MS + 2),
        acked_ms: None,
        ended_ms: Some(NOW_MS + 5002),
    };
    let second = AttemptView {
        attempt_id: Attempt(2),
        node_id: Some(node("node-123")),
        state: JobState::Done,
        reason: None,
        acked_ms: Some(NOW_MS + 5010),
        ended_ms: Some(NOW_MS + 5700),
        ..first.clone()
    };
    let done = JobView {
        state: JobState::Done,
        session_id: Some("room-888".to_owned()),
        src_lang: Source::Known(lang("en-US")),
        served_as: Some(LangPair::known(lang("en"), lang("zh"))),
        node_id: Some(node("node-123")),
        attempt_id: Attempt(2),
        instance_id: Some(InstanceId::new("lingua-1").expect("a name")),
        trace_id: Some("4bf92f3577b34da6".to_owned()),
        attempts: vec![first, second],
        timings: Timings {
            queue_ms: Some(0),
            dispatch_ms: Some(5004),
            ack_ms: Some(6),
            run_ms: Some(690),
            total_ms: Some(5700),
        },
        result: Some(raw(r#"{"text_asr":"Hello.","text_translated":"你好。"}"#)),
        updated_ms: NOW_MS + 5700,
        deadline_at_ms: Some(NOW_MS + 30_000),
        ..new.clone()
    };
    golden.both("done", &done);
    let failed = JobView {
        state: JobState::Failed,
        error: Some(ErrorCode::DeadlineExceeded.as_str().to_owned()),
        detail: Some("the deadline passed".to_owned()),
        ..new
    };
    golden.both("failed", &failed);
    golden.both("", &JobList { jobs: vec![failed, done], next: Some(JOB) });
}

fn nodes(golden: &mut Golden) {
    let capability = contract_capability();
    let view = NodeView {
        node_id: node("node-123"),
        state: NodeState::Draining,
        fresh: true,
        used: 3,
        max: 4,
        epoch: Epoch(NOW_MS),
        cell: 7,
        slot: 42,
        load: Load::new(0.3, 0.5, 0.4).expect("a load").into(),
        cost_ms: 850,
        languages: capability.language_capabilities.expect("lists"),
        services: capability.services.expect("flags"),
        streaming: false,
        pairs: 2,
        accept_public_jobs: true,
        labels: vec!["region:eu".parse().expect("a label")],
        drain_ordered: true,
        version: Some("3.0".to_owned()),
        last_heartbeat_ms: NOW_MS + 4000,
        silent_ms: None,
        pools: None,
        stale: false,
        as_of_ms: None,
    };
    let pools = ["zh:en", "en:zh", "*:en", "*:zh"].map(|pair| pair.parse().expect("a pair"));
    golden.both("", &NodeView { pools: Some(pools.to_vec()), ..view.clone() });
    golden.both("", &NodeList { nodes: vec![view.clone()], ..NodeList::default() });
    let stale = NodeList { nodes: vec![view], stale: true, as_of_ms: Some(NOW_MS) };
    golden.both("stale", &stale);

    let mixed = PoolView::new(LangPair::auto(lang("en")));
    let exact = PoolView {
        nodes: 3,
        speech: 2,
        ready: 2,
        free: 5,
        slots: 8,
        ..PoolView::new(LangPair::known(lang("zh"), lang("en")))
    };
    let cell = PoolCell { cell: 7, nodes: 3, ready: 2, free: 5, slots: 8 };
    let (node_ids, cells) = (Some(vec![node("node-123")]), Some(vec![cell]));
    golden.both("", &PoolView { node_ids, cells, ..exact.clone() });
    let list = PoolList {
        table_version: 17,
        generated_by: Some(InstanceId::new("scheduler-1").expect("an id")),
        generated_ms: Some(NOW_MS),
        pools: vec![exact, mixed],
        ..PoolList::default()
    };
    golden.both("", &list);
}

fn me(golden: &mut Golden) {
    let limits = LimitsView {
        requests_per_second: Some(100),
        open_jobs: Some(1000),
        open_bytes: Some(64 << 20),
        sessions: Some(200),
        event_streams: Some(10),
        priority_max: Some(5),
        nodes_max: Some(20),
    };
    let me = MeView {
        name: "alice-app".to_owned(),
        role: "client".to_owned(),
        tenant: "alice".to_owned(),
        expires_ms: Some(NOW_MS),
        limits,
        left: LeftView {
            requests: Some(99),
            open_jobs: Some(997),
            open_bytes: Some(64_000_000),
            sessions: Some(198),
            event_streams: Some(10),
            nodes: Some(17),
        },
    };
    golden.both("", &me);
    let (limits, left) = (LimitsView::default(), LeftView::default());
    golden.both("minimal", &MeView { expires_ms: None, limits, left, ..me });
    let total = UsageTotals {
        jobs: JobCounts { done: 812, failed: 3, cancelled: 9 },
        audio_in_seconds: 2_431.5,
        audio_out_seconds: 1_984.25,
        chars_source: 30_112,
        chars_translated: 51_870,
    };
    let days = vec![DayUsage { day: "2026-11-18".to_owned(), total }];
    let tenants = vec![TenantUsage { tenant: "alice".to_owned(), total, days }];
    let (since, until) = ("2026-11-01".to_owned(), "2026-11-18".to_owned());
    golden.both("", &UsageView { since, until, tenants });
    golden.both("", &EraseResponse { ok: true, erased: 17, more: false });
}

fn cluster(golden: &mut Golden) {
    let instance_id = InstanceId::new("lingua-1").expect("a name");
    golden.both(
        "",
        &ClusterView {
            instance_id: instance_id.clone(),
            version: "0.1.0".to_owned(),
            instances: vec![InstanceView {
                instance_id: instance_id.clone(),
                address: "127.0.0.1:7410".to_owned(),
                alive: true,
                leader: true,
                until_ms: NOW_MS + 9000,
            }],
            leader: Some(instance_id),
            term: Term(3),
            table_version: 17,
            table_published_ms: Some(NOW_MS),
            nodes: [("ready".to_owned(), 12), ("draining".to_owned(), 1)].into(),
            store: StoreView { kind: "embedded".to_owned(), up: true },
            stale: false,
            as_of_ms: None,
        },
    );
}

fn explain(golden: &mut Golden) {
    let explained = |name, verdict| ExplainedNode::new(node(name), 7, verdict);
    golden.both(
        "",
        &ExplainResponse {
            pool: LangPair::known(lang("zh-CN"), lang("en")),
            served_as: Some(LangPair::known(lang("zh"), lang("en"))),
            policy: "balanced".to_owned(),
            chosen: Some(node("node-1")),
            capable: 3,
            free: 4,
            error: None,
            nodes: vec![
                explained("node-1", NodeVerdict::Chosen { score: 100 }),
                explained("node-2", NodeVerdict::AsGood { score: 101 }),
                explained("node-3", NodeVerdict::Eligible { score: 200 }),
                explained("node-4", NodeVerdict::Refused(RejectReason::Full)),
                explained(
                    "node-5",
                    NodeVerdict::Refused(RejectReason::Lacks(MissingCapability::Asr(lang("zh")))),
                ),
            ],
        },
    );
}

fn events(golden: &mut Golden) {
    golden.both("", &NodeUpdate { node_id: node("node-123"), epoch: Epoch(NOW_MS) });
    let state = JobUpdate {
        kind: JobUpdateKind::State,
        job_id: JOB,
        attempt_id: Attempt(1),
        state: JobState::Acked,
        node_id: Some(node("node-123")),
        text: None,
    };
    let kind = JobUpdateKind::Partial;
    golden.both("partial", &JobUpdate { kind, text: Some("你好".to_owned()), ..state.clone() });
    golden.both("state", &state);
    golden.both("", &PoolUpdate { table_version: 17 });
    golden.both("", &LeaderUpdate { term: Term(3) });
}
