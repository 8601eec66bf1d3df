//! `lingua nodes`: the nodes and their states.

use lingua_core::NodeId;
use lingua_wire::node::{LanguageLists, ServiceFlags};
use lingua_wire::view::{LoadView, NodeList, NodeView};

use crate::api::{ListArgs, ListCommand};
use crate::screen::{
    self, TextTable, ago, cell, colours, field_list, number, or_dash, stale_note, words, yes_no,
};
use crate::serve::wall_ms;

pub(crate) async fn run(ListArgs { command, target }: ListArgs<NodeId>) -> anyhow::Result<()> {
    match command {
        None | Some(ListCommand::Ls) => {
            let text = |list: &NodeList| {
                let note = stale_note(list.as_of_ms, wall_ms());
                table(&list.nodes, wall_ms(), colours()) + &note
            };
            target.show("/v1/nodes", text).await
        }
        Some(ListCommand::Show { id }) => {
            target.show(&format!("/v1/nodes/{id}"), |node| show(node, wall_ms())).await
        }
    }
}

/// The state to show: a node without recent heartbeats is stale, whatever it reported last.
pub(crate) fn state(node: &NodeView) -> &'static str {
    match node.fresh {
        true => node.state.as_str(),
        false if node.state == lingua_core::NodeState::Offline => "offline",
        false => "stale",
    }
}

fn table(nodes: &[NodeView], now_ms: u64, colours: bool) -> String {
    let headings =
        ["NODE", "STATE", ">USED", ">PAIRS", ">CPU/GPU/MEM", ">COST", ">CELL", ">HEARTBEAT"];
    let mut rows = TextTable::new(&headings, colours);
    for node in nodes {
        rows.row([
            cell(&node.node_id),
            screen::state(state(node)),
            number(format!("{}/{}", node.used, node.max)),
            number(node.pairs),
            number(load(node.load)),
            number(format!("{} ms", node.cost_ms)),
            number(node.cell),
            number(ago(node.last_heartbeat_ms, now_ms)),
        ]);
    }
    rows.finish("No nodes yet. Start some with 'lingua node'.")
}

fn show(node: &NodeView, now_ms: u64) -> String {
    let LanguageLists { asr_languages, semantic_languages, tts_languages, nmt_pairs } =
        &node.languages;
    let pairs = nmt_pairs.as_ref().map_or("any to any".to_owned(), |pairs| {
        words(pairs.iter().map(|(src, tgt)| format!("{src}:{tgt}")))
    });
    field_list(&[
        ("node", node.node_id.to_string()),
        ("state", state(node).to_owned()),
        ("drain ordered", yes_no(node.drain_ordered).to_owned()),
        ("used / max", format!("{} / {}", node.used, node.max)),
        ("cost", format!("{} ms a job", node.cost_ms)),
        ("cpu / gpu / memory", load(node.load)),
        ("last heartbeat", ago(node.last_heartbeat_ms, now_ms)),
        ("recognises", words(asr_languages.iter().flatten())),
        ("repairs", words(semantic_languages.iter().flatten())),
        ("speaks", words(tts_languages.iter().flatten())),
        ("translates", pairs),
        ("exact pools", node.pairs.to_string()),
        ("pools", words(node.pools.iter().flatten())),
        ("services", services(node.services)),
        ("labels", words(node.labels.iter())),
        ("public jobs", yes_no(node.accept_public_jobs).to_owned()),
        ("epoch", node.epoch.to_string()),
        ("cell / slot", format!("{} / {}", node.cell, node.slot)),
        ("version", or_dash(node.version.as_ref())),
    ]) + &stale_note(node.as_of_ms, now_ms)
}

fn load(load: LoadView) -> String {
    let percent = |fraction: f64| format!("{:.0}", fraction * 100.0);
    format!("{}/{}/{} %", percent(load.cpu), percent(load.gpu), percent(load.memory))
}

fn services(flags: ServiceFlags) -> String {
    let all = [
        ("asr", flags.asr),
        ("nmt", flags.nmt),
        ("tts", flags.tts),
        ("tone", flags.tone),
        ("semantic", flags.semantic),
    ];
    words(all.iter().filter(|(_, on)| *on == Some(true)).map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = r#"{"node_id":"node-1","state":"ready","fresh":true,"used":1,"max":4,
        "epoch":7,"cell":0,"slot":3,"load":{"cpu":0.3,"gpu":0.5,"memory":0.05},"cost_ms":420,
        "languages":{"asr_languages":["zh","en"],"semantic_languages":["zh","en"],
        "tts_languages":["en"]},"services":{"asr":true,"tts":true,"tone":false},"pairs":2,
        "accept_public_jobs":true,"drain_ordered":false,"last_heartbeat_ms":1000}"#;

    fn node() -> NodeView {
        crate::api::parse_reply(NODE.as_bytes()).unwrap()
    }

    #[test]
    fn a_node_is_one_line() {
        let text = table(&[node()], 4_000, false);
        let lines: Vec<&str> = text.lines().collect();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        let expected =
            ["node-1", "ready", "1/4", "2", "30/50/5", "%", "420", "ms", "0", "3.0", "s", "ago"];
        assert_eq!(words, expected);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_node_without_recent_heartbeats_is_stale() {
        assert_eq!(state(&NodeView { fresh: false, ..node() }), "stale");
    }

    #[test]
    fn show_names_every_language_and_service() {
        let text = show(&node(), 4_000);
        for part in ["recognises:          zh en", "speaks:              en", "asr tts"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
