//! Connections: who takes too long to speak is hung up on, and a stop lets open requests end.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use lingua_engine::Timer;
use lingua_store::Store;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::express::Left;
use crate::front::Front;
use crate::metrics::{Kind, Metrics};
use crate::patience::Patience;

/// How long a stop waits for open requests.
const GRACE: Duration = Duration::from_secs(10);

/// How long to wait when the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(50);

/// How connections are treated.
#[derive(Clone)]
pub(crate) struct Manners {
    /// How long a connection may take to send its headers.
    pub(crate) header_ms: u64,
    /// Whether requests say where they come from.
    pub(crate) tell_peer: bool,
    /// How to speak TLS, if that is wanted.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Tells all connections that the server stops.
#[derive(Debug, Default)]
struct Stop {
    is_on: AtomicBool,
    bell: Notify,
}

/// Serves until `shutdown`.
pub(crate) async fn serve<S: Store, T: Timer>(
    listener: TcpListener,
    front: Front<S, T>,
    manners: Manners,
    metrics: &Metrics,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut builder = http1::Builder::new();
    // Slow headers are minded here, not by hyper: see `patience.rs`.
    builder.header_read_timeout(None).keep_alive(true);
    let limit = Duration::from_millis(manners.header_ms);
    let stop = Arc::new(Stop::default());
    // Every connection holds a sender: when all are dropped, the last connection has ended.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(NO_ROOM_PAUSE).await;
                continue;
            }
        };
        // Small messages both ways: waiting for more to send only adds delay.
        stream.set_nodelay(true).ok();
        let service = front.at(manners.tell_peer.then(|| Peer(peer.ip())));
        let (stop, open) = (Arc::clone(&stop), open.clone());
        let counted = metrics.open(Kind::Client);
        let (builder, tls) = (builder.clone(), manners.tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve_one(builder, stream, service, limit, &stop).await,
                Some(tls) => {
                    if let Some(stream) = shake_hands(tls, stream, limit).await {
                        serve_one(builder, stream, service, limit, &stop).await;
                    }
                }
            }
            drop((open, counted));
        });
    }
    drop((listener, open));
    stop.is_on.store(true, Ordering::Release);
    stop.bell.notify_waiters();
    if tokio::time::timeout(GRACE, all_closed.recv()).await.is_err() {
        tracing::warn!("stopped with open requests");
    }
}

/// Agrees on keys; who takes as long for that as for its headers is hung up on.
async fn shake_hands(
    tls: TlsAcceptor,
    stream: TcpStream,
    limit: Duration,
) -> Option<TlsStream<TcpStream>> {
    match tokio::time::timeout(limit, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS connection");
            None
        }
        Err(_) => None,
    }
}

/// Answers requests until the peer leaves or keeps silent for too long; when the server stops, the one under way is
/// the last.
async fn serve_one<I, S, T>(
    builder: http1::Builder,
    io: I,
    service: Front<S, T>,
    limit: Duration,
    stop: &Stop,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Store,
    T: Timer,
{
    let patience = Arc::clone(service.patience());
    let left = {
        let mut express = pin!(service.express(io, &stop.is_on).run());
        mind(&patience, limit, stop, |context, _| express.as_mut().poll(context)).await
    };
    let Some(Left::ToHyper(io)) = left else { return };
    let connection = builder.serve_connection(TokioIo::new(io), service);
    // In a box, because clients that are in a hurry have none.
    let mut connection = Box::pin(connection.with_upgrades());
    let mut is_told = false;
    let ended = mind(&patience, limit, stop, |context, is_stopping| {
        if is_stopping && !std::mem::replace(&mut is_told, true) {
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection ended"),
        None => tracing::debug!("connection ended: it sent no request for too long"),
    }
}

/// Polls a connection until it is over, or until it has kept silent for too long. It is told whether the server stops.
async fn mind<R>(
    patience: &Patience,
    limit: Duration,
    stop: &Stop,
    mut poll: impl FnMut(&mut Context<'_>, bool) -> Poll<R>,
) -> Option<R> {
    let mut nap = pin!(tokio::time::sleep(limit));
    let mut bell = pin!(stop.bell.notified());
    let (mut seen, mut is_listening, mut is_stopping) = (0, false, false);
    poll_fn(|context| {
        if let Poll::Ready(ended) = poll(context, is_stopping) {
            return Poll::Ready(Some(ended));
        }
        // A task's waker stays the same: timer and bell have it after the first time, and are left alone until they
        // have something to say.
        while !is_listening || nap.is_elapsed() {
            is_listening = true;
            if nap.as_mut().poll(context).is_ready() {
                if patience.is_over(&mut seen) {
                    return Poll::Ready(None);
                }
                nap.as_mut().reset(Instant::now() + limit);
                is_listening = false;
            } else if bell.as_mut().poll(context).is_ready() {
                stop.is_on.store(true, Ordering::Release);
            }
        }
        if !is_stopping && stop.is_on.load(Ordering::Acquire) {
            is_stopping = true;
            return poll(context, is_stopping).map(Some);
        }
        Poll::Pending
    })
    .await
}
