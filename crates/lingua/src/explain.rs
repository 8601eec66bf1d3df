//! `lingua explain`: why each node would or would not get a job now.

use bytes::Bytes;
use clap::Args;
use lingua_core::{NodeId, Service};
use lingua_wire::client::{Dispatch, DispatchOptions};
use lingua_wire::to_json;
use lingua_wire::view::ExplainResponse;

use crate::api::TargetArgs;
use crate::screen::{TextTable, cell, colours, number, or_dash, state};

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Source language, or auto.
    #[arg(long, visible_alias = "from")]
    src: String,
    /// Target language.
    #[arg(long, visible_alias = "to")]
    tgt: String,
    /// The translation has to be spoken.
    #[arg(long)]
    tts: bool,
    /// The source is text: no speech recognition is needed.
    #[arg(long)]
    text: bool,
    /// A node that must not get it; may be repeated.
    #[arg(long, value_name = "NODE")]
    exclude: Vec<NodeId>,
    /// The preferred node.
    #[arg(long, value_name = "NODE")]
    prefer: Option<NodeId>,
    /// Only the preferred node.
    #[arg(long, requires = "prefer")]
    strict: bool,
    /// A further service that the node must have; may be repeated.
    #[arg(long)]
    service: Vec<Service>,
    #[command(flatten)]
    target: TargetArgs,
}

impl ExplainArgs {
    fn request(&self) -> Dispatch<'_> {
        let options = DispatchOptions {
            require_tts: Some(self.tts),
            preferred_node_id: self.prefer.clone(),
            strict: Some(self.strict),
            exclude_node_ids: Some(self.exclude.clone()),
            services: Some(self.service.clone()),
            ..DispatchOptions::default()
        };
        Dispatch {
            src_lang: self.src.as_str().into(),
            tgt_lang: self.tgt.as_str().into(),
            text: self.text.then(|| "…".into()),
            options: Some(options),
            ..Dispatch::default()
        }
    }
}

pub(crate) async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let body = Bytes::from(to_json(&args.request()));
    args.target.post("/v1/explain", body, |reply| report(reply, colours())).await
}

fn report(reply: &ExplainResponse, colours: bool) -> String {
    let ExplainResponse { pool, policy, capable, free, .. } = reply;
    let outcome = match (&reply.chosen, &reply.error) {
        (Some(node), _) => match &reply.served_as {
            Some(served) => format!("{node} would get it as {served}"),
            None => format!("{node} would get it"),
        },
        (None, Some(error)) => format!("no node would get it: {error}"),
        (None, None) => "no node would get it".to_owned(),
    };
    let mut rows = TextTable::new(&["", "NODE", "VERDICT", ">SCORE", ">CELL", "WHY"], colours);
    for node in &reply.nodes {
        let is_chosen = reply.chosen.as_ref() == Some(&node.node_id);
        rows.row([
            cell(if is_chosen { "→" } else { "" }),
            cell(&node.node_id),
            state(&node.verdict),
            number(or_dash(node.score)),
            number(node.cell),
            cell(node.why.as_deref().unwrap_or(reason(&node.verdict))),
        ]);
    }
    let table = rows.finish("There are no nodes. Start some with 'lingua node'.");
    format!("{pool} ({policy}): {outcome}; {capable} can do it, {free} slots free\n\n{table}")
}

/// Why an eligible node was chosen or not.
fn reason(verdict: &str) -> &'static str {
    match verdict {
        "chosen" => "best score",
        "as_good" => "as good as the best; chosen at random",
        "eligible" => "another has a better score",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &str = r#"{"pool":"zh:en","policy":"balanced","chosen":"a","capable":2,"free":3,
        "nodes":[{"node_id":"a","cell":0,"verdict":"chosen","score":10},
        {"node_id":"b","cell":0,"verdict":"refused","why":"it does not speak en"}]}"#;

    #[test]
    fn the_chosen_node_is_marked_and_the_others_have_a_reason() {
        let text = report(&crate::api::parse_reply(REPLY.as_bytes()).unwrap(), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "zh:en (balanced): a would get it; 2 can do it, 3 slots free");
        assert!(lines[3].starts_with("→"), "{text}");
        assert!(lines[4].ends_with("it does not speak en"), "{text}");
    }

    #[test]
    fn services_are_known_by_name() {
        assert_eq!("tone".parse(), Ok(Service::Tone));
        assert!("voice".parse::<Service>().is_err());
    }
}
