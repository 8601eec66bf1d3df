//! Clients of sessions: they start, speak, lose their connection, resume, and end.
//!
//! Start at [`run_speaker`]. Everything that a client sends and receives goes to its session's
//! [`SessionChecker`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lingua_core::session::{AudioEncoding, Delivery, Direction, SessionPlan, Speaker};
use lingua_core::{Source, Tenant};
use lingua_engine::session::{
    CloseReason, NewSession, SecretHash, SegmentOutcome, SessionOutput, SessionRefusal,
};

use super::World;
use super::checker::{Checker, ObservedEnd};
use super::client_connection::{
    ClientFrame, ConnectFailure, OpenRequest, ServerFrame, SimConnection,
};
use super::marked_audio::{self, FRAME_MS, RATE};
use super::plan::{CHAOS_MS, Fault, GROUPS};
use super::rng::SimRng;
use super::session_checker::SessionChecker;
use super::store_checker::BrokenRule;
use super::trace::Subject;

/// How long a client waits for the rest after it has ended its session.
const END_TIMEOUT_MS: u64 = 20_000;

/// One step of a client.
#[derive(Debug, Clone, Copy)]
enum Step {
    Frame {
        is_loud: bool,
        ms: u64,
    },
    TurnStart(Option<Speaker>),
    TurnEnd,
    Text(Option<Speaker>),
    Wait(u64),
    /// The client loses its connection; with `is_noticed` the server learns of it at once.
    Disconnect {
        is_noticed: bool,
        away_ms: u64,
    },
    /// The client disappears for ever.
    Vanish,
    End,
}

/// How a connection ended.
enum ConnectionEnd {
    /// The client resumes after this time.
    Broken { away_ms: u64 },
    /// The session is over for the client.
    SessionOver,
}

/// Uses one session after the other until faults stop.
pub(super) async fn run_speaker(world: Arc<World>, who: usize) {
    let mut luck = SimRng::new(world.plan.seed, &format!("speaker {who}"));
    let until_ms = world.now_ms() + CHAOS_MS;
    sleep(luck.between(0, 2_000)).await;
    while world.now_ms() < until_ms && !world.is_quiet() && !world.has_failed() {
        let mut client = SpeakerClient::new(&world, who, luck.fork());
        client.run().await;
        world.session_checkers.lock()[client.number].is_over = true;
        sleep(luck.between(0, 1_500)).await;
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The client of one session.
struct SpeakerClient {
    world: Arc<World>,
    number: usize,
    plan: SessionPlan,
    secret: SecretHash,
    token: SecretHash,
    luck: SimRng,
    script: VecDeque<Step>,
    is_ending: bool,
    sent_ms: u64,
    received_ms: u64,
}

impl SpeakerClient {
    fn new(world: &Arc<World>, who: usize, mut luck: SimRng) -> Self {
        let home = luck.between(0, world.plan.instances as u64 - 1) as usize;
        let two_way = luck.permille(400);
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&luck.number().to_be_bytes());
        let token = [who as u8; 32];
        let [a, b] = GROUPS[home].map(|tag| tag.parse().expect("a language of the world"));
        let direction = match two_way {
            true => Direction::TwoWay { a, b },
            false => Direction::OneWay { src: Source::Known(a), tgt: b },
        };
        let audio = AudioEncoding::Pcm16 { sample_rate: RATE };
        let plan = SessionPlan::new(direction, audio);
        let number = {
            let mut checkers = world.session_checkers.lock();
            let number = checkers.len();
            let (name, options) = (format!("s{number}"), world.plan.session_options());
            checkers.push(SessionChecker::new(name, plan.clone(), options, world.now_ms()));
            number
        };
        Self {
            world: Arc::clone(world),
            number,
            plan,
            secret,
            token,
            luck,
            script: VecDeque::new(),
            is_ending: false,
            sent_ms: world.now_ms(),
            received_ms: world.now_ms(),
        }
    }

    async fn run(&mut self) {
        let Some(mut connection) = self.start().await else { return };
        loop {
            self.connected(&connection);
            let end = self.use_connection(&mut connection).await;
            self.world.session_checkers.lock()[self.number].at = None;
            let ConnectionEnd::Broken { away_ms } = end else { return };
            let server_ended_ms = connection.server_ended_ms().unwrap_or(u64::MAX);
            let broken_ms = self.world.now_ms().min(server_ended_ms);
            let before = connection.at;
            drop(connection);
            self.world.count_speech("connections lost");
            sleep(away_ms).await;
            match self.resume(before, broken_ms).await {
                Some(resumed) => connection = resumed,
                None => return,
            }
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.note(Subject::default(), format_args!("s{} {what}", self.number));
    }

    /// Passes something to the checker; a fault that it finds fails the world.
    fn check(&self, check: impl FnOnce(&mut SessionChecker) -> Result<(), BrokenRule>) {
        let found = check(&mut self.world.session_checkers.lock()[self.number]);
        if let Err((checker, text)) = found {
            self.world.fail(checker, Subject::default(), text);
        }
    }

    fn connected(&mut self, connection: &SimConnection) {
        let (i, life) = connection.at;
        self.received_ms = self.world.now_ms();
        self.note(format_args!("is connected to i{i}, life {life}"));
        let now_ms = self.world.now_ms();
        self.world.session_checkers.lock()[self.number].connected(connection.at, now_ms);
    }

    fn any_instance(&mut self) -> usize {
        self.luck.between(0, self.world.plan.instances as u64 - 1) as usize
    }

    fn tenant(&self, session: usize) -> Tenant {
        let fleet = self.world.plan.fleet.as_ref();
        fleet.map(|fleet| fleet.tenant(session)).unwrap_or_default()
    }

    async fn start(&mut self) -> Option<SimConnection> {
        self.plan.partials = self.luck.permille(700);
        self.plan.context = self.luck.permille(400);
        let new = NewSession {
            id: format!("s{}", self.number).into(),
            secret: self.secret,
            token: Some(self.token),
            tenant: self.tenant(self.number),
            limited: None,
            plan: self.plan.clone(),
        };
        let at = self.any_instance();
        match SimConnection::open(&self.world, at, OpenRequest::Start(new.into()), &mut self.luck)
            .await
        {
            Ok(connection) => {
                self.world.count_speech("sessions");
                Some(connection)
            }
            // The next attempt starts another session.
            Err(ConnectFailure::NoReply) => None,
            Err(ConnectFailure::Refused(error)) => {
                self.note(format_args!("is refused at i{at}: {}", error.code()));
                if let SessionRefusal::TooManySessions { scope, .. } = error {
                    let text = format!("s{} is refused: {scope} has too many", self.number);
                    self.world.fail(Checker::S5, Subject::default(), text);
                }
                None
            }
        }
    }

    /// Resumes at any instance, for as long as the session may exist.
    async fn resume(&mut self, before: (usize, u32), broken_ms: u64) -> Option<SimConnection> {
        let options = self.world.plan.session_options();
        // An instance whose answer did not arrive may have taken the session over.
        let mut may_have_moved = false;
        loop {
            let at = if self.luck.permille(400) { before.0 } else { self.any_instance() };
            if self.luck.permille(100) {
                self.resume_with_wrong_secret(at).await;
            }
            let (id, tenant) = (format!("s{}", self.number).into(), self.tenant(self.number));
            let last_seq = self.world.session_checkers.lock()[self.number].last_seq;
            let first = OpenRequest::Resume { id, secret: self.secret, tenant, last_seq };
            let asked_ms = self.world.now_ms();
            let opened = SimConnection::open(&self.world, at, first, &mut self.luck).await;
            let now_ms = self.world.now_ms();
            match opened {
                Ok(connection) => {
                    self.world.count_speech("resumed");
                    if connection.at != before {
                        self.world.count_speech("resumed at another instance");
                    }
                    // The same instance may have dropped the session and found it in the store.
                    let is_late = now_ms >= broken_ms + options.resume_ms;
                    if connection.at != before || is_late || may_have_moved {
                        self.moved();
                    }
                    return Some(connection);
                }
                Err(ConnectFailure::Refused(SessionRefusal::NotFound)) => {
                    self.note(format_args!("is not found at i{at}"));
                    self.moved();
                    // The session may have been idle before it lost its connection.
                    let is_idle = now_ms >= self.sent_ms.min(self.received_ms) + options.idle_ms;
                    let away_ms = now_ms - broken_ms;
                    // Or its record could not be written for longer than it is kept.
                    let keep_ms = options.idle_ms + options.resume_ms;
                    let saved_ms = self.world.session_checkers.lock()[self.number].saved_ms;
                    let is_idle = is_idle || now_ms >= saved_ms + keep_ms;
                    // A session that its client ended may have delivered everything.
                    if !is_idle && !self.is_ending {
                        self.check(|checker| checker.not_found(away_ms));
                    }
                    self.world.count_speech("sessions over before they were resumed");
                    return None;
                }
                Err(ConnectFailure::Refused(error)) => {
                    self.note(format_args!("is not resumed at i{at}: {}", error.code()));
                    may_have_moved |= at != before.0;
                }
                Err(ConnectFailure::NoReply) => {
                    self.note(format_args!("gets no reply from i{at}"));
                    may_have_moved |= at != before.0;
                    self.world.session_checkers.lock()[self.number].has_lost_request = true;
                }
            }
            if asked_ms > broken_ms + options.resume_ms + options.idle_ms {
                return None;
            }
            sleep(self.luck.between(50, 600)).await;
        }
    }

    /// If the store lost the record, the next instance does not know the whole session.
    fn moved(&self) {
        let checker = &mut self.world.session_checkers.lock()[self.number];
        checker.is_excused |= self.world.has_forgotten_sessions_since(checker.begun_ms);
    }

    /// Nobody may resume a session without its secret.
    async fn resume_with_wrong_secret(&mut self, at: usize) {
        let sessions = self.world.session_checkers.lock().len() as u64;
        let other = self.luck.between(0, sessions - 1);
        let mut secret = self.secret;
        secret[31] ^= 1;
        let (id, tenant) = (format!("s{other}").into(), self.tenant(other as usize));
        let first = OpenRequest::Resume { id, secret, tenant, last_seq: 0 };
        if SimConnection::open(&self.world, at, first, &mut self.luck).await.is_ok() {
            let text = format!("i{at} resumed s{other} for a client without its secret");
            self.world.fail(Checker::S9, Subject::default(), text);
        }
    }

    /// Sends and receives until the connection ends.
    async fn use_connection(&mut self, connection: &mut SimConnection) -> ConnectionEnd {
        let mut due_ms = self.world.now_ms();
        let mut give_up_ms = u64::MAX;
        if self.is_ending {
            self.script = VecDeque::from([Step::End]);
        }
        loop {
            if self.world.is_quiet() && !self.is_ending {
                self.is_ending = true;
                self.script = VecDeque::from([Step::TurnEnd, Step::End]);
            }
            if self.script.is_empty() && !self.is_ending {
                self.plan_next();
            }
            let now_ms = self.world.now_ms();
            let wait_ms = match self.script.is_empty() {
                true => give_up_ms.saturating_sub(now_ms),
                false => due_ms.saturating_sub(now_ms),
            };
            tokio::select! {
                biased;
                frame = connection.next() => match frame {
                    None => return ConnectionEnd::Broken { away_ms: self.luck.between(0, 1_000) },
                    Some(frame) => if let Some(end) = self.on_frame(frame) {
                        return end;
                    },
                },
                () = sleep(wait_ms) => match self.script.pop_front() {
                    None => return ConnectionEnd::Broken { away_ms: 0 },
                    Some(Step::Disconnect { is_noticed, away_ms }) => {
                        self.note(format_args!("disconnects, noticed: {is_noticed}"));
                        if is_noticed {
                            connection.send(ClientFrame::Close);
                        }
                        return ConnectionEnd::Broken { away_ms };
                    }
                    Some(Step::Vanish) => {
                        self.note(format_args!("disappears"));
                        return ConnectionEnd::SessionOver;
                    }
                    Some(step) => {
                        if let Step::End = step {
                            give_up_ms = now_ms + END_TIMEOUT_MS;
                        }
                        due_ms = due_ms.max(now_ms) + self.perform(connection, step);
                    }
                },
            }
        }
    }

    /// Performs a step; returns how long it takes.
    fn perform(&mut self, connection: &mut SimConnection, step: Step) -> u64 {
        let mut checkers = self.world.session_checkers.lock();
        let checker = &mut checkers[self.number];
        let number = self.number as u32;
        let (frame, ms) = match step {
            Step::Frame { is_loud, ms } => {
                let item = checker.frame(is_loud);
                (ClientFrame::Audio(marked_audio::frame(number, item, is_loud)), ms)
            }
            Step::TurnStart(who) => {
                checker.turn_start(who);
                (ClientFrame::TurnStart(who), 0)
            }
            Step::TurnEnd => {
                checker.turn_end();
                (ClientFrame::TurnEnd, 0)
            }
            Step::Text(who) => {
                let item = checker.text(who);
                (ClientFrame::Text(format!("{number}/{item}-{item}"), who), 50)
            }
            Step::End => {
                checker.turn_end();
                (ClientFrame::End, 0)
            }
            Step::Wait(ms) => return ms,
            Step::Disconnect { .. } | Step::Vanish => return 0,
        };
        drop(checkers);
        self.sent_ms = self.world.now_ms();
        if let Step::End = step {
            self.is_ending = true;
        }
        connection.send(frame);
        ms
    }

    /// Adds the next steps.
    fn plan_next(&mut self) {
        let luck = &mut self.luck;
        let two_way = matches!(self.plan.direction, Direction::TwoWay { .. });
        let who = match (two_way, luck.between(0, 2)) {
            (true, 0) => Some(Speaker::A),
            (true, 1) => Some(Speaker::B),
            _ => None,
        };
        let script = &mut self.script;
        let is_bad = self.world.plan.has(Fault::BadClients);
        match luck.between(0, 99) {
            0..=59 => plan_utterance(luck, script, who, is_bad),
            60..=67 => script.push_back(Step::Text(who)),
            68..=73 => {
                // A turn without speech.
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
                let (is_noticed, away_ms) = (luck.permille(500), luck.between(0, most_ms));
                script.push_back(Step::Disconnect { is_noticed, away_ms });
            }
            86..=87 => script.push_back(Step::Vanish),
            88..=90 => script.push_back(Step::End),
            _ => script.push_back(Step::Wait(luck.between(100, 3_000))),
        }
        script.push_back(Step::Wait(luck.between(0, 700)));
    }

    /// Takes a frame; returns whether it ends the connection.
    fn on_frame(&mut self, frame: ServerFrame) -> Option<ConnectionEnd> {
        let now_ms = self.world.now_ms();
        if let ServerFrame::Output(_) = frame {
            self.received_ms = now_ms;
        }
        match frame {
            ServerFrame::Output(SessionOutput::Accepted(id, job)) => {
                self.note(format_args!("learns that {id} is j{}", job.number()));
                self.check(|checker| checker.accepted(id, job, now_ms));
            }
            ServerFrame::Output(SessionOutput::Partial(id, text)) => {
                self.world.count_speech("partial texts");
                self.check(|checker| checker.partial(id, &text));
            }
            ServerFrame::Output(SessionOutput::Delivery(delivery)) => self.on_delivery(&delivery),
            ServerFrame::Output(SessionOutput::Closed(reason)) => {
                self.note(format_args!("is closed: {reason:?}"));
                return Some(match reason {
                    CloseReason::Ended => {
                        self.check(|checker| checker.session_ended());
                        self.world.count_speech("sessions ended in good order");
                        ConnectionEnd::SessionOver
                    }
                    CloseReason::Superseded => ConnectionEnd::Broken { away_ms: 0 },
                    CloseReason::Idle | CloseReason::Abandoned => ConnectionEnd::SessionOver,
                });
            }
            ServerFrame::Fatal(code) => {
                self.note(format_args!("gets {code}"));
                return Some(ConnectionEnd::Broken { away_ms: self.luck.between(0, 500) });
            }
        }
        None
    }

    fn on_delivery(&self, Delivery { seq, id, outcome }: &Delivery<SegmentOutcome>) {
        let (job, result) = match outcome {
            SegmentOutcome::Result { view, .. } => {
                let ended = view.progress.ended.as_ref();
                let result = ended.and_then(|ended| ended.result.as_ref());
                let result = result.map(|result| result.as_str().trim_matches('"').to_owned());
                let (state, attempt) = (view.progress.state, view.progress.attempt.0);
                let seen = ObservedEnd { state, attempt, result: result.clone(), error: None };
                self.world.saw_segment(view.id.number() as usize, seen);
                (Some(view.id), Some(result.unwrap_or_default()))
            }
            SegmentOutcome::Missing { job, error, .. } => {
                self.world.count_speech(&format!("missing: {error}"));
                self.note(format_args!("misses {seq} ({id}): {error}"));
                (*job, None)
            }
        };
        if let Some(result) = &result {
            self.world.count_speech("results");
            self.note(format_args!("receives {seq} ({id}): {result}"));
        }
        self.check(|checker| checker.delivered(*seq, *id, job, result.as_deref()));
    }
}

/// Adds an utterance: with or without `turn_start`, pauses, and `turn_end`.
fn plan_utterance(
    luck: &mut SimRng,
    script: &mut VecDeque<Step>,
    who: Option<Speaker>,
    is_bad: bool,
) {
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
            let (is_noticed, away_ms) = (luck.permille(500), luck.between(0, 1_500));
            script.push_back(Step::Disconnect { is_noticed, away_ms });
        }
        if luck.permille(300) {
            script.push_back(Step::Wait(luck.between(100, 1_500)));
        }
    }
    if luck.permille(600) {
        script.push_back(Step::TurnEnd);
    }
}
