//! Storage that is never closed in good order.
//!
//! When a `redb` database is closed it writes the list of its free pages, and trusts that list when
//! it is opened again; a damaged list can make it panic. After a crash it checks every page in use
//! against its checksum and builds the list anew, in about 0.1 s for 100,000 jobs. So this database
//! always "crashes": once it is being closed, the storage refuses writes.
//!
//! Invariant: there is one way to open a file, the one that must work after a crash.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

/// Refuses writes once the database is being closed.
#[derive(Debug)]
pub(super) struct CrashOnly<B> {
    pub(super) backend: B,
    pub(super) is_closing: Arc<AtomicBool>,
}

impl<B> CrashOnly<B> {
    fn check(&self) -> io::Result<()> {
        match self.is_closing.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the database is being closed")),
            false => Ok(()),
        }
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
        self.check()?;
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.check()?;
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}
