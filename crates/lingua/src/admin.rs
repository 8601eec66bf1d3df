//! `lingua drain`, `lingua resume`, `lingua offline` and `lingua cancel`.

use bytes::Bytes;
use clap::Args;
use lingua_core::job::JobState;
use lingua_core::{JobId, NodeId, NodeState};
use lingua_wire::client::CancelResponse;
use lingua_wire::node::{Offline, OkResponse};
use lingua_wire::to_json;
use lingua_wire::view::NodeView;

use crate::api::TargetArgs;

#[derive(Debug, Args)]
pub(crate) struct NodeAdminArgs {
    /// Id of the node.
    node: NodeId,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Id of the job.
    job: JobId,
    #[command(flatten)]
    target: TargetArgs,
}

pub(crate) async fn drain(NodeAdminArgs { node, target }: NodeAdminArgs) -> anyhow::Result<()> {
    let text = |node: &NodeView| {
        let NodeView { node_id, used, .. } = node;
        match used {
            0 => format!("{node_id} gets no new jobs and has none."),
            1 => format!("{node_id} gets no new jobs; 1 job is running."),
            _ => format!("{node_id} gets no new jobs; {used} jobs are running."),
        }
    };
    target.post(&format!("/v1/nodes/{node}/drain"), Bytes::new(), text).await
}

pub(crate) async fn resume(NodeAdminArgs { node, target }: NodeAdminArgs) -> anyhow::Result<()> {
    let text = |node: &NodeView| {
        let NodeView { node_id, state, .. } = node;
        match state {
            NodeState::Ready => format!("{node_id} gets jobs again."),
            _ => format!("{node_id} gets jobs again when it is ready (now {state})."),
        }
    };
    target.post(&format!("/v1/nodes/{node}/resume"), Bytes::new(), text).await
}

pub(crate) async fn offline(NodeAdminArgs { node, target }: NodeAdminArgs) -> anyhow::Result<()> {
    let text = |_: &OkResponse| {
        format!("{node} is offline; its jobs are retried on other nodes. It may register again.")
    };
    let body = to_json(&Offline { node_id: node.clone() });
    target.post("/v1/node/offline", body.into(), text).await
}

pub(crate) async fn cancel(CancelArgs { job, target }: CancelArgs) -> anyhow::Result<()> {
    let text = |reply: &CancelResponse| match reply.state {
        JobState::Cancelled => format!("{job} is cancelled."),
        state => format!("{job} had already ended: {state}."),
    };
    target.post(&format!("/v1/jobs/{job}/cancel"), Bytes::new(), text).await
}
