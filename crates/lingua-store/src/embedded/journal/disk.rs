//! The database file: opening, reading back, committing.
//!
//! Start at [`Disk::open`]. The file is a `redb` database, whose pages carry checksums. It is opened as
//! after a crash, always, because that is when all of them are checked: see [`CrashOnly`].
//!
//! Invariants: a commit is all of its notes or none; a file that was not written by this code, or is
//! damaged, is refused with what to do about it.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use lingua_core::{Epoch, JobId, NodeId, Term};
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, TableError,
    WriteTransaction,
};

use super::crash_only::{Closing, CrashOnly};
use super::record::{self, Note};
use crate::contract::JobRecord;
use crate::embedded::directory::Tenant;
use crate::embedded::open::OpenError;

/// The layout of the tables and their rows.
pub(super) const VERSION: u64 = 1;

/// The database, in the data directory.
const FILE: &str = "store.redb";
/// A database that is being made; it gets its name when it is complete.
const FRESH_FILE: &str = "store.redb.new";
/// Locked as long as a process uses the directory.
const LOCK_FILE: &str = "lock";

/// Everything is in memory already, so the database needs little of its own.
const CACHE_BYTES: usize = 32 << 20;

/// A file is made smaller when it is opened, if it is larger than this
const SHRINK_FROM_BYTES: u64 = 64 << 20;
/// and this many times as large as what is in it.
const SHRINK_FACTOR: u64 = 4;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const SPECS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("specs");
const STEPS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("steps");
const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");
/// Nodes that are ordered to drain. Files of earlier programs do not have it, which means none.
const DRAINED: TableDefinition<'_, &str, ()> = TableDefinition::new("drained");

const META_VERSION: &str = "version";
const META_EPOCH: &str = "epoch";
const META_TERM: &str = "term";
const META_CEILING: &str = "ceiling_ms";

/// An open database file. Nobody else has the directory.
#[derive(Debug)]
pub(in super::super) struct Disk {
    database: Database,
    closing: Closing,
    file: PathBuf,
    ceiling_ms: u64,
    _lock: Option<File>,
}

/// What was on disk.
#[derive(Debug, Default)]
pub(in super::super) struct Contents {
    /// The jobs by id, each with the token of its last step.
    pub(in super::super) jobs: Vec<(JobRecord, Option<u64>)>,
    pub(in super::super) tenants: Vec<(NodeId, Tenant)>,
    /// Nodes that are ordered to drain.
    pub(in super::super) drained: HashSet<NodeId>,
    /// The highest that was given.
    pub(in super::super) epoch: Epoch,
    /// The highest that was given.
    pub(in super::super) term: Term,
    /// The clock was never beyond this, nor was any fence.
    pub(in super::super) ceiling_ms: u64,
    bytes: u64,
}

impl Disk {
    /// Opens the database of this directory, or makes one.
    pub(in super::super) fn open(dir: &Path) -> Result<(Self, Contents), OpenError> {
        let unusable = |source| OpenError::Unusable { dir: dir.to_path_buf(), source };
        std::fs::create_dir_all(dir).map_err(unusable)?;
        let lock = lock(dir)?;
        let file = dir.join(FILE);
        if !file.try_exists().map_err(unusable)? {
            Self::create(dir, &file)?;
        }
        let opened = File::options().read(true).write(true).open(&file).map_err(unusable)?;
        if opened.metadata().map_err(unusable)?.len() == 0 {
            return Err(corrupt(&file, "it is empty"));
        }
        let backend = FileBackend::new(opened).map_err(|error| refused(&file, error.into()))?;
        let (mut disk, contents) = Self::over(backend, &file)?;
        disk._lock = Some(lock);
        Ok((disk, contents))
    }

    /// Opens a database and reads all of it. The database checks what it reads, but it is not made
    /// for hostile files: should it stumble over one, that is our error and not the end of the process.
    pub(super) fn over(
        backend: impl StorageBackend,
        file: &Path,
    ) -> Result<(Self, Contents), OpenError> {
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut disk = Self::start(backend, file).map_err(|error| refused(file, error))?;
            let contents = disk.read()?;
            disk.ceiling_ms = contents.ceiling_ms;
            disk.shrink(contents.bytes).map_err(|error| refused(file, error))?;
            Ok((disk, contents))
        }));
        opened.unwrap_or_else(|_| Err(corrupt(file, "it contradicts itself")))
    }

    fn start(backend: impl StorageBackend, file: &Path) -> Result<Self, redb::Error> {
        let closing = Closing::default();
        let backend = CrashOnly::new(backend, closing.clone());
        let database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?;
        Ok(Self { database, closing, file: file.to_path_buf(), ceiling_ms: 0, _lock: None })
    }

    /// Makes an empty database, under another name until it is complete.
    fn create(dir: &Path, file: &Path) -> Result<(), OpenError> {
        let unusable = |source| OpenError::Unusable { dir: dir.to_path_buf(), source };
        let fresh = dir.join(FRESH_FILE);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let opened = options.open(&fresh).map_err(unusable)?;
        let backend = FileBackend::new(opened).map_err(|error| refused(&fresh, error.into()))?;
        Self::fill(backend, &fresh).map_err(|error| refused(&fresh, error))?;
        std::fs::rename(&fresh, file).map_err(unusable)?;
        sync_dir(dir).map_err(unusable)
    }

    /// Writes what an empty database has.
    pub(super) fn fill(backend: impl StorageBackend, file: &Path) -> Result<(), redb::Error> {
        let disk = Self::start(backend, file)?;
        let transaction = disk.database.begin_write()?;
        transaction.open_table(META)?.insert(META_VERSION, VERSION)?;
        transaction.open_table(SPECS)?;
        transaction.open_table(STEPS)?;
        transaction.open_table(NODES)?;
        Ok(transaction.commit()?)
    }

    /// Where it is.
    pub(in super::super) fn file(&self) -> &Path {
        &self.file
    }

    fn read(&self) -> Result<Contents, OpenError> {
        let unreadable = |error: redb::Error| refused(&self.file, error);
        let meta = |key| self.meta(key).map_err(unreadable);
        match meta(META_VERSION)? {
            VERSION => {}
            found => {
                let file = self.file.clone();
                return Err(OpenError::UnknownVersion { file, found, known: VERSION });
            }
        }
        let mut contents = Contents {
            epoch: Epoch(meta(META_EPOCH)?),
            term: Term(meta(META_TERM)?),
            ceiling_ms: meta(META_CEILING)?,
            ..Contents::default()
        };
        let damage = self.read_rows(&mut contents).map_err(unreadable)?;
        match damage {
            Some(damage) => Err(corrupt(&self.file, &damage)),
            None => Ok(contents),
        }
    }

    fn meta(&self, key: &str) -> Result<u64, redb::Error> {
        let table = self.database.begin_read()?.open_table(META)?;
        Ok(table.get(key)?.map_or(0, |value| value.value()))
    }

    /// Reads jobs and nodes; says what is wrong with the first that makes no sense.
    fn read_rows(&self, contents: &mut Contents) -> Result<Option<String>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let specs = transaction.open_table(SPECS)?;
        let steps = transaction.open_table(STEPS)?;
        let mut steps = steps.iter()?;
        for spec in specs.iter()? {
            let (id, spec) = spec?;
            let id = JobId::new(id.value());
            let Some((step_of, step)) = steps.next().transpose()? else {
                return Ok(Some(format!("it does not say where {id} stands")));
            };
            let job = match step_of.value() == id.number() {
                true => record::read_job(id, spec.value(), step.value()),
                false => None,
            };
            let Some(job) = job else {
                return Ok(Some(format!("the record of {id} makes no sense")));
            };
            contents.bytes += (spec.value().len() + step.value().len()) as u64;
            contents.jobs.push(job);
        }
        if let Some((id, _)) = steps.next().transpose()? {
            let id = JobId::new(id.value());
            return Ok(Some(format!("it does not say what {id} is")));
        }
        for row in transaction.open_table(NODES)?.iter()? {
            let (node, tenant) = row?;
            let Some(tenant) = record::read_tenant(node.value(), tenant.value()) else {
                return Ok(Some(format!("the record of node {:?} makes no sense", node.value())));
            };
            contents.tenants.push(tenant);
        }
        match transaction.open_table(DRAINED) {
            Ok(drained) => {
                for row in drained.iter()? {
                    let (node, ()) = (row?.0, ());
                    let Ok(node) = NodeId::new(node.value()) else {
                        return Ok(Some(format!("{:?} is no node", node.value())));
                    };
                    contents.drained.insert(node);
                }
            }
            Err(TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(None)
    }

    /// Gives space back that a busier time has left empty.
    fn shrink(&mut self, used_bytes: u64) -> Result<(), redb::Error> {
        let file_bytes = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        if file_bytes > SHRINK_FROM_BYTES && file_bytes / SHRINK_FACTOR > used_bytes {
            self.database.compact()?;
        }
        Ok(())
    }

    /// Writes the notes, all or none; they are on disk when it returns.
    pub(in super::super) fn commit<'n>(
        &mut self,
        notes: impl Iterator<Item = &'n Note>,
    ) -> Result<(), redb::Error> {
        let mut notes = notes.peekable();
        if notes.peek().is_none() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        self.ceiling_ms = write(&transaction, notes, self.ceiling_ms)?;
        Ok(transaction.commit()?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.closing.begin();
    }
}

/// Writes the notes into a transaction; gives the ceiling after them.
fn write<'n>(
    transaction: &WriteTransaction,
    notes: impl Iterator<Item = &'n Note>,
    mut ceiling_ms: u64,
) -> Result<u64, redb::Error> {
    let mut meta = transaction.open_table(META)?;
    let mut specs = transaction.open_table(SPECS)?;
    let mut steps = transaction.open_table(STEPS)?;
    let mut nodes = transaction.open_table(NODES)?;
    for note in notes {
        match note {
            Note::Accepted(job) => {
                specs.insert(job.id.number(), &*record::write_spec(job))?;
                steps.insert(job.id.number(), &*record::write_step(job, None))?;
            }
            Note::Moved(job, token) => {
                steps.insert(job.id.number(), &*record::write_step(job, *token))?;
            }
            Note::Forgotten(job) => {
                specs.remove(job.number())?;
                steps.remove(job.number())?;
            }
            Note::Placed(node, tenant) => {
                nodes.insert(node.as_str(), &*record::write_tenant(tenant))?;
                meta.insert(META_EPOCH, tenant.place.epoch.0)?;
            }
            Note::Released(node) => {
                nodes.remove(node.as_str())?;
                transaction.open_table(DRAINED)?.remove(node.as_str())?;
            }
            Note::Ordered(node, true) => {
                transaction.open_table(DRAINED)?.insert(node.as_str(), ())?;
            }
            Note::Ordered(node, false) => {
                transaction.open_table(DRAINED)?.remove(node.as_str())?;
            }
            Note::Term(term) => drop(meta.insert(META_TERM, term.0)?),
            Note::Ceiling(next_ms) => {
                ceiling_ms = ceiling_ms.max(*next_ms);
                meta.insert(META_CEILING, ceiling_ms)?;
            }
        }
    }
    Ok(ceiling_ms)
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let unusable = |source| OpenError::Unusable { dir: dir.to_path_buf(), source };
    let file = File::options().write(true).create(true).truncate(false).open(dir.join(LOCK_FILE));
    let file = file.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_path_buf() }),
        Err(std::fs::TryLockError::Error(source)) => Err(unusable(source)),
    }
}

/// Makes a new name in a directory outlive a power cut.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn corrupt(file: &Path, detail: &str) -> OpenError {
    OpenError::Corrupt { file: file.to_path_buf(), detail: detail.to_owned() }
}

/// Tells a disk that does not work from a file that makes no sense.
fn refused(file: &Path, error: redb::Error) -> OpenError {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error {
        redb::Error::Io(source)
            if !matches!(source.kind(), InvalidData | InvalidInput | UnexpectedEof) =>
        {
            OpenError::Unreadable { file: file.to_path_buf(), source }
        }
        error => corrupt(file, &error.to_string()),
    }
}
