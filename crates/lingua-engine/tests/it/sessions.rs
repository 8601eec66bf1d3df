//! Sessions over hours of virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::session::{AudioEncoding, Delivery, Direction, SessionPlan};
use lingua_core::{JobId, Source, Tenant};
use lingua_engine::TokioTimer;
use lingua_engine::session::{
    ClientConnection, JobIdSource, NewSession, SegmentOutcome, SessionOptions, SessionOutput,
    Sessions,
};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::sleep;

use crate::world::{Habit, Node, Store, World};

/// Counts jobs over all instances, so that ids are unique.
static LAST_JOB: AtomicU64 = AtomicU64::new(0);

pub(crate) type TestSessions = Sessions<Store, TokioTimer>;
pub(crate) type Client = ClientConnection<Store, TokioTimer>;

pub(crate) fn sessions(world: &World, change: impl FnOnce(&mut SessionOptions)) -> TestSessions {
    let mut options = SessionOptions::default();
    change(&mut options);
    let job_ids =
        JobIdSource::new(|| JobId::new(u128::from(LAST_JOB.fetch_add(1, Ordering::Relaxed)) + 1));
    Sessions::new(world.engine.clone(), options, job_ids, Gauge::default())
}

pub(crate) async fn start(sessions: &TestSessions, id: &str) -> Client {
    start_with(sessions, id, false).await
}

async fn start_with(sessions: &TestSessions, id: &str, partials: bool) -> Client {
    let lang = |tag: &str| tag.parse().expect("a language");
    let (src, tgt) = (Source::Known(lang("zh")), lang("en"));
    let audio = AudioEncoding::Pcm16 { sample_rate: 8_000 };
    let plan = SessionPlan { partials, ..SessionPlan::new(Direction::OneWay { src, tgt }, audio) };
    let (id, token, tenant) = (id.into(), Some([1; 32]), Tenant::default());
    let new = NewSession { id, secret: [7; 32], token, tenant, limited: None, plan };
    sessions.start(new).await.expect("a session")
}

/// Speaks for a tenth of a second.
pub(crate) async fn speak_tenth(client: &Client) {
    let frame = 0x1000_i16.to_le_bytes().repeat(800);
    client.audio(frame.into(), None).expect("accepted");
    sleep(Duration::from_millis(100)).await;
}

/// Speaks a turn of this many tenths of a second.
pub(crate) async fn speak_turn(client: &Client, tenths: u32) {
    for _ in 0..tenths {
        speak_tenth(client).await;
    }
    client.turn_end().expect("accepted");
}

/// The next result or missing segment.
pub(crate) async fn delivery(client: &Client) -> Delivery<SegmentOutcome> {
    loop {
        match client.next().await {
            SessionOutput::Delivery(delivery) => return delivery,
            SessionOutput::Closed(reason) => panic!("the session is closed: {reason:?}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_hundredth_turn_is_as_fast_as_the_first_after_minutes_of_silence() {
    let world = World::new();
    let _node = Node::join_patient(&world, "n1", 4, Habit::Works { ms: 300 }).await;
    let sessions = sessions(&world, |_| {});
    let client = start(&sessions, "s").await;
    for n in 1..=100 {
        if n % 50 == 0 {
            sleep(Duration::from_secs(600)).await;
        }
        speak_turn(&client, 5).await;
        let delivery = delivery(&client).await;
        assert_eq!((delivery.seq, delivery.id.turn, delivery.id.segment), (n, n as u32, 1));
        let SegmentOutcome::Result { delay_ms, speech_ms, .. } = delivery.outcome else {
            panic!("{n} is missing")
        };
        assert!(delay_ms.is_some_and(|ms| ms < 500), "{delay_ms:?}");
        assert_eq!(speech_ms, Some(500));
    }
    assert_eq!(world.used().await, 0);
}

#[tokio::test(start_paused = true)]
async fn no_partial_text_follows_its_result() {
    let world = World::new();
    let mut node = Node::join_patient(&world, "n1", 1, Habit::Hangs).await;
    let sessions = sessions(&world, |_| {});
    let client = start_with(&sessions, "s", true).await;
    speak_turn(&client, 5).await;
    let id = node.next_job().await.job;
    // The client reads nothing until both are there.
    assert!(world.engine.partial(id, node.report(1), "ni"));
    sleep(Duration::from_millis(1)).await;
    world.engine.done(id, node.report(1), "{}".to_owned(), true).await.expect("heard");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(delivery(&client).await.seq, 1);
    let more = tokio::time::timeout(Duration::from_secs(1), client.next()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test(start_paused = true)]
async fn the_segments_of_a_turn_stay_on_one_node_and_move_once_when_it_dies() {
    let world = World::new();
    let mut nodes = vec![];
    for name in ["n1", "n2", "n3"] {
        nodes.push(Node::join_patient(&world, name, 4, Habit::Works { ms: 50 }).await);
    }
    let sessions = sessions(&world, |options| options.segments.segment_max_ms = 1_000);
    let client = start(&sessions, "s").await;
    let mut used = vec![];
    for n in 0..8 {
        for _ in 0..10 {
            speak_tenth(&client).await;
        }
        let SegmentOutcome::Result { view, .. } = delivery(&client).await.outcome else {
            panic!("{n} is missing")
        };
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
async fn two_hundred_sessions_of_an_hour_get_everything_in_order() {
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
    let sessions = sessions(&world, |options| options.deadline_ms = 5_000);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..200_u64 {
        let sessions = sessions.clone();
        clients.spawn(async move { speak_for_an_hour(sessions, client).await });
    }
    let (mut results, mut missing) = (0, 0);
    while let Some(counts) = clients.join_next().await {
        let (came, lost) = counts.expect("everything came in order");
        (results, missing) = (results + came, missing + lost);
    }
    assert!(results + missing > 20_000, "{results} results, {missing} missing");
    assert!(missing * 100 < results, "{results} results, {missing} missing");
    assert_eq!(world.used().await, 0, "every slot was released");
    assert!(sessions.is_empty(), "every session ended");
    nodes.iter().for_each(Node::check);
}

/// Returns how many results and missing segments there were.
async fn speak_for_an_hour(sessions: TestSessions, number: u64) -> (u64, u64) {
    let id = format!("s{number}");
    let mut client = start(&sessions, &id).await;
    sleep(Duration::from_millis(number * 137)).await;
    let (mut seen, mut spoken, mut missing) = (0, 0, 0);
    // Turns of different lengths, one of them too long for one segment, with pauses in between.
    for turn in 0..110_u64 {
        let tenths = [5, 12, 30, 105][((turn * 7 + number) % 16 / 5) as usize];
        speak_turn(&client, tenths).await;
        spoken += if tenths > 100 { 2 } else { 1 };
        if (turn + number).is_multiple_of(9) {
            // The connection breaks, and what was on its way is lost.
            drop(client);
            sleep(Duration::from_secs(2)).await;
            client =
                sessions.resume(&id, (&[7; 32], Tenant::default()), seen).await.expect("resumed");
        }
        let until = tokio::time::Instant::now() + Duration::from_secs(28);
        while let Ok(delivery) = tokio::time::timeout_at(until, delivery(&client)).await {
            assert_eq!(delivery.seq, seen + 1, "{id}");
            seen += 1;
            missing += u64::from(matches!(delivery.outcome, SegmentOutcome::Missing { .. }));
        }
    }
    assert_eq!(seen, spoken, "{id}: one delivery for each segment");
    client.end().expect("accepted");
    assert!(matches!(client.next().await, SessionOutput::Closed(_)));
    (seen - missing, missing)
}
