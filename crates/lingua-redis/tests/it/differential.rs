//! Equal histories get equal replies: the same random history runs on the embedded store and on
//! Redis, and every reply of the one is compared with the other's, down to the randomly selected
//! node.

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Rules, Tenant, Term};
use lingua_redis::RedisStore;
use lingua_store::conformance::history;
use lingua_store::contract::*;
use lingua_store::{Embedded, ManualClock, Result, StoreLimits};

use crate::servers::standalone;

/// Calls both stores and compares their replies.
struct Both {
    embedded: Embedded<ManualClock>,
    redis: RedisStore,
}

async fn both(rules: Rules, clock: ManualClock) -> Both {
    let embedded = Embedded::new(rules, StoreLimits::default(), clock.clone());
    Both { embedded, redis: standalone(rules, clock).await }
}

macro_rules! compare_replies {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $Type:ty),*) -> $Reply:ty;)*) => {
        impl Store for Both {
            // An identity means something within one store only.
            fn identity(&self) -> StoreIdentity {
                self.redis.identity()
            }

            $(
                async fn $name(&self, $($arg: $Type),*) -> Result<$Reply> {
                    let embedded = self.embedded.$name($(<$Type>::clone(&$arg)),*).await;
                    let redis = self.redis.$name($(<$Type>::clone(&$arg)),*).await;
                    let equal = stringify!($name) == "receive" || redis == embedded;
                    let (call, args) = (stringify!($name), ($(&$arg,)*));
                    assert!(equal, "{call}{args:?}: {redis:?} is not {embedded:?}");
                    redis
                }
            )*
        }
    };
}

lingua_store::with_store_operations!(compare_replies);

/// Other seeds than the suite's: these are histories that it does not run.
const FIRST_SEED: u64 = 10_000;
/// So many that the rarest kind of reply (full with kept slots) does not hang on a few lucky
/// histories.
const HISTORIES: u64 = 100;

#[tokio::test]
async fn both_stores_give_equal_replies_to_equal_histories_1() {
    history::run(both, FIRST_SEED..FIRST_SEED + HISTORIES).await;
}

#[tokio::test]
async fn both_stores_give_equal_replies_to_equal_histories_2() {
    history::run(both, FIRST_SEED + HISTORIES..FIRST_SEED + 2 * HISTORIES).await;
}

#[tokio::test]
async fn both_stores_give_equal_replies_in_full_cells() {
    history::run_full(both, FIRST_SEED..FIRST_SEED + 4).await;
}
