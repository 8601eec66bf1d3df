//! A client's connection to its session at an instance.
//!
//! Start at [`Line::open`]. What the server does for a socket is done here, through the network of the world. A connection keeps
//! the order of what is sent on it; what the network loses breaks it. Either side may take a while to notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::session::Speaker;
use lingua_engine::session::{Attached, Holder, NewSession, SessionError, ToClient};
use tokio::sync::mpsc;

use super::World;
use super::gate::SkewedTimer;
use super::instance::Life;
use super::luck::Luck;
use super::network::End;
use super::store::FaultyStore;

/// Most that is on its way in one direction.
const ON_ITS_WAY_MAX: usize = 1024;

/// How long the server waits for a session to be found or made.
const OPEN_MS: u64 = 4_000;

/// How long a client waits for that.
const PATIENCE_MS: u64 = 3_000;

/// How long the server may take to notice that a client is gone without a word.
const UNNOTICED_MS: u64 = 4_000;

/// How often a client takes a while to read, out of a thousand times, and how long at most.
const SLOW: u32 = 100;
const SLOW_MS: u64 = 500;

/// What a client says.
#[derive(Debug, Clone)]
pub(super) enum Said {
    Sound(Vec<u8>),
    TurnStart(Option<Speaker>),
    TurnEnd,
    Text(String, Option<Speaker>),
    End,
    /// It hangs up.
    Close,
}

/// What a client is told.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Session(ToClient),
    /// The connection is over, and why.
    Fatal(&'static str),
}

/// What opens a connection.
#[derive(Debug, Clone)]
pub(super) enum First {
    Start(NewSession),
    Resume { id: Arc<str>, secret: Holder, last_seq: u64 },
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NotOpened {
    NoAnswer,
    Refused(SessionError),
}

/// The client's end.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: (usize, u32),
    out: Option<Out<Said>>,
    from: In<Told>,
    /// When the instance let go of the session; 0 while it has not.
    let_go_ms: Arc<AtomicU64>,
}

impl Line {
    /// Opens a connection to an instance and says the first message.
    pub(super) async fn open(
        world: &Arc<World>,
        at: usize,
        first: First,
        luck: &mut Luck,
    ) -> Result<Self, NotOpened> {
        let mut server_luck = luck.fork();
        let (to, inbox) = mpsc::channel(ON_ITS_WAY_MAX);
        let (outbox, from) = mpsc::channel(ON_ITS_WAY_MAX);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let let_go_ms = Arc::new(AtomicU64::new(0));
        let (me, there) = (End::Client, End::Instance(at));
        let (theirs, gone_ms) = (Arc::clone(world), Arc::clone(&let_go_ms));
        let Some(there_ms) = world.first_fate(me, there) else {
            sleep(PATIENCE_MS).await;
            return Err(NotOpened::NoAnswer);
        };
        // The server goes on with it whether the client waits or not.
        tokio::spawn(async move {
            sleep(there_ms).await;
            let Some(life) = theirs.life(at) else { return };
            if !life.gate.pass().await {
                return;
            }
            let gate = Arc::clone(&life.gate);
            let opened = tokio::select! {
                biased;
                () = gate.died() => return,
                opened = tokio::time::timeout(Duration::from_millis(OPEN_MS), join(&life, first)) => opened,
            };
            let Ok(opened) = opened else { return };
            let Some(back_ms) = theirs.first_fate(there, me) else { return };
            let attached = match opened {
                Ok(attached) => attached,
                Err(error) => {
                    sleep(back_ms).await;
                    answer.send(Err(error)).ok();
                    return;
                }
            };
            let number = life.number;
            let out = Out { world: Arc::clone(&theirs), ends: (there, me), last_ms: 0, to: outbox };
            let inbox = In { world: Arc::clone(&theirs), from: inbox, head: None };
            let server = Server { life, attached, inbox, out: Some(out) };
            tokio::spawn(async move {
                server.serve(&mut server_luck).await;
                gone_ms.store(theirs.now_ms(), Ordering::Relaxed);
            });
            sleep(back_ms).await;
            answer.send(Ok(number)).ok();
        });
        let patience = Duration::from_millis(PATIENCE_MS);
        match tokio::time::timeout(patience, answered).await {
            Ok(Ok(Ok(number))) => {
                let out = Out { world: Arc::clone(world), ends: (me, there), last_ms: 0, to };
                let from = In { world: Arc::clone(world), from, head: None };
                Ok(Self { at: (at, number), out: Some(out), from, let_go_ms })
            }
            Ok(Ok(Err(error))) => Err(NotOpened::Refused(error)),
            _ => Err(NotOpened::NoAnswer),
        }
    }

    /// Says something, if the connection stands.
    pub(super) fn say(&mut self, said: Said) {
        if self.out.as_mut().is_some_and(|out| !out.send(said)) {
            self.out = None;
        }
    }

    /// What the client is told next; nothing when the connection is broken.
    pub(super) async fn hear(&mut self) -> Option<Told> {
        self.from.next().await
    }

    /// When the instance let go of the session, if it has.
    pub(super) fn let_go_ms(&self) -> Option<u64> {
        Some(self.let_go_ms.load(Ordering::Relaxed)).filter(|&ms| ms > 0)
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

type Session = Attached<FaultyStore, SkewedTimer>;

async fn join(life: &Life, first: First) -> Result<Session, SessionError> {
    match first {
        First::Start(new) => life.sessions.start(new).await,
        First::Resume { id, secret, last_seq } => {
            life.sessions.resume(&id, &secret, last_seq).await
        }
    }
}

/// One direction of a connection, from its beginning.
#[derive(Debug)]
struct Out<M> {
    world: Arc<World>,
    ends: (End, End),
    last_ms: u64,
    to: mpsc::Sender<(u64, M)>,
}

impl<M> Out<M> {
    /// Sends something behind what was sent before; says whether the connection still stands.
    fn send(&mut self, message: M) -> bool {
        let Some(delay_ms) = self.world.first_fate(self.ends.0, self.ends.1) else { return false };
        self.last_ms = self.last_ms.max(self.world.now_ms() + delay_ms);
        self.to.try_send((self.last_ms, message)).is_ok()
    }
}

/// One direction of a connection, at its end.
#[derive(Debug)]
struct In<M> {
    world: Arc<World>,
    from: mpsc::Receiver<(u64, M)>,
    head: Option<(u64, M)>,
}

impl<M> In<M> {
    /// The next message, when its time has come. May be dropped and asked again.
    async fn next(&mut self) -> Option<M> {
        if self.head.is_none() {
            self.head = Some(self.from.recv().await?);
        }
        let at_ms = self.head.as_ref().map_or(0, |head| head.0);
        sleep(at_ms.saturating_sub(self.world.now_ms())).await;
        self.head.take().map(|(_, message)| message)
    }
}

/// The instance's end.
struct Server {
    life: Life,
    attached: Session,
    inbox: In<Said>,
    out: Option<Out<Told>>,
}

impl Server {
    /// Passes on what is said and told, until either side is gone.
    async fn serve(mut self, luck: &mut Luck) {
        let gate = Arc::clone(&self.life.gate);
        loop {
            let step = tokio::select! {
                biased;
                () = gate.died() => return,
                said = self.inbox.next() => Step::Said(said),
                told = self.attached.next() => Step::Told(told),
            };
            tokio::select! {
                biased;
                () = gate.died() => return,
                _ = gate.pass() => {}
            }
            let goes_on = match step {
                Step::Said(Some(Said::Close)) => return,
                Step::Said(Some(said)) => self.heard(said),
                Step::Said(None) => {
                    let ms = luck.between(0, UNNOTICED_MS);
                    tokio::select! {
                        biased;
                        () = gate.died() => {}
                        () = sleep(ms) => {}
                    }
                    false
                }
                Step::Told(told) => {
                    let is_over = matches!(told, ToClient::Over(_));
                    self.tell(Told::Session(told));
                    let (is_slow, ms) = (luck.permille(SLOW), luck.between(0, SLOW_MS));
                    if is_slow {
                        sleep(ms).await;
                    }
                    !is_over
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn heard(&mut self, said: Said) -> bool {
        let attached = &self.attached;
        let taken = match said {
            Said::Sound(frame) => attached.audio(&frame, None),
            Said::TurnStart(speaker) => attached.turn_start(speaker),
            Said::TurnEnd => attached.turn_end(),
            Said::Text(text, speaker) => attached.text(&text, speaker),
            Said::End => attached.end(),
            Said::Close => Ok(()),
        };
        let Err(error) = taken else { return true };
        let is_fatal = matches!(error, SessionError::TooFast { .. } | SessionError::Superseded);
        if is_fatal {
            self.tell(Told::Fatal(error.code()));
        }
        !is_fatal
    }

    fn tell(&mut self, told: Told) {
        if self.out.as_mut().is_some_and(|out| !out.send(told)) {
            self.out = None;
        }
    }
}

enum Step {
    Said(Option<Said>),
    Told(ToClient),
}
