//! `lingua pools`: which directions are served, and how much room there is.

use clap::{Args, Subcommand};
use lingua_wire::view::{PoolList, PoolView};

use crate::api::{self, Target};
use crate::screen::{Sheet, card, cell, colours, number, say};

/// Flags of `lingua pools`.
#[derive(Debug, Args)]
pub(crate) struct PoolsArgs {
    #[command(subcommand)]
    command: Option<PoolsCommand>,
    #[command(flatten)]
    target: Target,
}

/// What to show.
#[derive(Debug, Subcommand)]
enum PoolsCommand {
    /// All pools, one to a line; the default.
    Ls,
    /// Everything about one pool.
    Show {
        /// Its direction, such as zh:en, or *:en for speech whose language is not known.
        id: String,
    },
}

pub(crate) async fn run(args: PoolsArgs) -> anyhow::Result<()> {
    let api = args.target.api()?;
    match args.command {
        None | Some(PoolsCommand::Ls) => {
            let answer = api.get("/v1/pools").await?;
            if args.target.json {
                api::print_raw(&answer);
                return Ok(());
            }
            let PoolList { pools, .. } = api::read(&answer)?;
            say(table(&pools, colours()));
        }
        Some(PoolsCommand::Show { id }) => {
            let pair = lingua_wire::lang::pool("pool", &id)?;
            let answer = api.get(&format!("/v1/pools/{pair}")).await?;
            if args.target.json {
                api::print_raw(&answer);
                return Ok(());
            }
            say(show(&api::read(&answer)?));
        }
    }
    Ok(())
}

fn table(pools: &[PoolView], colours: bool) -> String {
    let mut sheet = Sheet::new(&["PAIR", ">NODES", ">READY", ">FREE"], colours);
    for pool in pools {
        let [nodes, ready, free] = [pool.nodes, pool.ready, pool.free].map(number);
        sheet.row([cell(pool.pool), nodes, ready, free]);
    }
    sheet.finish("No pools yet: they appear within a second after nodes have registered.")
}

fn show(pool: &PoolView) -> String {
    let ids = pool.node_ids.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
    card(&[
        ("pool", pool.pool.to_string()),
        ("nodes", pool.nodes.to_string()),
        ("ready", pool.ready.to_string()),
        ("free / slots", format!("{} / {}", pool.free, pool.slots)),
        ("node ids", ids.join(" ")),
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
