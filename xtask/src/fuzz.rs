//! `cargo xtask fuzz`: looks for inputs that reach new code in a decoder, and keeps them.
//!
//! Start at [`run`]. cargo-fuzz builds the program of `fuzz/` on the stable toolchain, without a
//! sanitizer: the workspace has no unsafe code. `fuzz/corpus` has a file for each target, with an
//! input in base64 on each line; the tests of `lingua-fuzz` read them again.
//!
//! Invariant: an input that makes a target panic is named and kept in `target/fuzz`, and ends the
//! run.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Cargo, setup};

/// The longest input, in bytes: most messages are shorter.
const INPUT_BYTES_MAX: usize = 2048;

/// Most bytes of all inputs of a target that are kept, the shortest first.
const CORPUS_BYTES_MAX: usize = 48 << 10;

/// Which decoders to fuzz, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// Seconds for each target.
    #[arg(long, default_value_t = 120)]
    seconds: u32,
    /// Targets; all by default.
    targets: Vec<String>,
}

/// Fuzzes the targets one after the other; whether no input made one panic.
pub(crate) fn run(root: &Path, args: &FuzzArgs) -> anyhow::Result<bool> {
    let bin = setup::cargo_tools(root, &["cargo-fuzz"])?;
    let triple = host_triple()?;
    let target_dir = root.join("target/fuzz");
    let build = "fuzz build --sanitizer none --target-dir target/fuzz decoder";
    // The coverage that the fuzzer follows is asked for with flags that are not stable.
    let build = Cargo::new(build).env("RUSTC_BOOTSTRAP", "1").env("PATH", setup::path_with(&bin)?);
    if !build.run(root)? {
        return Ok(false);
    }
    let program = target_dir.join(&triple).join("release/decoder");
    for target in targets(root, args)? {
        if !fuzz(root, &program, &target, args.seconds)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The named targets, or all that have a corpus.
fn targets(root: &Path, args: &FuzzArgs) -> anyhow::Result<Vec<String>> {
    if !args.targets.is_empty() {
        return Ok(args.targets.clone());
    }
    let corpora = std::fs::read_dir(root.join("fuzz/corpus")).context("fuzz/corpus")?;
    let names = corpora.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<anyhow::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Fuzzes one target and keeps the inputs that together reach all that was reached.
fn fuzz(root: &Path, program: &Path, target: &str, seconds: u32) -> anyhow::Result<bool> {
    println!("\n==> {target}");
    let work = root.join("target/fuzz/work").join(target);
    let (found, kept) = (work.join("found"), work.join("kept"));
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&found)?;
    std::fs::create_dir_all(&kept)?;
    let corpus = root.join("fuzz/corpus").join(target);
    let lines = std::fs::read_to_string(&corpus).unwrap_or_default();
    for (line, number) in lines.lines().zip(0..) {
        let input = STANDARD.decode(line).with_context(|| format!("{target}: line {number}"))?;
        std::fs::write(found.join(format!("corpus-{number}")), input)?;
    }
    let golden = root.join("crates/lingua-wire/golden");
    let libfuzzer = |args: &[String]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(&work).env("LINGUA_FUZZ_TARGET", target);
        command.stderr(Stdio::inherit());
        Ok::<_, anyhow::Error>(command.status().context("the fuzzer")?.success())
    };
    let length = format!("-max_len={INPUT_BYTES_MAX}");
    let time = format!("-max_total_time={seconds}");
    let path = |path: &Path| path.display().to_string();
    let search = [length.clone(), time, "-verbosity=0".into(), "-print_final_stats=1".into()];
    if !libfuzzer(&[&search[..], &[path(&found), path(&golden)]].concat())? {
        println!("{target}: the input is in {}", work.display());
        return Ok(false);
    }
    let merge = ["-merge=1".into(), length, "-verbosity=0".into(), path(&kept), path(&found)];
    if !libfuzzer(&merge)? {
        bail!("{target}: the corpus cannot be merged");
    }
    std::fs::write(&corpus, pack(&kept)?)?;
    Ok(true)
}

/// The inputs of a folder, each once, the shortest first.
fn pack(folder: &Path) -> anyhow::Result<String> {
    let files = std::fs::read_dir(folder)?.map(|entry| Ok(std::fs::read(entry?.path())?));
    let mut inputs = files.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    inputs.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    inputs.dedup();
    let mut packed = String::new();
    for input in inputs {
        let line = STANDARD.encode(input);
        if packed.len() + line.len() > CORPUS_BYTES_MAX {
            break;
        }
        packed += &line;
        packed.push('\n');
    }
    Ok(packed)
}

fn host_triple() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}
