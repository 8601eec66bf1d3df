//! Accepts connections and serves HTTP/1.1 on them with hyper.
//!
//! Start at [`serve`]. A connection that takes too long for its TLS handshake, or sends no complete
//! request head in time, is closed; hyper's timer also runs while a kept-alive connection is idle.
//! The time limit for a request body is in `request.rs`.
//!
//! Invariant: after the shutdown signal no connection gets a further request, and the requests that
//! are open have at most [`ConnLimits::stop`] to end.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::caller_address::{TrustedProxies, proxied_peer};
use crate::connections::{Connections, SilentConnection, WriteLimited};
use crate::linger::Lingering;
use crate::metrics::ConnectionCount;

/// Pause after a failed accept, which mostly means that the process has no file descriptor left.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Most bytes of a request's head, and most bytes that are read from a connection at a time.
const READ_BYTES_MAX: usize = 64 << 10;

/// What applies to every connection.
#[derive(Clone)]
pub(crate) struct ConnLimits {
    /// Longest TLS handshake, longest wait for a request head, longest idle time between requests.
    pub(crate) head: Duration,
    /// How long a stop waits for open requests.
    pub(crate) stop: Duration,
    /// How long a peer may leave bytes unread.
    pub(crate) write: Duration,
    /// Proxies that begin a connection with the caller's address; empty if none does.
    pub(crate) proxies: TrustedProxies,
    /// Set if the server speaks TLS.
    pub(crate) tls: Option<TlsAcceptor>,
}

/// Serves until `shutdown`, then waits for open requests.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnLimits,
    connections: Arc<Connections>,
    open: Gauge,
    shutdown: impl Future<Output = ()> + Send,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(READ_BYTES_MAX);
    // Every connection holds a receiver: when all are dropped, the last connection has ended.
    let (stop, _) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Some((place, silent)) = connections.admit() else { continue };
        // Messages are small in both directions: waiting for more to send only adds delay.
        stream.set_nodelay(true).ok();
        let (http, stop, router) = (http.clone(), stop.subscribe(), router.clone());
        let (counted, limits) = (ConnectionCount::new(&open), limits.clone());
        let mut stream = WriteLimited::new(stream, limits.write, place);
        let closing = silent.closing();
        tokio::spawn(async move {
            let served = async {
                let Some(peer) = caller_of(&mut stream, peer, &limits).await else { return };
                let connection = Connection { http, router, peer, stop, silent };
                match limits.tls {
                    None => connection.serve(stream).await,
                    Some(tls) => {
                        let handshake = tokio::time::timeout(limits.head, tls.accept(stream)).await;
                        match handshake.map_err(Into::into).flatten() {
                            Ok(stream) => connection.serve(stream).await,
                            Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                        }
                    }
                }
            };
            tokio::select! {
                biased;
                () = served => {}
                () = closing.notified() => tracing::debug!(%peer, "closed without a request"),
            }
            drop(counted);
        });
    }
    drop(listener);
    stop.send_replace(());
    if tokio::time::timeout(limits.stop, stop.closed()).await.is_err() {
        tracing::warn!(waited = ?limits.stop, "stopping although requests are still open");
    }
}

/// The address of the caller; `None` if a proxy that should have told it did not.
async fn caller_of(
    stream: &mut WriteLimited<TcpStream>,
    peer: SocketAddr,
    limits: &ConnLimits,
) -> Option<SocketAddr> {
    if !limits.proxies.trusts(peer.ip()) {
        return Some(peer);
    }
    let told = tokio::time::timeout(limits.head, proxied_peer(stream)).await;
    match told.map_err(Into::into).flatten() {
        Ok(caller) => Some(caller.unwrap_or(peer)),
        Err(error) => {
            tracing::debug!(%peer, %error, "the proxy did not say for whom it calls");
            None
        }
    }
}

struct Connection {
    http: http1::Builder,
    router: Router,
    peer: SocketAddr,
    stop: watch::Receiver<()>,
    silent: SilentConnection,
}

impl Connection {
    async fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, io: I) {
        let Self { http, router, peer, mut stop, silent } = self;
        let silent = Mutex::new(Some(silent));
        let service = service_fn(move |mut request: Request<Incoming>| {
            silent.lock().take();
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().call(request)
        });
        let connection =
            http.serve_connection(TokioIo::new(Lingering::new(io)), service).with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            _ = stop.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}
