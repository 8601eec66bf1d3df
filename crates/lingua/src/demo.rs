//! `lingua demo`: a scheduler, simulated nodes and traffic in one process, and a live display.
//!
//! | file | what it holds |
//! |---|---|
//! | `scheduler.rs` | the scheduler, on a thread of its own |
//! | `fleet.rs` | the nodes, through real sockets |
//! | `traffic.rs` | the clients, through real HTTP |
//! | `conversation.rs` | two-way sessions, over the session socket |
//! | `view.rs` | the display |
//!
//! Start at [`run`]. The display gets its data over HTTP, as any client does.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use lingua_sdk::Client;
use lingua_wire::view::{NodeList, NodeView};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::config::Config;
use crate::nodes;
use crate::screen::{colours, print_line};
use crate::serve::stop_signal;
use crate::simulated::{StopSwitch, until_registered};

mod conversation;
mod fleet;
mod scheduler;
mod traffic;
mod view;

use conversation::ConversationStats;
use fleet::{DEMO_NODES, DemoNode};
use scheduler::DemoScheduler;
use traffic::TrafficStats;
use view::{DemoTerminal, DemoView, NodeBar};

/// How often the display is drawn.
const FRAME: Duration = Duration::from_millis(500);

/// Requests a second at the start.
const RATE_AT_FIRST: f64 = 55.0;

/// How long the fleet and the scheduler may take to end.
const END_MAX: Duration = Duration::from_secs(8);

/// Heartbeat interval of the nodes: short, so that a lost node is noticed soon.
const HEARTBEAT_MS: u64 = 1_000;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Address to listen on [default: 127.0.0.1:7410, or a free port if that is taken].
    #[arg(long)]
    listen: Option<String>,
    /// End after this many seconds.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
}

pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<()> {
    let scheduler = start(args.listen).await?;
    let stop = StopSwitch::new();
    let mut nodes = fleet::run(&scheduler.url, &stop)?;
    let client = Client::new(&scheduler.url)?;
    // Jobs that come before the nodes would fail.
    until_registered(&client, DEMO_NODES.len(), |_| true).await?;
    let stats = Arc::new(Mutex::new(TrafficStats::new(RATE_AT_FIRST)));
    let conversations = Arc::new(Mutex::new(ConversationStats::default()));
    let mut last = DemoView { url: scheduler.url.clone(), ..DemoView::default() };
    let ended = tokio::select! {
        shown = show(&client, &stats, &conversations, &mut last) => shown,
        () = traffic::run(&client, &stats) => Ok(()),
        () = conversation::run(&scheduler.url, &conversations) => Ok(()),
        () = stop_signal() => Ok(()),
        () = sleep(args.seconds.map_or(Duration::MAX, Duration::from_secs)) => Ok(()),
        Some(ended) = nodes.join_next() => ended.context("a node's task failed").flatten(),
    };
    // The display has restored the terminal by now.
    print_line(last.line());
    stop.trigger();
    let leaving = async {
        while nodes.join_next().await.is_some() {}
        scheduler.stop().await
    };
    match timeout(END_MAX, leaving).await {
        Ok(stopped) => ended.and(stopped),
        // The process ends anyway, and a demo has nothing to keep.
        Err(_) => ended,
    }
}

/// Starts the scheduler on the given address, or else on the usual one or a free port.
async fn start(listen: Option<String>) -> anyhow::Result<DemoScheduler> {
    let mut config = Config::default();
    config.scheduler.heartbeat_interval_ms = HEARTBEAT_MS;
    config.scheduler.heartbeat_stale_ms = 3 * HEARTBEAT_MS;
    let may_choose = listen.is_none();
    config.server.listen = listen.unwrap_or(config.server.listen);
    match DemoScheduler::start(config.clone()).await {
        Err(_) if may_choose => {
            config.server.listen = "127.0.0.1:0".to_owned();
            DemoScheduler::start(config).await
        }
        started => started,
    }
}

/// Updates the display, for ever.
async fn show(
    client: &Client,
    stats: &Mutex<TrafficStats>,
    conversations: &Mutex<ConversationStats>,
    last: &mut DemoView,
) -> anyhow::Result<()> {
    let terminal = std::io::stdout().is_terminal().then(DemoTerminal::open);
    if terminal.is_none() {
        print_line(format!("Lingua demo at {}\n{}", last.url, last.hints()));
    }
    let start = Instant::now();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for frame in 0_u64.. {
        frames.tick().await;
        *last = read_view(client, stats, last.url.clone(), start).await?;
        last.conversations = conversations.lock().clone();
        stats.lock().adapt_rate(last.busy());
        match &terminal {
            Some(terminal) => terminal.show(&last.draw(colours())),
            None if frame % 2 == 1 => print_line(last.line()),
            None => {}
        }
    }
    Ok(())
}

/// Reads the present state of the demo.
async fn read_view(
    client: &Client,
    stats: &Mutex<TrafficStats>,
    url: String,
    start: Instant,
) -> anyhow::Result<DemoView> {
    let NodeList { nodes, .. } = client.nodes().await?;
    let metrics = client.metrics().await?;
    let mut stats = stats.lock();
    let rate = stats.rate(Instant::now(), start.elapsed());
    Ok(DemoView {
        url,
        seconds: start.elapsed().as_secs(),
        bars: DEMO_NODES.iter().map(|node| node_bar(node, &nodes)).collect(),
        done: stats.done,
        failed: stats.failed,
        last_error: stats.last_error.clone(),
        retried: metric(&metrics, "lingua_job_retries_total"),
        open: stats.open,
        queued: metric(&metrics, "lingua_queue_jobs"),
        sessions: metric(&metrics, "lingua_sessions"),
        conversations: ConversationStats::default(),
        rate,
    })
}

fn node_bar(node: &DemoNode, nodes: &[NodeView]) -> NodeBar {
    let found = nodes.iter().find(|view| view.node_id.as_str() == node.name);
    let note = match (node.disconnects, node.fail_rate > 0.0) {
        _ if node.streams => format!("{} ms a job, streaming", node.work_ms),
        (true, _) => "disconnects now and then".to_owned(),
        (_, true) => format!("fails {:.0} %", node.fail_rate * 100.0),
        _ => format!("{} ms a job", node.work_ms),
    };
    NodeBar {
        name: node.name.to_owned(),
        languages: node.languages.join(" "),
        state: found.map_or("gone", nodes::state).to_owned(),
        used: found.map_or(0, |view| view.used),
        max: u32::from(node.slots),
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
    fn a_node_that_is_not_registered_is_gone() {
        let bar = node_bar(&DEMO_NODES[0], &[]);
        assert_eq!((bar.state.as_str(), bar.used), ("gone", 0));
    }
}
