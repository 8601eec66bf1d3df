//! `lingua instances`: the scheduler processes, and which of them is the leader.

use anyhow::Context;
use lingua_core::InstanceId;
use lingua_wire::view::{ClusterView, InstanceView};

use crate::api::{ListArgs, ListCommand};
use crate::clean::clean_json;
use crate::screen::{
    TextTable, ago, cell, colours, field_list, or_dash, print_line, state, yes_no,
};
use crate::serve::wall_ms;

pub(crate) async fn run(ListArgs { command, target }: ListArgs<InstanceId>) -> anyhow::Result<()> {
    match command {
        None | Some(ListCommand::Ls) => {
            target.show("/v1/cluster", |cluster| table(cluster, colours())).await?;
        }
        Some(ListCommand::Show { id }) => {
            let cluster = target.scheduler.client()?.cluster().await?;
            let found = cluster.instances.iter().find(|instance| instance.instance_id == id);
            let found = found.with_context(|| {
                format!("there is no instance {id}; 'lingua instances' lists them")
            })?;
            match target.json {
                true => print_line(clean_json(&serde_json::to_string(found)?)),
                false => print_line(show(found, &cluster, wall_ms())),
            }
        }
    }
    Ok(())
}

fn table(cluster: &ClusterView, colours: bool) -> String {
    let mut rows = TextTable::new(&["INSTANCE", "ADDRESS", "ALIVE", "LEADER"], colours);
    for instance in &cluster.instances {
        let leader = if instance.leader { "leader" } else { "-" };
        let alive = state(yes_no(instance.alive));
        rows.row([cell(&instance.instance_id), cell(&instance.address), alive, cell(leader)]);
    }
    rows.finish("No instances are known yet; try again in a second.")
}

fn show(instance: &InstanceView, cluster: &ClusterView, now_ms: u64) -> String {
    let published = cluster.table_published_ms.map(|then_ms| ago(then_ms, now_ms));
    let nodes: Vec<String> =
        cluster.nodes.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let store_state = if cluster.store.up { "up" } else { "down" };
    field_list(&[
        ("instance", instance.instance_id.to_string()),
        ("address", instance.address.clone()),
        ("alive", yes_no(instance.alive).to_owned()),
        ("leader", yes_no(instance.leader).to_owned()),
        ("answered by", cluster.instance_id.to_string()),
        ("version", cluster.version.clone()),
        ("leader now", or_dash(cluster.leader.as_ref())),
        ("term", cluster.term.to_string()),
        ("pool table", format!("version {}, {}", cluster.table_version, or_dash(published))),
        ("nodes", or_dash(Some(nodes.join(", ")).filter(|text| !text.is_empty()))),
        ("store", format!("{}, {store_state}", cluster.store.kind)),
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
    fn the_leader_and_lost_instances_are_marked() {
        let cluster: ClusterView = crate::api::parse_reply(CLUSTER.as_bytes()).unwrap();
        assert_eq!(
            table(&cluster, false),
            "INSTANCE  ADDRESS         ALIVE  LEADER\n\
             a         127.0.0.1:7410  yes    leader\n\
             b         127.0.0.1:7411  no     -"
        );
        let shown = show(&cluster.instances[1], &cluster, 10);
        assert!(shown.contains("2 ready"), "{shown}");
    }
}
