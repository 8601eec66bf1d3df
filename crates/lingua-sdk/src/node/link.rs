//! One connection to the scheduler, from the handshake to the last frame.
//!
//! Start at [`Link::open`]. Reading is up to the caller; writing is a task of its own behind a
//! bounded queue, so that a slow network never keeps the node from listening.
//!
//! Invariant: the audio of a message is the very next data frame behind it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use lingua_wire::ErrorCode;
use lingua_wire::node::{Bye, Register};
use lingua_wire::scheduler::{Registered, SchedulerMessage};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header::AUTHORIZATION};
use tokio_tungstenite::tungstenite::{self, Message as Frame, Utf8Bytes};

use super::error::{Error, Trouble};
use super::options::NodeOptions;
use super::report::Outgoing;
use crate::socket::{self, Socket};
use crate::tls;

/// How long it may take to connect, and then again to be registered.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one message may take to be written before the connection counts as lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the scheduler to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Most messages that wait to be written: all kept results and as many acknowledgements again.
const OUTGOING_MAX: usize = 4 * super::desk::KEPT_MAX;

/// How many free places a message needs that can do without being sent.
const SPARE_MIN: usize = OUTGOING_MAX / 2;

/// Most frames that are read in search of the answer to a registration.
const FRAMES_BEFORE_ANSWER_MAX: usize = 16;

/// What the scheduler sent.
#[derive(Debug)]
pub(super) enum Received {
    /// A message.
    Text(Utf8Bytes),
    /// Audio.
    Audio(Bytes),
    /// A sign of life.
    Nothing,
}

/// A connection of a registered node.
#[derive(Debug)]
pub(super) struct Link {
    frames: SplitStream<Socket>,
    queue: mpsc::Sender<Outgoing>,
    /// One task, which ends with the link.
    writer: JoinSet<()>,
}

impl Link {
    /// Connects and registers.
    pub(super) async fn open(
        options: &NodeOptions,
        register: &Register,
    ) -> Result<(Self, Registered), Trouble> {
        let request = request(options)?;
        let socket = timeout(OPEN_TIMEOUT, socket::open(request, &options.trust))
            .await
            .map_err(|_| Trouble::lost("the scheduler took too long to accept the connection"))?
            .map_err(|error| of_handshake(&options.url, error))?;
        let (sink, frames) = socket.split();
        let (queue, outgoing) = mpsc::channel(OUTGOING_MAX);
        let mut writer = JoinSet::new();
        writer.spawn(write(sink, outgoing));
        let mut link = Self { frames, queue, writer };
        link.send(Outgoing::new(register))?;
        let registered = timeout(OPEN_TIMEOUT, link.registered())
            .await
            .map_err(|_| Trouble::lost("the scheduler did not answer the registration"))??;
        Ok((link, registered))
    }

    /// Waits for the answer to the registration.
    async fn registered(&mut self) -> Result<Registered, Trouble> {
        for _ in 0..FRAMES_BEFORE_ANSWER_MAX {
            let Received::Text(text) = self.next().await? else { continue };
            match SchedulerMessage::parse(&text) {
                Ok(SchedulerMessage::Registered(registered)) => return Ok(registered),
                Ok(SchedulerMessage::Error(error)) => return Err(Trouble::of_registration(&error)),
                Ok(_) => return Err(Trouble::lost("a message came before the registration")),
                Err(error) => tracing::debug!(%error, "a message was not understood"),
            }
        }
        Err(Trouble::lost("the registration was not answered"))
    }

    /// Sends a message. A queue that is full means a connection that takes nothing.
    pub(super) fn send(&self, message: Outgoing) -> Result<(), Trouble> {
        self.queue
            .try_send(message)
            .map_err(|_| Trouble::lost("the connection does not take what is sent"))
    }

    /// Sends a message if there is plenty of room.
    pub(super) fn send_if_idle(&self, message: Outgoing) -> Result<(), Trouble> {
        if self.queue.capacity() < SPARE_MIN {
            return Ok(());
        }
        self.send(message)
    }

    /// The next frame. It may be dropped and asked again without losing anything.
    pub(super) async fn next(&mut self) -> Result<Received, Trouble> {
        match self.frames.next().await {
            Some(Ok(Frame::Text(text))) => Ok(Received::Text(text)),
            Some(Ok(Frame::Binary(audio))) => Ok(Received::Audio(audio)),
            Some(Ok(Frame::Close(_))) | None => {
                Err(Trouble::lost("the scheduler closed the connection"))
            }
            // The library answers pings by itself.
            Some(Ok(_)) => Ok(Received::Nothing),
            Some(Err(error)) => Err(Trouble::Lost(error.to_string())),
        }
    }

    /// Says goodbye, and waits a little until it has arrived.
    pub(super) async fn leave(self, reason: &str) {
        let Self { mut frames, queue, mut writer } = self;
        let bye = Bye { reason: Some(reason.into()) };
        queue.try_send(Outgoing::new(&bye)).ok();
        drop(queue);
        timeout(WRITE_TIMEOUT, writer.join_next()).await.ok();
        // A socket that is closed with something unread resets the connection, and what was written
        // last may be lost with it.
        let rest = async { while let Some(Ok(_)) = frames.next().await {} };
        timeout(CLOSE_TIMEOUT, rest).await.ok();
    }
}

/// Writes until the queue is closed or the connection breaks.
async fn write(mut sink: SplitSink<Socket, Frame>, mut outgoing: mpsc::Receiver<Outgoing>) {
    while let Some(message) = outgoing.recv().await {
        let is_last = outgoing.is_empty();
        let writing = async {
            sink.feed(Frame::Text(message.text)).await?;
            if let Some(audio) = message.audio {
                sink.feed(Frame::Binary(audio)).await?;
            }
            if is_last { sink.flush().await } else { Ok(()) }
        };
        match timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => {}
            // Whoever sends next finds the queue closed.
            Ok(Err(error)) => return tracing::debug!(%error, "writing failed"),
            Err(_) => return tracing::debug!("writing took too long"),
        }
    }
    timeout(WRITE_TIMEOUT, sink.close()).await.ok();
}

fn request(options: &NodeOptions) -> Result<Request, Trouble> {
    let bad_url =
        |detail: String| Trouble::Fatal(Error::BadUrl { url: options.url.clone(), detail });
    let mut request =
        options.url.as_str().into_client_request().map_err(|error| bad_url(error.to_string()))?;
    if !matches!(request.uri().scheme_str(), Some("ws" | "wss")) {
        return Err(bad_url("it does not start with ws:// or wss://".into()));
    }
    if let Some(token) = &options.token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Trouble::Fatal(Error::BadToken))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    Ok(request)
}

fn of_handshake(url: &str, error: tungstenite::Error) -> Trouble {
    match error {
        tungstenite::Error::Http(answer) => {
            let code = match answer.status().as_u16() {
                401 => ErrorCode::Unauthorized,
                403 => ErrorCode::Forbidden,
                status => return Trouble::Lost(format!("{url} answered with status {status}")),
            };
            let detail = format!("{url} answered with status {}", code.status());
            Trouble::Fatal(Error::Unauthorized { code, detail })
        }
        tungstenite::Error::Url(error) => {
            Trouble::Fatal(Error::BadUrl { url: url.to_owned(), detail: error.to_string() })
        }
        error => match tls::distrust(&error) {
            Some(why) => Trouble::Lost(format!(
                "{url} is not trusted: {why}; give the certificate that vouches for it"
            )),
            None => Trouble::Lost(format!("{url}: {error}")),
        },
    }
}
