//! `lingua bench`: how many jobs a second a scheduler carries, and how long they take.
//!
//! | file | what |
//! |---|---|
//! | `args.rs` | the flags |
//! | `compare.rs` | `--compare`: scheduler, bare relay and Gearman in turn |
//! | `own.rs` | a scheduler of its own under one load |
//! | `fleet.rs` | `--fleet`: many nodes at once |
//! | `tape.rs` | `--tape`: what the server of a shared store could do |
//! | `talk.rs` | `--sessions`: people who talk at real time |
//! | `remote.rs`, `load.rs` | `--url`: a scheduler that runs already, through the SDK |
//! | `broker.rs` | what is measured, in a process of its own |
//! | `relay.rs` | the bare relay, which is that process, too |
//! | `lean.rs`, `crew.rs`, `gearman.rs` | clients and nodes that cost little |
//! | `score.rs`, `timeline.rs` | what came of it |
//! | `report.rs` | the same as a page |
//! | `shared.rs` | what the servers of a shared store do for the jobs |
//! | `machine.rs` | cores, CPU times, memory |
//!
//! Start at [`run`]. Nodes answer at once, so that what is measured is the broker and the sockets.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::screen::{colours, say};
use crate::serve::stop_signal;

mod args;
mod broker;
mod compare;
mod crew;
mod fleet;
mod gearman;
mod lean;
mod load;
mod machine;
mod own;
mod progress;
mod relay;
mod remote;
mod report;
mod score;
mod shared;
mod talk;
mod tape;
mod timeline;

pub(crate) use args::BenchArgs;
use args::{Part, SECONDS};
use machine::{Machine, Pins, Usage};
use progress::Progress;
use report::Page;

/// How much others may have of the machine before the figures are doubted.
const OTHERS_MAX: f64 = 0.1;

/// What came of a benchmark, in the forms that people ask for.
struct Findings {
    text: String,
    json: Value,
    page: Page,
}

pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if let Some(Part::Relay(args)) = args.part {
        return relay::run(args).await;
    }
    if let Some(file) = &args.report {
        // Rather now than when the figures are there.
        write_page(file, "")?;
    }
    let progress = Progress::new(args.json);
    let machine = Machine::here();
    let is_own = args.url.is_none();
    // The servers of a shared store need a core, too, and who needs how much of one is not known before.
    let pins = machine.pins().filter(|_| is_own && !args.no_pin && !args.is_shared());
    if let Some(pins) = &pins {
        pins.pin_self()?;
    }
    let before = Usage::now();
    let found = tokio::select! {
        found = measure(&args, pins.as_ref(), &progress) => found?,
        // The one with --url ends early with what it has.
        () = stop_signal(), if is_own => bail!("stopped"),
    };
    progress.finish();
    let mut facts = machine.facts(pins.as_ref());
    let others = Usage::now().zip(before).map(|(now, then)| now.others_since(&then));
    // The servers of a shared store are others, and have to be there.
    let others = others.filter(|_| !args.is_shared());
    facts
        .extend(others.map(|share| ("other load", format!("{:.0} % of all cores", share * 100.0))));
    if let Some(file) = &args.report {
        write_page(file, &found.page.html(&facts))?;
    }
    match (args.json, found.json) {
        (true, mut json) => {
            json["machine"] = machine::facts_json(&facts);
            say(json);
        }
        (false, _) => {
            say(found.text);
            if let Some(share) = others.filter(|share| *share > OTHERS_MAX) {
                say(format_args!(
                    "\nOther programs had {:.0} % of this machine meanwhile: repeat it when it is quiet.",
                    share * 100.0
                ));
            }
            if let Some(file) = &args.report {
                say(format_args!("\nreport: {}", file.display()));
            }
        }
    }
    Ok(())
}

fn write_page(file: &Path, html: &str) -> anyhow::Result<()> {
    std::fs::write(file, html).with_context(|| {
        format!("cannot write the report to {}; give another file with --report", file.display())
    })
}

async fn measure(
    args: &BenchArgs,
    pins: Option<&Pins>,
    progress: &Progress,
) -> anyhow::Result<Findings> {
    if let Some(sessions) = args.sessions {
        let length = args.length(SECONDS);
        let talk = talk::run(sessions, length, &args.state(), pins, progress).await?;
        let (text, json) = (talk.table(colours()), json!({"talk": talk.json()}));
        return Ok(Findings { text, json, page: Page::of_talk(&talk) });
    }
    match (args.compare, args.fleet, &args.url) {
        (true, ..) => {
            let compared = compare::run(args.comparison(), pins, progress).await?;
            let (text, json) = (compared.table(colours()), json!({"comparison": compared.json()}));
            Ok(Findings { text, json, page: Page::of_comparison(&compared) })
        }
        (_, Some(nodes), _) => {
            let fleet = fleet::run(args.fleet(nodes), pins, progress).await?;
            let (text, json) = (fleet.table(colours()), json!({"fleet": fleet.json()}));
            Ok(Findings { text, json, page: Page::of_fleet(&fleet) })
        }
        (.., url) => {
            let own::Found { score, setup, share, tape } = match url {
                Some(url) => {
                    let (score, setup) = remote::run(args.remote(url), progress).await?;
                    own::Found { score, setup, share: None, tape: None }
                }
                None => own::run(args.own()?, pins, progress).await?,
            };
            if score.done() == 0 {
                say(score.table(&setup, colours()));
                bail!("not a single job was done; see the errors above");
            }
            let (mut text, mut json) = (score.table(&setup, colours()), score.json(&setup));
            if let Some(share) = share {
                text = format!("{text}\n\n{}", share.table());
                json["store"] = share.json();
            }
            if let Some(tape) = tape {
                text = format!("{text}\n\n{}", tape.table(colours()));
                json["tape"] = tape.json();
            }
            Ok(Findings { text, json, page: Page::of_load(&score, &setup) })
        }
    }
}
