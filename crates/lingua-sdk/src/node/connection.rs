//! One connection to the scheduler, from the handshake to the last frame.
//!
//! Start at [`SchedulerConnection::open`]. The caller reads; a task of its own writes from a
//! bounded queue, so that a slow network never keeps the node from reading.
//!
//! Invariant: the audio of a message is the very next data frame behind it. Frames are moved as
//! `Bytes` and never copied here.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use lingua_wire::node::{Bye, Register};
use lingua_wire::scheduler::{Registered, SchedulerMessage};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message as Frame;

use super::error::Disconnect;
use super::options::NodeOptions;
use super::report::OutboundMessage;
use crate::connect::{OPEN_TIMEOUT, Socket};

/// How long one message may take to be written before the connection counts as lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the scheduler to close its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Most messages that wait to be written: all unconfirmed results, and three times as many others.
const QUEUE_MAX: usize = 4 * super::admission::UNCONFIRMED_MAX;

/// Free places in the queue below which partial texts are dropped.
const PARTIAL_ROOM_MIN: usize = QUEUE_MAX / 2;

/// Most frames that are read while waiting for the response to a registration.
const FRAMES_BEFORE_REGISTERED_MAX: usize = 16;

/// The reading side of a connection of a registered node.
#[derive(Debug)]
pub(super) struct SchedulerConnection {
    frames: SplitStream<Socket>,
    /// One task, which ends with the connection.
    writer: JoinSet<()>,
}

/// The writing side: the queue of messages that wait to be written.
#[derive(Debug)]
pub(super) struct NodeOutbox(mpsc::Sender<OutboundMessage>);

impl SchedulerConnection {
    /// Connects and registers.
    pub(super) async fn open(
        options: &NodeOptions,
        register: &Register,
    ) -> Result<(Self, NodeOutbox, Registered), Disconnect> {
        let (sink, frames) = options.endpoint.open().await?.split();
        let (queue, outbound) = mpsc::channel(QUEUE_MAX);
        let mut writer = JoinSet::new();
        writer.spawn(write(sink, outbound));
        let (mut connection, outbox) = (Self { frames, writer }, NodeOutbox(queue));
        outbox.send(OutboundMessage::new(register))?;
        let registered = timeout(OPEN_TIMEOUT, connection.registered())
            .await
            .map_err(|_| Disconnect::lost("the scheduler did not answer the registration"))??;
        Ok((connection, outbox, registered))
    }

    async fn registered(&mut self) -> Result<Registered, Disconnect> {
        for _ in 0..FRAMES_BEFORE_REGISTERED_MAX {
            let Frame::Text(text) = self.next().await? else { continue };
            match SchedulerMessage::parse(&text) {
                Ok(SchedulerMessage::Registered(registered)) => return Ok(registered),
                Ok(SchedulerMessage::Error(error)) => {
                    return Err(Disconnect::at_registration(error));
                }
                Ok(_) => return Err(Disconnect::lost("a message came before `registered`")),
                Err(error) => tracing::debug!(%error, "ignored an unknown message"),
            }
        }
        Err(Disconnect::lost("the scheduler did not answer the registration"))
    }

    /// The next frame; never a close frame. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Frame, Disconnect> {
        match self.frames.next().await {
            Some(Ok(Frame::Close(_))) | None => {
                Err(Disconnect::lost("the scheduler closed the connection"))
            }
            Some(frame) => frame.map_err(|error| Disconnect::Lost(error.to_string())),
        }
    }

    /// Sends `bye`, and waits a little until it has arrived.
    pub(super) async fn close(self, outbox: NodeOutbox, reason: &str) {
        let Self { mut frames, mut writer } = self;
        let bye = Bye { reason: Some(reason.into()) };
        outbox.send(OutboundMessage::new(&bye)).ok();
        drop(outbox);
        timeout(WRITE_TIMEOUT, writer.join_next()).await.ok();
        // Closing a socket with unread data resets the connection, and what was written last may be
        // lost with it.
        let rest = async { while let Some(Ok(_)) = frames.next().await {} };
        timeout(CLOSE_TIMEOUT, rest).await.ok();
    }
}

impl NodeOutbox {
    /// Queues a message. A full queue means that the connection is stuck.
    pub(super) fn send(&self, message: OutboundMessage) -> Result<(), Disconnect> {
        self.0
            .try_send(message)
            .map_err(|_| Disconnect::lost("the connection is broken or too slow for what is sent"))
    }

    /// Whether there is plenty of room: partial texts are dropped otherwise.
    pub(super) fn has_room(&self) -> bool {
        self.0.capacity() >= PARTIAL_ROOM_MIN
    }
}

/// Writes until the queue is closed or the connection breaks.
async fn write(mut sink: SplitSink<Socket, Frame>, mut outbound: mpsc::Receiver<OutboundMessage>) {
    while let Some(message) = outbound.recv().await {
        let is_last = outbound.is_empty();
        let writing = async {
            sink.feed(Frame::Text(message.text)).await?;
            if let Some(audio) = message.audio {
                sink.feed(Frame::Binary(audio)).await?;
            }
            if is_last { sink.flush().await } else { Ok(()) }
        };
        match timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => {}
            // The next sender finds the queue closed.
            Ok(Err(error)) => return tracing::debug!(%error, "writing failed"),
            Err(_) => return tracing::debug!("writing took too long"),
        }
    }
    timeout(WRITE_TIMEOUT, sink.close()).await.ok();
}
