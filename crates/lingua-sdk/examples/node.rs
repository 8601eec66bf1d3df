//! A complete node: it "translates" text by turning it round.
//!
//! `cargo run --example node -- ws://127.0.0.1:7410/v1/node/ws`

use lingua_sdk::{Context, Failure, Handler, Job, Node, NodeOptions, Output};

struct Reverse;

impl Handler for Reverse {
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let text = job.text.ok_or(Failure::permanent("TEXT_ONLY"))?;
        context.partial("…");
        Ok(Output::translated(text.chars().rev().collect::<String>()).with_asr(text))
    }
}

#[tokio::main]
async fn main() -> Result<(), lingua_sdk::NodeRunError> {
    let url = std::env::args().nth(1).unwrap_or("ws://127.0.0.1:7410/v1/node/ws".to_owned());
    let langs = ["zh", "en"];
    let options = NodeOptions::new(url).languages(&langs, &langs, &langs).slots(4);
    Node::new(options, Reverse).run(async { drop(tokio::signal::ctrl_c().await) }).await
}
