//! The contract over Redis.
//!
//! Start at [`RedisStore`]; each operation is in the file of its part.

use std::collections::BTreeMap;
use std::sync::Arc;

use lingua_core::{CellId, Epoch, InstanceId, JobId, NodeId, Rules, Term};
use lingua_store::contract::{
    AdvanceReply, AdvanceRequest, AnnounceReply, AnnounceRequest, AssignRequest, BusDelivery,
    Bytes, CellRecord, Changes, CommitReply, CreateReply, ElectReply, ElectRequest, Envelope,
    Freed, HeartbeatReply, HeartbeatRequest, Incarnation, InstanceRecord, JobFilter, JobRecord,
    LeaseKey, NewJob, NodeCommand, NodeCommandReply, Place, PublishReply, PublishRequest,
    PublishedTable, ReapReply, RegisterReply, RegisterRequest, ReserveReply, ReserveRequest,
    SaveSessionReply, SaveSessionRequest, SessionRecord, StoreIdentity,
};
use lingua_store::{Clock, ManualClock, Result, Store, StoreLimits};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::connect::Connector;
use crate::connection::Connection;
use crate::error::ConnectError;
use crate::identity::Servers;
use crate::keys::Keys;
use crate::options::RedisOptions;

/// The store over Redis or Valkey. Clones share the connection.
#[derive(Debug, Clone)]
pub struct RedisStore {
    pub(crate) connection: Arc<Connection>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) rules: Rules,
    pub(crate) limits: StoreLimits,
    clock: Option<ManualClock>,
    /// The name of the feed that was read last.
    pub(crate) feed_name: Arc<Mutex<Option<String>>>,
}

impl RedisStore {
    /// Checks the settings and prepares the connection; does not wait for a server. While none answers,
    /// every operation is refused, and as soon as one does, they work.
    ///
    /// Must be called within a Tokio runtime.
    pub fn open(options: RedisOptions) -> std::result::Result<Self, ConnectError> {
        let connector = Connector::new(&options);
        connector.check().map_err(|error| ConnectError::Settings(error.to_string()))?;
        let connection = Connection::new(connector, options.timeouts);
        watch_identity(&connection, &options);
        Ok(Self {
            connection,
            keys: Arc::new(Keys::new(&options.key_prefix)),
            rules: options.rules,
            limits: options.limits,
            clock: options.clock,
            feed_name: Arc::default(),
        })
    }

    /// Opens the store and waits until a server has answered.
    pub async fn connect(options: RedisOptions) -> std::result::Result<Self, ConnectError> {
        let store = Self::open(options)?;
        store.ping().await?;
        Ok(store)
    }

    /// Whether a server answers, and says so.
    pub async fn ping(&self) -> Result<()> {
        self.newest_change().await.map(drop)
    }

    /// What each master says of itself (`INFO section`), by address; a single server has none.
    pub async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        self.connection.info(section).await
    }

    /// Who the servers are. When `changes` rises, writes that were answered may be forgotten.
    pub fn watch_servers(&self) -> watch::Receiver<Servers> {
        self.connection.identity.subscribe()
    }

    /// The time for the scripts: 0 means the server's own.
    pub(crate) fn script_ms(&self) -> u64 {
        self.clock.as_ref().map_or(0, ManualClock::now_ms)
    }
}

/// Looks at the servers once in a while, for as long as somebody has the store.
fn watch_identity(connection: &Arc<Connection>, options: &RedisOptions) {
    let (connection, pause) = (Arc::downgrade(connection), options.timeouts.identity);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(pause).await;
            let Some(connection) = connection.upgrade() else { return };
            connection.check_identity().await;
        }
    });
}

impl Store for RedisStore {
    fn identity(&self) -> StoreIdentity {
        StoreIdentity(self.connection.identity.changes())
    }

    async fn now_ms(&self) -> Result<u64> {
        self.clock_ms().await
    }

    async fn assign(&self, request: AssignRequest) -> Result<Place> {
        self.assign_place(request).await
    }

    async fn locate(&self, node: &NodeId) -> Result<Option<Place>> {
        self.locate_node(node).await
    }

    async fn release(&self, node: &NodeId, epoch: Epoch) -> Result<bool> {
        self.release_place(node, epoch).await
    }

    async fn cells(&self) -> Result<Vec<CellId>> {
        self.cells_with_nodes().await
    }

    async fn register(&self, registration: RegisterRequest) -> Result<RegisterReply> {
        self.register_node(registration).await
    }

    async fn heartbeat(&self, beat: HeartbeatRequest) -> Result<HeartbeatReply> {
        self.beat(beat).await
    }

    async fn set_state(&self, place: Place, order: NodeCommand) -> Result<NodeCommandReply> {
        self.order(place, order).await
    }

    async fn reserve(&self, cell: CellId, request: ReserveRequest) -> Result<ReserveReply> {
        self.reserve_slot(cell, &request).await
    }

    async fn commit(&self, cell: CellId, key: LeaseKey, run_lease_ms: u64) -> Result<CommitReply> {
        self.commit_lease(cell, key, run_lease_ms).await
    }

    async fn finish(&self, cell: CellId, key: LeaseKey) -> Result<Option<Freed>> {
        self.finish_lease(cell, key).await
    }

    async fn reap(&self, cell: CellId, limit: usize) -> Result<ReapReply> {
        self.reap_cell(cell, limit).await
    }

    async fn view(&self, cell: CellId) -> Result<CellRecord> {
        self.view_cell(cell).await
    }

    async fn elect(&self, candidate: ElectRequest) -> Result<ElectReply> {
        self.take_lead(candidate).await
    }

    async fn resign(&self, instance: &InstanceId, term: Term) -> Result<bool> {
        self.give_up_lead(instance, term).await
    }

    async fn publish(&self, table: PublishRequest) -> Result<PublishReply> {
        self.publish_table(table).await
    }

    async fn table(&self) -> Result<Option<PublishedTable>> {
        self.published_table().await
    }

    async fn create_job(&self, job: NewJob) -> Result<CreateReply> {
        self.create(job).await
    }

    async fn advance_job(&self, step: AdvanceRequest) -> Result<AdvanceReply> {
        self.advance(step).await
    }

    async fn job(&self, job: JobId) -> Result<Option<JobRecord>> {
        self.find_job(job).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        self.list_jobs(filter).await
    }

    async fn claim_orphans(&self, heir: &InstanceId, limit: usize) -> Result<Vec<JobRecord>> {
        self.claim(heir, limit).await
    }

    async fn announce(&self, presence: AnnounceRequest) -> Result<AnnounceReply> {
        self.announce_instance(presence).await
    }

    async fn withdraw(&self, instance: &InstanceId, incarnation: Incarnation) -> Result<bool> {
        self.withdraw_instance(instance, incarnation).await
    }

    async fn save_session(&self, session: SaveSessionRequest) -> Result<SaveSessionReply> {
        self.write_session(session).await
    }

    async fn session(&self, id: &str) -> Result<Option<SessionRecord>> {
        self.read_session(id).await
    }

    async fn instances(&self) -> Result<Vec<InstanceRecord>> {
        self.known_instances().await
    }

    async fn send(&self, to: &InstanceId, message: Bytes) -> Result<BusDelivery> {
        self.send_message(to, message).await
    }

    async fn receive(&self, me: &InstanceId, after: u64, limit: usize) -> Result<Vec<Envelope>> {
        self.receive_messages(me, after, limit).await
    }

    async fn feed_head(&self) -> Result<u64> {
        self.newest_change().await
    }

    async fn changes(&self, after: u64, limit: usize) -> Result<Changes> {
        self.changes_after(after, limit).await
    }
}
