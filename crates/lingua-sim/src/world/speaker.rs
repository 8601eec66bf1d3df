//! People who speak: they open sessions, talk, lose their connection, come back, and leave.
//!
//! Start at [`converse`]. What they say and are told goes into their session's [`Ledger`](super::ledger::Ledger), which judges it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::session::{Format, Speaker as Who};
use lingua_engine::session::{Delivered, Holder, NewSession, Over, SessionError, ToClient, What};

use super::World;
use super::checker::{Checker, Seen};
use super::compose::Talk;
use super::ledger::Ledger;
use super::line::{First, Line, NotOpened, Said, Told};
use super::luck::Luck;
use super::oracle::Found;
use super::plan::{CHAOS_MS, Fault};
use super::sound::{self, FRAME_MS, RATE};
use super::trace::About;

/// How long somebody waits for what is left after having said that it leaves.
const LEAVES_MS: u64 = 20_000;

/// Something that a speaker does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Frame {
        is_loud: bool,
        ms: u64,
    },
    TurnStart(Option<Who>),
    TurnEnd,
    Text(Option<Who>),
    Wait(u64),
    /// The connection is lost, loudly if the other side notices at once.
    Cut {
        loudly: bool,
        away_ms: u64,
    },
    /// Leaves without a word, for ever.
    Vanish,
    End,
}

/// How a connection came to its end.
enum Parted {
    /// Gone for so long.
    Broken {
        away_ms: u64,
    },
    Over,
}

/// Speaks until faults stop, in one session after the other.
pub(super) async fn converse(world: Arc<World>, who: usize) {
    let mut luck = Luck::new(world.plan.seed, &format!("speaker {who}"));
    let until_ms = world.now_ms() + CHAOS_MS;
    sleep(luck.between(0, 2_000)).await;
    while world.now_ms() < until_ms && !world.is_quiet() && !world.has_failed() {
        let mut speaker = Speaker::new(&world, who, luck.fork());
        speaker.live().await;
        world.ledgers.lock()[speaker.number].is_over = true;
        sleep(luck.between(0, 1_500)).await;
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Somebody in one session.
struct Speaker {
    world: Arc<World>,
    number: usize,
    talk: Talk,
    secret: Holder,
    holder: Holder,
    luck: Luck,
    script: VecDeque<Step>,
    is_leaving: bool,
    said_ms: u64,
    heard_ms: u64,
}

impl Speaker {
    fn new(world: &Arc<World>, who: usize, mut luck: Luck) -> Self {
        let home = luck.between(0, world.plan.instances as u64 - 1) as usize;
        let talk = Talk { home, two_way: luck.permille(400) };
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&luck.number().to_be_bytes());
        let holder = [who as u8; 32];
        let number = {
            let mut ledgers = world.ledgers.lock();
            let number = ledgers.len();
            let options = world.plan.session_options();
            ledgers.push(Ledger::new(format!("s{number}"), talk, options, world.now_ms()));
            number
        };
        Self {
            world: Arc::clone(world),
            number,
            talk,
            secret,
            holder,
            luck,
            script: VecDeque::new(),
            is_leaving: false,
            said_ms: world.now_ms(),
            heard_ms: world.now_ms(),
        }
    }

    async fn live(&mut self) {
        let Some(mut line) = self.start().await else { return };
        loop {
            self.connected(&line);
            let parted = self.speak(&mut line).await;
            self.world.ledgers.lock()[self.number].at = None;
            let Parted::Broken { away_ms } = parted else { return };
            let let_go_ms = line.let_go_ms().unwrap_or(u64::MAX);
            let parted_ms = self.world.now_ms().min(let_go_ms);
            let before = line.at;
            drop(line);
            self.world.count_speech("connections lost");
            sleep(away_ms).await;
            match self.resume(before, parted_ms).await {
                Some(resumed) => line = resumed,
                None => return,
            }
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(About::default(), format_args!("s{} {what}", self.number));
    }

    /// Tells the ledger something; what it finds wrong breaks a rule.
    fn judge(&self, judged: impl FnOnce(&mut Ledger) -> Result<(), Found>) {
        let found = judged(&mut self.world.ledgers.lock()[self.number]);
        if let Err((checker, text)) = found {
            self.world.fail(checker, About::default(), text);
        }
    }

    fn connected(&mut self, line: &Line) {
        let (i, life) = line.at;
        self.heard_ms = self.world.now_ms();
        self.note(format_args!("is connected to i{i}, life {life}"));
        let now_ms = self.world.now_ms();
        self.world.ledgers.lock()[self.number].connected(line.at, now_ms);
    }

    fn anywhere(&mut self) -> usize {
        self.luck.between(0, self.world.plan.instances as u64 - 1) as usize
    }

    async fn start(&mut self) -> Option<Line> {
        let new = NewSession {
            id: format!("s{}", self.number).into(),
            secret: self.secret,
            holder: Some(self.holder),
            plan: self.talk.written().to_owned().into(),
            format: Format::Pcm16 { sample_rate: RATE },
            partials: self.luck.permille(700),
            context: self.luck.permille(400),
        };
        let at = self.anywhere();
        match Line::open(&self.world, at, First::Start(new), &mut self.luck).await {
            Ok(line) => {
                self.world.count_speech("sessions");
                Some(line)
            }
            // Whoever tries again begins another one.
            Err(NotOpened::NoAnswer) => None,
            Err(NotOpened::Refused(error)) => {
                self.note(format_args!("is refused at i{at}: {}", error.code()));
                if let SessionError::TooMany { what, .. } = error {
                    let text = format!("s{} is refused: {what} has too many", self.number);
                    self.world.fail(Checker::S5, About::default(), text);
                }
                None
            }
        }
    }

    /// Comes back, anywhere, for as long as the session may be there.
    async fn resume(&mut self, before: (usize, u32), parted_ms: u64) -> Option<Line> {
        let options = self.world.plan.session_options();
        loop {
            let at = if self.luck.permille(400) { before.0 } else { self.anywhere() };
            if self.luck.permille(100) {
                self.intrude(at).await;
            }
            let id = format!("s{}", self.number).into();
            let last_seq = self.world.ledgers.lock()[self.number].last_seq;
            let first = First::Resume { id, secret: self.secret, last_seq };
            let asked_ms = self.world.now_ms();
            let opened = Line::open(&self.world, at, first, &mut self.luck).await;
            let now_ms = self.world.now_ms();
            match opened {
                Ok(line) => {
                    self.world.count_speech("resumed");
                    if line.at != before {
                        self.world.count_speech("resumed at another instance");
                    }
                    // Even there it may have been given up, and found again in the store.
                    if line.at != before || now_ms >= parted_ms + options.resume_ms {
                        self.moved();
                    }
                    return Some(line);
                }
                Err(NotOpened::Refused(SessionError::NotFound)) => {
                    self.note(format_args!("is not found at i{at}"));
                    self.moved();
                    // It may have been silent for too long, or its instance deaf, before it lost its connection.
                    let is_idle = now_ms >= self.said_ms.min(self.heard_ms) + options.idle_ms;
                    let away_ms = now_ms - parted_ms;
                    // Nor could it be written, perhaps, for longer than a record is kept.
                    let keep_ms = options.idle_ms + options.resume_ms;
                    let saved_ms = self.world.ledgers.lock()[self.number].saved_ms;
                    let is_idle = is_idle || now_ms >= saved_ms + keep_ms;
                    // Who has said that it leaves may have been told everything.
                    if !is_idle && !self.is_leaving {
                        self.judge(|ledger| ledger.not_found(away_ms));
                    }
                    self.world.count_speech("sessions over before they were resumed");
                    return None;
                }
                Err(NotOpened::Refused(error)) => {
                    self.note(format_args!("is not resumed at i{at}: {}", error.code()));
                }
                Err(NotOpened::NoAnswer) => {
                    self.note(format_args!("gets no answer of i{at}"));
                    self.world.ledgers.lock()[self.number].is_haunted = true;
                }
            }
            if asked_ms > parted_ms + options.resume_ms + options.idle_ms {
                return None;
            }
            sleep(self.luck.between(50, 600)).await;
        }
    }

    /// After the store has forgotten, and in another place, nobody knows what there was.
    fn moved(&self) {
        let ledger = &mut self.world.ledgers.lock()[self.number];
        ledger.is_excused |= self.world.has_forgotten_sessions_since(ledger.begun_ms);
    }

    /// Nobody comes into a session without its secret.
    async fn intrude(&mut self, at: usize) {
        let sessions = self.world.ledgers.lock().len() as u64;
        let other = self.luck.between(0, sessions - 1);
        let mut secret = self.secret;
        secret[31] ^= 1;
        let first = First::Resume { id: format!("s{other}").into(), secret, last_seq: 0 };
        if Line::open(&self.world, at, first, &mut self.luck).await.is_ok() {
            let text = format!("i{at} let somebody into s{other} without its secret");
            self.world.fail(Checker::S9, About::default(), text);
        }
    }

    /// Speaks and listens until the connection is over.
    async fn speak(&mut self, line: &mut Line) -> Parted {
        let mut due_ms = self.world.now_ms();
        let mut leaves_ms = u64::MAX;
        if self.is_leaving {
            self.script = VecDeque::from([Step::End]);
        }
        loop {
            if self.world.is_quiet() && !self.is_leaving {
                self.is_leaving = true;
                self.script = VecDeque::from([Step::TurnEnd, Step::End]);
            }
            if self.script.is_empty() && !self.is_leaving {
                self.compose();
            }
            let now_ms = self.world.now_ms();
            let wait_ms = match self.script.is_empty() {
                true => leaves_ms.saturating_sub(now_ms),
                false => due_ms.saturating_sub(now_ms),
            };
            tokio::select! {
                biased;
                told = line.hear() => match told {
                    None => return Parted::Broken { away_ms: self.luck.between(0, 1_000) },
                    Some(told) => if let Some(parted) = self.hear(told) {
                        return parted;
                    },
                },
                () = sleep(wait_ms) => match self.script.pop_front() {
                    None => return Parted::Broken { away_ms: 0 },
                    Some(Step::Cut { loudly, away_ms }) => {
                        self.note(format_args!("hangs up, loudly: {loudly}"));
                        if loudly {
                            line.say(Said::Close);
                        }
                        return Parted::Broken { away_ms };
                    }
                    Some(Step::Vanish) => {
                        self.note(format_args!("leaves without a word"));
                        return Parted::Over;
                    }
                    Some(step) => {
                        if let Step::End = step {
                            leaves_ms = now_ms + LEAVES_MS;
                        }
                        due_ms = due_ms.max(now_ms) + self.perform(line, step);
                    }
                },
            }
        }
    }

    /// Does a step; says how long it takes.
    fn perform(&mut self, line: &mut Line, step: Step) -> u64 {
        let mut ledgers = self.world.ledgers.lock();
        let ledger = &mut ledgers[self.number];
        let number = self.number as u32;
        let (said, ms) = match step {
            Step::Frame { is_loud, ms } => {
                (Said::Sound(sound::frame(number, ledger.sound(is_loud), is_loud)), ms)
            }
            Step::TurnStart(who) => {
                ledger.turn_start(who);
                (Said::TurnStart(who), 0)
            }
            Step::TurnEnd => {
                ledger.turn_end();
                (Said::TurnEnd, 0)
            }
            Step::Text(who) => {
                let item = ledger.text(who);
                (Said::Text(format!("{number}/{item}-{item}"), who), 50)
            }
            Step::End => {
                ledger.turn_end();
                (Said::End, 0)
            }
            Step::Wait(ms) => return ms,
            Step::Cut { .. } | Step::Vanish => return 0,
        };
        drop(ledgers);
        self.said_ms = self.world.now_ms();
        if let Step::End = step {
            self.is_leaving = true;
        }
        line.say(said);
        ms
    }

    /// What it does next.
    fn compose(&mut self) {
        let luck = &mut self.luck;
        let who = match (self.talk.two_way, luck.between(0, 2)) {
            (true, 0) => Some(Who::A),
            (true, 1) => Some(Who::B),
            _ => None,
        };
        let script = &mut self.script;
        let is_bad = self.world.plan.has(Fault::BadClients);
        match luck.between(0, 99) {
            0..=59 => utter(luck, script, who, is_bad),
            60..=67 => script.push_back(Step::Text(who)),
            68..=73 => {
                // A turn in which nothing is said.
                script.push_back(Step::TurnStart(who));
                let frame = Step::Frame { is_loud: false, ms: FRAME_MS };
                script.extend((0..luck.between(0, 8)).map(|_| frame));
                script.push_back(Step::TurnEnd);
            }
            74..=77 => {
                let frame = Step::Frame { is_loud: false, ms: FRAME_MS };
                script.extend((0..luck.between(20, 160)).map(|_| frame));
            }
            78..=85 => {
                let most_ms = if luck.permille(200) { 12_000 } else { 2_500 };
                let (loudly, away_ms) = (luck.permille(500), luck.between(0, most_ms));
                script.push_back(Step::Cut { loudly, away_ms });
            }
            86..=87 => script.push_back(Step::Vanish),
            88..=90 => script.push_back(Step::End),
            _ => script.push_back(Step::Wait(luck.between(100, 3_000))),
        }
        script.push_back(Step::Wait(luck.between(0, 700)));
    }

    /// Takes what it is told; says whether that was the end.
    fn hear(&mut self, told: Told) -> Option<Parted> {
        let now_ms = self.world.now_ms();
        if let Told::Session(_) = told {
            self.heard_ms = now_ms;
        }
        match told {
            Told::Session(ToClient::Accepted(id, job)) => {
                self.note(format_args!("hears that {id} is j{}", job.number()));
                self.judge(|ledger| ledger.was_accepted(id, job, now_ms));
            }
            Told::Session(ToClient::Partial(id, text)) => {
                self.world.count_speech("parts of texts");
                self.judge(|ledger| ledger.part(id, &text));
            }
            Told::Session(ToClient::Delivered(delivered)) => self.delivered(&delivered),
            Told::Session(ToClient::Over(over)) => {
                self.note(format_args!("is over: {over:?}"));
                return Some(match over {
                    Over::Ended => {
                        self.judge(|ledger| ledger.ended());
                        self.world.count_speech("sessions ended in good order");
                        Parted::Over
                    }
                    Over::Superseded => Parted::Broken { away_ms: 0 },
                    Over::Idle | Over::Away => Parted::Over,
                });
            }
            Told::Fatal(code) => {
                self.note(format_args!("is told {code}"));
                return Some(Parted::Broken { away_ms: self.luck.between(0, 500) });
            }
        }
        None
    }

    fn delivered(&self, Delivered { seq, id, what }: &Delivered) {
        let (job, result) = match what {
            What::Result { view, .. } => {
                let ended = view.progress.ended.as_ref();
                let result = ended.and_then(|ended| ended.result.as_ref());
                let result = result.map(|result| result.as_str().trim_matches('"').to_owned());
                let (state, attempt) = (view.progress.state, view.progress.attempt.0);
                let seen = Seen { state, attempt, result: result.clone(), error: None };
                self.world.saw_segment(view.id.number() as usize, seen);
                (Some(view.id), Some(result.unwrap_or_default()))
            }
            What::Missing { job, error, .. } => {
                self.world.count_speech(&format!("missing: {error}"));
                self.note(format_args!("misses {seq} ({id}): {error}"));
                (*job, None)
            }
        };
        if let Some(result) = &result {
            self.world.count_speech("results");
            self.note(format_args!("hears {seq} ({id}): {result}"));
        }
        self.judge(|ledger| ledger.delivered(*seq, *id, job, result.as_deref()));
    }
}

/// An utterance: announced or not, with pauses in it or without, ended or left to a pause.
fn utter(luck: &mut Luck, script: &mut VecDeque<Step>, who: Option<Who>, is_bad: bool) {
    if luck.permille(500) {
        script.push_back(Step::TurnStart(who));
    }
    let frame_ms = if luck.permille(200) { FRAME_MS / 2 } else { FRAME_MS };
    for _ in 0..luck.between(1, 3) {
        for _ in 0..luck.between(1, 20) {
            let is_loud = !luck.permille(150);
            script.push_back(Step::Frame { is_loud, ms: frame_ms });
        }
        if luck.permille(if is_bad { 60 } else { 20 }) {
            let (loudly, away_ms) = (luck.permille(500), luck.between(0, 1_500));
            script.push_back(Step::Cut { loudly, away_ms });
        }
        if luck.permille(300) {
            script.push_back(Step::Wait(luck.between(100, 1_500)));
        }
    }
    if luck.permille(600) {
        script.push_back(Step::TurnEnd);
    }
}
