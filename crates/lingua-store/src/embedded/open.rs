//! Opens an embedded store that outlives its process.
//!
//! Start at [`Embedded::open`]. Kept are jobs, the places and epochs of nodes, orders to drain, and the highest term; leases,
//! leadership, instances, messages and the feed are of one life. Fences go on above
//! every one that was given, even if the clock has gone back.
//!
//! Invariant: whatever is wrong with the directory or the file is an [`OpenError`] that says what to
//! do. If the newest commit is torn, the one before it counts, as after a power cut; nothing else is
//! ever left out.

use std::io;
use std::path::{Path, PathBuf};

use lingua_core::{Epoch, Fence, Rules};
use parking_lot::Mutex;

use super::directory::Directory;
use super::jobs::Jobs;
use super::journal::disk::{Contents, Disk};
use super::journal::record::Note;
use super::journal::{CEILING_AHEAD_MS, Journal};
use super::leader::Leadership;
use super::{Embedded, Inner, StoreLimits};
use crate::clock::Clock;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made, read or written.
    #[error(
        "the data directory {} cannot be used ({source}); give one that this user may write to",
        dir.display()
    )]
    Unusable {
        /// Which.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it open.
    #[error(
        "the data directory {} is in use by another process; stop that one, or give this one a \
         directory of its own",
        dir.display()
    )]
    InUse {
        /// Which.
        dir: PathBuf,
    },
    /// It was written by a version of this program that arranges its data in another way.
    #[error(
        "{} has version {found} of the data format and this program knows {known}; run the version \
         that wrote it, or move the file away to start empty",
        file.display()
    )]
    UnknownVersion {
        /// Which file.
        file: PathBuf,
        /// Its version.
        found: u64,
        /// The version that can be read.
        known: u64,
    },
    /// It is damaged, or no data file at all.
    #[error(
        "{} is damaged ({detail}); restore it from a copy, or move it away to start empty: its \
         jobs are then not known any more",
        file.display()
    )]
    Corrupt {
        /// Which file.
        file: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// The disk does not work.
    #[error("{} cannot be read or written ({source}); mend the disk, then start again", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
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

    /// Whether trying again may help by itself: the process that has the directory may be on its way out.
    pub fn is_safe_to_retry(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}

impl<C: Clock> Embedded<C> {
    /// A store that keeps its jobs and its nodes' places in this directory, which is made if it is
    /// not there. What an earlier life answered is there again. Reads the whole file: not for a
    /// thread that must not block.
    ///
    /// Dropping the last clone waits until all is written, which takes as long as one commit.
    pub fn open(
        rules: Rules,
        limits: StoreLimits,
        clock: C,
        data_dir: &Path,
    ) -> Result<Self, OpenError> {
        let (disk, contents) = Disk::open(data_dir)?;
        Self::resume(rules, limits, clock, disk, contents)
    }

    /// Goes on where the life before ended.
    pub(super) fn resume(
        rules: Rules,
        limits: StoreLimits,
        clock: C,
        mut disk: Disk,
        contents: Contents,
    ) -> Result<Self, OpenError> {
        let file = disk.file().to_path_buf();
        let Contents { jobs, tenants, drained, epoch, term, ceiling_ms, .. } = contents;
        let next_ceiling_ms = clock.now_ms().max(ceiling_ms).saturating_add(CEILING_AHEAD_MS);
        let written = disk.commit([Note::Ceiling(next_ceiling_ms)].iter());
        let failed = |error: &dyn std::fmt::Display| OpenError::Unreadable {
            file: file.clone(),
            source: io::Error::other(error.to_string()),
        };
        written.map_err(|error| failed(&error))?;
        let directory = Directory::restore(tenants, epoch)
            .map_err(|detail| OpenError::Corrupt { file: file.clone(), detail })?;
        let mut inner = Inner::new(rules, limits, clock);
        // An epoch that was given is taken only from the tenant that has it.
        for cell in &mut inner.cells {
            let fence = Fence(ceiling_ms.saturating_mul(1000));
            cell.0.get_mut().resume(fence, epoch);
        }
        for place in directory.places() {
            let before = Epoch(place.epoch.0.saturating_sub(1));
            let cell = inner.cells[place.cell.index()].0.get_mut();
            cell.refuse_up_to(place.slot, before);
        }
        for node in drained {
            // One that is gone for good was forgotten together with its place.
            if let Some(place) = directory.locate(&node) {
                inner.cells[place.cell.index()].0.get_mut().drain_on_return(place.slot, node);
            }
        }
        inner.directory = Mutex::new(directory);
        inner.jobs = Mutex::new(Jobs::restore(limits, jobs));
        inner.leadership = Mutex::new(Leadership::restore(term));
        let journal = Journal::start(disk, next_ceiling_ms).map_err(|error| failed(&error))?;
        inner.journal = Some(journal);
        Ok(Self { inner: inner.into() })
    }
}
