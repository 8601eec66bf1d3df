//! The demo's conversations: two-way sessions that never end, over the session socket.
//!
//! Start at [`run`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use lingua_sdk::session::SessionEvent;
use lingua_sdk::{Session, SessionSettings};
use lingua_wire::session::SessionStart;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::api::{SESSION_SOCKET, socket_url};

/// Number of conversations.
const CONVERSATIONS: u64 = 4;

/// Frames of 20 ms in a turn: two seconds.
const FRAMES: usize = 100;

/// Pause between two turns.
const PAUSE: Duration = Duration::from_millis(700);

/// Pause before a conversation that failed starts again.
const RETRY: Duration = Duration::from_secs(1);

/// Counts over all conversations.
#[derive(Debug, Clone, Default)]
pub(super) struct ConversationStats {
    pub(super) results: u64,
    pub(super) missing: u64,
    /// Deliveries that did not come in the order spoken.
    pub(super) out_of_order: u64,
    /// The latest text, or error.
    pub(super) latest: String,
}

/// Runs the conversations, for ever.
pub(super) async fn run(url: &str, stats: &Arc<Mutex<ConversationStats>>) {
    let mut conversations = JoinSet::new();
    for n in 0..CONVERSATIONS {
        let (url, stats) = (url.to_owned(), Arc::clone(stats));
        conversations.spawn(async move {
            sleep(PAUSE * n as u32).await;
            loop {
                if let Err(error) = converse(&url, &stats).await {
                    stats.lock().latest = error.to_string();
                }
                sleep(RETRY).await;
            }
        });
    }
    std::future::pending().await
}

async fn converse(url: &str, stats: &Mutex<ConversationStats>) -> anyhow::Result<()> {
    let start = SessionStart {
        mode: Some("two_way".into()),
        lang_a: Some("zh".into()),
        lang_b: Some("en".into()),
        partials: Some(true),
        context: Some(true),
        ..SessionStart::default()
    };
    let settings = SessionSettings::new(socket_url(url, SESSION_SOCKET));
    let mut session = Session::start(settings, &start).await?;
    let (mut last_seq, mut ticks) = (0, interval(Duration::from_millis(20)));
    for turn in 0_u64.. {
        let speaker = if turn % 2 == 0 { "a" } else { "b" };
        session.turn_start(Some(speaker)).await;
        for n in 0..FRAMES {
            receive(&mut session, ticks.tick(), &mut last_seq, stats).await?;
            session.audio(tone(n)).await;
        }
        session.turn_end().await;
        receive(&mut session, sleep(PAUSE), &mut last_seq, stats).await?;
        ticks.reset();
    }
    Ok(())
}

/// Counts what arrives until a moment; an error if the session ends before.
async fn receive<T>(
    session: &mut Session,
    until: impl Future<Output = T>,
    last_seq: &mut u64,
    stats: &Mutex<ConversationStats>,
) -> anyhow::Result<()> {
    tokio::pin!(until);
    loop {
        tokio::select! {
            _ = &mut until => return Ok(()),
            event = session.next() => {
                count(event?.context("the session has ended")?, last_seq, stats);
            }
        }
    }
}

fn count(event: SessionEvent, last_seq: &mut u64, stats: &Mutex<ConversationStats>) {
    let mut stats = stats.lock();
    let mut delivered = |seq: u64| {
        stats.out_of_order += u64::from(seq != *last_seq + 1);
        *last_seq = seq;
    };
    match event {
        SessionEvent::Partial(partial) => stats.latest = format!("… {}", partial.text),
        SessionEvent::Result(result) => {
            delivered(result.seq);
            stats.results += 1;
            stats.latest = result.text_translated.as_deref().unwrap_or_default().to_owned();
        }
        SessionEvent::Missing(missing) => {
            delivered(missing.seq);
            stats.missing += 1;
        }
        SessionEvent::Accepted(_) | SessionEvent::Refused { .. } | SessionEvent::Resumed => {}
    }
}

/// 20 ms of a tone at 16 kHz.
fn tone(frame: usize) -> Vec<u8> {
    let sample = |n: usize| (((frame * 320 + n) as f64 * 0.05).sin() * 8_000.0) as i16;
    (0..320).flat_map(|n| sample(n).to_le_bytes()).collect()
}
