//! Opens an embedded store whose data survives a restart.
//!
//! Start at [`Embedded::open`]. Jobs, idempotency keys, the places and epochs of nodes, drain
//! commands, bindings and the highest term are on disk. Leases, leadership, instances, sessions,
//! messages and the feed are not. Fences continue above every one that was given, even if the clock
//! has gone back.
//!
//! Invariant: whatever is wrong with the directory or the file is an [`OpenError`] that says what
//! to do. If the newest commit is torn, the one before it counts, as after a power cut. Nothing
//! else is ever left out.

use std::io;
use std::path::{Path, PathBuf};

use lingua_core::{CELL_NODES_MAX, Epoch, Fence, Rules};
use parking_lot::Mutex;

use super::bindings::BindingTable;
use super::directory::Directory;
use super::jobs::Jobs;
use super::journal::disk::{Contents, Disk};
use super::journal::record::DurableChange;
use super::journal::{CEILING_AHEAD_MS, Journal};
use super::keys::KeyTable;
use super::leader::Leadership;
use super::usage::UsageTable;
use super::{Embedded, Inner, StoreLimits};
use crate::clock::Clock;
use crate::contract::Place;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum OpenError {
    /// The directory cannot be created, read or written.
    #[error(
        "the data directory {} cannot be used ({source}); choose one that this user can write to",
        dir.display()
    )]
    Unusable { dir: PathBuf, source: io::Error },
    /// Another process has it open.
    #[error(
        "the data directory {} is in use by another process; stop that process, or choose another \
         directory",
        dir.display()
    )]
    InUse { dir: PathBuf },
    /// The file has another version of the data format.
    #[error(
        "{} has version {found} of the data format, and this program reads version {known}; run \
         the program that wrote it, or move the file away to start empty",
        file.display()
    )]
    UnknownVersion { file: PathBuf, found: u64, known: u64 },
    /// The file is damaged, or is not a database.
    #[error(
        "{} is damaged ({detail}); restore it from a copy, or move it away to start without its \
         jobs",
        file.display()
    )]
    Corrupt { file: PathBuf, detail: String },
    /// The disk does not work.
    #[error(
        "{} cannot be read or written ({source}); repair the disk, then restart",
        file.display()
    )]
    Unreadable { file: PathBuf, source: io::Error },
}

impl OpenError {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "DATA_DIR_UNUSABLE",
            Self::InUse { .. } => "DATA_DIR_IN_USE",
            Self::UnknownVersion { .. } => "DATA_VERSION_UNKNOWN",
            Self::Corrupt { .. } => "DATA_CORRUPT",
            Self::Unreadable { .. } => "DATA_UNREADABLE",
        }
    }

    /// Whether another try may succeed: the process that has the directory may be stopping.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}

impl<C: Clock> Embedded<C> {
    /// Opens a store in this directory, which is created if it does not exist. Reads the whole
    /// file, so it blocks the thread.
    ///
    /// Dropping the last clone waits until everything is written: about one commit.
    pub fn open(
        rules: Rules,
        limits: StoreLimits,
        clock: C,
        data_dir: &Path,
    ) -> Result<Self, OpenError> {
        let (disk, contents) = Disk::open(data_dir)?;
        Self::resume(rules, limits, clock, disk, contents)
    }

    /// Continues from the contents of a file.
    pub(super) fn resume(
        rules: Rules,
        limits: StoreLimits,
        clock: C,
        mut disk: Disk,
        contents: Contents,
    ) -> Result<Self, OpenError> {
        let file = disk.file().to_path_buf();
        let Contents {
            jobs,
            keys,
            placements,
            drained,
            bindings,
            usage,
            epoch,
            term,
            ceiling_ms,
            ..
        } = contents;
        let next_ceiling_ms = clock.now_ms().max(ceiling_ms).saturating_add(CEILING_AHEAD_MS);
        let written = disk.commit([DurableChange::Ceiling(next_ceiling_ms)].iter());
        let failed = |error: &dyn std::fmt::Display| OpenError::Unreadable {
            file: file.clone(),
            source: io::Error::other(error.to_string()),
        };
        written.map_err(|error| failed(&error))?;
        let directory = Directory::restore(placements, epoch)
            .map_err(|detail| OpenError::Corrupt { file: file.clone(), detail })?;
        let mut inner = Inner::new(rules, limits, clock);
        for cell in &mut inner.cells {
            let cell = cell.0.get_mut();
            cell.fence = Fence(ceiling_ms.saturating_mul(1000));
            // An assigned epoch is accepted from its node only.
            cell.epochs = [epoch; CELL_NODES_MAX];
        }
        for Place { cell, slot, epoch } in directory.places() {
            let cell = inner.cells[cell.index()].0.get_mut();
            cell.epochs[slot.index()] = Epoch(epoch.0.saturating_sub(1));
        }
        for node in drained {
            // A node that was released has no place, and its command is void.
            if let Some(place) = directory.locate(&node) {
                let cell = inner.cells[place.cell.index()].0.get_mut();
                cell.drain_on_return.push((place.slot, node));
            }
        }
        inner.directory = Mutex::new(directory);
        inner.jobs = Mutex::new(Jobs::restore(limits, jobs));
        inner.keys = Mutex::new(KeyTable::restore(limits, keys));
        inner.leadership = Mutex::new(Leadership::restore(term));
        inner.usage = Mutex::new(UsageTable::restore(usage));
        inner.bindings = Mutex::new(BindingTable::restore(limits, bindings));
        let journal = Journal::start(disk, next_ceiling_ms).map_err(|error| failed(&error))?;
        inner.journal = Some(journal);
        Ok(Self { inner: inner.into() })
    }
}
