//! Connections: who takes too long to speak is hung up on, and a stop lets open requests end.

use std::net::IpAddr;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use lingua_engine::Timer;
use lingua_store::Store;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::front::Front;
use crate::metrics::{Kind, Metrics};

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

/// Serves until `shutdown`.
pub(crate) async fn serve<S: Store, T: Timer>(
    listener: TcpListener,
    front: Front<S, T>,
    manners: Manners,
    metrics: &Metrics,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(manners.header_ms))
        .keep_alive(true);
    let (stop, _) = watch::channel(());
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
        let (stopped, open) = (stop.subscribe(), open.clone());
        let counted = metrics.open(Kind::Client);
        match manners.tls.clone() {
            None => {
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    converse(connection, stopped).await;
                    drop((open, counted));
                });
            }
            Some(tls) => {
                let (builder, header_ms) = (builder.clone(), manners.header_ms);
                tokio::spawn(async move {
                    if let Some(stream) = shake_hands(tls, stream, header_ms).await {
                        let connection = builder.serve_connection(TokioIo::new(stream), service);
                        converse(connection, stopped).await;
                    }
                    drop((open, counted));
                });
            }
        }
    }
    drop((listener, open));
    stop.send_replace(());
    if tokio::time::timeout(GRACE, all_closed.recv()).await.is_err() {
        tracing::warn!("stopped with open requests");
    }
}

/// Agrees on keys; who takes as long for that as for its headers is hung up on.
async fn shake_hands(
    tls: TlsAcceptor,
    stream: TcpStream,
    limit_ms: u64,
) -> Option<TlsStream<TcpStream>> {
    match tokio::time::timeout(Duration::from_millis(limit_ms), tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS connection");
            None
        }
        Err(_) => None,
    }
}

/// Answers requests until the peer leaves; when the server stops, the one under way is the last.
async fn converse<I, S, T>(
    connection: http1::Connection<TokioIo<I>, Front<S, T>>,
    mut stopped: watch::Receiver<()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Store,
    T: Timer,
{
    let connection = connection.with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
