//! Closes connections so that the last bytes arrive.
//!
//! If a program closes a connection while data that it has not read are waiting, the system resets
//! the connection, and the peer may lose what was sent to it last: the error, the close frame. So
//! a dropped connection is first shut down for writing, and what still comes is read for a while.
//!
//! Invariant: at most [`LINGER`] and [`LINGER_BYTES_MAX`] for each connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How long the peer has to read the last bytes and to close its side.
const LINGER: Duration = Duration::from_secs(2);

/// Most bytes that are read and thrown away.
const LINGER_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Lingering<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> {
    /// Taken when it is dropped.
    io: Option<I>,
    /// The peer has closed its side, or the connection has failed.
    is_over: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Lingering<I> {
    pub(crate) fn new(io: I) -> Self {
        Self { io: Some(io), is_over: false }
    }

    fn io(&mut self) -> Pin<&mut I> {
        Pin::new(self.io.as_mut().expect("it is there until the drop"))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Drop for Lingering<I> {
    fn drop(&mut self) {
        let io = self.io.take().filter(|_| !self.is_over);
        if let (Some(io), Ok(runtime)) = (io, tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LINGER, drain(io)));
        }
    }
}

async fn drain<I: AsyncRead + AsyncWrite + Unpin>(mut io: I) {
    if io.shutdown().await.is_err() {
        return;
    }
    let (mut buffer, mut left) = ([0; 4096], LINGER_BYTES_MAX);
    while let Ok(count @ 1..) = io.read(&mut buffer).await {
        left = left.saturating_sub(count);
        if left == 0 {
            return;
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncRead for Lingering<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let read = ready!(self.io().poll_read(context, buffer));
        self.is_over |= read.is_err() || room > 0 && buffer.filled().len() == before;
        Poll::Ready(read)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> AsyncWrite for Lingering<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(context)
    }
}
