//! What a long run has done so far, in a file, so that it goes on where it was stopped.
//!
//! Start at [`RunFile::open`]. Each line is a part of the run as JSON. A part counts only for the
//! program that wrote it: another build may do something else with the same seeds.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::batch::WorldBatch;
use super::plan::WorldKind;
use super::tally::WorldTally;

/// Some seeds, and what they did.
#[derive(Debug, Serialize, Deserialize)]
struct RunPart {
    program: u64,
    kind: String,
    seeds: Range<u64>,
    tally: WorldTally,
    broken: Vec<u64>,
}

/// The file of a run; without a path nothing is kept.
#[derive(Debug, Default)]
pub struct RunFile {
    file: Option<File>,
    program: u64,
    parts: Vec<RunPart>,
}

impl RunFile {
    /// Reads what is done; the file is created if there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let program = hash(&std::fs::read(std::env::current_exe()?)?);
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // The last line may be incomplete.
        let parts = std::fs::read_to_string(path)?;
        let parts = parts.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Self { file: Some(file), program, parts })
    }

    /// What these seeds did, if they are done, and which of them broke a rule.
    pub fn find(&self, kind: WorldKind, seeds: &Range<u64>) -> Option<(&WorldTally, &[u64])> {
        let is_it = |part: &&RunPart| {
            let key = (part.program, part.kind.as_str(), &part.seeds);
            key == (self.program, kind.as_option(), seeds)
        };
        self.parts.iter().find(is_it).map(|part| (&part.tally, part.broken.as_slice()))
    }

    /// Writes what these seeds did.
    pub fn add(&mut self, kind: WorldKind, seeds: Range<u64>, done: &WorldBatch) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let (program, kind, tally) = (self.program, kind.as_option().into(), done.tally.clone());
        let broken = done.failures.iter().map(|failure| failure.seed).collect();
        let part = RunPart { program, kind, seeds, tally, broken };
        // In front, because a line before it may be incomplete.
        writeln!(file, "\n{}", serde_json::to_string(&part)?)
    }
}

/// FNV-1a: it need not be strong, and needs no library.
fn hash(bytes: &[u8]) -> u64 {
    let fnv = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv)
}
