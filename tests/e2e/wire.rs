//! A wire between a peer and the scheduler, for what happens to wires.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::world::Scheduler;

/// What has happened to a wire.
#[derive(Debug, Clone, Copy, Default)]
struct Fate {
    is_dead: bool,
    cuts: u32,
}

/// A wire that can be cut, or go dead.
pub(crate) struct Wire {
    pub(crate) address: String,
    fate: watch::Sender<Fate>,
}

impl Wire {
    pub(crate) async fn to(scheduler: &Scheduler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (fate, watching) = watch::channel(Fate::default());
        let target = scheduler.address.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&target).await.expect("it listens");
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::spawn(carry(near_in, far_out, watching.clone()));
                tokio::spawn(carry(far_in, near_out, watching.clone()));
            }
        });
        Self { address, fate }
    }

    /// Both ends stay open, and nothing comes through any more.
    pub(crate) fn goes_dead(&self) {
        self.fate.send_modify(|fate| fate.is_dead = true);
    }

    /// All connections break; others can be opened.
    pub(crate) fn is_cut(&self) {
        self.fate.send_modify(|fate| fate.cuts += 1);
    }
}

/// Carries bytes until the wire is cut. When it goes dead, keeps both ends open and does nothing.
async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut fate: watch::Receiver<Fate>,
) {
    let mut buffer = vec![0; 4096];
    let cuts = fate.borrow_and_update().cuts;
    loop {
        let read = tokio::select! {
            biased;
            _ = fate.wait_for(|fate| fate.is_dead || fate.cuts > cuts) => None,
            read = from.read(&mut buffer) => Some(read),
        };
        let Some(read) = read else {
            if fate.borrow().is_dead {
                std::future::pending::<()>().await;
            }
            return;
        };
        let Ok(n @ 1..) = read else { return };
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
