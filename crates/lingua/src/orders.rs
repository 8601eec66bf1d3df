//! `lingua drain`, `lingua resume` and `lingua cancel`: what operators order.

use bytes::Bytes;
use clap::Args;
use lingua_core::{JobId, NodeId, NodeState};
use lingua_wire::client::CancelResponse;
use lingua_wire::view::NodeView;

use crate::api::{self, Target};
use crate::screen::say;

/// Flags of the orders about a node.
#[derive(Debug, Args)]
pub(crate) struct NodeOrderArgs {
    /// The node's name.
    node: NodeId,
    #[command(flatten)]
    target: Target,
}

/// Flags of `lingua cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The job's id.
    job: JobId,
    #[command(flatten)]
    target: Target,
}

/// Lets a node finish what it has and gives it nothing new.
pub(crate) async fn drain(args: NodeOrderArgs) -> anyhow::Result<()> {
    order(args, "drain", drained).await
}

/// Gives a node jobs again.
pub(crate) async fn resume(args: NodeOrderArgs) -> anyhow::Result<()> {
    order(args, "resume", resumed).await
}

async fn order(
    args: NodeOrderArgs,
    what: &str,
    said: fn(&NodeView) -> String,
) -> anyhow::Result<()> {
    let path = format!("/v1/nodes/{}/{what}", args.node);
    let answer = args.target.api()?.post(&path, Bytes::new()).await?;
    match args.target.json {
        true => api::print_raw(&answer),
        false => say(said(&api::read(&answer)?)),
    }
    Ok(())
}

fn drained(node: &NodeView) -> String {
    let NodeView { node_id, used, .. } = node;
    match used {
        0 => format!("{node_id} gets no new jobs and has none."),
        1 => format!("{node_id} gets no new jobs; it still has 1."),
        _ => format!("{node_id} gets no new jobs; it still has {used}."),
    }
}

fn resumed(node: &NodeView) -> String {
    let NodeView { node_id, state, .. } = node;
    match state {
        NodeState::Ready => format!("{node_id} gets jobs again."),
        _ => {
            format!("{node_id} gets jobs again as soon as it says that it is ready (now {state}).")
        }
    }
}

/// Ends a job that nobody waits for.
pub(crate) async fn cancel(args: CancelArgs) -> anyhow::Result<()> {
    let path = format!("/v1/jobs/{}/cancel", args.job);
    let answer = args.target.api()?.post(&path, Bytes::new()).await?;
    if args.target.json {
        api::print_raw(&answer);
        return Ok(());
    }
    let CancelResponse { state, .. } = api::read(&answer)?;
    match state {
        lingua_core::job::JobState::Cancelled => say(format!("{} is cancelled.", args.job)),
        _ => say(format!("{} had ended already: {state}.", args.job)),
    }
    Ok(())
}
