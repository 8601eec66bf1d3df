//! What fuzzing found is read again.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lingua_fuzz::TARGETS;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The corpus of a target: an input in base64 on each line.
#[test]
fn every_corpus_is_read_without_a_panic() {
    for (name, target) in TARGETS {
        let path = root().join("fuzz/corpus").join(name);
        let corpus = std::fs::read_to_string(&path).expect("every target has a corpus");
        let inputs = corpus.lines().map(|line| STANDARD.decode(line).expect("base64"));
        let count = inputs.inspect(|input| target(input)).count();
        assert!(count >= 5, "{name}: {count} inputs");
    }
}

#[test]
fn every_golden_file_is_read_by_every_target() {
    let folder = root().join("crates/lingua-wire/golden");
    let files = std::fs::read_dir(folder).expect("golden files");
    let files = files.map(|file| std::fs::read(file.expect("a file").path()).expect("readable"));
    let count = files.inspect(|file| TARGETS.iter().for_each(|(_, target)| target(file))).count();
    assert!(count > 50, "{count} files");
}
