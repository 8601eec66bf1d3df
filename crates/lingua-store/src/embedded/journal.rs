//! What the embedded store keeps on disk, and when an operation may be answered.
//!
//! Start at [`Journal`]. A part of the store that is kept (jobs, directory, leadership) writes what it
//! changes into its [`Notes`] while its lock is held; [`Room::append`] puts them into the queue under
//! the same lock, so that the order of the journal is the order of the memory. One thread takes
//! everything that is in the queue, commits it at once ([`Disk::commit`]), and lets the callers go.
//!
//! | file | what |
//! |---|---|
//! | `journal/disk.rs` | the database file: opening, reading back, committing |
//! | `journal/crash_only.rs` | why the file is never closed in good order |
//! | `journal/record.rs` | what is written, and how it looks in bytes |
//!
//! Invariants: nothing is answered that is not on disk, neither by an operation that made it nor by
//! one that only saw it; after the first failure of the disk nothing is answered any more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Result, StoreError};

mod crash_only;
pub(super) mod disk;
pub(super) mod record;
#[cfg(test)]
mod tests;

use disk::Disk;
use record::Note;

/// Most operations that wait for the disk; further ones wait for room.
const QUEUE_MAX: usize = 4096;

/// How far ahead of the clock the ceiling is set. See [`Journal::ceiling_note`].
pub(super) const CEILING_AHEAD_MS: u64 = 10 * 60 * 1000;

/// Collects what a part of the store changes; off (and free) when nothing is kept.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    taken: Option<Vec<Note>>,
}

impl Notes {
    /// Takes notes from now on.
    pub(super) fn begin(&mut self) {
        self.taken = Some(Vec::new());
    }

    /// Whether notes are taken.
    pub(super) fn are_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes a note, if notes are taken.
    pub(super) fn take(&mut self, note: impl FnOnce() -> Note) {
        if let Some(taken) = &mut self.taken {
            taken.push(note());
        }
    }

    fn drain(&mut self) -> Vec<Note> {
        self.taken.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// A part of the store that is kept.
pub(super) trait Kept {
    /// Its notes since they were last drained.
    fn notes(&mut self) -> &mut Notes;
}

/// The way to the disk. Dropping it waits until all that was appended is there.
#[derive(Debug)]
pub(super) struct Journal {
    queue: Option<mpsc::Sender<Entry>>,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// For messages.
    file: PathBuf,
}

#[derive(Debug)]
struct Shared {
    /// Entries that were appended and are not on disk.
    unsaved: AtomicUsize,
    ceiling_ms: AtomicU64,
    failure: OnceLock<String>,
}

/// What one operation changed, and who waits for it. Without notes it waits for those before it.
#[derive(Debug)]
struct Entry {
    notes: Vec<Note>,
    saved: oneshot::Sender<()>,
}

impl Journal {
    /// Starts the thread that writes. `ceiling_ms` is what the disk has as its ceiling.
    pub(super) fn start(disk: Disk, ceiling_ms: u64) -> std::io::Result<Self> {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(Shared {
            unsaved: AtomicUsize::new(0),
            ceiling_ms: AtomicU64::new(ceiling_ms),
            failure: OnceLock::new(),
        });
        let file = disk.file().to_path_buf();
        let writer = {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("lingua-journal".into());
            thread.spawn(move || write_all(disk, entries, &shared))?
        };
        Ok(Self { queue: Some(queue), shared, writer: Some(writer), file })
    }

    /// Waits for room in the queue. It is taken before the lock, because nobody may wait under it.
    pub(super) async fn room(&self) -> Result<Room<'_>> {
        let queue = self.queue.as_ref().ok_or_else(|| self.down())?;
        let permit = queue.reserve().await.map_err(|_| self.down())?;
        Ok(Room { journal: self, permit })
    }

    /// Whether everything is on disk. Only telling while the lock of the part is held.
    pub(super) fn is_settled(&self) -> bool {
        self.shared.unsaved.load(Ordering::SeqCst) == 0
    }

    /// Waits until everything that was appended so far is on disk.
    pub(super) async fn settle(&self) -> Result<()> {
        let room = self.room().await?;
        room.send(Vec::new()).wait().await
    }

    /// Fences are given without the journal, so they are kept as a ceiling: a time ahead of the clock,
    /// written down before it is reached. The next life starts there. It is looked at with each
    /// entry, which is more than often enough: each fence is for a job that was accepted or
    /// moved just before.
    fn ceiling_note(&self, now_ms: u64) -> Option<Note> {
        let ceiling_ms = self.shared.ceiling_ms.load(Ordering::Relaxed);
        let is_near = now_ms.saturating_add(CEILING_AHEAD_MS / 2) > ceiling_ms;
        is_near.then(|| {
            let next_ms = now_ms.saturating_add(CEILING_AHEAD_MS);
            self.shared.ceiling_ms.fetch_max(next_ms, Ordering::Relaxed);
            Note::Ceiling(next_ms)
        })
    }

    fn down(&self) -> StoreError {
        let why = self.shared.failure.get().map_or("its writer has stopped", String::as_str);
        let file = self.file.display();
        let detail = format!("{file} cannot be written: {why}; mend the disk, then restart");
        StoreError::Unavailable { detail }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been told to everybody who waited.
            drop(writer.join());
        }
    }
}

/// Room for one entry.
pub(super) struct Room<'a> {
    journal: &'a Journal,
    permit: mpsc::Permit<'a, Entry>,
}

impl<'a> Room<'a> {
    /// Appends what the part has noted. Called under the part's lock; gives what to wait for after
    /// it, also if nothing was changed and what was seen is not on disk yet.
    pub(super) fn append(self, part: &mut impl Kept, now_ms: u64) -> Option<Saved<'a>> {
        let mut notes = part.notes().drain();
        if notes.is_empty() && self.journal.is_settled() {
            return None;
        }
        if !notes.is_empty() {
            notes.extend(self.journal.ceiling_note(now_ms));
        }
        Some(self.send(notes))
    }

    fn send(self, notes: Vec<Note>) -> Saved<'a> {
        let (saved, wait) = oneshot::channel();
        self.journal.shared.unsaved.fetch_add(1, Ordering::SeqCst);
        self.permit.send(Entry { notes, saved });
        Saved { journal: self.journal, wait }
    }
}

/// Tells when an entry is on disk.
pub(super) struct Saved<'a> {
    journal: &'a Journal,
    wait: oneshot::Receiver<()>,
}

impl Saved<'_> {
    /// Waits for it; fails if it will never be.
    pub(super) async fn wait(self) -> Result<()> {
        self.wait.await.map_err(|_| self.journal.down())
    }
}

/// Group commit: what came while the last commit ran is the next one.
fn write_all(mut disk: Disk, mut entries: mpsc::Receiver<Entry>, shared: &Shared) {
    let mut batch = Vec::with_capacity(QUEUE_MAX);
    while entries.blocking_recv_many(&mut batch, QUEUE_MAX) > 0 {
        if let Err(error) = disk.commit(batch.iter().flat_map(|entry| &entry.notes)) {
            // Whoever waits is told by the loss of its sender, whoever comes by the closed queue.
            shared.failure.get_or_init(|| error.to_string());
            return;
        }
        shared.unsaved.fetch_sub(batch.len(), Ordering::SeqCst);
        for entry in batch.drain(..) {
            // A caller that went away does not want to know.
            entry.saved.send(()).ok();
        }
    }
}
