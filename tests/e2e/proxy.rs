//! A TCP proxy in front of a server, which can break connections, freeze them, or refuse new ones.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, Default)]
struct ProxyState {
    is_frozen: bool,
    is_refusing: bool,
    /// How often all connections were broken.
    breaks: u32,
    /// So many pieces of the server's bytes later one is lost, and its connection breaks.
    loses_after: Option<u32>,
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    state: watch::Sender<ProxyState>,
}

impl Proxy {
    /// Starts a proxy in front of this address.
    pub(crate) async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (state, changes) = watch::channel(ProxyState::default());
        let (target, losses) = (target.to_owned(), state.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if changes.borrow().is_refusing {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(copy(from_client, to_server, changes.clone(), None));
                let losses = Some(losses.clone());
                tokio::spawn(copy(from_server, to_client, changes.clone(), losses));
            }
        });
        Self { address, state }
    }

    /// Keeps all connections open and passes nothing on any more.
    pub(crate) fn freeze(&self) {
        self.state.send_modify(|state| state.is_frozen = true);
    }

    /// Passes on so many replies of the server, then loses one and breaks its connection.
    pub(crate) fn lose_a_reply_after(&self, replies: u32) {
        self.state.send_modify(|state| state.loses_after = Some(replies));
    }

    /// Breaks all connections; new ones are accepted.
    pub(crate) fn break_connections(&self) {
        self.state.send_modify(|state| state.breaks += 1);
    }

    /// Breaks all connections and closes new ones at once.
    pub(crate) fn refuse(&self) {
        self.state.send_modify(|state| {
            state.is_refusing = true;
            state.breaks += 1;
        });
    }

    /// Accepts new connections again.
    pub(crate) fn accept(&self) {
        self.state.send_modify(|state| state.is_refusing = false);
    }
}

/// Whether this piece of the server's bytes has to be lost.
fn is_lost(losses: &watch::Sender<ProxyState>) -> bool {
    let mut is_lost = false;
    losses.send_if_modified(|state| {
        is_lost = state.loses_after == Some(0);
        state.loses_after = state.loses_after.and_then(|after| after.checked_sub(1));
        false
    });
    is_lost
}

/// Copies bytes until the connections are broken or frozen, or a reply has to be lost.
async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut state: watch::Receiver<ProxyState>,
    losses: Option<watch::Sender<ProxyState>>,
) {
    let mut buffer = vec![0; 4096];
    let breaks = state.borrow_and_update().breaks;
    loop {
        let read = tokio::select! {
            biased;
            _ = state.wait_for(|state| state.is_frozen || state.breaks > breaks) => None,
            read = from.read(&mut buffer) => Some(read),
        };
        let Some(read) = read else {
            if state.borrow().is_frozen {
                std::future::pending::<()>().await;
            }
            return;
        };
        let Ok(n @ 1..) = read else { return };
        if losses.as_ref().is_some_and(is_lost) {
            return;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
