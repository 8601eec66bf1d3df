//! Jobs of other instances that were sent to nodes here.

use std::collections::VecDeque;

use hashbrown::HashMap;
use lingua_core::planted::{self, Bug};
use lingua_core::{InstanceId, LangPair};
use lingua_store::contract::{Bytes, LeaseKey};

/// Most remote jobs that are remembered.
const REMOTE_JOBS_MAX: usize = 65_536;

#[derive(Debug, Clone)]
pub(super) struct RemoteJob {
    pub(super) owner: InstanceId,
    pub(super) sent_ms: u64,
    /// When the node had all that it needs: the job, and its audio to the end. `None` while the
    /// speaker speaks.
    pub(super) complete_ms: Option<u64>,
    pub(super) pair: LangPair,
    /// Leases of the node when it got this one.
    pub(super) used: u16,
    /// How many bytes of the audio the node has.
    pub(super) audio_sent: usize,
}

#[derive(Debug, Default)]
pub(super) struct RemoteJobs {
    by_key: HashMap<LeaseKey, RemoteJob>,
    oldest_first: VecDeque<(u64, LeaseKey)>,
}

impl RemoteJobs {
    pub(super) fn get(&self, key: LeaseKey) -> Option<RemoteJob> {
        self.by_key.get(&key).cloned()
    }

    /// Remembers a job; says whether it is new. Forgets jobs that are older than `keep_ms`.
    pub(super) fn insert(&mut self, key: LeaseKey, job: RemoteJob, keep_ms: u64) -> bool {
        let now_ms = job.sent_ms;
        if self.by_key.contains_key(&key) {
            return false;
        }
        self.by_key.insert(key, job);
        self.oldest_first.push_back((now_ms, key));
        while let Some(&(sent_ms, oldest)) = self.oldest_first.front() {
            let is_recent = sent_ms.saturating_add(keep_ms) >= now_ms;
            if is_recent && self.oldest_first.len() <= REMOTE_JOBS_MAX {
                break;
            }
            self.oldest_first.pop_front();
            self.by_key.remove(&oldest);
        }
        true
    }

    /// The node was told that the audio is complete.
    pub(super) fn audio_ended(&mut self, key: LeaseKey, now_ms: u64) {
        if let Some(job) = self.by_key.get_mut(&key) {
            job.complete_ms.get_or_insert(now_ms);
        }
    }

    /// The part of this audio, which starts at byte `at`, that the node does not have yet. Messages
    /// may come twice and out of order. The node notices at the end if a piece is missing.
    pub(super) fn new_audio(&mut self, key: LeaseKey, at: usize, audio: &[u8]) -> Option<Bytes> {
        let job = self.by_key.get_mut(&key)?;
        let known = match planted::is(Bug::AudioTwice) {
            false => job.audio_sent.checked_sub(at)?,
            true => 0,
        };
        let new = audio.get(known..).filter(|new| !new.is_empty())?;
        job.audio_sent += new.len();
        Some(Bytes::copy_from_slice(new))
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::{Attempt, JobId};

    use super::*;

    #[test]
    fn audio_that_comes_twice_or_out_of_order_is_sent_once_and_in_order() {
        let mut jobs = RemoteJobs::default();
        let key = LeaseKey { job: JobId::new(1), attempt: Attempt(1) };
        let send = |jobs: &mut RemoteJobs, at, audio: &str| {
            let new = jobs.new_audio(key, at, audio.as_bytes())?;
            Some(String::from_utf8_lossy(&new).into_owned())
        };
        assert_eq!(send(&mut jobs, 0, "ab"), None, "no assignment came before it");
        let owner = InstanceId::new("i").expect("a name");
        let pair = "zh:en".parse().expect("a pair");
        let (sent_ms, complete_ms) = (1, None);
        let job = RemoteJob { owner, sent_ms, complete_ms, pair, used: 1, audio_sent: 0 };
        jobs.insert(key, job, 1_000);
        assert_eq!(send(&mut jobs, 0, "ab").as_deref(), Some("ab"));
        assert_eq!(send(&mut jobs, 0, "ab"), None, "it came twice");
        assert_eq!(send(&mut jobs, 4, "ef"), None, "a piece is missing before it");
        assert_eq!(send(&mut jobs, 1, "bcd").as_deref(), Some("cd"));
        assert_eq!(send(&mut jobs, 4, "ef").as_deref(), Some("ef"));
    }
}
