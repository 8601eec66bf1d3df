//! One session: what is heard, and what becomes of it.
//!
//! Start at [`Talk::audio`]. Everything that is said changes the state under one lock and takes no time; what takes time
//! (jobs, the store) is done by a task for each segment.
//!
//! Invariant: every segment gets one number, and ends as a result or as missing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lingua_core::JobId;
use lingua_core::planted::{self, Bug};
use lingua_core::session::{Cut, Format, Order, Pace, SegmentId, Segmenter, Speaker};
use lingua_store::Store;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::attached::Over;
use super::hub::{Hub, NewSession};
use super::options::{SegmentInput, SessionError};
use super::record::{Record, Segment};
use super::segment::Outcome;
use crate::clock::Timer;
use crate::speech::Speech;

/// How much silence before the first sound goes along, in microseconds: the first sound may be a quiet one.
const LEAD_US: u64 = 300_000;

/// Deliveries that are kept for a client that has not seen them.
pub(super) const KEPT_MAX: usize = 64;

/// How long a job that is not there yet is waited for after a session was taken over.
const PATIENCE_MS: u64 = 3_000;

/// How many turns a client may have had for each segment that it has seen, if they are not known here: turns in which nothing is
/// said have numbers, too.
const TURNS_FOR_EACH: u64 = 16;

/// Most notes that wait for the client.
const NOTES_MAX: usize = 64;

/// Texts that go along with a job.
const CONTEXT_TEXTS: usize = 2;

#[derive(Debug)]
pub(super) struct Talk<S, T> {
    pub(super) hub: Arc<Hub<S, T>>,
    pub(super) new: NewSession,
    /// Tells this life of the session from those at other instances.
    pub(super) life: u64,
    /// How often it was taken over before: who took it over last has it.
    pub(super) hands: u64,
    /// The version of its record; held while it is being written.
    pub(super) version: tokio::sync::Mutex<u64>,
    /// Until then, a job that is not there may still come: another instance may be about to write it.
    pub(super) patient_until_ms: u64,
    pub(super) state: Mutex<State>,
    /// Rung when there may be something for the client.
    pub(super) for_client: Notify,
    /// Rung when a timer has to be set earlier.
    pub(super) for_keeper: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) segmenter: Segmenter,
    pub(super) order: Order<Outcome>,
    pace: Pace,
    lead: VecDeque<(Vec<u8>, u64)>,
    lead_us: u64,
    speaking: Option<Speaking>,
    /// The jobs of segments that were not delivered, and when they were spoken.
    pub(super) jobs: BTreeMap<u64, Spoken>,
    /// The last segments and their jobs, for the record.
    pub(super) segments: VecDeque<Segment>,
    pub(super) accepted: VecDeque<(SegmentId, JobId)>,
    pub(super) partials: BTreeMap<u64, (SegmentId, Arc<str>)>,
    pub(super) texts: BTreeMap<u64, Arc<str>>,
    /// Which connection has it; they are counted.
    pub(super) connection: u64,
    /// Since when nobody has it.
    pub(super) away_since_ms: Option<u64>,
    pub(super) heard_ms: u64,
    /// When its record was last written, or that was tried.
    pub(super) saved_ms: u64,
    /// The last segment that is in the record, once this instance has written it.
    pub(super) written_seq: Option<u64>,
    /// There is a segment without a job that is not in the record yet; somebody is about to write it.
    pub(super) is_unwritten: bool,
    /// The client wants to leave.
    pub(super) is_ending: bool,
    pub(super) over: Option<Over>,
    /// When the keeper looks next.
    pub(super) wakes_ms: u64,
}

/// The segment that is open.
#[derive(Debug)]
struct Speaking {
    seq: u64,
    job: JobId,
    speech: Arc<Speech>,
}

/// A segment's job, and when it was spoken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spoken {
    pub(super) id: SegmentId,
    pub(super) job: JobId,
    pub(super) began_ms: u64,
    pub(super) ended_ms: Option<u64>,
}

impl<S: Store, T: Timer> Talk<S, T> {
    pub(super) fn new(hub: Arc<Hub<S, T>>, new: NewSession) -> Self {
        let (options, now_ms) = (hub.options, hub.engine.now_ms());
        let state = State {
            segmenter: Segmenter::new(options.segments, 0),
            order: Order::new(1, KEPT_MAX),
            pace: Pace::new(options.rate_max, options.rate_window_ms, now_ms),
            lead: VecDeque::new(),
            lead_us: 0,
            speaking: None,
            jobs: BTreeMap::new(),
            segments: VecDeque::new(),
            accepted: VecDeque::new(),
            partials: BTreeMap::new(),
            texts: BTreeMap::new(),
            connection: 0,
            away_since_ms: Some(now_ms),
            heard_ms: now_ms,
            saved_ms: now_ms,
            written_seq: None,
            is_unwritten: false,
            is_ending: false,
            over: None,
            wakes_ms: 0,
        };
        let (for_client, for_keeper) = (Notify::new(), Notify::new());
        let life = hub.engine.shared.random_u64();
        Self {
            hub,
            new,
            life,
            hands: 0,
            version: tokio::sync::Mutex::new(0),
            patient_until_ms: 0,
            state: Mutex::new(state),
            for_client,
            for_keeper,
        }
    }

    /// Goes on where another instance left off. The client has seen everything up to `last_seq`.
    pub(super) fn taken_over(
        hub: Arc<Hub<S, T>>,
        id: &str,
        version: u64,
        record: &Record,
        last_seq: u64,
    ) -> Self {
        let options = hub.options;
        let mut talk = Self::new(hub, record.session(id));
        let now_ms = talk.now_ms();
        talk.patient_until_ms = now_ms.saturating_add(PATIENCE_MS);
        talk.hands = record.hands.saturating_add(1);
        *talk.version.get_mut() = version;
        let state = talk.state.get_mut();
        state.segmenter = Segmenter::new(options.segments, record.turns);
        let first = record.segments.first().map_or(1, Segment::seq);
        state.order = Order::new(first, KEPT_MAX);
        let due_ms = options.deadline_ms.saturating_add(options.segments.segment_max_ms);
        for segment in &record.segments {
            let (seq, id) = (state.order.open(segment.id()), segment.id());
            match segment.job() {
                Some(job) if seq <= last_seq => {
                    state.order.end(seq, Outcome::Kept(job));
                }
                Some(job) => {
                    let (began_ms, ended_ms) = (now_ms, Some(now_ms));
                    state.jobs.insert(seq, Spoken { id, job, began_ms, ended_ms });
                    if !planted::is(Bug::MissingNotReported) {
                        state.order.set_due(seq, now_ms.saturating_add(due_ms));
                    }
                }
                None => {
                    let error = "RATE_LIMITED".to_owned();
                    let detail = "too many segments were open; wait for results".to_owned();
                    state.order.end(seq, Outcome::Missing { job: None, error, detail });
                }
            }
            state.segments.push_back(segment.clone());
        }
        talk
    }

    /// Follows the jobs that were open when the session was taken over.
    pub(super) fn follow_all(self: &Arc<Self>) {
        let open: Vec<_> = self.state.lock().jobs.iter().map(|(seq, s)| (*seq, s.job)).collect();
        for (seq, job) in open {
            let talk = Arc::clone(self);
            tokio::spawn(async move { talk.follow(seq, job).await });
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.hub.engine.now_ms()
    }

    /// Takes a frame of audio; a detector may know better whether anything is said in it.
    pub(super) fn audio(
        self: &Arc<Self>,
        frame: &[u8],
        is_speech: Option<bool>,
    ) -> Result<(), SessionError> {
        let mut measure = self.new.format.measure(frame)?;
        measure.speech = is_speech.unwrap_or(measure.speech);
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        state.heard_ms = now_ms;
        let rate = self.hub.options.rate_max;
        let taken = state.pace.take(measure.us, now_ms);
        taken.map_err(|wait_ms| SessionError::TooFast { rate, wait_ms })?;
        let heard = state.segmenter.audio(measure, now_ms);
        if heard.ended_before.is_some() {
            self.close(&mut state);
        }
        let sound = self.coded(frame);
        if let Some(cut) = heard.begins {
            self.begin(&mut state, cut);
        }
        if heard.is_kept {
            self.say(&state, &sound);
        } else {
            state.lead_us += measure.us;
            state.lead.push_back((sound, measure.us));
            while state.lead_us > LEAD_US
                && let Some((_, us)) = state.lead.pop_front()
            {
                state.lead_us -= us;
            }
        }
        if heard.ends.is_some() {
            self.close(&mut state);
        }
        self.set_timer(&state);
        Ok(())
    }

    /// As nodes get it: behind each other, samples are whole; packets need to say where they end.
    fn coded(&self, frame: &[u8]) -> Vec<u8> {
        match self.new.format {
            Format::Pcm16 { .. } => frame.to_vec(),
            Format::Opus => {
                let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
                [&length.to_be_bytes(), frame].concat()
            }
        }
    }

    fn say(&self, state: &State, sound: &[u8]) {
        if let Some(speaking) = &state.speaking
            && speaking.speech.push(sound)
        {
            self.hub.engine.sound_came(speaking.job);
        }
    }

    pub(super) fn turn_start(self: &Arc<Self>, speaker: Option<Speaker>) {
        let now_ms = self.now_ms();
        let mut state = self.state.lock();
        state.heard_ms = now_ms;
        if state.segmenter.turn_start(speaker, now_ms).is_some() {
            self.close(&mut state);
        }
        state.forget_lead();
        self.set_timer(&state);
    }

    pub(super) fn turn_end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.heard_ms = self.now_ms();
        if state.segmenter.turn_end().is_some() {
            self.close(&mut state);
        }
        state.forget_lead();
        self.set_timer(&state);
    }

    pub(super) fn text(self: &Arc<Self>, text: &str, speaker: Option<Speaker>) {
        let mut state = self.state.lock();
        state.heard_ms = self.now_ms();
        if text.trim().is_empty() {
            return;
        }
        state.forget_lead();
        let (ended, cut) = state.segmenter.text(speaker);
        if ended.is_some() {
            self.close(&mut state);
        }
        if let Some((seq, _)) = self.open(&mut state, cut, SegmentInput::Text(text.into())) {
            self.spoken(&mut state, seq);
        }
        self.set_timer(&state);
    }

    /// The client leaves; what is open is still delivered.
    pub(super) fn end(self: &Arc<Self>) {
        self.turn_end();
        self.state.lock().is_ending = true;
        self.for_client.notify_one();
        self.for_keeper.notify_one();
    }

    /// A segment of audio begins.
    fn begin(self: &Arc<Self>, state: &mut State, cut: Cut) {
        let (format, sample_rate) = match self.new.format {
            Format::Pcm16 { sample_rate } => ("pcm16", sample_rate),
            Format::Opus => ("opus_packets", 0),
        };
        let speech = Arc::new(Speech::new(format.into(), sample_rate));
        for (sound, _) in std::mem::take(&mut state.lead) {
            speech.push(&sound);
        }
        state.lead_us = 0;
        let opened = self.open(state, cut, SegmentInput::Speech(Arc::clone(&speech)));
        state.speaking = opened.map(|(seq, job)| Speaking { seq, job, speech });
    }

    /// The segment that is open ends.
    pub(super) fn close(&self, state: &mut State) {
        if let Some(Speaking { seq, job, speech }) = state.speaking.take() {
            speech.finish();
            self.spoken(state, seq);
            self.hub.engine.sound_came(job);
        }
    }

    /// A segment gets its number and becomes a job; not if too many are open.
    fn open(
        self: &Arc<Self>,
        state: &mut State,
        cut: Cut,
        input: SegmentInput,
    ) -> Option<(u64, JobId)> {
        let options = self.hub.options;
        let limit = options.open_segments_max;
        let too_many = state.order.undelivered() >= limit;
        let seq = state.order.open(cut.id);
        let job = (!too_many).then(|| self.hub.compose.job_id(self.now_ms()));
        state.remember_segment(Segment::new(seq, cut.id, job), limit);
        let Some(job) = job else {
            let detail = format!("{limit} segments are open already; wait for results");
            let error = "RATE_LIMITED".to_owned();
            state.order.end(seq, Outcome::Missing { job: None, error, detail });
            self.for_client.notify_one();
            // One writer at a time, however many there are of these.
            if !std::mem::replace(&mut state.is_unwritten, true) {
                let talk = Arc::clone(self);
                tokio::spawn(async move { talk.save().await.ok() });
            }
            return None;
        };
        let now_ms = self.now_ms();
        let context: Vec<_> = state.texts.values().cloned().collect();
        let spoken = Spoken { id: cut.id, job, began_ms: now_ms, ended_ms: None };
        state.jobs.insert(seq, spoken);
        let bind_key = format!("{}/{}", self.new.id, cut.id.turn).into();
        tokio::spawn(Arc::clone(self).carry(seq, cut, job, input, context, bind_key));
        Some((seq, job))
    }

    /// A segment is whole: its time runs.
    fn spoken(&self, state: &mut State, seq: u64) {
        let now_ms = self.now_ms();
        state.order.set_due(seq, now_ms.saturating_add(self.hub.options.deadline_ms));
        if let Some(spoken) = state.jobs.get_mut(&seq) {
            spoken.ended_ms = Some(now_ms);
        }
    }

    /// Whether nothing more becomes of the session here.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Wakes the keeper if it would look too late.
    pub(super) fn set_timer(&self, state: &State) {
        if state.due_ms(&self.hub.options) < state.wakes_ms {
            self.for_keeper.notify_one();
        }
    }

    /// Nothing more becomes of the session here.
    pub(super) fn finish(&self, over: Over) {
        self.state.lock().over.get_or_insert(over);
        if !planted::is(Bug::SessionNeverRemoved) {
            self.hub.forget(self);
        }
        self.for_client.notify_one();
        self.for_keeper.notify_one();
    }
}

impl State {
    /// A client comes back that has seen everything up to `last_seq`. If that is more than is known here, what is known is of the past.
    pub(super) fn come_back(&mut self, last_seq: u64) {
        if self.order.come_back(last_seq) > 0 {
            let turns = last_seq.saturating_mul(TURNS_FOR_EACH);
            self.segmenter.skip_turns(u32::try_from(turns).unwrap_or(u32::MAX / 2));
            self.segments.clear();
            self.jobs.clear();
        }
    }

    fn forget_lead(&mut self) {
        self.lead.clear();
        self.lead_us = 0;
    }

    fn remember_segment(&mut self, segment: Segment, open_max: usize) {
        self.segments.push_back(segment);
        while self.segments.len() > KEPT_MAX + open_max {
            self.segments.pop_front();
        }
    }

    /// Remembers a text for the jobs to come.
    pub(super) fn remember_text(&mut self, seq: u64, text: Arc<str>) {
        self.texts.insert(seq, text);
        while self.texts.len() > CONTEXT_TEXTS {
            self.texts.pop_first();
        }
    }

    /// Tells the client of a job, unless it does not listen. Says whether anybody still waits for it.
    pub(super) fn note_accepted(&mut self, seq: u64, id: SegmentId, job: JobId) -> bool {
        if !self.order.is_open(seq) {
            return false;
        }
        if self.away_since_ms.is_none() && self.accepted.len() < NOTES_MAX {
            self.accepted.push_back((id, job));
        }
        true
    }
}
