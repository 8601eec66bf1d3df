//! The demo's talking people: sessions of two ways that never end.
//!
//! Start at [`run`]. Everything goes through the session socket, as any client would.

use std::sync::Arc;
use std::time::Duration;

use lingua_sdk::session::Event;
use lingua_sdk::{Session, SessionOptions};
use lingua_wire::session::SessionStart;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::simulated::{StopSwitch, socket_url};

/// How many conversations there are.
const PAIRS: u64 = 4;

/// Frames of 20 ms in a turn: two seconds.
const FRAMES: usize = 100;

/// Between two turns.
const PAUSE: Duration = Duration::from_millis(700);

/// Before somebody who was hung up on comes back.
const AGAIN: Duration = Duration::from_secs(1);

/// What came of the conversations.
#[derive(Debug, Clone, Default)]
pub(super) struct Talked {
    pub(super) results: u64,
    pub(super) missing: u64,
    /// Whether everything came in the order spoken.
    pub(super) out_of_order: u64,
    /// What was said last, or is being said.
    pub(super) last: String,
}

/// Lets people talk until `stop`.
pub(super) async fn run(url: String, talked: Arc<Mutex<Talked>>, stop: StopSwitch) {
    let mut people = JoinSet::new();
    for n in 0..PAIRS {
        let (url, talked) = (url.clone(), Arc::clone(&talked));
        people.spawn(async move {
            sleep(PAUSE * n as u32).await;
            loop {
                if let Err(error) = talk(&url, &talked).await {
                    talked.lock().last = error.to_string();
                }
                sleep(AGAIN).await;
            }
        });
    }
    stop.wait().await;
}

async fn talk(url: &str, talked: &Mutex<Talked>) -> anyhow::Result<()> {
    let start = SessionStart {
        mode: Some("two_way".into()),
        lang_a: Some("zh".into()),
        lang_b: Some("en".into()),
        partials: Some(true),
        context: Some(true),
        ..SessionStart::default()
    };
    let options = SessionOptions::new(socket_url(url, "/v1/session/ws"));
    let mut session = Session::start(options, &start).await?;
    let (mut last_seq, mut ticks) = (0, interval(Duration::from_millis(20)));
    for turn in 0_u64.. {
        let speaker = if turn % 2 == 0 { "a" } else { "b" };
        session.turn_start(Some(speaker)).await;
        for n in 0..FRAMES {
            loop {
                tokio::select! {
                    _ = ticks.tick() => break,
                    event = session.next() => match event? {
                        Some(event) => note(event, &mut last_seq, talked),
                        None => return Ok(()),
                    },
                }
            }
            session.audio(hum(n)).await;
        }
        session.turn_end().await;
        let pause = sleep(PAUSE);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                event = session.next() => match event? {
                    Some(event) => note(event, &mut last_seq, talked),
                    None => return Ok(()),
                },
            }
        }
        ticks.reset();
    }
    Ok(())
}

fn note(event: Event, last_seq: &mut u64, talked: &Mutex<Talked>) {
    let mut talked = talked.lock();
    let mut came = |seq: u64| {
        talked.out_of_order += u64::from(seq != *last_seq + 1);
        *last_seq = seq;
    };
    match event {
        Event::Partial { text, .. } => talked.last = format!("… {text}"),
        Event::Result(result) => {
            came(result.seq);
            talked.results += 1;
            talked.last = result.text_translated.as_deref().unwrap_or_default().to_owned();
        }
        Event::Missing(missing) => {
            came(missing.seq);
            talked.missing += 1;
        }
        Event::Accepted(_) | Event::Refused { .. } | Event::Resumed => {}
    }
}

/// 20 ms of a hum at 16 kHz.
fn hum(frame: usize) -> Vec<u8> {
    let sample = |n: usize| (((frame * 320 + n) as f64 * 0.05).sin() * 8_000.0) as i16;
    (0..320).flat_map(|n| sample(n).to_le_bytes()).collect()
}
