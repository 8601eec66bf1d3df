//! What a session holds under its lock. Nothing here waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use lingua_core::JobId;
use lingua_core::session::{AudioRateLimit, DeliveryQueue, SegmentId, Segmenter, SessionPlan};
use lingua_store::contract::StoreIdentity;

use super::connection::{CloseReason, SegmentOutcome};
use super::options::SessionOptions;
use super::record::SegmentRecord;
use crate::speech::Speech;

/// How much silence before the first speech belongs to a segment: speech may begin quietly.
const LEAD_IN_US: u64 = 300_000;

/// Deliveries kept for a client that has not seen them.
pub(super) const KEPT_DELIVERIES: usize = 64;

/// How many turns to assume for each segment that a client has seen but this session does not know:
/// turns without speech have numbers too.
const TURNS_PER_UNKNOWN_SEGMENT: u64 = 16;

/// Most `job_accepted` messages that wait for the client.
const ACCEPTED_MAX: usize = 64;

/// Earlier texts that a job carries.
const CONTEXT_TEXTS: usize = 2;

/// Longest of these texts, in bytes.
const CONTEXT_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) segmenter: Segmenter,
    pub(super) queue: DeliveryQueue<QueuedOutcome>,
    pub(super) rate_limit: AudioRateLimit,
    /// Silent frames with their length in microseconds.
    lead_in: VecDeque<(Bytes, u64)>,
    lead_in_us: u64,
    pub(super) open_speech: Option<OpenSpeech>,
    /// The jobs of undelivered segments, by `seq`.
    pub(super) jobs: BTreeMap<u64, SegmentJob>,
    /// The last segments, for the record.
    pub(super) segments: VecDeque<SegmentRecord>,
    pub(super) accepted: VecDeque<(SegmentId, JobId)>,
    pub(super) partials: BTreeMap<u64, (SegmentId, Arc<str>)>,
    context: BTreeMap<u64, Arc<str>>,
    /// Number of the connection that owns the session; each new connection gets the next number.
    pub(super) connection: u64,
    /// Since when no client is connected.
    pub(super) disconnected_ms: Option<u64>,
    pub(super) last_input_ms: u64,
    /// When this instance last tried to write the record.
    pub(super) saved_ms: u64,
    /// The last segment in the record, once this instance has written it.
    pub(super) saved_seq: Option<u64>,
    /// The incarnation of the store that was known to have the record.
    pub(super) stored_in: Option<StoreIdentity>,
    /// A task is about to write a segment that has no job.
    pub(super) is_save_pending: bool,
    /// The client has sent `session_end`.
    pub(super) is_ending: bool,
    pub(super) closed: Option<CloseReason>,
    /// When the timer task wakes up.
    pub(super) timer_at_ms: u64,
}

/// The outcome of a segment while it is in the delivery queue.
#[derive(Debug, Clone)]
pub(super) enum QueuedOutcome {
    Ready(SegmentOutcome),
    /// The result was delivered before; the store still has it.
    InStore(JobId),
}

/// The segment that the client is speaking.
#[derive(Debug)]
pub(super) struct OpenSpeech {
    pub(super) seq: u64,
    pub(super) job: JobId,
    pub(super) speech: Arc<Speech>,
}

/// A segment's job, and when the segment was spoken.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentJob {
    pub(super) id: SegmentId,
    pub(super) job: JobId,
    pub(super) began_ms: u64,
    pub(super) ended_ms: Option<u64>,
}

impl SessionState {
    pub(super) fn new(options: &SessionOptions, plan: &SessionPlan, now_ms: u64) -> Self {
        Self {
            segmenter: Segmenter::new(options.segment_rules(plan), 0),
            queue: DeliveryQueue::new(1, KEPT_DELIVERIES),
            rate_limit: AudioRateLimit::new(options.rate_max, options.rate_window_ms, now_ms),
            lead_in: VecDeque::new(),
            lead_in_us: 0,
            open_speech: None,
            jobs: BTreeMap::new(),
            segments: VecDeque::new(),
            accepted: VecDeque::new(),
            partials: BTreeMap::new(),
            context: BTreeMap::new(),
            connection: 0,
            disconnected_ms: Some(now_ms),
            last_input_ms: now_ms,
            saved_ms: now_ms,
            saved_seq: None,
            stored_in: None,
            is_save_pending: false,
            is_ending: false,
            closed: None,
            timer_at_ms: 0,
        }
    }

    /// A client resumes that has seen everything up to `last_seq`. If that is more than this
    /// session knows (the store lost writes), what it knows is outdated.
    pub(super) fn resume(&mut self, last_seq: u64) {
        if self.queue.resume(last_seq) > 0 {
            let turns = last_seq.saturating_mul(TURNS_PER_UNKNOWN_SEGMENT);
            self.segmenter.skip_turns(u32::try_from(turns).unwrap_or(u32::MAX / 2));
            self.segments.clear();
            self.jobs.clear();
        }
    }

    /// Keeps a silent frame that may belong to the next segment.
    pub(super) fn push_lead_in(&mut self, frame: Bytes, us: u64) {
        self.lead_in_us += us;
        self.lead_in.push_back((frame, us));
        while self.lead_in_us > LEAD_IN_US
            && let Some((_, us)) = self.lead_in.pop_front()
        {
            self.lead_in_us -= us;
        }
    }

    pub(super) fn take_lead_in(&mut self) -> VecDeque<(Bytes, u64)> {
        self.lead_in_us = 0;
        std::mem::take(&mut self.lead_in)
    }

    pub(super) fn push_segment(&mut self, segment: SegmentRecord, options: &SessionOptions) {
        self.segments.push_back(segment);
        while self.segments.len() > KEPT_DELIVERIES + options.open_segments_max {
            self.segments.pop_front();
        }
    }

    /// Texts for the next job, the oldest first.
    pub(super) fn context(&self) -> Vec<Arc<str>> {
        self.context.values().cloned().collect()
    }

    pub(super) fn push_context(&mut self, seq: u64, text: &str) {
        let end = text.floor_char_boundary(CONTEXT_BYTES_MAX);
        self.context.insert(seq, text[..end].into());
        while self.context.len() > CONTEXT_TEXTS {
            self.context.pop_first();
        }
    }

    /// Queues `job_accepted` for a connected client. Returns false if the segment has already
    /// ended.
    pub(super) fn push_accepted(&mut self, seq: u64, id: SegmentId, job: JobId) -> bool {
        let is_open = self.queue.is_open(seq);
        if is_open && self.disconnected_ms.is_none() && self.accepted.len() < ACCEPTED_MAX {
            self.accepted.push_back((id, job));
        }
        is_open
    }

    /// Ends a segment without a result.
    pub(super) fn end_as_missing(
        &mut self,
        seq: u64,
        job: Option<JobId>,
        error: &str,
        detail: String,
    ) {
        let outcome = SegmentOutcome::Missing { job, error: error.to_owned(), detail };
        self.queue.end(seq, QueuedOutcome::Ready(outcome));
    }
}
