//! `lingua demo`: a scheduler, a fleet and traffic in one process, and a live picture of it.
//!
//! | file | what |
//! |---|---|
//! | `fleet.rs` | the nodes, through real sockets |
//! | `traffic.rs` | the clients, through real HTTP |
//! | `talk.rs` | people who talk, through the session socket |
//! | `picture.rs` | what is shown |
//!
//! Start at [`run`]. What is shown is asked for over HTTP, as any tool would.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lingua_wire::view::{NodeList, NodeView};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::api::{self, Api};
use crate::background::Background;
use crate::config::Config;
use crate::nodes;
use crate::screen::{colours, say};
use crate::serve::stop_signal;
use crate::simulated::{Quit, until_registered};

mod fleet;
mod picture;
mod talk;
mod traffic;

use fleet::{FLEET, Member};
use picture::{Bar, Picture, Screen};
use talk::Talked;
use traffic::Tally;

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(500);

/// How many requests a second the traffic starts with.
const RATE_AT_FIRST: f64 = 55.0;

/// How long the fleet and the scheduler may take to end.
const END_MAX: Duration = Duration::from_secs(8);

/// How often the scheduler hears from the demo's nodes: often enough to see a death soon.
const HEARTBEAT_MS: u64 = 1_000;

/// Flags of `lingua demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to listen [default: 127.0.0.1:7410, or a free port if that is taken].
    #[arg(long)]
    listen: Option<String>,
    /// End after so many seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let scheduler = start(args.listen).await?;
    let quit = Quit::new();
    let mut nodes = fleet::run(&scheduler.url(), &quit)?;
    let api = Api::new(&scheduler.url(), None)?;
    // Traffic that comes before the nodes would only show that there are none.
    until_registered(&api, FLEET.len(), |_| true).await?;
    let tally = Arc::new(Mutex::new(Tally::new(RATE_AT_FIRST)));
    let clients = tokio::spawn(traffic::run(api.clone(), Arc::clone(&tally), quit.clone()));
    let talked = Arc::new(Mutex::new(Talked::default()));
    let people = tokio::spawn(talk::run(scheduler.url(), Arc::clone(&talked), quit.clone()));
    let mut last = Picture { url: scheduler.url(), ..Picture::default() };
    let ended = tokio::select! {
        shown = watch(&api, &tally, &talked, &mut last) => shown,
        () = stop_signal() => Ok(()),
        () = after(args.seconds) => Ok(()),
        Some(ended) = nodes.join_next() => ended.context("a node's task failed").flatten(),
    };
    // Whoever watched has put the terminal back by now.
    say(last.line());
    quit.now();
    let leaving = async {
        clients.await.ok();
        people.await.ok();
        while nodes.join_next().await.is_some() {}
        scheduler.stop().await
    };
    match timeout(END_MAX, leaving).await {
        Ok(stopped) => ended.and(stopped),
        // The process ends anyway; nothing of a demo is worth keeping.
        Err(_) => ended,
    }
}

/// Starts the scheduler where it was asked for, or else where there is room.
async fn start(listen: Option<String>) -> anyhow::Result<Background> {
    let config = |listen: &str| {
        let mut config = Config::default();
        listen.clone_into(&mut config.server.listen);
        config.scheduler.heartbeat_interval_ms = HEARTBEAT_MS;
        config.scheduler.heartbeat_stale_ms = 3 * HEARTBEAT_MS;
        config
    };
    if let Some(listen) = listen {
        return Background::start(config(&listen)).await;
    }
    match Background::start(config(&Config::default().server.listen)).await {
        Ok(started) => Ok(started),
        Err(_) => Background::start(config("127.0.0.1:0")).await,
    }
}

async fn after(seconds: Option<u64>) {
    match seconds {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => std::future::pending().await,
    }
}

/// Shows what happens, for ever.
async fn watch(
    api: &Api,
    tally: &Mutex<Tally>,
    talked: &Mutex<Talked>,
    last: &mut Picture,
) -> anyhow::Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let screen = is_terminal.then(Screen::open);
    if screen.is_none() {
        say(format!("Lingua demo at {}\n{}", last.url, last.hints()));
    }
    let start = Instant::now();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for frame in 0_u64.. {
        frames.tick().await;
        *last = look(api, tally, last.url.clone(), start).await?;
        last.talked = talked.lock().clone();
        tally.lock().follow(last.busy());
        match &screen {
            Some(screen) => screen.show(&last.draw(colours())),
            None if frame % 2 == 1 => say(last.line()),
            None => {}
        }
    }
    Ok(())
}

/// Takes a picture.
async fn look(
    api: &Api,
    tally: &Mutex<Tally>,
    url: String,
    start: Instant,
) -> anyhow::Result<Picture> {
    let answer = api.get("/v1/nodes").await?;
    let NodeList { nodes } = api::read(&answer)?;
    let metrics = api.get("/metrics").await?;
    let metrics = String::from_utf8_lossy(&metrics);
    let mut tally = tally.lock();
    let pace = tally.pace(Instant::now(), start.elapsed());
    Ok(Picture {
        url,
        seconds: start.elapsed().as_secs(),
        bars: FLEET.iter().map(|member| bar(member, &nodes)).collect(),
        done: tally.done,
        failed: tally.failed,
        last_error: tally.last_error().map(str::to_owned),
        retried: metric(&metrics, "lingua_job_retries_total"),
        open: tally.open,
        queued: metric(&metrics, "lingua_queue_jobs"),
        sessions: metric(&metrics, "lingua_sessions"),
        talked: Talked::default(),
        pace,
    })
}

fn bar(member: &Member, nodes: &[NodeView]) -> Bar {
    let found = nodes.iter().find(|node| node.node_id.as_str() == member.name);
    let note = match (member.dies, member.fail_rate > 0.0) {
        _ if member.listens => format!("{} ms a job, listens along", member.work_ms),
        (true, _) => "dies now and then".to_owned(),
        (_, true) => format!("fails {:.0} %", member.fail_rate * 100.0),
        _ => format!("{} ms a job", member.work_ms),
    };
    Bar {
        name: member.name.to_owned(),
        languages: member.languages.join(" "),
        state: found.map_or("gone", nodes::state).to_owned(),
        used: found.map_or(0, |node| node.used),
        max: u32::from(member.slots),
        note,
    }
}

/// The sum of a metric over all its labels.
fn metric(text: &str, name: &str) -> u64 {
    let of_line = |line: &str| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    text.lines().filter_map(of_line).sum::<f64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# HELP a_total x\na_total{reason=\"busy\"} 2\na_total{reason=\"a b\"} 3\n\
                    a_total_other 9\nb 4\n";
        assert_eq!(metric(text, "a_total"), 5);
        assert_eq!(metric(text, "b"), 4);
        assert_eq!(metric(text, "c"), 0);
    }

    #[test]
    fn a_node_that_is_not_there_is_gone() {
        let bar = bar(&FLEET[0], &[]);
        assert_eq!((bar.state.as_str(), bar.used), ("gone", 0));
    }
}
