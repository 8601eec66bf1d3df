//! A client's connection to its session at an instance, through the simulated network.
//!
//! Start at [`SimConnection::open`]. This does what the server does for a socket. A connection
//! keeps messages in order; a lost message breaks it, and either side may take a while to notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lingua_core::Tenant;
use lingua_core::session::Speaker;
use lingua_engine::session::{
    ClientConnection, NewSession, SecretHash, SessionOutput, SessionRefusal,
};
use tokio::sync::mpsc;

use super::World;
use super::instance::InstanceRun;
use super::instance_faults::SkewedTimer;
use super::network::NetworkEnd;
use super::rng::SimRng;
use super::store::FaultyStore;

/// Most messages in flight in one direction.
const IN_FLIGHT_MAX: usize = 1024;

/// How long the server waits for a session to start or resume.
const OPEN_MS: u64 = 4_000;

/// How long a client waits for that.
const OPEN_TIMEOUT_MS: u64 = 3_000;

/// How long the server may take to notice that a client is gone.
const UNNOTICED_MS: u64 = 4_000;

/// How often out of a thousand a client reads slowly, and how long that takes at most.
const SLOW_PERMILLE: u32 = 100;
const SLOW_MS: u64 = 500;

/// A frame from the client.
#[derive(Debug, Clone)]
pub(super) enum ClientFrame {
    Audio(Vec<u8>),
    TurnStart(Option<Speaker>),
    TurnEnd,
    Text(String, Option<Speaker>),
    End,
    /// The client disconnects.
    Close,
}

/// A frame from the server.
#[derive(Debug, Clone)]
pub(super) enum ServerFrame {
    Output(SessionOutput),
    /// A fatal error with this code.
    Fatal(&'static str),
}

/// The first message of a connection.
#[derive(Debug, Clone)]
pub(super) enum OpenRequest {
    Start(Box<NewSession>),
    Resume { id: Arc<str>, secret: SecretHash, tenant: Tenant, last_seq: u64 },
}

/// Why a connection did not open.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    NoReply,
    Refused(SessionRefusal),
}

/// The client's end.
#[derive(Debug)]
pub(super) struct SimConnection {
    pub(super) at: (usize, u32),
    out: Option<DelayedSender<ClientFrame>>,
    from: DelayedReceiver<ServerFrame>,
    /// When the instance noticed the end of the connection; 0 before that.
    server_ended_ms: Arc<AtomicU64>,
}

impl SimConnection {
    /// Connects to an instance and sends the first message.
    pub(super) async fn open(
        world: &Arc<World>,
        at: usize,
        first: OpenRequest,
        luck: &mut SimRng,
    ) -> Result<Self, ConnectFailure> {
        let mut server_luck = luck.fork();
        let (to, inbox) = mpsc::channel(IN_FLIGHT_MAX);
        let (outbox, from) = mpsc::channel(IN_FLIGHT_MAX);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let server_ended_ms = Arc::new(AtomicU64::new(0));
        let (me, there) = (NetworkEnd::Client, NetworkEnd::Instance(at));
        let (theirs, ended_ms) = (Arc::clone(world), Arc::clone(&server_ended_ms));
        let Some(there_ms) = world.delay(me, there) else {
            sleep(OPEN_TIMEOUT_MS).await;
            return Err(ConnectFailure::NoReply);
        };
        // The server continues whether the client waits or not.
        tokio::spawn(async move {
            sleep(there_ms).await;
            let Some(life) = theirs.run(at) else { return };
            if !life.faults.wait_while_paused().await {
                return;
            }
            let faults = Arc::clone(&life.faults);
            let limit = Duration::from_millis(OPEN_MS);
            let opened = tokio::select! {
                biased;
                () = faults.until_dead() => return,
                opened = tokio::time::timeout(limit, open_session(&life, first)) => opened,
            };
            let Ok(opened) = opened else { return };
            let Some(back_ms) = theirs.delay(there, me) else { return };
            let session = match opened {
                Ok(session) => session,
                Err(error) => {
                    sleep(back_ms).await;
                    reply.send(Err(error)).ok();
                    return;
                }
            };
            let number = life.number;
            let out = DelayedSender {
                world: Arc::clone(&theirs),
                ends: (there, me),
                last_ms: 0,
                to: outbox,
            };
            let inbox = DelayedReceiver { world: Arc::clone(&theirs), from: inbox, head: None };
            let server = ServerEnd { life, session, inbox, out: Some(out) };
            tokio::spawn(async move {
                server.serve(&mut server_luck).await;
                ended_ms.store(theirs.now_ms(), Ordering::Relaxed);
            });
            sleep(back_ms).await;
            reply.send(Ok(number)).ok();
        });
        let timeout = Duration::from_millis(OPEN_TIMEOUT_MS);
        match tokio::time::timeout(timeout, replied).await {
            Ok(Ok(Ok(number))) => {
                let out =
                    DelayedSender { world: Arc::clone(world), ends: (me, there), last_ms: 0, to };
                let from = DelayedReceiver { world: Arc::clone(world), from, head: None };
                Ok(Self { at: (at, number), out: Some(out), from, server_ended_ms })
            }
            Ok(Ok(Err(error))) => Err(ConnectFailure::Refused(error)),
            _ => Err(ConnectFailure::NoReply),
        }
    }

    /// Sends a frame, unless the connection is broken.
    pub(super) fn send(&mut self, frame: ClientFrame) {
        if self.out.as_mut().is_some_and(|out| !out.send(frame)) {
            self.out = None;
        }
    }

    /// The next frame from the server; `None` when the connection is broken.
    pub(super) async fn next(&mut self) -> Option<ServerFrame> {
        self.from.next().await
    }

    /// When the instance noticed the end of the connection, if it has.
    pub(super) fn server_ended_ms(&self) -> Option<u64> {
        Some(self.server_ended_ms.load(Ordering::Relaxed)).filter(|&ms| ms > 0)
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

type Session = ClientConnection<FaultyStore, SkewedTimer>;

async fn open_session(life: &InstanceRun, first: OpenRequest) -> Result<Session, SessionRefusal> {
    match first {
        OpenRequest::Start(new) => life.sessions.start(*new).await,
        OpenRequest::Resume { id, secret, tenant, last_seq } => {
            life.sessions.resume(&id, (&secret, tenant), last_seq).await
        }
    }
}

/// The sending end of one direction.
#[derive(Debug)]
struct DelayedSender<M> {
    world: Arc<World>,
    ends: (NetworkEnd, NetworkEnd),
    last_ms: u64,
    to: mpsc::Sender<(u64, M)>,
}

impl<M> DelayedSender<M> {
    /// Sends a message after the previous ones; returns false if the connection is broken.
    fn send(&mut self, message: M) -> bool {
        let Some(delay_ms) = self.world.delay(self.ends.0, self.ends.1) else { return false };
        self.last_ms = self.last_ms.max(self.world.now_ms() + delay_ms);
        self.to.try_send((self.last_ms, message)).is_ok()
    }
}

/// The receiving end of one direction.
#[derive(Debug)]
struct DelayedReceiver<M> {
    world: Arc<World>,
    from: mpsc::Receiver<(u64, M)>,
    head: Option<(u64, M)>,
}

impl<M> DelayedReceiver<M> {
    /// The next message, when it arrives. Cancel safe.
    async fn next(&mut self) -> Option<M> {
        if self.head.is_none() {
            self.head = Some(self.from.recv().await?);
        }
        let at_ms = self.head.as_ref().map_or(0, |head| head.0);
        sleep(at_ms.saturating_sub(self.world.now_ms())).await;
        self.head.take().map(|(_, message)| message)
    }
}

/// The instance's end of a connection.
struct ServerEnd {
    life: InstanceRun,
    session: Session,
    inbox: DelayedReceiver<ClientFrame>,
    out: Option<DelayedSender<ServerFrame>>,
}

impl ServerEnd {
    /// Forwards frames both ways until either side is gone.
    async fn serve(mut self, luck: &mut SimRng) {
        let faults = Arc::clone(&self.life.faults);
        loop {
            let step = tokio::select! {
                biased;
                () = faults.until_dead() => return,
                frame = self.inbox.next() => Step::Frame(frame),
                output = self.session.next() => Step::Output(output),
            };
            tokio::select! {
                biased;
                () = faults.until_dead() => return,
                _ = faults.wait_while_paused() => {}
            }
            let goes_on = match step {
                Step::Frame(Some(ClientFrame::Close)) => return,
                Step::Frame(Some(frame)) => self.on_frame(frame),
                Step::Frame(None) => {
                    let ms = luck.between(0, UNNOTICED_MS);
                    tokio::select! {
                        biased;
                        () = faults.until_dead() => {}
                        () = sleep(ms) => {}
                    }
                    false
                }
                Step::Output(output) => {
                    let is_closed = matches!(output, SessionOutput::Closed(_));
                    self.send(ServerFrame::Output(output));
                    let (is_slow, ms) = (luck.permille(SLOW_PERMILLE), luck.between(0, SLOW_MS));
                    if is_slow {
                        sleep(ms).await;
                    }
                    !is_closed
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn on_frame(&mut self, frame: ClientFrame) -> bool {
        let session = &self.session;
        let taken = match frame {
            ClientFrame::Audio(frame) => session.audio(frame.into(), None),
            ClientFrame::TurnStart(speaker) => session.turn_start(speaker),
            ClientFrame::TurnEnd => session.turn_end(),
            ClientFrame::Text(text, speaker) => session.text(&text, speaker),
            ClientFrame::End => session.end(),
            ClientFrame::Close => Ok(()),
        };
        let Err(error) = taken else { return true };
        let is_fatal = matches!(error, SessionRefusal::TooFast { .. } | SessionRefusal::Superseded);
        if is_fatal {
            self.send(ServerFrame::Fatal(error.code()));
        }
        !is_fatal
    }

    fn send(&mut self, frame: ServerFrame) {
        if self.out.as_mut().is_some_and(|out| !out.send(frame)) {
            self.out = None;
        }
    }
}

enum Step {
    Frame(Option<ClientFrame>),
    Output(SessionOutput),
}
