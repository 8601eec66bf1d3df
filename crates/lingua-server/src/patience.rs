//! How long a connection may keep the server waiting for its next request.
//!
//! Start at [`Patience`]. Hyper can do this with a timer for each request; here is one for each connection, which
//! looks every now and then whether anything has come. A first request has to be there within the limit, a later one
//! within twice of it.
//!
//! Invariant: a connection that is being answered is never out of time.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a connection's requests begin and end: odd while one of them is being answered.
#[derive(Debug, Default)]
pub(crate) struct Patience(AtomicU64);

impl Patience {
    /// A request has come; it is answered when this is dropped.
    pub(crate) fn begin<P: Deref<Target = Self>>(patience: P) -> Answering<P> {
        patience.0.fetch_add(1, Ordering::Relaxed);
        Answering(patience)
    }

    /// Whether nothing has come since it was last asked, and nothing is being answered.
    pub(crate) fn is_over(&self, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.0.load(Ordering::Relaxed));
        before == *seen && seen.is_multiple_of(2)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Answering<P: Deref<Target = Patience>>(P);

impl<P: Deref<Target = Patience>> Drop for Answering<P> {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_only_when_nothing_came_and_nothing_is_being_answered() {
        let (patience, mut seen) = (Patience::default(), 0);
        assert!(patience.is_over(&mut seen), "no first request");
        let answering = Patience::begin(&patience);
        assert!(!patience.is_over(&mut seen));
        assert!(!patience.is_over(&mut seen), "however long the answer takes");
        drop(answering);
        assert!(!patience.is_over(&mut seen), "it ended since");
        assert!(patience.is_over(&mut seen));
        drop(Patience::begin(&patience));
        assert!(!patience.is_over(&mut seen), "another came and went");
    }
}
