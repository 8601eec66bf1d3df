//! People who speak, for hours of virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::JobId;
use lingua_core::job::Payload;
use lingua_core::session::Format;
use lingua_engine::TokioTimer;
use lingua_engine::request::{JobRequest, ResultJson};
use lingua_engine::session::{
    Attached, Compose, Delivered, NewSession, SegmentAsk, SegmentInput, SessionOptions, Sessions,
    ToClient, What,
};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::sleep;

use crate::world::{Habit, Node, Store, World, job_with};

#[derive(Debug, Default)]
struct Composer;

/// The last job: no two instances give the same name.
static LAST_JOB: AtomicU64 = AtomicU64::new(0);

impl Compose for Composer {
    fn job_id(&self, _: u64) -> JobId {
        JobId::new(u128::from(LAST_JOB.fetch_add(1, Ordering::Relaxed)) + 1)
    }

    fn job(&self, ask: SegmentAsk<'_>) -> Option<JobRequest> {
        let (payload, speech) = match ask.input {
            SegmentInput::Text(text) => (Payload::Text(text), None),
            SegmentInput::Speech(speech) => (Payload::Absent, Some(speech)),
        };
        let request = job_with(ask.id.number(), "zh:en", |s| {
            s.payload = payload;
            s.bind_key = Some(ask.bind_key);
            s.deadline_ms = Some(ask.deadline_ms);
        });
        Some(JobRequest { speech, ..request })
    }

    fn text_of(&self, result: &ResultJson) -> Option<String> {
        Some(result.as_str().to_owned())
    }
}

pub(crate) type Hub = Sessions<Store, TokioTimer>;
pub(crate) type Client = Attached<Store, TokioTimer>;

pub(crate) fn sessions(world: &World, change: impl FnOnce(&mut SessionOptions)) -> Hub {
    let mut options = SessionOptions::default();
    change(&mut options);
    Sessions::new(world.engine.clone(), options, Arc::new(Composer), Gauge::default())
}

pub(crate) async fn begin(hub: &Hub, name: &str) -> Client {
    let new = NewSession {
        id: name.into(),
        secret: [7; 32],
        holder: Some([1; 32]),
        plan: bytes::Bytes::new(),
        format: Format::Pcm16 { sample_rate: 8_000 },
        partials: false,
        context: false,
    };
    hub.start(new).await.expect("a session")
}

/// A tenth of a second.
fn sound() -> Vec<u8> {
    0x1000_i16.to_le_bytes().repeat(800)
}

pub(crate) async fn speak(client: &Client, tenths: u32) {
    for _ in 0..tenths {
        client.audio(&sound(), None).expect("heard");
        sleep(Duration::from_millis(100)).await;
    }
    client.turn_end().expect("heard");
}

/// The next result or missing one.
pub(crate) async fn outcome(client: &Client) -> Delivered {
    loop {
        match client.next().await {
            ToClient::Delivered(delivered) => return delivered,
            ToClient::Over(over) => panic!("it is over: {over:?}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_may_be_silent_for_ten_minutes_and_its_hundredth_utterance_is_as_its_first() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 300 }).await;
    let hub = sessions(&world, |_| {});
    let client = begin(&hub, "s").await;
    for n in 1..=100 {
        if n % 50 == 0 {
            sleep(Duration::from_secs(600)).await;
        }
        speak(&client, 5).await;
        let delivered = outcome(&client).await;
        assert_eq!((delivered.seq, delivered.id.turn, delivered.id.segment), (n, n as u32, 1));
        let What::Result { delay_ms, speech_ms, .. } = delivered.what else {
            panic!("{n} is missing")
        };
        assert!(delay_ms.is_some_and(|ms| ms < 500), "{delay_ms:?}");
        assert_eq!(speech_ms, Some(500));
    }
    assert_eq!(world.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cut_stays_on_its_node_and_moves_once_when_that_dies() {
    let world = World::new();
    let mut nodes = vec![];
    for name in ["n1", "n2", "n3"] {
        nodes.push(Node::join_patient(&world, name, 4, Habit::Works { ms: 50 }).await);
    }
    let hub = sessions(&world, |options| options.segments.segment_max_ms = 1_000);
    let client = begin(&hub, "s").await;
    let mut used = vec![];
    for n in 0..8 {
        for _ in 0..10 {
            client.audio(&sound(), None).expect("heard");
            sleep(Duration::from_millis(100)).await;
        }
        let delivered = outcome(&client).await;
        let What::Result { view, .. } = delivered.what else { panic!("missing") };
        let node = view.progress.ended.as_ref().expect("ended").attempts[0].node.clone();
        if n == 3 {
            let dies = nodes.iter().find(|known| known.id == node).expect("a node");
            dies.dies(&world).await;
        }
        used.push(node);
    }
    used.dedup();
    assert_eq!(used.len(), 2, "{used:?}");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_people_talk_for_an_hour_and_each_hears_everything_in_order() {
    let world = World::new();
    let mut nodes = vec![];
    for n in 0..20 {
        let habit = match n % 10 {
            0 => Habit::Fails { retryable: true },
            1 => Habit::Works { ms: 2_500 },
            _ => Habit::Works { ms: 300 },
        };
        nodes.push(Node::join_patient(&world, &format!("n{n}"), 8, habit).await);
    }
    let hub = sessions(&world, |options| options.deadline_ms = 5_000);
    let mut people = tokio::task::JoinSet::new();
    for person in 0..200_u64 {
        let hub = hub.clone();
        people.spawn(async move { talk_for_an_hour(hub, person).await });
    }
    let (mut results, mut missing) = (0, 0);
    while let Some(told) = people.join_next().await {
        let (came, lost) = told.expect("nobody heard anything out of order");
        (results, missing) = (results + came, missing + lost);
    }
    assert!(results + missing > 20_000, "{results} results, {missing} missing");
    assert!(missing * 100 < results, "{results} results, {missing} missing");
    assert_eq!(world.used().await, 0, "every slot came back");
    assert!(hub.is_empty(), "and every session ended");
    nodes.iter().for_each(Node::check);
}

/// Gives how many results and missing ones there were.
async fn talk_for_an_hour(hub: Hub, person: u64) -> (u64, u64) {
    let name = format!("s{person}");
    let mut client = begin(&hub, &name).await;
    sleep(Duration::from_millis(person * 137)).await;
    let (mut seen, mut spoken, mut missing) = (0, 0, 0);
    // Turns of different lengths, one cut by its length, with pauses in between.
    for turn in 0..110_u64 {
        let tenths = [5, 12, 30, 105][((turn * 7 + person) % 16 / 5) as usize];
        speak(&client, tenths).await;
        spoken += if tenths > 100 { 2 } else { 1 };
        if (turn + person).is_multiple_of(9) {
            // The connection breaks, and what was on its way is lost.
            drop(client);
            sleep(Duration::from_secs(2)).await;
            client = hub.resume(&name, &[7; 32], seen).await.expect("it waits");
        }
        let until = tokio::time::Instant::now() + Duration::from_secs(28);
        while let Ok(delivered) = tokio::time::timeout_at(until, outcome(&client)).await {
            assert_eq!(delivered.seq, seen + 1, "{name}");
            seen += 1;
            missing += u64::from(matches!(delivered.what, What::Missing { .. }));
        }
    }
    assert_eq!(seen, spoken, "{name}: one for each segment");
    client.end().expect("heard");
    assert!(matches!(client.next().await, ToClient::Over(_)));
    (seen - missing, missing)
}
