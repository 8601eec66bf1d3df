//! `lingua pools`: the language pairs that nodes serve, and their free slots.

use lingua_wire::view::{PoolList, PoolView};

use crate::api::{ListArgs, ListCommand};
use crate::screen::{TextTable, cell, colours, field_list, number, words};

pub(crate) async fn run(ListArgs { command, target }: ListArgs<String>) -> anyhow::Result<()> {
    match command {
        None | Some(ListCommand::Ls) => {
            target.show("/v1/pools", |list: &PoolList| table(&list.pools, colours())).await
        }
        Some(ListCommand::Show { id }) => {
            let pair = lingua_wire::lang::pool("pool", &id)?;
            target.show(&format!("/v1/pools/{pair}"), show).await
        }
    }
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
        ("node ids", words(pool.node_ids.iter().flatten())),
    ])
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
