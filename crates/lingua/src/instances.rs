//! `lingua instances`: the scheduler processes and which of them leads.

use anyhow::Context;
use clap::{Args, Subcommand};
use lingua_core::InstanceId;
use lingua_wire::view::{ClusterView, InstanceView};

use crate::api::{self, Target};
use crate::screen::{Sheet, ago, card, cell, colours, or_dash, say, state, yes_no};
use crate::serve::wall_ms;

/// Flags of `lingua instances`.
#[derive(Debug, Args)]
pub(crate) struct InstancesArgs {
    #[command(subcommand)]
    command: Option<InstancesCommand>,
    #[command(flatten)]
    target: Target,
}

/// What to show.
#[derive(Debug, Subcommand)]
enum InstancesCommand {
    /// All instances, one to a line; the default.
    Ls,
    /// Everything about one instance, and what all share.
    Show {
        /// Its name.
        id: InstanceId,
    },
}

pub(crate) async fn run(args: InstancesArgs) -> anyhow::Result<()> {
    let answer = args.target.api()?.get("/v1/cluster").await?;
    let cluster: ClusterView = api::read(&answer)?;
    match args.command {
        None | Some(InstancesCommand::Ls) if args.target.json => api::print_raw(&answer),
        None | Some(InstancesCommand::Ls) => say(table(&cluster, colours())),
        Some(InstancesCommand::Show { id }) => {
            let found = cluster.instances.iter().find(|instance| instance.instance_id == id);
            let found = found.with_context(|| {
                format!("there is no instance {id}; see 'lingua instances' for their names")
            })?;
            match args.target.json {
                true => say(serde_json::to_string(found)?),
                false => say(show(found, &cluster, wall_ms())),
            }
        }
    }
    Ok(())
}

fn table(cluster: &ClusterView, colours: bool) -> String {
    let mut sheet = Sheet::new(&["INSTANCE", "ADDRESS", "ALIVE", "LEADER"], colours);
    for instance in &cluster.instances {
        let leader = if instance.leader { "leader" } else { "-" };
        let alive = state(yes_no(instance.alive));
        sheet.row([cell(&instance.instance_id), cell(&instance.address), alive, cell(leader)]);
    }
    sheet.finish("No instances are known yet; ask again in a second.")
}

fn show(instance: &InstanceView, cluster: &ClusterView, now_ms: u64) -> String {
    let published = cluster.table_published_ms.map(|then_ms| ago(then_ms, now_ms));
    let nodes: Vec<String> =
        cluster.nodes.iter().map(|(state, count)| format!("{count} {state}")).collect();
    card(&[
        ("instance", instance.instance_id.to_string()),
        ("address", instance.address.clone()),
        ("alive", yes_no(instance.alive).to_owned()),
        ("leader", yes_no(instance.leader).to_owned()),
        ("asked", cluster.instance_id.to_string()),
        ("version", cluster.version.clone()),
        ("who leads", or_dash(cluster.leader.as_ref())),
        ("term", cluster.term.to_string()),
        ("pool table", format!("version {}, {}", cluster.table_version, or_dash(published))),
        ("nodes", or_dash(Some(nodes.join(", ")).filter(|text| !text.is_empty()))),
        (
            "store",
            format!("{}, {}", cluster.store.kind, if cluster.store.up { "up" } else { "down" }),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = r#"{"instance_id":"a","version":"1","instances":[
        {"instance_id":"a","address":"127.0.0.1:7410","alive":true,"leader":true,"until_ms":9},
        {"instance_id":"b","address":"127.0.0.1:7411","alive":false,"leader":false,"until_ms":1}],
        "leader":"a","term":3,"table_version":4,"nodes":{"ready":2},
        "store":{"kind":"embedded","up":true}}"#;

    #[test]
    fn the_leader_and_the_dead_are_marked() {
        let cluster: ClusterView = api::read(CLUSTER.as_bytes()).unwrap();
        assert_eq!(
            table(&cluster, false),
            "INSTANCE  ADDRESS         ALIVE  LEADER\n\
             a         127.0.0.1:7410  yes    leader\n\
             b         127.0.0.1:7411  no     -"
        );
        let shown = show(&cluster.instances[1], &cluster, 10);
        assert!(shown.contains("nodes:       2 ready"), "{shown}");
    }
}
