//! All sessions of this instance.
//!
//! Start at [`Sessions::start`] and [`Sessions::resume`].
//!
//! Invariant: a session counts towards its token's limit for exactly as long as it is registered.

use std::fmt;
use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::session::SessionPlan;
use lingua_core::{JobId, Tenant};
use lingua_store::Store;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::connection::{ClientConnection, CloseReason};
use super::live::LiveSession;
use super::options::{SessionOptions, SessionRefusal};
use super::record::StoredSession;
use crate::usage_limit::{LimitedToken, Usage};
use crate::{Handle, Timer};

/// How often to try to resume a session while others resume it at the same moment.
const RESUME_ATTEMPTS: u32 = 4;

/// The SHA-256 of a token or of a resume secret.
pub type SecretHash = [u8; 32];

/// A session to start.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// The id that the client resumes with; unique in the cluster.
    pub id: Arc<str>,
    /// The hash of the secret that the client resumes with.
    pub secret: SecretHash,
    /// The hash of the client's token; `None` if the server has no tokens.
    pub token: Option<SecretHash>,
    /// To whom the session belongs.
    pub tenant: Tenant,
    /// The client's token, if that has limits of its own.
    pub limited: Option<Arc<LimitedToken>>,
    /// What the client asked for.
    pub plan: SessionPlan,
}

/// Makes the ids of segments' jobs, unique in the cluster.
pub struct JobIdSource(Box<dyn Fn() -> JobId + Send + Sync>);

impl JobIdSource {
    /// Calls `next` for each new id.
    pub fn new(next: impl Fn() -> JobId + Send + Sync + 'static) -> Self {
        Self(Box::new(next))
    }

    pub(super) fn next(&self) -> JobId {
        (self.0)()
    }
}

impl fmt::Debug for JobIdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobIdSource")
    }
}

impl NewSession {
    fn check_resumed_by(
        &self,
        (secret, tenant): (&SecretHash, Tenant),
    ) -> Result<(), SessionRefusal> {
        match (self.tenant == tenant, is_equal(&self.secret, secret)) {
            (true, true) => Ok(()),
            (true, false) => Err(SessionRefusal::NotFound),
            (false, _) => Err(SessionRefusal::OtherTenant),
        }
    }
}

/// All sessions of this instance. Clones share them.
#[derive(Debug)]
pub struct Sessions<S, T> {
    registry: Arc<SessionRegistry<S, T>>,
}

impl<S, T> Clone for Sessions<S, T> {
    fn clone(&self) -> Self {
        Self { registry: Arc::clone(&self.registry) }
    }
}

#[derive(Debug)]
pub(super) struct SessionRegistry<S, T> {
    pub(super) engine: Handle<S, T>,
    pub(super) options: SessionOptions,
    pub(super) job_ids: JobIdSource,
    index: Mutex<SessionIndex<S, T>>,
    gauge: Gauge,
}

#[derive(Debug)]
struct SessionIndex<S, T> {
    by_id: HashMap<Arc<str>, Arc<LiveSession<S, T>>>,
    count_by_token: HashMap<SecretHash, usize>,
}

impl<S: Store, T: Timer> Sessions<S, T> {
    /// No sessions yet; `gauge` shows how many there are.
    pub fn new(
        engine: Handle<S, T>,
        options: SessionOptions,
        job_ids: JobIdSource,
        gauge: Gauge,
    ) -> Self {
        let index = SessionIndex { by_id: HashMap::new(), count_by_token: HashMap::new() };
        let index = Mutex::new(index);
        Self { registry: Arc::new(SessionRegistry { engine, options, job_ids, index, gauge }) }
    }

    /// How sessions are set up.
    pub fn options(&self) -> &SessionOptions {
        &self.registry.options
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.registry.index.lock().by_id.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of tokens that have sessions.
    pub fn tokens(&self) -> usize {
        self.registry.index.lock().count_by_token.len()
    }

    /// Number of sessions of a token.
    pub fn of_token(&self, token: &SecretHash) -> usize {
        self.registry.index.lock().count_by_token.get(token).copied().unwrap_or(0)
    }

    /// Drops all sessions, as the end of the process does. Their records stay in the store.
    pub fn drop_all(&self) {
        let mut index = self.registry.index.lock();
        let sessions = std::mem::take(&mut index.by_id);
        index.count_by_token.clear();
        self.registry.gauge.set(0);
        drop(index);
        drop(sessions);
    }

    /// Starts a session.
    pub async fn start(&self, new: NewSession) -> Result<ClientConnection<S, T>, SessionRefusal> {
        let registry = Arc::clone(&self.registry);
        run_to_end(async move {
            registry.check_limits(&registry.index.lock(), new.token.as_ref())?;
            let session = Arc::new(LiveSession::new(registry, new));
            session.save().await?;
            let connection = session.register(0);
            if connection.is_err() {
                session.delete_record().await;
            }
            connection
        })
        .await
    }

    /// Resumes a session for a client that has seen everything up to `last_seq`. An older
    /// connection to the session is closed. To other tenants the session does not exist.
    pub async fn resume(
        &self,
        id: &str,
        (secret, tenant): (&SecretHash, Tenant),
        last_seq: u64,
    ) -> Result<ClientConnection<S, T>, SessionRefusal> {
        let (registry, id, secret) = (Arc::clone(&self.registry), id.to_owned(), *secret);
        run_to_end(async move {
            // If several connections resume the session at once, the latest one gets it.
            for _ in 0..RESUME_ATTEMPTS {
                if let Some(connection) =
                    registry.try_resume(&id, (&secret, tenant), last_seq).await?
                {
                    return Ok(connection);
                }
            }
            Err(SessionRefusal::Superseded)
        })
        .await
    }
}

/// Runs the future to its end even if the caller stops waiting: a session that is registered half
/// way would never be removed.
async fn run_to_end<A: Send + 'static>(
    work: impl Future<Output = Result<A, SessionRefusal>> + Send + 'static,
) -> Result<A, SessionRefusal> {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        let detail = "this process is ending".to_owned();
        Err(lingua_store::StoreError::Unavailable { detail }.into())
    })
}

impl<S: Store, T: Timer> SessionRegistry<S, T> {
    /// Resumes a session; `None` if another connection took it at the same moment.
    async fn try_resume(
        self: &Arc<Self>,
        id: &str,
        shown: (&SecretHash, Tenant),
        last_seq: u64,
    ) -> Result<Option<ClientConnection<S, T>>, SessionRefusal> {
        let session = self.index.lock().by_id.get(id).cloned();
        let Some(session) = session else { return self.take_over(id, shown, last_seq).await };
        session.info.check_resumed_by(shown)?;
        // Another instance may have taken the session over; then the record cannot be saved.
        let is_ours = session.save().await? && !session.is_closed();
        Ok(is_ours.then(|| ClientConnection::new(session, last_seq)))
    }

    /// Takes over a session of another instance, dead or alive.
    async fn take_over(
        self: &Arc<Self>,
        id: &str,
        shown: (&SecretHash, Tenant),
        last_seq: u64,
    ) -> Result<Option<ClientConnection<S, T>>, SessionRefusal> {
        let identity = self.engine.store.identity();
        let found = self.engine.store.session(id).await?.ok_or(SessionRefusal::NotFound)?;
        let record = StoredSession::decode(&found.body).ok_or(SessionRefusal::NotFound)?;
        let info = record.session(id).ok_or(SessionRefusal::NotFound)?;
        info.check_resumed_by(shown)?;
        self.check_limits(&self.index.lock(), info.token.as_ref())?;
        let registry = Arc::clone(self);
        let session = {
            let stored = (found.version, identity);
            LiveSession::taken_over(registry, info, stored, &record, last_seq)
        };
        let session = Arc::new(session);
        if !session.save().await? {
            return Ok(None);
        }
        tracing::info!(session_id = id, "took over a session");
        session.register(last_seq).map(Some)
    }

    fn check_limits(
        &self,
        index: &SessionIndex<S, T>,
        token: Option<&SecretHash>,
    ) -> Result<(), SessionRefusal> {
        let of_token = token.and_then(|token| index.count_by_token.get(token)).copied();
        let limits = [
            ("this instance", index.by_id.len(), self.options.sessions_max),
            ("this token", of_token.unwrap_or(0), self.options.per_token_max),
        ];
        match limits.into_iter().find(|(_, count, limit)| count >= limit) {
            Some((scope, _, limit)) => Err(SessionRefusal::TooManySessions { scope, limit }),
            None => Ok(()),
        }
    }

    /// Adds a session, replacing an older one of the same id.
    pub(super) fn insert(&self, session: &Arc<LiveSession<S, T>>) -> Result<(), SessionRefusal> {
        let older = self.index.lock().by_id.get(&session.info.id).cloned();
        if let Some(older) = older {
            older.close(CloseReason::Superseded);
        }
        let mut index = self.index.lock();
        self.check_limits(&index, session.info.token.as_ref())?;
        *session.usage.lock() = Some(session.take_usage(Usage::Sessions, 1)?);
        if let Some(token) = session.info.token {
            *index.count_by_token.entry(token).or_insert(0) += 1;
        }
        index.by_id.insert(Arc::clone(&session.info.id), Arc::clone(session));
        self.gauge.set(index.by_id.len() as i64);
        Ok(())
    }

    pub(super) fn remove(&self, session: &LiveSession<S, T>) {
        let mut index = self.index.lock();
        let known = index.by_id.get(&session.info.id);
        if !known.is_some_and(|known| std::ptr::eq(&**known, session)) {
            return;
        }
        index.by_id.remove(&session.info.id);
        *session.usage.lock() = None;
        if let Some(token) = &session.info.token
            && let Some(count) = index.count_by_token.get_mut(token)
        {
            *count -= 1;
            if *count == 0 {
                index.count_by_token.remove(token);
            }
        }
        self.gauge.set(index.by_id.len() as i64);
    }
}

/// Compares in constant time.
fn is_equal(a: &SecretHash, b: &SecretHash) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
