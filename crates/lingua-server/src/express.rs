//! The express lane: jobs to translate that are asked for in the plain way.
//!
//! Start at [`Express::run`]. Nearly all requests of a busy scheduler are a `POST /v1/translate` with a length and a body, one
//! after the other on the same connection. They are read and answered here, with one buffer each way. The first request that is
//! anything else, or says anything that has to be understood, goes to hyper with all that was read, and so does all that
//! follows on its connection.
//!
//! | file | what |
//! |---|---|
//! | `head.rs` | what a plain request looks like |
//! | `answer.rs` | answers |
//! | `prefixed.rs` | a connection of which some was read already |
//!
//! Invariant: the guards are the router's; who hangs up is not waited for; a slow reader or writer is hung up on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use lingua_core::JobId;
use lingua_core::id::hex;
use lingua_engine::Timer;
use lingua_engine::request::JobRequest;
use lingua_store::Store;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::app::{App, admit};
use crate::auth::Role;
use crate::convert;
use crate::listen::Peer;
use crate::patience::Patience;
use crate::reply::Failed;
use crate::routes::jobs::{job_id, translate};
use crate::sent::late;

mod answer;
mod head;
mod prefixed;

use answer::Answers;
use head::Head;
pub(crate) use prefixed::Prefixed;

/// Bytes that are read at a time. The same memory for all connections of a thread: it stays in the cache.
const SCRATCH_BYTES: usize = 16 << 10;

/// Longest head that is looked at here.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long a client may keep an answer waiting.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into());
    static ANSWERS: RefCell<Answers> = RefCell::default();
}

/// What becomes of a connection.
pub(crate) enum Left<I> {
    /// It is over.
    Over,
    /// Its next request is none for this lane.
    ToHyper(Prefixed<I>),
}

/// Why a connection goes no further.
struct Over;

/// A request, and whether nothing can be read after it.
struct Asked {
    request: Result<JobRequest, Failed>,
    request_id: Option<Box<[u8]>>,
    is_last: bool,
}

/// A connection on which plain requests come.
pub(crate) struct Express<'a, I, S, T> {
    pub(crate) io: I,
    pub(crate) app: &'a App<S, T>,
    pub(crate) peer: Option<Peer>,
    pub(crate) patience: &'a Patience,
    /// Whether the server stops.
    pub(crate) stop: &'a AtomicBool,
}

impl<I, S, T> Express<'_, I, S, T>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Store,
    T: Timer,
{
    /// Answers requests until one comes that is not plain, or none.
    pub(crate) async fn run(mut self) -> Left<I> {
        // What was read and is not dealt with. Most requests are read in one piece, and it stays empty.
        let mut buffer = BytesMut::new();
        loop {
            let asked = match self.next(&mut buffer).await {
                Ok(Some(asked)) => asked,
                Ok(None) => return Left::ToHyper(Prefixed::new(buffer.freeze(), self.io)),
                Err(Over) => return Left::Over,
            };
            if self.serve(asked, &mut buffer).await.is_err() {
                return Left::Over;
            }
        }
    }

    /// The next request, unless it is one for hyper.
    async fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Asked>, Over> {
        if buffer.is_empty()
            && let Some(asked) = poll_fn(|context| self.poll_whole(buffer, context)).await?
        {
            return Ok(Some(asked));
        }
        let options = &self.app.shared.options;
        let plain = loop {
            match head::read(buffer) {
                Head::Plain(plain) if plain.body_bytes <= options.body_bytes_max => break plain,
                Head::Partial if buffer.len() < HEAD_BYTES_MAX => {
                    poll_fn(|context| self.poll_more(buffer, context)).await?;
                }
                _ => return Ok(None),
            }
        };
        // Who may not come in is told so at once, and what else it sends is not read.
        let (admitted, request_id) = (self.admit(&plain.said), plain.said.request_id());
        let (start, end) = (plain.head_bytes, plain.head_bytes + plain.body_bytes);
        let limit = Duration::from_millis(options.body_ms);
        let request = match admitted {
            Ok(id) if self.body_comes(end, limit, buffer).await? => {
                self.understand(id, &buffer[start..end])
            }
            Ok(_) => Err(late(options.body_ms)),
            Err(failed) => Err(failed),
        };
        let is_last = buffer.len() < end;
        buffer.advance(end.min(buffer.len()));
        if buffer.is_empty() {
            // Not needed any more, and connections live long.
            *buffer = BytesMut::new();
        }
        Ok(Some(Asked { request, request_id, is_last }))
    }

    /// Reads a request that comes in one piece, if it does; else what has come is in the buffer.
    fn poll_whole(
        &mut self,
        buffer: &mut BytesMut,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Asked>, Over>> {
        // Between two requests nothing is awaited when the server stops.
        if self.stop.load(Ordering::Acquire) {
            return Poll::Ready(Err(Over));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let bytes = ready!(poll_read(&mut self.io, scratch, context))?;
            if let Head::Plain(plain) = head::read(bytes)
                && let Some((this, rest)) =
                    bytes.split_at_checked(plain.head_bytes + plain.body_bytes)
            {
                buffer.extend_from_slice(rest);
                let admitted = self.admit(&plain.said);
                let body = &this[plain.head_bytes..];
                let request = admitted.and_then(|id| self.understand(id, body));
                let request_id = plain.said.request_id();
                return Poll::Ready(Ok(Some(Asked { request, request_id, is_last: false })));
            }
            buffer.extend_from_slice(bytes);
            Poll::Ready(Ok(None))
        })
    }

    /// Reads more into the buffer.
    fn poll_more(
        &mut self,
        buffer: &mut BytesMut,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Over>> {
        SCRATCH.with_borrow_mut(|scratch| {
            buffer.extend_from_slice(ready!(poll_read(&mut self.io, scratch, context))?);
            Poll::Ready(Ok(()))
        })
    }

    /// Whether the request may come in, and the job that it is about.
    fn admit(&self, said: &head::Said<'_>) -> Result<JobId, Failed> {
        admit(self.app, Role::Client, &said.guarded, self.peer)?;
        job_id(self.app, said.key)
    }

    /// What a request asks for, whose body this is.
    fn understand(&self, id: JobId, body: &[u8]) -> Result<JobRequest, Failed> {
        Ok(convert::job_request(id, body, self.app.shared.options.default_wait_ms)?)
    }

    async fn serve(&mut self, asked: Asked, buffer: &mut BytesMut) -> Result<(), Over> {
        let answering = Patience::begin(self.patience);
        let Asked { request, request_id, is_last } = asked;
        let new_id = hex(request.as_ref().map_or(0, |request| request.id.number()));
        let answer = match request {
            Ok(request) => self.wait_for(translate(self.app, request), buffer).await?,
            Err(failed) => Err(failed),
        };
        // Others that are ready go first: answers that leave together wake the clients' machine once.
        tokio::task::yield_now().await;
        let is_last = is_last || self.stop.load(Ordering::Acquire);
        let id = request_id.as_ref().map_or(&new_id[..], |id| id);
        let now_ms = self.app.shared.engine.now_ms();
        let sent = poll_fn(|context| {
            ANSWERS.with_borrow_mut(|answers| {
                let bytes = answers.write(&answer, id, is_last, now_ms);
                let sent = match Pin::new(&mut self.io).poll_write(context, bytes) {
                    Poll::Ready(Ok(sent)) => sent,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Over)),
                    Poll::Pending => 0,
                };
                // Nearly always all of it goes at once.
                let is_sent = sent == bytes.len()
                    && matches!(Pin::new(&mut self.io).poll_flush(context), Poll::Ready(Ok(())));
                Poll::Ready(Ok((!is_sent).then(|| bytes[sent..].to_vec())))
            })
        });
        if let Some(rest) = sent.await? {
            send(&mut self.io, &rest).await?;
        }
        drop(answering);
        if is_last { Err(Over) } else { Ok(()) }
    }

    /// Waits until the body is there; says whether it came in time.
    async fn body_comes(
        &mut self,
        end: usize,
        limit: Duration,
        buffer: &mut BytesMut,
    ) -> Result<bool, Over> {
        if buffer.len() >= end {
            return Ok(true);
        }
        let whole = async {
            while buffer.len() < end {
                poll_fn(|context| self.poll_more(buffer, context)).await?;
            }
            Ok(true)
        };
        tokio::time::timeout(limit, whole).await.unwrap_or(Ok(false))
    }

    /// Waits for an answer, unless the client hangs up. What it sends meanwhile is kept for later, as far as there is room.
    async fn wait_for<A>(
        &mut self,
        answer: impl Future<Output = A>,
        buffer: &mut BytesMut,
    ) -> Result<A, Over> {
        let mut answer = pin!(answer);
        poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Ok(answer));
            }
            while buffer.len() < HEAD_BYTES_MAX {
                ready!(self.poll_more(buffer, context))?;
            }
            Poll::Pending
        })
        .await
    }
}

/// Reads what has come; there is always something, or it is over.
fn poll_read<'a, I: AsyncRead + Unpin>(
    io: &mut I,
    scratch: &'a mut [u8],
    context: &mut Context<'_>,
) -> Poll<Result<&'a [u8], Over>> {
    let mut read = ReadBuf::new(scratch);
    let came = ready!(Pin::new(io).poll_read(context, &mut read));
    let bytes = read.filled().len();
    Poll::Ready(if came.is_ok() && bytes > 0 { Ok(&scratch[..bytes]) } else { Err(Over) })
}

/// Sends what is left of an answer.
async fn send<I: AsyncWrite + Unpin>(io: &mut I, bytes: &[u8]) -> Result<(), Over> {
    let sent = async {
        io.write_all(bytes).await?;
        io.flush().await
    };
    match tokio::time::timeout(WRITE_LIMIT, sent).await {
        Ok(Ok(())) => Ok(()),
        _ => Err(Over),
    }
}
