//! Equal histories get equal replies: the same random history on the embedded store and on Redis, and
//! every reply of the one is compared with the other's, down to the node that chance chose.

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Rules, Term};
use lingua_redis::RedisStore;
use lingua_store::conformance::history;
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, AnnounceReply, AnnounceRequest, AssignRequest, BusDelivery,
    Bytes, CellRecord, Changes, CommitReply, CreateReply, ElectReply, ElectRequest, Envelope,
    Freed, HeartbeatReply, HeartbeatRequest, Incarnation, InstanceRecord, JobFilter, JobRecord,
    LeaseKey, NewJob, NodeCommand, NodeCommandReply, Place, PublishReply, PublishRequest,
    PublishedTable, ReapReply, RegisterReply, RegisterRequest, ReserveReply, ReserveRequest,
    SaveSessionReply, SaveSessionRequest, SessionRecord, StoreIdentity,
};
use lingua_store::{Embedded, ManualClock, Result, Store, StoreLimits};

use crate::servers::standalone;

/// Asks both and compares.
struct Both {
    embedded: Embedded<ManualClock>,
    redis: RedisStore,
}

async fn both(rules: Rules, clock: ManualClock) -> Both {
    let embedded = Embedded::new(rules, StoreLimits::default(), clock.clone());
    Both { embedded, redis: standalone(rules, clock).await }
}

macro_rules! ask_both {
    ($($name:ident($($arg:ident: $Type:ty),*) -> $ScriptReply:ty;)*) => {
        impl Store for Both {
            // Which life it is has a meaning within one store only.
            fn identity(&self) -> StoreIdentity {
                self.redis.identity()
            }

            $(
                async fn $name(&self, $($arg: $Type),*) -> Result<$ScriptReply> {
                    let embedded = self.embedded.$name($(<$Type>::clone(&$arg)),*).await;
                    let redis = self.redis.$name($(<$Type>::clone(&$arg)),*).await;
                    assert_eq!(redis, embedded, "{}{:?}", stringify!($name), ($(&$arg,)*));
                    redis
                }
            )*

            async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
                let (embedded, redis) = (self.embedded.session(id).await, self.redis.session(id).await);
                assert_eq!(redis, embedded, "session {id:?}");
                redis
            }

            // Numbers of messages rise in either store, but are not the same.
            async fn receive(
                &self,
                me: &InstanceId,
                after: u64,
                limit: usize,
            ) -> Result<Vec<Envelope>> {
                self.redis.receive(me, after, limit).await
            }
        }
    };
}

ask_both! {
    now_ms() -> u64;
    assign(request: AssignRequest) -> Place;
    locate(node: &NodeId) -> Option<Place>;
    release(node: &NodeId, epoch: Epoch) -> bool;
    cells() -> Vec<CellId>;
    register(registration: RegisterRequest) -> RegisterReply;
    heartbeat(beat: HeartbeatRequest) -> HeartbeatReply;
    set_state(place: Place, order: NodeCommand) -> NodeCommandReply;
    reserve(cell: CellId, request: ReserveRequest) -> ReserveReply;
    commit(cell: CellId, key: LeaseKey, run_lease_ms: u64) -> CommitReply;
    finish(cell: CellId, key: LeaseKey) -> Option<Freed>;
    reap(cell: CellId, limit: usize) -> ReapReply;
    view(cell: CellId) -> CellRecord;
    elect(candidate: ElectRequest) -> ElectReply;
    resign(instance: &InstanceId, term: Term) -> bool;
    publish(table: PublishRequest) -> PublishReply;
    table() -> Option<PublishedTable>;
    create_job(job: NewJob) -> CreateReply;
    advance_job(step: AdvanceRequest) -> AdvanceReply;
    job(job: JobId) -> Option<JobRecord>;
    jobs(filter: JobFilter) -> Vec<JobRecord>;
    save_session(session: SaveSessionRequest) -> SaveSessionReply;
    claim_orphans(heir: &InstanceId, limit: usize) -> Vec<JobRecord>;
    announce(presence: AnnounceRequest) -> AnnounceReply;
    withdraw(instance: &InstanceId, incarnation: Incarnation) -> bool;
    instances() -> Vec<InstanceRecord>;
    send(to: &InstanceId, message: Bytes) -> BusDelivery;
    feed_head() -> u64;
    changes(after: u64, limit: usize) -> Changes;
}

/// Other seeds than the suite's: these are histories that it does not run.
const FIRST_SEED: u64 = 10_000;
/// So many that the rarest kind of reply (full with kept slots) does not hang on a few lucky histories.
const HISTORIES: u64 = 100;

#[tokio::test]
async fn both_stores_give_equal_replies_to_equal_histories_1() {
    history::run(both, FIRST_SEED..FIRST_SEED + HISTORIES).await;
}

#[tokio::test]
async fn both_stores_give_equal_replies_to_equal_histories_2() {
    history::run(both, FIRST_SEED + HISTORIES..FIRST_SEED + 2 * HISTORIES).await;
}
