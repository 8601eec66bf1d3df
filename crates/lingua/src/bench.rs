//! `lingua bench`: how many jobs a second a scheduler carries, and how long they take.
//!
//! | file | what |
//! |---|---|
//! | `load.rs` | the clients: a closed loop, or an open one at a rate |
//! | `score.rs` | what came of it, as a table and as JSON |
//!
//! Start at [`run`]. Nodes answer at once, so that what is measured is the scheduler, the sockets
//! and this program, all of which share the machine unless `--url` says otherwise.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lingua_core::NodeId;
use lingua_sdk::{Node, NodeOptions};
use lingua_wire::client::Dispatch;
use lingua_wire::to_json;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};

use crate::api::Api;
use crate::background::Background;
use crate::config::Config;
use crate::screen::{colours, say};
use crate::serve::stop_signal;
use crate::simulated::{Quit, Simulated, node_url, until_registered};

mod load;
mod score;

use load::{Load, Mode};
use score::{Score, Setup};

/// What is done before counting starts: connections open, caches warm.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long all may take to end.
const END_MAX: Duration = Duration::from_secs(5);

/// Languages for private use: nobody's real jobs reach these nodes, nor these jobs real ones.
const SRC: &str = "qaa";
const TGT: &str = "qab";

/// Flags of `lingua bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The scheduler to load [default: one of its own, in this process].
    #[arg(long)]
    url: Option<String>,
    /// Token to show it, if it wants one; an admin's, as nodes are registered with it, too.
    #[arg(long, env = "LINGUA_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Open loop: so many jobs a second, and latencies from when each should have been sent.
    #[arg(long, conflicts_with = "concurrency", value_parser = positive)]
    rate: Option<f64>,
    /// Closed loop: so many clients, each with one job at a time [default: 50].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Option<u32>,
    /// How long to measure, after a second of warming up.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How many simulated nodes; 0 uses those that are there.
    #[arg(long, default_value_t = 4)]
    nodes: u16,
    /// How many jobs each of them does at once.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    slots: u16,
    /// What the jobs are spoken in [default: a language for private use].
    #[arg(long, default_value = SRC, hide_default_value = true)]
    src: String,
    /// What they become [default: a language for private use].
    #[arg(long, default_value = TGT, hide_default_value = true)]
    tgt: String,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    found.ok_or_else(|| "give a number above 0".to_owned())
}

impl BenchArgs {
    fn mode(&self) -> Mode {
        match (self.rate, self.concurrency) {
            (Some(per_s), _) => Mode::Open { per_s },
            (None, clients) => Mode::Closed { clients: clients.unwrap_or(50) },
        }
    }

    fn body(&self) -> Bytes {
        Bytes::from(to_json(&Dispatch {
            src_lang: self.src.as_str().into(),
            tgt_lang: self.tgt.as_str().into(),
            text: Some("Where is the nearest station?".into()),
            ..Dispatch::default()
        }))
    }
}

pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if args.nodes == 0 && args.url.is_none() {
        bail!("a scheduler of its own has no nodes: leave out '--nodes 0', or give --url");
    }
    if args.nodes == 0 && args.src == SRC {
        bail!("with '--nodes 0', say what the nodes translate, such as --src zh --tgt en");
    }
    let own = match &args.url {
        Some(_) => None,
        None => {
            let mut config = Config::default();
            "127.0.0.1:0".clone_into(&mut config.server.listen);
            Some(Background::start(config).await?)
        }
    };
    let own_url = own.as_ref().map(Background::url);
    let url = args.url.clone().or(own_url).context("there is no address")?;
    let api = Api::new(&url, args.token.as_deref())?;
    let quit = Quit::new();
    let names = format!("bench-{:08x}-", rand::random::<u32>());
    let mut nodes = start_nodes(&args, &names, &url, &quit)?;
    let measured = tokio::select! {
        measured = measure(&args, &names, &api) => measured,
        Some(ended) = nodes.join_next(), if args.nodes > 0 => match ended.context("a task failed") {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) => Err(anyhow::anyhow!("a node ended early")),
            Err(error) => Err(error),
        },
    };
    quit.now();
    let leaving = async {
        while nodes.join_next().await.is_some() {}
        drop(api);
        if let Some(own) = own {
            own.stop().await.ok();
        }
    };
    // The figures are there; what does not end in time ends with the process.
    timeout(END_MAX, leaving).await.ok();
    let (score, setup) = measured?;
    match args.json {
        true => say(score.json(&setup)),
        false => say(score.table(&setup, colours())),
    }
    if score.done() == 0 {
        bail!("not a single job was done; see the errors above");
    }
    Ok(())
}

type Nodes = JoinSet<Result<(), lingua_sdk::node::Error>>;

/// Starts the nodes; their names are this run's own, so that two runs at once do not take over
/// each other's.
fn start_nodes(args: &BenchArgs, names: &str, url: &str, quit: &Quit) -> anyhow::Result<Nodes> {
    let mut nodes = JoinSet::new();
    for number in 1..=args.nodes {
        let name = NodeId::new(&format!("{names}{number}")).context("no name for a node")?;
        let langs = [args.src.as_str(), args.tgt.as_str()];
        let mut options = NodeOptions::new(node_url(url))
            .node_id(name)
            .languages(&langs, &langs, &langs)
            .slots(args.slots)
            .grace(Duration::from_secs(1));
        if let Some(token) = &args.token {
            options = options.token(token);
        }
        nodes.spawn(Node::new(options, Simulated::new(0, 0.0, 0)).run(quit.wait()));
    }
    Ok(nodes)
}

/// Waits for the nodes, warms up, measures.
async fn measure(args: &BenchArgs, names: &str, api: &Api) -> anyhow::Result<(Score, Setup)> {
    let is_ours = |name: &str| name.starts_with(names);
    until_registered(api, args.nodes.into(), is_ours).await?;
    let (mode, length) = (args.mode(), Duration::from_secs(args.seconds));
    let start = Instant::now();
    let score = Arc::new(Mutex::new(Score::new()?));
    let load = Load {
        api: api.clone(),
        body: args.body(),
        score: Arc::clone(&score),
        count_from: start + WARM_UP,
        until: start + WARM_UP + length,
    };
    tokio::select! {
        () = load.run(mode) => {}
        () = show_progress(&score, start, WARM_UP + length, args.json) => {}
        () = stop_signal() => {}
    }
    let measured = start.elapsed().saturating_sub(WARM_UP).min(length);
    let score = score.lock().take()?;
    Ok((score, Setup { mode, seconds: measured.as_secs_f64(), nodes: args.nodes }))
}

/// A bar on the terminal, for ever; none where nobody sees it.
async fn show_progress(score: &Mutex<Score>, start: Instant, length: Duration, hidden: bool) {
    let bar = match hidden {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(length.as_millis() as u64),
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    let mut tick = interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        bar.set_position(start.elapsed().as_millis() as u64);
        bar.set_message(score.lock().progress());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_above_zero() {
        assert_eq!(positive("0.5"), Ok(0.5));
        assert!(["0", "-1", "inf", "NaN", "x"].iter().all(|text| positive(text).is_err()));
    }

    #[test]
    fn the_private_languages_are_languages() {
        assert!(lingua_wire::lang::pool("pair", &format!("{SRC}:{TGT}")).is_ok());
    }
}
