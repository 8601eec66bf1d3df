//! Bounds connections: how many there are, and how long a peer may leave bytes unread.
//!
//! Start at [`Connections::admit`]. When all places are taken, the oldest connection on which no
//! request was received gives up its place; if there is none, the new connection is closed.
//!
//! Invariants: no more than `max` connections are open, WebSockets included; a peer that reads
//! fewer than [`READ_BYTES_MIN`] bytes within the write limit while more are waiting for it is
//! disconnected.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;

/// What a peer has to read within the write limit, unless less is waiting for it.
const READ_BYTES_MIN: usize = 16 << 10;

/// All connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    refused: Counter,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    taken: usize,
    next: u64,
    /// The connections on which no request was received, the oldest first.
    silent: BTreeMap<u64, Arc<Notify>>,
}

impl Connections {
    pub(crate) fn new(max: usize, refused: Counter) -> Arc<Self> {
        Arc::new(Self { max, refused, places: Mutex::default() })
    }

    /// Takes a place for a new connection; `None` if none is left.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<(ConnectionPlace, SilentConnection)> {
        let mut places = self.places.lock();
        if places.taken >= self.max {
            self.refused.inc();
            let (_, oldest) = places.silent.pop_first()?;
            oldest.notify_one();
        }
        places.taken += 1;
        places.next += 1;
        let (number, closing) = (places.next, Arc::new(Notify::new()));
        places.silent.insert(number, Arc::clone(&closing));
        let connections = Arc::clone(self);
        let silent = SilentConnection { connections: Arc::clone(self), number, closing };
        Some((ConnectionPlace { connections }, silent))
    }
}

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    connections: Arc<Connections>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.connections.places.lock().taken -= 1;
    }
}

/// A connection on which no request was received; drop it at the first one.
#[derive(Debug)]
pub(crate) struct SilentConnection {
    connections: Arc<Connections>,
    number: u64,
    closing: Arc<Notify>,
}

impl SilentConnection {
    /// Notified when the connection has to give up its place.
    pub(crate) fn closing(&self) -> Arc<Notify> {
        Arc::clone(&self.closing)
    }
}

impl Drop for SilentConnection {
    fn drop(&mut self) {
        self.connections.places.lock().silent.remove(&self.number);
    }
}

/// A connection that fails when its peer does not read.
pub(crate) struct WriteLimited<I> {
    io: I,
    limit: Duration,
    blocked: Option<Blocked>,
    /// Held as long as the connection is open, also after it became a WebSocket.
    _place: ConnectionPlace,
}

/// More is waiting to be written than the peer has room for.
struct Blocked {
    until: Pin<Box<Sleep>>,
    written: usize,
}

impl<I: Unpin> WriteLimited<I> {
    pub(crate) fn new(io: I, limit: Duration, place: ConnectionPlace) -> Self {
        Self { io, limit, blocked: None, _place: place }
    }

    /// Notes how much of `wanted` bytes was written; fails if it is too little for too long.
    fn note(
        &mut self,
        context: &mut Context<'_>,
        wanted: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(count)) => {
                let is_enough = |blocked: &mut Blocked| {
                    blocked.written += count;
                    *count == wanted || blocked.written >= READ_BYTES_MIN
                };
                self.blocked.take_if(is_enough);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let limit = self.limit;
                let start = || Blocked { until: Box::pin(tokio::time::sleep(limit)), written: 0 };
                let blocked = self.blocked.get_or_insert_with(start);
                if blocked.until.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the peer does not read",
                    )));
                }
            }
        }
        written
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WriteLimited<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WriteLimited<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.note(context, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.note(context, parts.iter().map(|part| part.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn the_oldest_silent_connection_gives_up_its_place() {
        let connections = Connections::new(2, Counter::default());
        let (first, silent) = connections.admit().unwrap();
        let closing = silent.closing();
        let (second, spoke) = connections.admit().unwrap();
        drop(spoke);
        let third = connections.admit().unwrap();
        assert!(futures_util::FutureExt::now_or_never(closing.notified()).is_some());
        drop((first, silent));
        drop(third.1);
        assert!(connections.admit().is_none(), "all have sent a request");
        drop(second);
        assert!(connections.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_or_reads_too_little_is_disconnected() {
        for bytes_per_second in [0, 10, 4_000] {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            let place = Connections::new(1, Counter::default()).admit().unwrap().0;
            let mut near = WriteLimited::new(near, Duration::from_secs(10), place);
            let reading = tokio::spawn(async move {
                let mut buffer = vec![0; bytes_per_second];
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if bytes_per_second > 0 && far.read_exact(&mut buffer).await.is_err() {
                        return;
                    }
                }
            });
            let written = near.write_all(&[0; 100_000]).await;
            let is_fast = bytes_per_second == 4_000;
            assert_eq!(written.is_ok(), is_fast, "{bytes_per_second}");
            reading.abort();
        }
    }
}
