//! Checks what the client of a session receives against what it sent.
//!
//! Start at [`SessionChecker::delivered`]. It knows the promises of docs/sessions.md and nothing of
//! how they are kept.
//!
//! | rule | checker |
//! |---|---|
//! | each segment once, in the order spoken, none skipped, over all connections | S9 |
//! | no partial text after the result | S9 |
//! | a result belongs to this session, turn and direction, and covers all of the audio | S9 |
//! | nobody resumes a session without its secret | S9 |
//! | an accepted segment ends as a result or as missing, in time, whatever dies | S10 |
//! | a session can be resumed for as long as promised | S10 |
//!
//! Each frame and text that the client sends gets a number. A connection keeps messages in order
//! and can lose only the last ones, so whatever else is missing was lost by the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use lingua_core::JobId;
use lingua_core::session::{Direction, SegmentId, SessionPlan, Speaker};
use lingua_engine::session::SessionOptions;

use super::checker::Checker;
use super::node::WRONG;
use super::segment_echo::SegmentEcho;
use super::store_checker::BrokenRule;

/// How late an outcome may be.
const GRACE_MS: u64 = 3_000;

/// A frame or a text that the client sent.
#[derive(Debug, Clone, Copy)]
struct Item {
    block: usize,
    /// SpeechPlan or text; silence may be left out of results.
    is_speech: bool,
}

/// The items between two messages of the client that open or end a turn. Items of different blocks
/// are never in one segment.
#[derive(Debug, Clone)]
struct Block {
    connection: u32,
    /// The client opened a turn with it.
    is_explicit: bool,
    /// The pair and `two_way`, if the client can know them.
    direction: Option<(String, bool)>,
}

/// One session, as its client sees it.
#[derive(Debug)]
pub(super) struct SessionChecker {
    pub(super) name: String,
    pub(super) begun_ms: u64,
    /// When the store last took the session's record.
    pub(super) saved_ms: u64,
    plan: SessionPlan,
    options: SessionOptions,
    items: Vec<Item>,
    blocks: Vec<Block>,
    connections: u32,
    /// Where the client is connected: instance and incarnation.
    pub(super) at: Option<(usize, u32)>,
    /// Since when nothing has disturbed the connection.
    steady_since_ms: u64,
    pub(super) last_seq: u64,
    last_id: SegmentId,
    /// The last item of the last result; `None` if the last segment was missing.
    last_item: Option<u32>,
    highest_item: Option<u32>,
    ended: BTreeSet<SegmentId>,
    /// Segments that have been accepted and not ended, and since when.
    accepted: BTreeMap<SegmentId, (JobId, u64)>,
    /// The block of each turn on a connection, and the turn of each block.
    block_of_turn: BTreeMap<(u32, u32), usize>,
    turn_of_block: BTreeMap<usize, u32>,
    /// The store lost the session's record, and the session continued at another instance.
    pub(super) is_excused: bool,
    /// A resume request that the client gave up may still arrive and take the session: a known
    /// limit.
    pub(super) has_lost_request: bool,
    pub(super) is_over: bool,
}

impl SessionChecker {
    pub(super) fn new(
        name: String,
        plan: SessionPlan,
        options: SessionOptions,
        begun_ms: u64,
    ) -> Self {
        Self {
            name,
            begun_ms,
            saved_ms: begun_ms,
            plan,
            options,
            items: vec![],
            blocks: vec![],
            connections: 0,
            at: None,
            steady_since_ms: 0,
            last_seq: 0,
            last_id: SegmentId { turn: 0, segment: 0 },
            last_item: None,
            highest_item: None,
            ended: BTreeSet::new(),
            accepted: BTreeMap::new(),
            block_of_turn: BTreeMap::new(),
            turn_of_block: BTreeMap::new(),
            is_excused: false,
            has_lost_request: false,
            is_over: false,
        }
    }

    /// A connection begins. An open turn may continue, or not.
    pub(super) fn connected(&mut self, at: (usize, u32), now_ms: u64) {
        self.connections += 1;
        self.at = Some(at);
        self.steady_since_ms = now_ms;
        let is_two_way = matches!(self.plan.direction, Direction::TwoWay { .. });
        let direction = (!is_two_way).then(|| self.direction(None));
        self.begin_block(false, direction);
    }

    /// Something disturbs the connection.
    pub(super) fn disturbed(&mut self, now_ms: u64) {
        self.steady_since_ms = now_ms;
    }

    fn direction(&self, speaker: Option<Speaker>) -> (String, bool) {
        let direction = self.plan.direction_of(speaker);
        (direction.pair.to_string(), direction.two_way)
    }

    fn begin_block(&mut self, is_explicit: bool, direction: Option<(String, bool)>) {
        self.blocks.push(Block { connection: self.connections, is_explicit, direction });
    }

    pub(super) fn turn_start(&mut self, speaker: Option<Speaker>) {
        self.begin_block(true, Some(self.direction(speaker)));
    }

    pub(super) fn turn_end(&mut self) {
        self.begin_block(false, Some(self.direction(None)));
    }

    /// Returns the number of the next frame.
    pub(super) fn frame(&mut self, is_speech: bool) -> u32 {
        self.items.push(Item { block: self.blocks.len() - 1, is_speech });
        self.items.len() as u32 - 1
    }

    /// Returns the number of the next text.
    pub(super) fn text(&mut self, speaker: Option<Speaker>) -> u32 {
        let before = self.blocks.last().cloned();
        let direction = match (speaker, before) {
            (None, Some(block)) if block.is_explicit || block.direction.is_none() => {
                block.direction
            }
            (speaker, _) => Some(self.direction(speaker)),
        };
        self.begin_block(false, direction);
        let item = self.frame(true);
        self.turn_end();
        item
    }

    pub(super) fn accepted(
        &mut self,
        id: SegmentId,
        job: JobId,
        now_ms: u64,
    ) -> Result<(), BrokenRule> {
        if self.ended.contains(&id) && !self.is_excused {
            return self.wrong(format!("{id} was accepted after it had ended"));
        }
        match self.accepted.insert(id, (job, now_ms)) {
            Some((before, _)) if before != job && !self.is_excused => {
                self.wrong(format!("{id} became two jobs, {before} and {job}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn partial(&self, id: SegmentId, text: &str) -> Result<(), BrokenRule> {
        if self.ended.contains(&id) && !self.is_excused {
            return self.wrong(format!("a partial text of {id} came after its result: '{text}'"));
        }
        match SegmentEcho::read(text) {
            Some(echo) if echo.session == self.name => Ok(()),
            _ => self.wrong(format!("a partial text of {id} is '{text}'")),
        }
    }

    /// A segment ended: with a result, or as missing.
    pub(super) fn delivered(
        &mut self,
        seq: u64,
        id: SegmentId,
        job: Option<JobId>,
        result: Option<&str>,
    ) -> Result<(), BrokenRule> {
        let expected = self.last_seq + 1;
        if seq < expected || seq > expected && !self.is_excused {
            return self.wrong(format!("number {seq} ({id}) came instead of {expected}"));
        }
        self.last_seq = seq;
        if (id <= self.last_id || !self.ended.insert(id)) && !self.is_excused {
            return self.wrong(format!("{id} came after {}", self.last_id));
        }
        self.last_id = id;
        if let Some((accepted, _)) = self.accepted.remove(&id)
            && job.is_some_and(|job| job != accepted)
            && !self.is_excused
        {
            return self.wrong(format!("{id} was job {accepted} and ended as {job:?}"));
        }
        let before = self.last_item.take();
        let Some(result) = result else { return Ok(()) };
        let is_neighbour = before.is_some() || seq == 1;
        self.check_result(id, job, result, before, is_neighbour)
    }

    /// A result covers the audio that was sent, all of it, in order.
    fn check_result(
        &mut self,
        id: SegmentId,
        job: Option<JobId>,
        result: &str,
        before: Option<u32>,
        is_neighbour: bool,
    ) -> Result<(), BrokenRule> {
        let echo = SegmentEcho::read(result).filter(|_| result != WRONG);
        let Some(echo) = echo.filter(|echo| Some(echo.job) == job && echo.session == self.name)
        else {
            return self.wrong(format!("the result of {id} is '{result}'"));
        };
        let Some(runs) = super::marked_audio::parse_runs(&echo.frames) else {
            return self.wrong(format!("the frames of {id} are '{}'", echo.frames));
        };
        let items: Vec<u32> = runs.iter().flat_map(|&(from, to)| from..=to).collect();
        let (Some(&first), Some(&last)) = (items.first(), items.last()) else { return Ok(()) };
        if items.iter().any(|&item| item as usize >= self.items.len()) {
            return self.wrong(format!("{id} covers {runs:?}, which was not sent"));
        }
        if self.highest_item.is_some_and(|highest| first <= highest) {
            return self
                .wrong(format!("{id} covers {runs:?} again, after {:?}", self.highest_item));
        }
        for pair in items.windows(2) {
            self.lost_between(pair[0], pair[1], |_| true, id)?;
        }
        if is_neighbour && !self.is_excused {
            match before {
                Some(before) => self.lost_between(before, first, |item| item.is_speech, id)?,
                None => self.lost_before(first, id)?,
            }
        }
        self.check_turn(id, &items, &echo)?;
        self.last_item = Some(last);
        self.highest_item = Some(last);
        Ok(())
    }

    fn connection_of(&self, item: u32) -> u32 {
        self.blocks[self.items[item as usize].block].connection
    }

    /// Between two items that arrived, only the last items of a connection can be lost.
    fn lost_between(
        &self,
        from: u32,
        to: u32,
        must_arrive: impl Fn(&Item) -> bool,
        id: SegmentId,
    ) -> Result<(), BrokenRule> {
        if from >= to {
            return self.wrong(format!("in {id}, {to} came after {from}"));
        }
        let is_lost = |item: u32| {
            must_arrive(&self.items[item as usize])
                && self.connection_of(item) == self.connection_of(to)
        };
        match (from + 1..to).find(|&item| is_lost(item)) {
            Some(item) => self.wrong(format!("{item} was lost between {from} and {to} of {id}")),
            None => Ok(()),
        }
    }

    fn lost_before(&self, first: u32, id: SegmentId) -> Result<(), BrokenRule> {
        let is_lost = |item: u32| {
            self.items[item as usize].is_speech
                && self.connection_of(item) == self.connection_of(first)
        };
        match (0..first).find(|&item| is_lost(item)) {
            Some(item) => self.wrong(format!("{item} was lost before {first} of {id}")),
            None => Ok(()),
        }
    }

    /// A segment is of one turn, and goes in the direction of its speaker.
    fn check_turn(
        &mut self,
        id: SegmentId,
        items: &[u32],
        echo: &SegmentEcho,
    ) -> Result<(), BrokenRule> {
        let blocks: BTreeSet<usize> =
            items.iter().map(|&item| self.items[item as usize].block).collect();
        if self.is_excused {
            return Ok(());
        }
        for &block in &blocks {
            let Block { connection, is_explicit, .. } = self.blocks[block];
            let known = *self.block_of_turn.entry((id.turn, connection)).or_insert(block);
            if known != block {
                return self.wrong(format!("{id} is of two turns, {known} and {block}"));
            }
            let turn = *self.turn_of_block.entry(block).or_insert(id.turn);
            if is_explicit && turn != id.turn {
                return self.wrong(format!("one turn is {turn} and {}", id.turn));
            }
        }
        let mut blocks = blocks.into_iter();
        if let (Some(block), None) = (blocks.next(), blocks.next())
            && let Some(direction) = &self.blocks[block].direction
            && (&direction.0, direction.1) != (&echo.pair, echo.two_way)
        {
            let found = (&echo.pair, echo.two_way);
            return self.wrong(format!("{id} was translated {found:?}, not {direction:?}"));
        }
        Ok(())
    }

    /// The session has ended because its client ended it.
    pub(super) fn session_ended(&self) -> Result<(), BrokenRule> {
        if self.is_excused {
            return Ok(());
        }
        if let Some((id, (job, _))) = self.accepted.first_key_value() {
            return self.wrong(format!("the session ended and {id} ({job}) had not"));
        }
        let from = match (self.last_item, self.last_seq) {
            (Some(item), _) => item + 1,
            (None, 0) => 0,
            // The missing segment may have covered it.
            (None, _) => return Ok(()),
        };
        let is_lost = |item: &u32| {
            self.items[*item as usize].is_speech && self.connection_of(*item) == self.connections
        };
        match (from..self.items.len() as u32).find(is_lost) {
            Some(item) => self.wrong(format!("the session ended without a result for {item}")),
            None => Ok(()),
        }
    }

    /// Accepted segments end in time.
    pub(super) fn check_overdue(&self, now_ms: u64) -> Result<(), BrokenRule> {
        let SessionOptions { segments, deadline_ms, .. } = self.options;
        let may_take_ms = deadline_ms + 2 * segments.segment_max_ms + segments.pause_ms + GRACE_MS;
        let late = self.accepted.iter().find(|(_, (_, since_ms))| {
            now_ms > (*since_ms).max(self.steady_since_ms) + may_take_ms
        });
        match late {
            Some((id, (job, since_ms))) if !self.is_excused && !self.is_over => {
                let text = format!(
                    "{}: {id} ({job}), accepted {} ms ago, has not ended",
                    self.name,
                    now_ms - since_ms
                );
                Err((Checker::S10, text))
            }
            _ => Ok(()),
        }
    }

    /// An instance replied that there is no such session, this long after the connection broke.
    pub(super) fn not_found(&self, away_ms: u64) -> Result<(), BrokenRule> {
        if self.is_excused || self.has_lost_request || away_ms >= self.options.resume_ms {
            return Ok(());
        }
        let text = format!("{} is unknown {away_ms} ms after its connection broke", self.name);
        Err((Checker::S10, text))
    }

    fn wrong(&self, what: String) -> Result<(), BrokenRule> {
        Err((Checker::S9, format!("{}: {what}", self.name)))
    }
}
