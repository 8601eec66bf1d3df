//! A value that many can watch: tokio's `watch`, except that who waits is woken in order.
//!
//! Tokio's own draws lots to spread its waiters over several lists, from a source that cannot be seeded; then the
//! order in which two callers hear of the same change differs from run to run, and no simulation could repeat
//! what it found.
//!
//! Invariant: a change between looking and waiting is not missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

#[derive(Debug)]
struct Inner<T> {
    value: RwLock<T>,
    changed: Notify,
    closed: AtomicBool,
}

/// Changes the value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Inner<T>>);

/// Watches it.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Inner<T>>);

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The sender is gone, and what was waited for did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// A board that shows this value.
pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let (value, changed, closed) = (RwLock::new(value), Notify::new(), AtomicBool::new(false));
    let inner = Arc::new(Inner { value, changed, closed });
    (Sender(Arc::clone(&inner)), Receiver(inner))
}

impl<T> Sender<T> {
    /// Shows another value.
    pub(crate) fn send_replace(&self, value: T) {
        *self.0.value.write() = value;
        self.0.changed.notify_waiters();
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl<T> Receiver<T> {
    /// What it shows.
    pub(crate) fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read()
    }

    /// Waits until it shows something like that.
    pub(crate) async fn wait_for(&self, is_it: impl Fn(&T) -> bool) -> Result<(), Closed> {
        loop {
            // Listen first, then look: a change between the two is not missed.
            let changed = self.0.changed.notified();
            let closed = self.0.closed.load(Ordering::SeqCst);
            if is_it(&self.0.value.read()) {
                return Ok(());
            }
            if closed {
                return Err(Closed);
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_before_the_wait_and_one_after_it_are_seen() {
        let (sender, receiver) = channel(0);
        sender.send_replace(1);
        assert_eq!(receiver.wait_for(|n| *n == 1).await, Ok(()));
        let waiting = tokio::spawn({
            let receiver = receiver.clone();
            async move { receiver.wait_for(|n| *n == 2).await }
        });
        tokio::task::yield_now().await;
        sender.send_replace(2);
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(*receiver.borrow(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_learns_that_nothing_more_comes() {
        let (sender, receiver) = channel(0);
        let waiting = tokio::spawn({
            let receiver = receiver.clone();
            async move { receiver.wait_for(|n| *n == 1).await }
        });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waiting.await.unwrap(), Err(Closed));
        assert_eq!(receiver.wait_for(|n| *n == 0).await, Ok(()), "the last value stays");
    }
}
