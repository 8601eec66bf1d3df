//! What a client of a session may see, judged from what it said and what it was told.
//!
//! Start at [`Ledger::delivered`]. It knows the promises of docs/sessions.md and nothing of how they are kept.
//!
//! | rule | checker |
//! |---|---|
//! | each segment once, in the order spoken, none skipped, over all connections; no part after the whole | S9 |
//! | a result is of this session, this turn, this direction and the sound that was spoken, all of it | S9 |
//! | nobody comes into a session without its secret | S9 |
//! | what was accepted comes back as a result or as missing, in time, whoever dies; a session is there until it may be gone | S10 |
//!
//! What is said gets numbers, one for each frame and text. A connection keeps the order of what is sent on it and can only lose
//! the end of it, so that whatever else is missing was lost by the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use lingua_core::JobId;
use lingua_core::session::{SegmentId, Speaker};
use lingua_engine::session::SessionOptions;

use super::checker::Checker;
use super::compose::Talk;
use super::echo::Echo;
use super::node::WRONG;
use super::oracle::Found;

/// How much later than it has to be something may be.
const GRACE_MS: u64 = 3_000;

/// Something that was said: a frame, or a text.
#[derive(Debug, Clone, Copy)]
struct Item {
    mark: usize,
    /// It must not be left out.
    matters: bool,
}

/// What is said between two orders of the client: it is never mixed with what is said before or after.
#[derive(Debug, Clone)]
struct Mark {
    connection: u32,
    /// The client has opened a turn with it.
    is_announced: bool,
    /// Its direction, if the client can know.
    direction: Option<(String, bool)>,
}

/// One session, as its client knows it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) name: String,
    pub(super) begun_ms: u64,
    /// When the store last took what is to be known of it.
    pub(super) saved_ms: u64,
    talk: Talk,
    options: SessionOptions,
    items: Vec<Item>,
    marks: Vec<Mark>,
    connections: u32,
    /// Where it is connected: instance and life.
    pub(super) at: Option<(usize, u32)>,
    /// Since when nothing has held up its connection.
    steady_since_ms: u64,
    pub(super) last_seq: u64,
    last_id: SegmentId,
    /// The number of the last thing that a result was about; none if the last one was missing.
    last_item: Option<u32>,
    highest_item: Option<u32>,
    /// What came back.
    whole: BTreeSet<SegmentId>,
    /// What is to come back, and since when.
    accepted: BTreeMap<SegmentId, (JobId, u64)>,
    /// The mark of each turn on a connection, and the turn of each mark that was announced.
    marks_of: BTreeMap<(u32, u32), usize>,
    turns_of: BTreeMap<usize, u32>,
    /// A failover has taken what was known of it, and it went on elsewhere.
    pub(super) is_excused: bool,
    /// A question that its client has given up on may still come, take the session, and leave it: a known limit.
    pub(super) is_haunted: bool,
    pub(super) is_over: bool,
}

impl Ledger {
    pub(super) fn new(name: String, talk: Talk, options: SessionOptions, begun_ms: u64) -> Self {
        Self {
            name,
            begun_ms,
            saved_ms: begun_ms,
            talk,
            options,
            items: vec![],
            marks: vec![],
            connections: 0,
            at: None,
            steady_since_ms: 0,
            last_seq: 0,
            last_id: SegmentId { turn: 0, segment: 0 },
            last_item: None,
            highest_item: None,
            whole: BTreeSet::new(),
            accepted: BTreeMap::new(),
            marks_of: BTreeMap::new(),
            turns_of: BTreeMap::new(),
            is_excused: false,
            is_haunted: false,
            is_over: false,
        }
    }

    /// A connection begins. What was open may go on, or not.
    pub(super) fn connected(&mut self, at: (usize, u32), now_ms: u64) {
        self.connections += 1;
        self.at = Some(at);
        self.steady_since_ms = now_ms;
        let direction = (!self.talk.two_way).then(|| self.talk.direction(None));
        self.mark(false, direction);
    }

    /// Something holds the connection up.
    pub(super) fn unsteady(&mut self, now_ms: u64) {
        self.steady_since_ms = now_ms;
    }

    fn mark(&mut self, is_announced: bool, direction: Option<(String, bool)>) {
        self.marks.push(Mark { connection: self.connections, is_announced, direction });
    }

    pub(super) fn turn_start(&mut self, speaker: Option<Speaker>) {
        self.mark(true, Some(self.talk.direction(speaker)));
    }

    pub(super) fn turn_end(&mut self) {
        self.mark(false, Some(self.talk.direction(None)));
    }

    /// Gives the number of the next frame.
    pub(super) fn sound(&mut self, is_loud: bool) -> u32 {
        self.items.push(Item { mark: self.marks.len() - 1, matters: is_loud });
        self.items.len() as u32 - 1
    }

    /// Gives the number of a text.
    pub(super) fn text(&mut self, speaker: Option<Speaker>) -> u32 {
        let before = self.marks.last().cloned();
        let direction = match (speaker, before) {
            (None, Some(mark)) if mark.is_announced || mark.direction.is_none() => mark.direction,
            (speaker, _) => Some(self.talk.direction(speaker)),
        };
        self.mark(false, direction);
        let item = self.sound(true);
        self.turn_end();
        item
    }

    pub(super) fn was_accepted(
        &mut self,
        id: SegmentId,
        job: JobId,
        now_ms: u64,
    ) -> Result<(), Found> {
        if self.whole.contains(&id) && !self.is_excused {
            return self.wrong(format!("{id} was accepted after it had come back"));
        }
        match self.accepted.insert(id, (job, now_ms)) {
            Some((before, _)) if before != job && !self.is_excused => {
                self.wrong(format!("{id} became two jobs, {before} and {job}"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn part(&self, id: SegmentId, text: &str) -> Result<(), Found> {
        if self.whole.contains(&id) && !self.is_excused {
            return self.wrong(format!("a part of {id} came after the whole: '{text}'"));
        }
        match Echo::read(text) {
            Some(echo) if echo.session == self.name => Ok(()),
            _ => self.wrong(format!("a part of {id} is '{text}'")),
        }
    }

    /// A segment came back: with what a node made of it, or as missing.
    pub(super) fn delivered(
        &mut self,
        seq: u64,
        id: SegmentId,
        job: Option<JobId>,
        result: Option<&str>,
    ) -> Result<(), Found> {
        let expected = self.last_seq + 1;
        if seq < expected || seq > expected && !self.is_excused {
            return self.wrong(format!("number {seq} ({id}) came instead of {expected}"));
        }
        self.last_seq = seq;
        if (id <= self.last_id || !self.whole.insert(id)) && !self.is_excused {
            return self.wrong(format!("{id} came after {}", self.last_id));
        }
        self.last_id = id;
        if let Some((accepted, _)) = self.accepted.remove(&id)
            && job.is_some_and(|job| job != accepted)
            && !self.is_excused
        {
            return self.wrong(format!("{id} was job {accepted} and came back as {job:?}"));
        }
        let before = self.last_item.take();
        let Some(result) = result else { return Ok(()) };
        let is_neighbour = before.is_some() || seq == 1;
        self.belongs(id, job, result, before, is_neighbour)
    }

    /// A result is about what was said, all of it, in its place.
    fn belongs(
        &mut self,
        id: SegmentId,
        job: Option<JobId>,
        result: &str,
        before: Option<u32>,
        is_neighbour: bool,
    ) -> Result<(), Found> {
        let echo = Echo::read(result).filter(|_| result != WRONG);
        let Some(echo) = echo.filter(|echo| Some(echo.job) == job && echo.session == self.name)
        else {
            return self.wrong(format!("{id} came back with '{result}'"));
        };
        let Some(runs) = super::sound::read_runs(&echo.heard) else {
            return self.wrong(format!("what was said in {id} is '{}'", echo.heard));
        };
        let items: Vec<u32> = runs.iter().flat_map(|&(from, to)| from..=to).collect();
        let (Some(&first), Some(&last)) = (items.first(), items.last()) else { return Ok(()) };
        if items.iter().any(|&item| item as usize >= self.items.len()) {
            return self.wrong(format!("{id} is about {runs:?}, which was not said"));
        }
        if self.highest_item.is_some_and(|highest| first <= highest) {
            return self
                .wrong(format!("{id} is about {runs:?} again, after {:?}", self.highest_item));
        }
        for pair in items.windows(2) {
            self.lost_between(pair[0], pair[1], |_| true, id)?;
        }
        if is_neighbour && !self.is_excused {
            match before {
                Some(before) => self.lost_between(before, first, |item| item.matters, id)?,
                None => self.lost_before(first, id)?,
            }
        }
        self.in_its_turn(id, &items, &echo)?;
        self.last_item = Some(last);
        self.highest_item = Some(last);
        Ok(())
    }

    fn connection_of(&self, item: u32) -> u32 {
        self.marks[self.items[item as usize].mark].connection
    }

    /// Between two things that were heard, only the end of a connection can be lost.
    fn lost_between(
        &self,
        from: u32,
        to: u32,
        matters: impl Fn(&Item) -> bool,
        id: SegmentId,
    ) -> Result<(), Found> {
        if from >= to {
            return self.wrong(format!("in {id}, {to} was heard after {from}"));
        }
        let is_lost = |item: u32| {
            matters(&self.items[item as usize])
                && self.connection_of(item) == self.connection_of(to)
        };
        match (from + 1..to).find(|&item| is_lost(item)) {
            Some(item) => self.wrong(format!("{item} was lost between {from} and {to} of {id}")),
            None => Ok(()),
        }
    }

    fn lost_before(&self, first: u32, id: SegmentId) -> Result<(), Found> {
        let is_lost = |item: u32| {
            self.items[item as usize].matters
                && self.connection_of(item) == self.connection_of(first)
        };
        match (0..first).find(|&item| is_lost(item)) {
            Some(item) => self.wrong(format!("{item} was lost before {first} of {id}")),
            None => Ok(()),
        }
    }

    /// What belongs to different turns is not mixed, and what is said in a turn goes the way of its speaker.
    fn in_its_turn(&mut self, id: SegmentId, items: &[u32], echo: &Echo) -> Result<(), Found> {
        let marks: BTreeSet<usize> =
            items.iter().map(|&item| self.items[item as usize].mark).collect();
        if self.is_excused {
            return Ok(());
        }
        for &mark in &marks {
            let Mark { connection, is_announced, .. } = self.marks[mark];
            let known = *self.marks_of.entry((id.turn, connection)).or_insert(mark);
            if known != mark {
                return self.wrong(format!("{id} is of two turns, {known} and {mark}"));
            }
            let turn = *self.turns_of.entry(mark).or_insert(id.turn);
            if is_announced && turn != id.turn {
                return self.wrong(format!("one turn is {turn} and {}", id.turn));
            }
        }
        let mut marks = marks.into_iter();
        if let (Some(mark), None) = (marks.next(), marks.next())
            && let Some(direction) = &self.marks[mark].direction
            && (&direction.0, direction.1) != (&echo.pair, echo.two_way)
        {
            let (is, to_be) = ((&echo.pair, echo.two_way), direction);
            return self.wrong(format!("{id} went {is:?} and should have gone {to_be:?}"));
        }
        Ok(())
    }

    /// The session has ended as its client wished.
    pub(super) fn ended(&self) -> Result<(), Found> {
        if self.is_excused {
            return Ok(());
        }
        if let Some((id, (job, _))) = self.accepted.first_key_value() {
            return self.wrong(format!("the session ended and {id} ({job}) had not come back"));
        }
        let from = match (self.last_item, self.last_seq) {
            (Some(item), _) => item + 1,
            (None, 0) => 0,
            // What was missing may have been about it.
            (None, _) => return Ok(()),
        };
        let is_lost = |item: &u32| {
            self.items[*item as usize].matters && self.connection_of(*item) == self.connections
        };
        match (from..self.items.len() as u32).find(is_lost) {
            Some(item) => self.wrong(format!("the session ended and nothing came of {item}")),
            None => Ok(()),
        }
    }

    /// What was accepted comes back in time.
    pub(super) fn overdue(&self, now_ms: u64) -> Result<(), Found> {
        let SessionOptions { segments, deadline_ms, .. } = self.options;
        let may_take_ms = deadline_ms + 2 * segments.segment_max_ms + segments.pause_ms + GRACE_MS;
        let late = self.accepted.iter().find(|(_, (_, since_ms))| {
            now_ms > (*since_ms).max(self.steady_since_ms) + may_take_ms
        });
        match late {
            Some((id, (job, since_ms))) if !self.is_excused && !self.is_over => {
                let text = format!(
                    "{}: {id} ({job}), accepted {} ms ago, has not come back",
                    self.name,
                    now_ms - since_ms
                );
                Err((Checker::S10, text))
            }
            _ => Ok(()),
        }
    }

    /// The session is said not to be there, so long after its connection was lost.
    pub(super) fn not_found(&self, away_ms: u64) -> Result<(), Found> {
        if self.is_excused || self.is_haunted || away_ms >= self.options.resume_ms {
            return Ok(());
        }
        let text = format!("{} is not known {away_ms} ms after its connection broke", self.name);
        Err((Checker::S10, text))
    }

    fn wrong(&self, what: String) -> Result<(), Found> {
        Err((Checker::S9, format!("{}: {what}", self.name)))
    }
}
