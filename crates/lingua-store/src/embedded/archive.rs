//! Jobs that have ended, packed one behind the other.
//!
//! Start at [`Archive::keep`]. An ended job is read seldom and never changed, and there are many: kept as they were when
//! they ran, each would hold on to half a dozen pieces of memory, and every new job would get pieces that have not been
//! touched for a long time. Packed, what a job used is free for the next one while it is still in the cache.
//!
//! Invariant: a chunk is there as long as a job in it is; jobs leave in about the order in which they came.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use lingua_core::JobId;

use super::journal::record::{read_job, write_spec_to, write_step_to};
use crate::contract::JobRecord;

/// Bytes after which a new chunk is begun.
const CHUNK_BYTES: usize = 64 << 10;

/// Memory that a chunk gets from the start: room for its last job, too, unless that is a large one.
const CHUNK_ROOM_BYTES: usize = CHUNK_BYTES + (8 << 10);

/// Jobs that have ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive {
    places: BTreeMap<JobId, At>,
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk.
    first: u64,
    /// Memory of a chunk that is gone, for the next one.
    spare: Vec<u8>,
}

/// Where a job is.
#[derive(Debug, Clone, Copy)]
struct At {
    chunk: u64,
    from: u32,
    step_from: u32,
    to: u32,
}

#[derive(Debug, Clone, Default)]
struct Chunk {
    /// Shared with snapshots.
    bytes: Arc<Vec<u8>>,
    /// How many jobs in it are still to be kept.
    jobs: u32,
}

impl Archive {
    /// Keeps a job and the token of its last step.
    pub(super) fn keep(&mut self, job: &JobRecord, token: Option<u64>) {
        let is_full = self.chunks.back().is_none_or(|chunk| chunk.bytes.len() >= CHUNK_BYTES);
        if is_full {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.reserve(CHUNK_ROOM_BYTES);
            self.chunks.push_back(Chunk { bytes: Arc::new(bytes), jobs: 0 });
        }
        let last = self.chunks.len() as u64 - 1;
        let Some(chunk) = self.chunks.back_mut() else { return };
        let bytes = Arc::make_mut(&mut chunk.bytes);
        // A job is at most a few MiB.
        let end = |bytes: &Vec<u8>| bytes.len() as u32;
        let from = end(bytes);
        write_spec_to(bytes, job);
        let step_from = end(bytes);
        write_step_to(bytes, job, token);
        let at = At { chunk: self.first + last, from, step_from, to: end(bytes) };
        chunk.jobs += 1;
        self.places.insert(job.id, at);
    }

    /// A job and the token of its last step.
    pub(super) fn get(&self, id: JobId) -> Option<(JobRecord, Option<u64>)> {
        let At { chunk, from, step_from, to } = *self.places.get(&id)?;
        let bytes = &self.chunks.get((chunk - self.first) as usize)?.bytes;
        let (from, step_from, to) = (from as usize, step_from as usize, to as usize);
        read_job(id, bytes.get(from..step_from)?, bytes.get(step_from..to)?)
    }

    pub(super) fn contains(&self, id: JobId) -> bool {
        self.places.contains_key(&id)
    }

    /// The ids between these, in order.
    pub(super) fn range(
        &self,
        ids: (Bound<JobId>, Bound<JobId>),
    ) -> impl DoubleEndedIterator<Item = JobId> {
        self.places.range(ids).map(|(&id, _)| id)
    }

    /// Forgets a job.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(at) = self.places.remove(&id) else { return };
        if let Some(chunk) = self.chunks.get_mut((at.chunk - self.first) as usize) {
            chunk.jobs -= 1;
        }
        while self.chunks.len() > 1 && self.chunks[0].jobs == 0 {
            let gone = self.chunks.pop_front().unwrap_or_default();
            self.first += 1;
            // Unless a snapshot has it, or it was for one large job.
            if let Ok(mut bytes) = Arc::try_unwrap(gone.bytes) {
                bytes.clear();
                bytes.shrink_to(2 * CHUNK_BYTES);
                self.spare = bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::InstanceId;
    use lingua_core::job::{JobState, Stage};

    use super::*;
    use crate::contract::NewJob;

    fn job(number: u128, bytes: usize) -> JobRecord {
        let job = NewJob {
            id: JobId::new(number),
            owner: InstanceId::new("a").unwrap(),
            spec: vec![number as u8; bytes].into(),
            deadline_ms: None,
            recoverable: true,
        };
        let record = JobRecord::new(job, number as u64);
        let stage = Stage { state: JobState::Failed, ..record.stage };
        JobRecord { stage, outcome: Some(vec![7; 3].into()), ..record }
    }

    #[test]
    fn what_is_kept_is_given_back_until_it_is_removed() {
        let mut archive = Archive::default();
        // Small ones, and one that is larger than a chunk.
        let size = |n: u128| if n == 40 { 3 * CHUNK_BYTES } else { 9_000 };
        for n in 0..100 {
            archive.keep(&job(n, size(n)), Some(n as u64));
        }
        let snapshot = archive.clone();
        for n in 0..100 {
            assert_eq!(archive.get(JobId::new(n)), Some((job(n, size(n)), Some(n as u64))));
        }
        // Out of turn, too.
        for n in (0..100).rev().step_by(2).chain((0..100).step_by(2)) {
            archive.remove(JobId::new(n));
            assert_eq!(archive.get(JobId::new(n)), None);
            assert!(n == 0 || archive.chunks.len() <= 100);
        }
        assert_eq!((archive.places.len(), archive.chunks.len()), (0, 1), "no chunk is left behind");
        archive.keep(&job(200, 10), None);
        assert_eq!(archive.get(JobId::new(200)), Some((job(200, 10), None)));
        assert_eq!(snapshot.get(JobId::new(99)), Some((job(99, 9_000), Some(99))));
    }

    #[test]
    fn memory_does_not_grow_when_old_jobs_leave() {
        let mut archive = Archive::default();
        for n in 0..10_000_u128 {
            archive.keep(&job(n, 1_000), None);
            if let Some(old) = n.checked_sub(100) {
                archive.remove(JobId::new(old));
            }
            assert!(archive.chunks.len() <= 4, "{}", archive.chunks.len());
        }
    }
}
