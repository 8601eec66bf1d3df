//! The embedded store with faults that a test switches on.
//!
//! Start at [`FlakyStore::lose_reply`].

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Tenant, Term};
use lingua_engine::TokioTimer;
use lingua_store::contract::*;
use lingua_store::{Embedded, Result, Store, StoreError};
use parking_lot::Mutex;

/// Clones share the store and its faults.
#[derive(Debug, Clone)]
pub(crate) struct FlakyStore {
    inner: Embedded<TokioTimer>,
    is_unreachable: Arc<AtomicBool>,
    /// The operation whose next reply is lost.
    lost: Arc<Mutex<Option<&'static str>>>,
    /// The operation whose next reply comes late, and by how much.
    late: Arc<Mutex<Option<(&'static str, Duration)>>>,
}

impl FlakyStore {
    pub(crate) fn new(inner: Embedded<TokioTimer>) -> Self {
        let (lost, late) = Default::default();
        Self { inner, is_unreachable: Arc::default(), lost, late }
    }

    /// Carries out the next call of this operation and loses the reply.
    pub(crate) fn lose_reply(&self, operation: &'static str) {
        *self.lost.lock() = Some(operation);
    }

    /// Delays the reply to the next call of this operation, as if the instance were paused.
    pub(crate) fn delay_reply(&self, operation: &'static str, delay: Duration) {
        *self.late.lock() = Some((operation, delay));
    }

    /// Lets every call fail, or succeed again.
    pub(crate) fn set_unreachable(&self, is_unreachable: bool) {
        self.is_unreachable.store(is_unreachable, Ordering::Relaxed);
    }

    fn before(&self) -> Result<()> {
        match self.is_unreachable.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable { detail: "switched off".to_owned() }),
            false => Ok(()),
        }
    }

    fn after<R>(&self, operation: &str, reply: Result<R>) -> Result<R> {
        match self.lost.lock().take_if(|lost| *lost == operation) {
            Some(_) => Err(StoreError::TimedOut { waited_ms: 1 }),
            None => reply,
        }
    }
}

impl Deref for FlakyStore {
    type Target = Embedded<TokioTimer>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $Type:ty),*) -> $Reply:ty;)*) => {
        impl Store for FlakyStore {
            fn identity(&self) -> StoreIdentity {
                self.inner.identity()
            }

            fn may_forget(&self) -> bool {
                self.inner.may_forget()
            }

            $(async fn $name(&self, $($arg: $Type),*) -> Result<$Reply> {
                self.before()?;
                let reply = Store::$name(&self.inner, $($arg),*).await;
                let late = self.late.lock().take_if(|(late, _)| *late == stringify!($name));
                if let Some((_, delay)) = late {
                    tokio::time::sleep(delay).await;
                }
                self.after(stringify!($name), reply)
            })*
        }
    };
}

lingua_store::with_store_operations!(forward);
