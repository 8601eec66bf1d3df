//! Nothing that comes in may bring the scheduler down.

use std::path::Path;

use lingua_core::{Capabilities, JobId, LangSet, Nmt, Profile, ServiceSet};
use lingua_wire::client::Dispatch;
use lingua_wire::lang::{pool, source};
use lingua_wire::node::{Heartbeat, NodeMessage, Register};
use lingua_wire::parse;
use lingua_wire::scheduler::SchedulerMessage;
use lingua_wire::session::{SessionRequest, SessionUpdate};
use lingua_wire::view::JobView;
use proptest::prelude::*;

use crate::values::lang;

fn profile() -> Profile {
    let set = || LangSet::from_iter([lang("zh")]);
    let caps = Capabilities::new(set(), set(), set(), Nmt::AnyToAny, ServiceSet::ALL);
    Profile::new(caps.expect("capabilities"), 4, true).expect("a profile")
}

/// Reads the bytes as everything that could be meant, and uses what comes out.
fn read_as_everything(bytes: &[u8]) {
    let refused = [
        parse::<Register>(bytes).and_then(Register::into_parts).err(),
        parse::<Heartbeat>(bytes).and_then(|beat| beat.load(Default::default())).err(),
        parse::<Heartbeat>(bytes).and_then(|beat| beat.capability_update(&profile())).err(),
        parse::<Dispatch<'_>>(bytes).and_then(|body| body.into_spec(JobId::new(1))).err(),
        parse::<Dispatch<'_>>(bytes).and_then(Dispatch::into_explain_spec).err(),
        parse::<JobView>(bytes).err(),
    ];
    for error in refused.into_iter().flatten() {
        assert!(error.detail.chars().count() <= 513 && !error.detail.is_empty());
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(NodeMessage::JobDone(done)) = NodeMessage::parse(&text) {
        let audio = done.result().ok().flatten().and_then(|result| result.tts_audio);
        drop(audio.map(|audio| audio.decode("audio")));
    }
    drop(SchedulerMessage::parse(&text));
    drop(SessionUpdate::parse(&text));
    if let Ok(SessionRequest::Start(start)) = SessionRequest::parse(&text) {
        drop(start.into_plan());
    }
    drop(source("src_lang", &text));
    drop(pool("pool", &text));
}

fn golden_files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let entries = std::fs::read_dir(folder).expect("golden files");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).expect("a golden file")).collect()
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_as_everything(&bytes);
    }

    #[test]
    fn random_json(text in r#"[\[\]{}":,a-z0-9\\u \-.]{0,60}"#) {
        read_as_everything(text.as_bytes());
    }

    #[test]
    fn messages_with_bytes_changed(
        file in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let files = golden_files();
        let mut bytes = files[file.index(files.len())].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(end.index(bytes.len()));
        }
        read_as_everything(&bytes);
    }
}

#[test]
fn deep_nesting_is_no_danger() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    read_as_everything(deep.as_bytes());
    for field in ["type", "x", "asr_langs", "result", "options", "src_lang", "running"] {
        read_as_everything(format!(r#"{{"{field}":{deep}}}"#).as_bytes());
        let done = format!(r#"{{"type":"job_done","{field}":{deep}}}"#);
        read_as_everything(done.as_bytes());
    }
    read_as_everything("{\"a\":".repeat(200_000).as_bytes());
}
