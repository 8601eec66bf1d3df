//! The database file: opening, reading, committing.
//!
//! Start at [`Disk::open`]. The file is a `redb` database, whose pages carry checksums. It is
//! always opened as after a crash, because `redb` then checks all of them: see [`CrashOnly`].
//!
//! Invariants: a commit is all of its changes or none. A damaged file, or one of another version,
//! is refused with an error that says what to do.

use std::collections::HashSet;
#[cfg(unix)]
use std::fs::Permissions;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lingua_core::{Epoch, JobId, NodeId, Term};
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction,
};

use super::crash_only::CrashOnly;
use super::record::{self, DurableChange, StoredJob};
use crate::contract::{KeyRecord, USAGE_COUNTS, UsageCounts, UsageRecord};
use crate::embedded::bindings::{KeptBinding, OwnedKey};
use crate::embedded::directory::Placement;
use crate::embedded::keys::StoredKey;
use crate::embedded::open::OpenError;

/// The layout of the tables and their rows. A file of another version is refused.
pub(super) const VERSION: u64 = 6;

const FILE: &str = "store.redb";
/// A new database; it is renamed when it is complete.
const FRESH_FILE: &str = "store.redb.new";
/// Locked while a process uses the directory.
const LOCK_FILE: &str = "lock";

/// What only the owner may use: a directory, a file; and the bits of all others.
#[cfg(unix)]
const OWNER_DIR: u32 = 0o700;
#[cfg(unix)]
const OWNER_FILE: u32 = 0o600;
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// Everything is in memory already, so a small cache is enough.
const CACHE_BYTES: usize = 32 << 20;

/// An opened file is compacted if it is larger than this,
const SHRINK_FROM_BYTES: u64 = 64 << 20;
/// and this many times as large as its records.
const SHRINK_FACTOR: u64 = 4;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SPECS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("specs");
const STEPS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("steps");
/// Idempotency keys: time of the claim, job, digest of the request.
const KEYS: TableDefinition<'_, &[u8; 32], (u64, u128, &[u8; 32])> = TableDefinition::new("keys");
const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");
/// Nodes that an operator has ordered to drain.
const DRAINED: TableDefinition<'_, &str, ()> = TableDefinition::new("drained");

/// What tenants have used: day and tenant, and the counts.
const USAGE: TableDefinition<'_, (u64, &str), [u64; USAGE_COUNTS]> = TableDefinition::new("usage");

const BINDINGS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("bindings");

const META_VERSION: &str = "version";
const META_EPOCH: &str = "epoch";
const META_TERM: &str = "term";
const META_CEILING: &str = "ceiling_ms";

/// An open database file. No other process has the directory.
#[derive(Debug)]
pub(in super::super) struct Disk {
    database: Database,
    /// Refuses writes from then on.
    is_closing: Arc<AtomicBool>,
    file: PathBuf,
    ceiling_ms: u64,
    _lock: Option<File>,
}

/// The contents of the file.
#[derive(Debug, Default)]
pub(in super::super) struct Contents {
    pub(in super::super) jobs: Vec<StoredJob>,
    pub(in super::super) keys: Vec<StoredKey>,
    pub(in super::super) placements: Vec<(NodeId, Placement)>,
    pub(in super::super) drained: HashSet<NodeId>,
    pub(in super::super) bindings: Vec<(OwnedKey, KeptBinding)>,
    pub(in super::super) usage: Vec<UsageRecord>,
    /// The highest epoch that was assigned.
    pub(in super::super) epoch: Epoch,
    /// The highest term that was given.
    pub(in super::super) term: Term,
    /// Neither the clock nor any fence was beyond this.
    pub(in super::super) ceiling_ms: u64,
    bytes: u64,
}

impl Disk {
    /// Opens the database of this directory, or creates one.
    pub(in super::super) fn open(dir: &Path) -> Result<(Self, Contents), OpenError> {
        let unusable = |source| OpenError::Unusable { dir: dir.to_path_buf(), source };
        create_dir(dir).map_err(unusable)?;
        let lock = open_file(&dir.join(LOCK_FILE)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: dir.to_path_buf() });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let file = dir.join(FILE);
        if !file.try_exists().map_err(unusable)? {
            // Under another name until it is complete.
            let fresh = dir.join(FRESH_FILE);
            let opened = open_file(&fresh).map_err(unusable)?;
            opened.set_len(0).map_err(unusable)?;
            let backend =
                FileBackend::new(opened).map_err(|error| refused(&fresh, error.into()))?;
            Self::fill(backend, &fresh).map_err(|error| refused(&fresh, error))?;
            std::fs::rename(&fresh, &file).map_err(unusable)?;
            sync_dir(dir).map_err(unusable)?;
        }
        let opened = open_file(&file).map_err(unusable)?;
        if opened.metadata().map_err(unusable)?.len() == 0 {
            return Err(corrupt(&file, "it is empty"));
        }
        let backend = FileBackend::new(opened).map_err(|error| refused(&file, error.into()))?;
        let (mut disk, contents) = Self::over(backend, &file)?;
        disk._lock = Some(lock);
        Ok((disk, contents))
    }

    /// Opens a database and reads all of it. `redb` may panic on a damaged file; that becomes an
    /// error here.
    pub(super) fn over(
        backend: impl StorageBackend,
        file: &Path,
    ) -> Result<(Self, Contents), OpenError> {
        let refused = |error| refused(file, error);
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut disk = Self::start(backend, file).map_err(refused)?;
            let found = disk.meta(META_VERSION).map_err(refused)?;
            if found != VERSION {
                let file = file.to_path_buf();
                return Err(OpenError::UnknownVersion { file, found, known: VERSION });
            }
            let contents = disk.read().map_err(refused)?;
            disk.ceiling_ms = contents.ceiling_ms;
            disk.shrink(contents.bytes).map_err(refused)?;
            Ok((disk, contents))
        }));
        opened.unwrap_or_else(|_| Err(corrupt(file, "its parts contradict each other")))
    }

    fn start(backend: impl StorageBackend, file: &Path) -> Result<Self, redb::Error> {
        let is_closing = Arc::new(AtomicBool::new(false));
        let backend = CrashOnly { backend, is_closing: Arc::clone(&is_closing) };
        let database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        Ok(Self { database, is_closing, file: file.to_path_buf(), ceiling_ms: 0, _lock: None })
    }

    /// Writes the version and the empty tables.
    pub(super) fn fill(backend: impl StorageBackend, file: &Path) -> Result<(), redb::Error> {
        let disk = Self::start(backend, file)?;
        let transaction = disk.database.begin_write()?;
        transaction.open_table(META)?.insert(META_VERSION, VERSION)?;
        transaction.open_table(SPECS)?;
        transaction.open_table(STEPS)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(NODES)?;
        transaction.open_table(DRAINED)?;
        transaction.open_table(BINDINGS)?;
        transaction.open_table(USAGE)?;
        Ok(transaction.commit()?)
    }

    pub(in super::super) fn file(&self) -> &Path {
        &self.file
    }

    fn meta(&self, key: &str) -> Result<u64, redb::Error> {
        let table = self.database.begin_read()?.open_table(META)?;
        Ok(table.get(key)?.map_or(0, |value| value.value()))
    }

    fn read(&self) -> Result<Contents, redb::Error> {
        let mut contents = Contents {
            epoch: Epoch(self.meta(META_EPOCH)?),
            term: Term(self.meta(META_TERM)?),
            ceiling_ms: self.meta(META_CEILING)?,
            ..Contents::default()
        };
        let transaction = self.database.begin_read()?;
        let specs = transaction.open_table(SPECS)?;
        let steps = transaction.open_table(STEPS)?;
        let mut steps = steps.iter()?;
        for spec in specs.iter()? {
            let (id, spec) = spec?;
            let id = JobId::new(id.value());
            let step = steps.next().transpose()?;
            let (step_of, step) = step.ok_or_else(|| damaged(format!("{id} has no step")))?;
            let is_its = step_of.value() == id.number();
            let job = is_its.then(|| record::read_job(id, spec.value(), step.value())).flatten();
            let unreadable = || damaged(format!("the record of {id} is unreadable"));
            contents.jobs.push(job.ok_or_else(unreadable)?);
            contents.bytes += (spec.value().len() + step.value().len()) as u64;
        }
        if let Some((id, _)) = steps.next().transpose()? {
            return Err(damaged(format!("{} has no specification", JobId::new(id.value()))));
        }
        for row in transaction.open_table(KEYS)?.iter()? {
            let (key, row) = row?;
            let (claimed_ms, job, &body) = row.value();
            let record = KeyRecord { job: JobId::new(job), body };
            contents.keys.push(StoredKey { key: *key.value(), record, claimed_ms });
        }
        for row in transaction.open_table(NODES)?.iter()? {
            let (node, placement) = row?;
            let unreadable =
                || damaged(format!("the record of node {:?} is unreadable", node.value()));
            let placement = record::read_placement(node.value(), placement.value());
            contents.placements.push(placement.ok_or_else(unreadable)?);
        }
        for row in transaction.open_table(DRAINED)?.iter()? {
            let (node, _) = row?;
            let no_name = |_| damaged(format!("{:?} is not the name of a node", node.value()));
            contents.drained.insert(NodeId::new(node.value()).map_err(no_name)?);
        }
        for row in transaction.open_table(BINDINGS)?.iter()? {
            let (key, binding) = row?;
            let unreadable = || damaged(format!("the binding {:?} is unreadable", key.value()));
            let binding = record::read_binding(key.value(), binding.value());
            contents.bindings.push(binding.ok_or_else(unreadable)?);
        }
        for row in transaction.open_table(USAGE)?.iter()? {
            let (key, counts) = row?;
            let (day, name) = key.value();
            let no_name = |_| damaged(format!("{name:?} is not the name of a tenant"));
            let (tenant, counts) =
                (name.parse().map_err(no_name)?, UsageCounts::of(counts.value()));
            contents.usage.push(UsageRecord { day, tenant, counts });
        }
        Ok(contents)
    }

    /// Returns space to the system that a busier time has left empty.
    fn shrink(&mut self, used_bytes: u64) -> Result<(), redb::Error> {
        let file_bytes = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        if file_bytes > SHRINK_FROM_BYTES && file_bytes / SHRINK_FACTOR > used_bytes {
            self.database.compact()?;
        }
        Ok(())
    }

    /// Writes all the changes or none; they are on disk when it returns.
    pub(in super::super) fn commit<'c>(
        &mut self,
        changes: impl Iterator<Item = &'c DurableChange>,
    ) -> Result<(), redb::Error> {
        let mut changes = changes.peekable();
        if changes.peek().is_none() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        self.ceiling_ms = write(&transaction, changes, self.ceiling_ms)?;
        Ok(transaction.commit()?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }
}

/// Writes the changes into a transaction; returns the new ceiling.
fn write<'c>(
    transaction: &WriteTransaction,
    changes: impl Iterator<Item = &'c DurableChange>,
    mut ceiling_ms: u64,
) -> Result<u64, redb::Error> {
    let mut meta = transaction.open_table(META)?;
    let mut specs = transaction.open_table(SPECS)?;
    let mut steps = transaction.open_table(STEPS)?;
    let mut keys = transaction.open_table(KEYS)?;
    let mut nodes = transaction.open_table(NODES)?;
    let mut drained = transaction.open_table(DRAINED)?;
    let mut bindings = transaction.open_table(BINDINGS)?;
    let mut usage = transaction.open_table(USAGE)?;
    for change in changes {
        match change {
            DurableChange::JobCreated(job) => {
                specs.insert(job.id.number(), &*record::write_spec(job))?;
                steps.insert(job.id.number(), &*record::write_step(job, None))?;
            }
            DurableChange::JobMoved(StoredJob { record, last_token }) => {
                steps.insert(record.id.number(), &*record::write_step(record, *last_token))?;
            }
            DurableChange::JobDropped(job) => {
                specs.remove(job.number())?;
                steps.remove(job.number())?;
            }
            DurableChange::KeyClaimed(StoredKey { key, record, claimed_ms }) => {
                keys.insert(key, (*claimed_ms, record.job.number(), &record.body))?;
            }
            DurableChange::KeyDropped(key) => drop(keys.remove(key)?),
            DurableChange::NodePlaced(node, placement) => {
                nodes.insert(node.as_str(), &*record::write_placement(placement))?;
                meta.insert(META_EPOCH, placement.place.epoch.0)?;
            }
            DurableChange::NodeReleased(node) => {
                nodes.remove(node.as_str())?;
                drained.remove(node.as_str())?;
            }
            DurableChange::NodeDrained(node, true) => drop(drained.insert(node.as_str(), ())?),
            DurableChange::NodeDrained(node, false) => drop(drained.remove(node.as_str())?),
            DurableChange::Bound(key, kept) => {
                bindings.insert(&*record::binding_key(key), &*record::write_binding(kept))?;
            }
            DurableChange::Unbound(key) => drop(bindings.remove(&*record::binding_key(key))?),
            DurableChange::Used(UsageRecord { day, tenant, counts }) => {
                usage.insert((*day, tenant.as_str()), counts.numbers())?;
            }
            DurableChange::DayDropped(day) => {
                usage.retain_in((*day, "")..(*day + 1, ""), |_, _| false)?;
            }
            DurableChange::Term(term) => drop(meta.insert(META_TERM, term.0)?),
            DurableChange::Ceiling(next_ms) => {
                ceiling_ms = ceiling_ms.max(*next_ms);
                meta.insert(META_CEILING, ceiling_ms)?;
            }
        }
    }
    Ok(ceiling_ms)
}

/// Creates a directory that only its owner can look into, if it is not there.
fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(OWNER_DIR);
    builder.create(dir)
}

/// Opens a file, or creates an empty one. Only its owner can read it: it holds the texts of jobs.
fn open_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    options.mode(OWNER_FILE);
    let file = options.open(path)?;
    #[cfg(unix)]
    if file.metadata()?.permissions().mode() & OTHERS != 0 {
        // An earlier version created it.
        file.set_permissions(Permissions::from_mode(OWNER_FILE))?;
    }
    Ok(file)
}

/// Makes a rename in a directory survive a power cut.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn corrupt(file: &Path, detail: &str) -> OpenError {
    OpenError::Corrupt { file: file.to_path_buf(), detail: detail.to_owned() }
}

/// Distinguishes a disk that does not work from a damaged file.
fn refused(file: &Path, error: redb::Error) -> OpenError {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error {
        redb::Error::Io(source)
            if !matches!(source.kind(), InvalidData | InvalidInput | UnexpectedEof) =>
        {
            OpenError::Unreadable { file: file.to_path_buf(), source }
        }
        redb::Error::Corrupted(detail) => corrupt(file, &detail),
        error => corrupt(file, &error.to_string()),
    }
}

fn damaged(detail: String) -> redb::Error {
    redb::Error::Corrupted(detail)
}
