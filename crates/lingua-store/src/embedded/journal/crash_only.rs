//! Storage that is never closed in good order.
//!
//! When a `redb` database is closed it writes the list of its free pages, and trusts that list when
//! it is opened again; a damaged list can make it panic. After a crash it checks every page in use
//! against its checksum and builds the list anew, in about 0.1 s for 100,000 jobs. So this database
//! always "crashes": from [`Closing::begin`] on the storage refuses writes.
//!
//! Invariant: there is one way to open a file, the one that must work after a crash.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

/// Whether the database is being closed. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub(super) struct Closing(Arc<AtomicBool>);

impl Closing {
    /// Refuses writes from now on.
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
    }
}

/// Refuses writes once the database is being closed.
#[derive(Debug)]
pub(super) struct CrashOnly<B> {
    backend: B,
    closing: Closing,
}

impl<B> CrashOnly<B> {
    pub(super) fn new(backend: B, closing: Closing) -> Self {
        Self { backend, closing }
    }
}

impl<B: StorageBackend> StorageBackend for CrashOnly<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.closing.check()?;
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.closing.check()?;
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.closing.check()?;
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}
