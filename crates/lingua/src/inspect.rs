//! `lingua inspect`: what a shared store holds, read from the store itself.
//!
//! For when the schedulers are down or are not believed. Everything goes through the store
//! contract, so what is shown is what an instance would see; nothing is changed.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lingua_core::{CellId, JobId, LangSet, Nmt, NodeId};
use lingua_redis::RedisStore;
use lingua_store::Store;
use lingua_store::contract::{CellRecord, JobRecord, LeasePhase, LeaseRecord, NodeRecord};

use crate::backing;
use crate::config::Config;
use crate::screen::{Sheet, age, ago, card, cell, colours, number, or_dash, say, state, yes_no};

/// Flags of `lingua inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    command: Option<InspectCommand>,
    /// Configuration file (TOML).
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Which store, such as redis://127.0.0.1:6379.
    #[arg(long, global = true)]
    store: Option<String>,
}

/// What to look at.
#[derive(Debug, Subcommand)]
enum InspectCommand {
    /// One cell: its nodes and its leases.
    Cell {
        /// Its number, with or without the c.
        cell: String,
    },
    /// One node and the leases on it.
    Node {
        /// Its name.
        node: NodeId,
    },
    /// One job's record.
    Job {
        /// Its id.
        job: JobId,
    },
}

pub(crate) async fn run(args: InspectArgs) -> anyhow::Result<()> {
    let mut config = Config::load(args.config.as_deref())?;
    config.store.url = args.store.unwrap_or(config.store.url);
    if config.store.url == "embedded:" {
        bail!(
            "the embedded store is inside the scheduler's process; ask that with 'lingua nodes' or \
             'lingua jobs', or name a shared store with --store"
        );
    }
    let options = backing::redis_options(&config)?;
    let store = RedisStore::connect(options).await.context("cannot look into the store")?;
    let colours = colours();
    say(match args.command {
        None => overview(&store, colours).await?,
        Some(InspectCommand::Cell { cell }) => {
            let number = cell.trim_start_matches('c').parse().ok().and_then(CellId::new);
            let id = number.with_context(|| format!("{cell:?} is no cell; write c0 to c999"))?;
            show_cell(&store.view(id).await?, colours)
        }
        Some(InspectCommand::Node { node }) => show_node(&store, &node, colours).await?,
        Some(InspectCommand::Job { job }) => {
            let record = store.job(job).await?;
            let record = record.with_context(|| format!("there is no record of {job}"))?;
            show_job(&record)
        }
    });
    Ok(())
}

async fn overview<S: Store>(store: &S, colours: bool) -> anyhow::Result<String> {
    let mut sheet =
        Sheet::new(&["CELL", ">NODES", ">READY", ">USED", ">SLOTS", ">LEASES"], colours);
    for id in store.cells().await? {
        let view = store.view(id).await?;
        let ready = view.nodes.iter().filter(|node| state_of(node, view.now_ms) == "ready").count();
        let used: u32 = view.nodes.iter().map(|node| u32::from(node.used)).sum();
        let slots: u32 = view.nodes.iter().map(|node| u32::from(node.profile.slots_max())).sum();
        sheet.row([
            cell(id),
            number(view.nodes.len()),
            number(ready),
            number(used),
            number(slots),
            number(view.leases.len()),
        ]);
    }
    let mut instances = Sheet::new(&["INSTANCE", "ADDRESS", "ALIVE"], colours);
    for known in store.instances().await? {
        instances.row([cell(&known.instance), cell(&known.address), state(yes_no(known.alive))]);
    }
    let table = store.table().await?;
    let facts = card(&[
        ("pool table", or_dash(table.map(|t| format!("version {}, term {}", t.version, t.term)))),
        ("changes", store.feed_head().await?.to_string()),
    ]);
    let (cells, instances) =
        (sheet.finish("No cell has a node."), instances.finish("No instance is known."));
    Ok(format!("{cells}\n\n{instances}\n\n{facts}"))
}

fn show_cell(view: &CellRecord, colours: bool) -> String {
    let mut sheet = Sheet::new(
        &["NODE", ">SLOT", "STATE", ">USED", ">COST", ">EPOCH", "LAST BEAT", "LANGUAGES"],
        colours,
    );
    for node in &view.nodes {
        sheet.row([
            cell(&node.node),
            number(node.place.slot),
            state(state_of(node, view.now_ms)),
            number(format!("{}/{}", node.used, node.profile.slots_max())),
            number(age(node.cost_ms.into())),
            number(node.place.epoch),
            cell(ago(node.heartbeat_ms, view.now_ms)),
            cell(words(node.profile.capabilities().asr())),
        ]);
    }
    let nodes = sheet.finish(&format!("Cell {} has no nodes.", view.cell));
    format!("{nodes}\n\n{}", leases(view, |_| true, colours))
}

async fn show_node<S: Store>(store: &S, name: &NodeId, colours: bool) -> anyhow::Result<String> {
    let place = store.locate(name).await?;
    let place = place.with_context(|| format!("no node {name} has a place in this store"))?;
    let view = store.view(place.cell).await?;
    let found = view.nodes.iter().find(|node| node.node == *name);
    let node = found.with_context(|| {
        format!("{name} has slot {} of cell {}, and has not registered", place.slot, place.cell)
    })?;
    let caps = node.profile.capabilities();
    let services: Vec<&str> = caps.services().iter().map(|service| service.as_str()).collect();
    let percent = |resource| f64::from(node.load.permille(resource)) / 10.0;
    let [cpu, gpu, memory] = lingua_core::Resource::ALL.map(percent);
    let card = card(&[
        ("node", node.node.to_string()),
        ("place", format!("cell {}, slot {}", place.cell, place.slot)),
        ("epoch", node.place.epoch.to_string()),
        ("state", state_of(node, view.now_ms).to_owned()),
        ("drain ordered", yes_no(node.drain_ordered).to_owned()),
        ("used", format!("{} of {}", node.used, node.profile.slots_max())),
        ("a job takes", age(node.cost_ms.into())),
        ("load", format!("cpu {cpu} %, gpu {gpu} %, memory {memory} %")),
        ("last beat", ago(node.heartbeat_ms, view.now_ms)),
        ("public jobs", yes_no(node.profile.accepts_public()).to_owned()),
        ("services", services.join(" ")),
        ("recognises", words(caps.asr())),
        ("repairs", words(caps.semantic())),
        ("speaks", words(caps.tts())),
        ("translates", translates(caps.nmt())),
    ]);
    let slot = node.place.slot;
    Ok(format!("{card}\n\n{}", leases(&view, |lease| lease.slot == slot, colours)))
}

fn leases(view: &CellRecord, wanted: impl Fn(&LeaseRecord) -> bool, colours: bool) -> String {
    let mut sheet =
        Sheet::new(&["LEASE OF", ">ATTEMPT", ">SLOT", "PHASE", "ENDS", ">FENCE"], colours);
    for lease in view.leases.iter().filter(|lease| wanted(lease)) {
        let phase = match lease.phase {
            LeasePhase::Reserved => "reserved",
            LeasePhase::Committed => "running",
        };
        let ends = match lease.deadline_ms.checked_sub(view.now_ms) {
            Some(left_ms) => format!("in {}", age(left_ms)),
            None => format!("{}, not reaped yet", ago(lease.deadline_ms, view.now_ms)),
        };
        sheet.row([
            cell(lease.key.job),
            number(lease.key.attempt),
            number(lease.slot),
            cell(phase),
            cell(ends),
            number(lease.fence),
        ]);
    }
    sheet.finish("No leases.")
}

fn show_job(record: &JobRecord) -> String {
    let granted = record.grant.as_ref().map(|grant| {
        let (node, cell, slot) = (&grant.node, grant.cell, grant.slot);
        format!("{node} (cell {cell}, slot {slot}), fence {}", grant.fence)
    });
    let took_ms = record.updated_ms.saturating_sub(record.created_ms);
    card(&[
        ("job", record.id.to_string()),
        ("state", record.stage.state.to_string()),
        ("attempt", record.stage.attempt.to_string()),
        ("owner", record.owner.to_string()),
        ("node", or_dash(granted)),
        ("accepted", format!("{} ms since the epoch", record.created_ms)),
        ("last moved", format!("{} later", age(took_ms))),
        ("deadline", or_dash(record.deadline_ms)),
        ("survives its owner", yes_no(record.recoverable).to_owned()),
        ("asked for", content(&record.spec)),
        ("came of it", or_dash(record.outcome.as_deref().map(content))),
    ])
}

/// Most characters of a job's content that are shown.
const CONTENT_MAX: usize = 2000;

fn content(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let shown: String = text.chars().take(CONTENT_MAX).collect();
    match shown.len() < text.len() {
        true => format!("{shown}… ({} bytes)", bytes.len()),
        false => shown,
    }
}

fn state_of(node: &NodeRecord, now_ms: u64) -> &'static str {
    match node.fresh_until_ms < now_ms {
        true => "stale",
        false => node.state.as_str(),
    }
}

fn words(langs: &LangSet) -> String {
    langs.as_slice().iter().map(|lang| lang.as_str()).collect::<Vec<_>>().join(" ")
}

fn translates(nmt: &Nmt) -> String {
    match nmt {
        Nmt::AnyToAny => "anything to anything".to_owned(),
        Nmt::Pairs(pairs) => {
            let pairs = pairs.iter().map(|(src, tgt)| format!("{src}:{tgt}"));
            pairs.collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests;
