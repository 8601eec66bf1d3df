//! Writes what must survive a restart to disk, and holds back replies until it is there.
//!
//! Start at [`Journal`]. A durable part of the store (jobs, directory, leadership) pushes its
//! changes into its [`ChangeLog`] while its lock is held; [`Journal::append`] moves them into the
//! queue under the same lock, so that the order on disk is the order in memory. One thread takes
//! everything in the queue, commits it in one transaction ([`Disk::commit`]), and wakes the
//! callers.
//!
//! | file | contents |
//! |---|---|
//! | `journal/disk.rs` | the database file: opening, reading, committing |
//! | `journal/crash_only.rs` | why the file is never closed in good order |
//! | `journal/record.rs` | the changes, and the records as bytes |
//!
//! Invariants: no reply leaves before what it reports is on disk, whether the operation wrote it or
//! only read it. After the first failure of the disk there are no more replies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::error::{Result, StoreError};

mod crash_only;
#[cfg(feature = "decoders")]
pub(super) mod decoders;
pub(super) mod disk;
pub(super) mod record;
#[cfg(test)]
mod tests;

use disk::Disk;
use record::DurableChange;

/// Most operations that wait for the disk; further ones wait for a place in the queue.
const QUEUE_MAX: usize = 4096;

/// How far ahead of the clock the ceiling is set. See [`Journal::next_ceiling`].
pub(super) const CEILING_AHEAD_MS: u64 = 10 * 60 * 1000;

/// Collects the changes of a part of the store; does nothing in a store without a disk.
#[derive(Debug, Clone, Default)]
pub(super) struct ChangeLog(Option<Vec<DurableChange>>);

impl ChangeLog {
    pub(super) fn enable(&mut self) {
        self.0 = Some(Vec::new());
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn push(&mut self, change: impl FnOnce() -> DurableChange) {
        if let Some(changes) = &mut self.0 {
            changes.push(change());
        }
    }

    fn drain(&mut self) -> Vec<DurableChange> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// The queue to the disk. Dropping it waits until everything in it is written.
#[derive(Debug)]
pub(super) struct Journal {
    queue: Option<mpsc::Sender<Entry>>,
    shared: Arc<WriterState>,
    writer: Option<JoinHandle<()>>,
    /// Shown in error messages.
    file: PathBuf,
}

#[derive(Debug)]
struct WriterState {
    /// Entries that were appended and are not on disk.
    pending: AtomicUsize,
    ceiling_ms: AtomicU64,
    failure: OnceLock<String>,
}

/// The changes of one operation. Without changes it waits for the entries before it.
#[derive(Debug)]
pub(super) struct Entry {
    changes: Vec<DurableChange>,
    committed: oneshot::Sender<()>,
}

/// A place for one entry in the queue.
type QueueSlot<'a> = mpsc::Permit<'a, Entry>;

/// Resolves when an entry is on disk.
type PendingCommit = oneshot::Receiver<()>;

impl Journal {
    /// Starts the writer thread. `ceiling_ms` is the ceiling on disk.
    pub(super) fn start(disk: Disk, ceiling_ms: u64) -> std::io::Result<Self> {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let shared = Arc::new(WriterState {
            pending: AtomicUsize::new(0),
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

    /// Waits for a place in the queue. Call it before taking the lock: nothing may wait under it.
    pub(super) async fn queue_slot(&self) -> Result<QueueSlot<'_>> {
        let queue = self.queue.as_ref().ok_or_else(|| self.failed())?;
        queue.reserve().await.map_err(|_| self.failed())
    }

    /// Appends the logged changes. Called under the lock of the part. Returns what to wait for
    /// after it: also if nothing changed, when what was read is not on disk yet.
    pub(super) fn append(
        &self,
        slot: QueueSlot<'_>,
        log: &mut ChangeLog,
        now_ms: u64,
    ) -> Option<PendingCommit> {
        let mut changes = log.drain();
        if changes.is_empty() && self.is_flushed() {
            return None;
        }
        if !changes.is_empty() {
            changes.extend(self.next_ceiling(now_ms));
        }
        Some(self.send(slot, changes))
    }

    fn send(&self, slot: QueueSlot<'_>, changes: Vec<DurableChange>) -> PendingCommit {
        let (committed, commit) = oneshot::channel();
        self.shared.pending.fetch_add(1, Ordering::SeqCst);
        slot.send(Entry { changes, committed });
        commit
    }

    /// Waits until an entry is on disk.
    pub(super) async fn wait(&self, commit: PendingCommit) -> Result<()> {
        commit.await.map_err(|_| self.failed())
    }

    /// Whether everything is on disk. Only meaningful while the lock of the part is held.
    pub(super) fn is_flushed(&self) -> bool {
        self.shared.pending.load(Ordering::SeqCst) == 0
    }

    /// Waits until everything that was appended so far is on disk.
    pub(super) async fn flush(&self) -> Result<()> {
        let slot = self.queue_slot().await?;
        self.wait(self.send(slot, Vec::new())).await
    }

    /// Fences are not written one by one. The disk holds a ceiling instead: a time ahead of the
    /// clock, raised before the clock reaches it. After a restart fences start there. Checking it
    /// with each entry is often enough, because every fence is for a job that was just written.
    fn next_ceiling(&self, now_ms: u64) -> Option<DurableChange> {
        let ceiling_ms = self.shared.ceiling_ms.load(Ordering::Relaxed);
        let is_near = now_ms.saturating_add(CEILING_AHEAD_MS / 2) > ceiling_ms;
        is_near.then(|| {
            let next_ms = now_ms.saturating_add(CEILING_AHEAD_MS);
            self.shared.ceiling_ms.fetch_max(next_ms, Ordering::Relaxed);
            DurableChange::Ceiling(next_ms)
        })
    }

    fn failed(&self) -> StoreError {
        let why = self.shared.failure.get().map_or("the writer has stopped", String::as_str);
        let file = self.file.display();
        let detail = format!("{file} cannot be written: {why}; repair the disk, then restart");
        StoreError::Unavailable { detail }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // If the writer panicked, its callers have already got an error.
            drop(writer.join());
        }
    }
}

/// Group commit: everything that arrived during one commit is the next one.
fn write_all(mut disk: Disk, mut entries: mpsc::Receiver<Entry>, shared: &WriterState) {
    let mut batch = Vec::with_capacity(QUEUE_MAX);
    while entries.blocking_recv_many(&mut batch, QUEUE_MAX) > 0 {
        if let Err(error) = disk.commit(batch.iter().flat_map(|entry| &entry.changes)) {
            // Waiting callers notice the dropped sender, later ones the closed queue.
            shared.failure.get_or_init(|| error.to_string());
            return;
        }
        shared.pending.fetch_sub(batch.len(), Ordering::SeqCst);
        for entry in batch.drain(..) {
            // The caller may have gone.
            entry.committed.send(()).ok();
        }
    }
}
