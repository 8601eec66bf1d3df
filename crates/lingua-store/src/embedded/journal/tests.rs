//! A disk that fails, hesitates or loses power.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use lingua_core::job::{Grant, JobState, Stage};
use lingua_core::{Attempt, CellId, Epoch, Fence, InstanceId, JobId, NodeId, Rules, Slot};
use parking_lot::{Condvar, Mutex};
use redb::StorageBackend;

use super::disk::Disk;
use super::record::{self, StoredJob};
use crate::clock::ManualClock;
use crate::contract::{
    AdvanceReply, AdvanceRequest, AssignRequest, Bytes, CreateReply, Incarnation, JobFilter,
    JobRecord, NewJob, NodeClass, Store,
};
use crate::embedded::{Embedded, OpenError, StoreLimits};
use crate::error::StoreError;

const FILE: &str = "memory";
const SECTOR: usize = 512;

/// A disk in memory. Clones share it.
#[derive(Debug, Clone, Default)]
struct MemoryDisk(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    /// What survives a power cut for certain.
    synced: Vec<u8>,
    /// What was written since, in order.
    unsynced: Vec<(usize, Vec<u8>)>,
    broken: bool,
    stuck: bool,
}

impl MemoryDisk {
    fn formatted() -> Self {
        let disk = Self::default();
        Disk::fill(disk.clone(), Path::new(FILE)).unwrap();
        disk
    }

    fn open(&self, clock: ManualClock) -> Result<Embedded<ManualClock>, OpenError> {
        let (disk, contents) = Disk::over(self.clone(), Path::new(FILE))?;
        Embedded::resume(Rules::default(), StoreLimits::default(), clock, disk, contents)
    }

    fn set_broken(&self) {
        self.0.0.lock().broken = true;
    }

    fn set_stuck(&self, stuck: bool) {
        self.0.0.lock().stuck = stuck;
        self.0.1.notify_all();
    }

    /// What is left after a power cut: all that was synced, and any sectors of what was not.
    fn after_power_cut(&self, random: &mut RandomNumbers) -> Self {
        let state = self.0.0.lock();
        let mut bytes = state.synced.clone();
        if random.draw(2) == 0 {
            bytes.resize(state.bytes.len(), 0);
        }
        for (offset, data) in &state.unsynced {
            for (i, sector) in data.chunks(SECTOR).enumerate() {
                let at = offset + i * SECTOR;
                if random.draw(2) == 0 && at + sector.len() <= bytes.len() {
                    bytes[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        let state = State { synced: bytes.clone(), bytes, ..State::default() };
        Self(Arc::new((Mutex::new(state), Condvar::new())))
    }

    fn change(&self, change: impl FnOnce(&mut State)) -> io::Result<()> {
        let mut state = self.0.0.lock();
        if state.broken {
            return Err(io::Error::other("the disk is broken"));
        }
        change(&mut state);
        Ok(())
    }
}

impl StorageBackend for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.0.lock();
        let from = state.bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|state| state.bytes.resize(len as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.0.lock();
        self.0.1.wait_while(&mut state, |state| state.stuck);
        drop(state);
        self.change(|state| {
            state.synced = state.bytes.clone();
            state.unsynced.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|state| {
            let offset = offset as usize;
            state.bytes[offset..offset + data.len()].copy_from_slice(data);
            state.unsynced.push((offset, data.to_vec()));
        })
    }
}

/// A simple generator of random numbers.
struct RandomNumbers(u64);

impl RandomNumbers {
    fn draw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % below
    }
}

fn owner() -> InstanceId {
    InstanceId::new("owner").unwrap()
}

fn job(n: u128) -> NewJob {
    // Some are large, so that the file grows.
    let spec = n.to_le_bytes().repeat(if n.is_multiple_of(4) { 2000 } else { 20 }).into();
    NewJob {
        id: JobId::new(n),
        owner: owner(),
        spec,
        deadline_ms: None,
        recoverable: true,
        label: 0,
    }
}

fn cancel(n: u128) -> AdvanceRequest {
    let stage = |state| Stage { state, attempt: Attempt::FIRST };
    let (from, to) = (stage(JobState::New), stage(JobState::Cancelled));
    AdvanceRequest::new(JobId::new(n), owner(), from, to, n as u64).unwrap()
}

fn assign(n: u64) -> AssignRequest {
    let node = NodeId::new(&format!("node-{n}")).unwrap();
    AssignRequest::new(node, Incarnation(n), NodeClass(0))
}

#[tokio::test]
async fn a_broken_disk_fails_every_durable_operation() {
    let disk = MemoryDisk::formatted();
    let store = disk.open(ManualClock::at(1000)).unwrap();
    assert_eq!(store.create_job(job(1)).await, Ok(CreateReply::Created));
    disk.set_broken();
    let Err(StoreError::Unavailable { detail }) = store.create_job(job(2)).await else {
        panic!("replied without a disk")
    };
    assert!(detail.contains(FILE) && detail.contains("the disk is broken"), "{detail}");
    assert!(detail.contains("restart"), "{detail}");
    // Also when the disk works again: memory has changes that the disk does not have.
    disk.0.0.lock().broken = false;
    assert!(store.create_job(job(3)).await.unwrap_err().is_safe_to_retry());
    assert!(store.advance_job(cancel(1)).await.is_err());
    assert!(store.assign(assign(1)).await.is_err());
    assert!(store.job(JobId::new(2)).await.is_err(), "in memory, but not on disk");
    assert!(store.cells().await.is_ok(), "what is not durable still works");

    drop(store);
    let store = disk.open(ManualClock::at(1000)).unwrap();
    let jobs = store.jobs(JobFilter { limit: 10, ..JobFilter::default() }).await.unwrap().jobs;
    assert_eq!(jobs.iter().map(|job| job.id.number()).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn no_reply_leaves_before_it_is_on_disk() {
    let disk = MemoryDisk::formatted();
    let store = disk.open(ManualClock::at(1000)).unwrap();
    store.create_job(job(1)).await.unwrap();
    disk.set_stuck(true);
    let mut made = pin!(store.create_job(job(2)));
    let mut repeated = pin!(store.create_job(job(2)));
    let mut seen = pin!(store.job(JobId::new(2)));
    let mut placed = pin!(store.assign(assign(1)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(made.as_mut().now_or_never().is_none());
        assert!(repeated.as_mut().now_or_never().is_none(), "a repeated request waits as well");
        assert!(seen.as_mut().now_or_never().is_none(), "what was read may still be lost");
        assert!(placed.as_mut().now_or_never().is_none());
    }
    disk.set_stuck(false);
    assert_eq!(made.await, Ok(CreateReply::Created));
    assert!(matches!(repeated.await, Ok(CreateReply::Exists(_))));
    assert!(seen.await.unwrap().is_some());
    placed.await.unwrap();
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_a_whole_job() {
    let disk = MemoryDisk::formatted();
    let store = disk.open(ManualClock::at(1000)).unwrap();
    disk.set_stuck(true);
    assert!(store.create_job(job(1)).now_or_never().is_none(), "dropped while it waits");
    disk.set_stuck(false);
    assert!(matches!(store.create_job(job(1)).await, Ok(CreateReply::Exists(_))));
    drop(store);
    let store = disk.open(ManualClock::at(1000)).unwrap();
    assert!(store.job(JobId::new(1)).await.unwrap().is_some());
}

#[test]
fn a_power_cut_loses_nothing_that_was_confirmed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for seed in 0..60 {
        let mut random = RandomNumbers(seed);
        let disk = MemoryDisk::formatted();
        let store = disk.open(ManualClock::at(1000)).unwrap();
        let answered = Arc::new(Mutex::new(BTreeMap::new()));
        let count = Arc::new(AtomicU64::new(0));
        let enough = 20 + random.draw(200);
        for caller in 0..8 {
            let (store, answered, count) = (store.clone(), Arc::clone(&answered), count.clone());
            runtime.spawn(async move {
                for n in (caller..).step_by(8) {
                    if store.create_job(job(n)).await != Ok(CreateReply::Created) {
                        return;
                    }
                    answered.lock().insert(n, JobState::New);
                    if store.advance_job(cancel(n)).await != Ok(AdvanceReply::Advanced) {
                        return;
                    }
                    answered.lock().insert(n, JobState::Cancelled);
                    count.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        while count.load(Ordering::Relaxed) < enough {
            std::thread::yield_now();
        }
        // First what was answered, then the power cut: what is answered in between may be there
        // too.
        let answered = answered.lock().clone();
        let left = disk.after_power_cut(&mut random);
        disk.set_broken();

        let store = left.open(ManualClock::at(1000)).unwrap_or_else(|error| {
            panic!("seed {seed}: {error}");
        });
        for (n, state) in answered {
            let record = runtime.block_on(store.job(JobId::new(n))).unwrap();
            let record = record.unwrap_or_else(|| panic!("seed {seed}: job {n} is lost"));
            let ended = record.stage.state == JobState::Cancelled;
            assert!(ended || state == JobState::New, "seed {seed}: job {n} was ended");
            assert_eq!(record.spec, job(n).spec, "seed {seed}");
        }
    }
}

fn full_record() -> JobRecord {
    let grant = Grant {
        node: NodeId::new("node-1").unwrap(),
        cell: CellId::new(999).unwrap(),
        slot: Slot::new(99).unwrap(),
        epoch: Epoch(u64::MAX),
        fence: Fence(7),
        via: InstanceId::new("other").unwrap(),
    };
    let mut record = JobRecord::new(NewJob { deadline_ms: Some(9), ..job(3) }, 5);
    record.stage = Stage { state: JobState::Acked, attempt: Attempt(3) };
    record.grant = Some(grant);
    record.outcome = Some(Bytes::from_static(b"what came of it"));
    record
}

#[test]
fn a_record_reads_back_as_it_was_written_in_every_state() {
    for state in JobState::ALL {
        let mut record = full_record();
        record.stage.state = state;
        for token in [None, Some(u64::MAX)] {
            let (spec, step) = (record::write_spec(&record), record::write_step(&record, token));
            assert_eq!(
                record::read_job(record.id, &spec, &step),
                Some(StoredJob { record: record.clone(), last_token: token })
            );
        }
        let bare = JobRecord { grant: None, outcome: None, deadline_ms: None, ..record };
        let (spec, step) = (record::write_spec(&bare), record::write_step(&bare, None));
        assert_eq!(
            record::read_job(bare.id, &spec, &step),
            Some(StoredJob { record: bare, last_token: None })
        );
    }
}

#[test]
fn a_record_that_is_cut_or_of_another_version_is_refused() {
    let record = full_record();
    let (spec, step) = (record::write_spec(&record), record::write_step(&record, Some(1)));
    for len in 0..spec.len() - record.spec.len() {
        assert_eq!(record::read_job(record.id, &spec[..len], &step), None, "{len} bytes of spec");
    }
    for len in 0..step.len() - record.outcome.as_ref().unwrap().len() {
        assert_eq!(record::read_job(record.id, &spec, &step[..len]), None, "{len} bytes of step");
    }
    let mut old = step.clone();
    old[0] -= 1;
    assert_eq!(record::read_job(record.id, &spec, &old), None);
}
