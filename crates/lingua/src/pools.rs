//! `lingua pools`: the language pairs that nodes serve, and their free slots.

use lingua_wire::view::{PoolCell, PoolList, PoolView};

use crate::api::{ListArgs, ListCommand};
use crate::screen::{TextTable, cell, colours, field_list, number, stale_note, words};
use crate::serve::wall_ms;

pub(crate) async fn run(ListArgs { command, target }: ListArgs<String>) -> anyhow::Result<()> {
    match command {
        None | Some(ListCommand::Ls) => {
            target.show("/v1/pools", |list: &PoolList| list_text(list, colours())).await
        }
        Some(ListCommand::Show { id }) => {
            let pair = lingua_wire::lang::pool("pool", &id)?;
            target.show(&format!("/v1/pools/{pair}"), show).await
        }
    }
}

fn list_text(list: &PoolList, colours: bool) -> String {
    let mut text = table(&list.pools, colours);
    if list.left_out > 0 {
        let left_out = list.left_out;
        text += &format!("\n{left_out} more are left out: see pools.max_pools and ");
        text += "pools.min_nodes_per_pool; their jobs are served all the same.";
    }
    text + &stale_note(list.as_of_ms, wall_ms())
}

fn table(pools: &[PoolView], colours: bool) -> String {
    let mut rows = TextTable::new(&["PAIR", ">NODES", ">READY", ">FREE"], colours);
    for pool in pools {
        let [nodes, ready, free] = [pool.nodes, pool.ready, pool.free].map(number);
        rows.row([cell(pool.pool), nodes, ready, free]);
    }
    rows.finish("No pools yet: they appear within a second after nodes have registered.")
}

fn show(pool: &PoolView) -> String {
    field_list(&[
        ("pool", pool.pool.to_string()),
        ("nodes", pool.nodes.to_string()),
        ("ready", pool.ready.to_string()),
        ("free / slots", format!("{} / {}", pool.free, pool.slots)),
        ("cells", cells(pool.cells.iter().flatten())),
        ("node ids", words(pool.node_ids.iter().flatten())),
    ]) + &stale_note(pool.as_of_ms, wall_ms())
}

/// Each cell with its ready nodes and free slots.
fn cells<'a>(cells: impl Iterator<Item = &'a PoolCell>) -> String {
    let text = |c: &PoolCell| {
        let PoolCell { cell, nodes, ready, free, slots } = c;
        format!("c{cell}: {ready} of {nodes} nodes ready, {free} of {slots} slots free")
    };
    cells.map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_one_line_and_its_nodes_are_shown() {
        let mut pool = PoolView::new("zh:en".parse().unwrap());
        (pool.nodes, pool.ready, pool.free, pool.slots) = (3, 2, 5, 8);
        pool.node_ids = Some(vec!["a".parse().unwrap(), "b".parse().unwrap()]);
        let table = table(std::slice::from_ref(&pool), false);
        assert_eq!(table, "PAIR   NODES  READY  FREE\nzh:en      3      2     5");
        let shown = show(&pool);
        assert!(shown.contains("free / slots:  5 / 8"), "{shown}");
        assert!(shown.ends_with("a b"), "{shown}");
    }
}
