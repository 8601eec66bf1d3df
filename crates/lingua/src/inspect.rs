//! `lingua inspect`: the content of a shared store, read from the store itself.
//!
//! For operators whose schedulers are down or show something unexpected. It reads through the store
//! contract, so it shows what an instance sees, and changes nothing.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use lingua_core::{CellId, JobId, Nmt, NodeId};
use lingua_redis::RedisStore;
use lingua_store::Store;
use lingua_store::contract::{CellRecord, JobRecord, LeasePhase, LeaseRecord, NodeRecord};

use crate::config::Config;
use crate::screen::{
    TextTable, age, ago, cell, colours, field_list, number, or_dash, print_line, state, words,
    yes_no,
};
use crate::store;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    command: Option<InspectCommand>,
    /// Configuration file (TOML).
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// URL of the store, such as redis://127.0.0.1:6379.
    #[arg(long, global = true)]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum InspectCommand {
    /// One cell: its nodes and its leases.
    Cell {
        /// Number of the cell, such as 7 or c7.
        cell: String,
    },
    /// One node and the leases on it.
    Node {
        /// Id of the node.
        node: NodeId,
    },
    /// One job's record.
    Job {
        /// Id of the job.
        job: JobId,
    },
}

pub(crate) async fn run(args: InspectArgs) -> anyhow::Result<()> {
    let mut config = Config::load(args.config.as_deref())?;
    config.store.url = args.store.unwrap_or(config.store.url);
    if config.store.url == store::EMBEDDED {
        bail!(
            "the embedded store is inside the scheduler's process; use 'lingua nodes' or \
             'lingua jobs', or give a shared store with --store"
        );
    }
    let options = store::redis_options(&config)?;
    let store = RedisStore::connect(options).await.context("cannot read the store")?;
    let colours = colours();
    print_line(match args.command {
        None => overview(&store, colours).await?,
        Some(InspectCommand::Cell { cell }) => {
            let number = cell.trim_start_matches('c').parse().ok().and_then(CellId::new);
            let id = number.with_context(|| format!("{cell:?} is not a cell; use c0 to c999"))?;
            show_cell(&store.view(id).await?, colours)
        }
        Some(InspectCommand::Node { node }) => show_node(&store, &node, colours).await?,
        Some(InspectCommand::Job { job }) => {
            let record = store.job(job).await?;
            show_job(&record.with_context(|| format!("there is no record of {job}"))?)
        }
    });
    Ok(())
}

async fn overview<S: Store>(store: &S, colours: bool) -> anyhow::Result<String> {
    let headings = ["CELL", ">NODES", ">READY", ">USED", ">SLOTS", ">LEASES"];
    let mut cells = TextTable::new(&headings, colours);
    for id in store.cells().await? {
        let view = store.view(id).await?;
        let ready = view.nodes.iter().filter(|node| state_of(node, view.now_ms) == "ready").count();
        let used: u32 = view.nodes.iter().map(|node| u32::from(node.used)).sum();
        let slots: u32 = view.nodes.iter().map(|node| u32::from(node.profile.slots_max())).sum();
        let [nodes, leases] = [view.nodes.len(), view.leases.len()].map(number);
        cells.row([cell(id), nodes, number(ready), number(used), number(slots), leases]);
    }
    let mut instances = TextTable::new(&["INSTANCE", "ADDRESS", "ALIVE"], colours);
    for known in store.instances().await? {
        instances.row([cell(&known.instance), cell(&known.address), state(yes_no(known.alive))]);
    }
    let table = store.table().await?;
    let facts = field_list(&[
        ("pool table", or_dash(table.map(|t| format!("version {}, term {}", t.version, t.term)))),
        ("changes", store.feed_head().await?.to_string()),
    ]);
    let cells = cells.finish("No cell has a node.");
    let instances = instances.finish("No instance is known.");
    Ok(format!("{cells}\n\n{instances}\n\n{facts}"))
}

fn show_cell(view: &CellRecord, colours: bool) -> String {
    let mut rows = TextTable::new(
        &["NODE", ">SLOT", "STATE", ">USED", ">COST", ">EPOCH", "LAST HEARTBEAT", "LANGUAGES"],
        colours,
    );
    for node in &view.nodes {
        rows.row([
            cell(&node.node),
            number(node.place.slot),
            state(state_of(node, view.now_ms)),
            number(format!("{}/{}", node.used, node.profile.slots_max())),
            number(age(node.speed.cost_ms.into())),
            number(node.place.epoch),
            cell(ago(node.heartbeat_ms, view.now_ms)),
            cell(words(node.profile.capabilities().asr().as_slice())),
        ]);
    }
    let nodes = rows.finish(&format!("Cell {} has no nodes.", view.cell));
    format!("{nodes}\n\n{}", leases(view, |_| true, colours))
}

async fn show_node<S: Store>(store: &S, name: &NodeId, colours: bool) -> anyhow::Result<String> {
    let place = store.locate(name).await?;
    let place = place.with_context(|| format!("there is no node {name} in this store"))?;
    let view = store.view(place.cell).await?;
    let found = view.nodes.iter().find(|node| node.node == *name);
    let node = found.with_context(|| {
        format!("{name} has slot {} of cell {} but has not registered", place.slot, place.cell)
    })?;
    let caps = node.profile.capabilities();
    let percent = |resource| f64::from(node.load.permille(resource)) / 10.0;
    let [cpu, gpu, memory] = lingua_core::Resource::ALL.map(percent);
    let fields = field_list(&[
        ("node", node.node.to_string()),
        ("place", format!("cell {}, slot {}", place.cell, place.slot)),
        ("epoch", node.place.epoch.to_string()),
        ("state", state_of(node, view.now_ms).to_owned()),
        ("drain ordered", yes_no(node.drain_ordered).to_owned()),
        ("used", format!("{} of {}", node.used, node.profile.slots_max())),
        ("a job takes", age(node.speed.cost_ms.into())),
        ("load", format!("cpu {cpu} %, gpu {gpu} %, memory {memory} %")),
        ("last heartbeat", ago(node.heartbeat_ms, view.now_ms)),
        ("public jobs", yes_no(node.profile.accepts_public()).to_owned()),
        ("services", words(caps.services().iter().map(|service| service.as_str()))),
        ("recognises", words(caps.asr().as_slice())),
        ("repairs", words(caps.semantic().as_slice())),
        ("speaks", words(caps.tts().as_slice())),
        ("translates", describe_nmt(caps.nmt())),
    ]);
    let slot = node.place.slot;
    Ok(format!("{fields}\n\n{}", leases(&view, |lease| lease.slot == slot, colours)))
}

fn leases(view: &CellRecord, wanted: impl Fn(&LeaseRecord) -> bool, colours: bool) -> String {
    let mut rows =
        TextTable::new(&["LEASE OF", ">ATTEMPT", ">SLOT", "PHASE", "ENDS", ">FENCE"], colours);
    for lease in view.leases.iter().filter(|lease| wanted(lease)) {
        let phase = match lease.phase {
            LeasePhase::Reserved => "reserved",
            LeasePhase::Committed => "running",
        };
        let ends = match lease.deadline_ms.checked_sub(view.now_ms) {
            Some(left_ms) => format!("in {}", age(left_ms)),
            None => format!("expired {}, not removed yet", ago(lease.deadline_ms, view.now_ms)),
        };
        rows.row([
            cell(lease.key.job),
            number(lease.key.attempt),
            number(lease.slot),
            cell(phase),
            cell(ends),
            number(lease.fence),
        ]);
    }
    rows.finish("No leases.")
}

fn show_job(record: &JobRecord) -> String {
    let granted = record.grant.as_ref().map(|grant| {
        let (node, cell, slot) = (&grant.node, grant.cell, grant.slot);
        format!("{node} (cell {cell}, slot {slot}), fence {}", grant.fence)
    });
    let took_ms = record.updated_ms.saturating_sub(record.created_ms);
    field_list(&[
        ("job", record.id.to_string()),
        ("state", record.stage.state.to_string()),
        ("attempt", record.stage.attempt.to_string()),
        ("owner", record.owner.to_string()),
        ("node", or_dash(granted)),
        ("accepted", format!("{} ms since the epoch", record.created_ms)),
        ("last change", format!("{} later", age(took_ms))),
        ("deadline", or_dash(record.deadline_ms)),
        ("survives its owner", yes_no(record.recoverable).to_owned()),
        ("request", content(&record.spec)),
        ("outcome", or_dash(record.outcome.as_deref().map(content))),
    ])
}

/// Most characters of a job's content to print.
const CONTENT_MAX: usize = 2000;

/// The first byte is the version.
fn content(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(1..).unwrap_or_default());
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

fn describe_nmt(nmt: &Nmt) -> String {
    match nmt {
        Nmt::AnyToAny => "any to any".to_owned(),
        Nmt::Pairs(pairs) => words(pairs.iter().map(|(src, tgt)| format!("{src}:{tgt}"))),
    }
}

#[cfg(test)]
mod tests;
