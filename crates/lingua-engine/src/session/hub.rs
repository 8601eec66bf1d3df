//! All sessions of this instance.
//!
//! Start at [`Sessions::start`] and [`Sessions::resume`]. Invariant: a session is counted for its holder for exactly as long
//! as it is known here.

use std::sync::Arc;

use hashbrown::HashMap;
use lingua_core::session::Format;
use lingua_store::Store;
use lingua_store::contract::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

use super::attached::{Attached, Over};
use super::options::{Compose, SessionError, SessionOptions};
use super::record::Record;
use super::talk::Talk;
use crate::clock::Timer;
use crate::handle::Handle;

/// How often somebody tries to resume a session that others resume in the same moment.
const RESUME_TRIES: u32 = 4;

/// The hash of a token.
pub type Holder = [u8; 32];

/// A session that begins.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its name.
    pub id: Arc<str>,
    /// The hash of the secret with which to come back.
    pub secret: Holder,
    /// Whose it is, if anybody has to say who it is.
    pub holder: Option<Holder>,
    /// What it was started with, as the edge can read it.
    pub plan: Bytes,
    /// How audio is coded.
    pub format: Format,
    /// Parts of texts are wanted.
    pub partials: bool,
    /// The last texts go along with each job.
    pub context: bool,
}

/// All sessions of this instance. Clones are the same.
#[derive(Debug)]
pub struct Sessions<S, T> {
    pub(super) hub: Arc<Hub<S, T>>,
}

impl<S, T> Clone for Sessions<S, T> {
    fn clone(&self) -> Self {
        Self { hub: Arc::clone(&self.hub) }
    }
}

#[derive(Debug)]
pub(super) struct Hub<S, T> {
    pub(super) engine: Handle<S, T>,
    pub(super) options: SessionOptions,
    pub(super) compose: Arc<dyn Compose>,
    known: Mutex<Known<S, T>>,
    gauge: Gauge,
}

#[derive(Debug)]
struct Known<S, T> {
    by_id: HashMap<Arc<str>, Arc<Talk<S, T>>>,
    by_holder: HashMap<Holder, usize>,
}

impl<S: Store, T: Timer> Sessions<S, T> {
    /// None yet; how many there are is shown by the gauge.
    pub fn new(
        engine: Handle<S, T>,
        options: SessionOptions,
        compose: Arc<dyn Compose>,
        gauge: Gauge,
    ) -> Self {
        let known = Known { by_id: HashMap::new(), by_holder: HashMap::new() };
        let hub = Hub { engine, options, compose, known: Mutex::new(known), gauge };
        Self { hub: Arc::new(hub) }
    }

    /// How they are set up.
    pub fn options(&self) -> &SessionOptions {
        &self.hub.options
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hub.known.lock().by_id.len()
    }

    /// How many tokens have one.
    pub fn holders(&self) -> usize {
        self.hub.known.lock().by_holder.len()
    }

    /// Lets go of all of them, as the end of a process does: the store still knows them.
    pub fn forget_all(&self) {
        let mut known = self.hub.known.lock();
        let talks = std::mem::take(&mut known.by_id);
        known.by_holder.clear();
        self.hub.gauge.set(0);
        drop(known);
        drop(talks);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins a session.
    pub async fn start(&self, new: NewSession) -> Result<Attached<S, T>, SessionError> {
        let sessions = self.clone();
        finish(async move {
            sessions.hub.has_room(&sessions.hub.known.lock(), new.holder.as_ref())?;
            let talk = Arc::new(Talk::new(Arc::clone(&sessions.hub), new));
            talk.save().await?;
            let attached = sessions.attach(Arc::clone(&talk), 0);
            if attached.is_err() {
                talk.unsave().await;
            }
            attached
        })
        .await
    }

    /// Goes on with a session whose connection broke. A connection that still has it loses it.
    pub async fn resume(
        &self,
        id: &str,
        secret: &Holder,
        last_seq: u64,
    ) -> Result<Attached<S, T>, SessionError> {
        let (sessions, id, secret) = (self.clone(), id.to_owned(), *secret);
        finish(async move {
            // Whoever else resumes it meanwhile loses it; who is later is right.
            for _ in 0..RESUME_TRIES {
                if let Some(attached) = sessions.try_resume(&id, &secret, last_seq).await? {
                    return Ok(attached);
                }
            }
            Err(SessionError::Superseded)
        })
        .await
    }

    /// Goes on with a session, unless somebody else does in the same moment.
    async fn try_resume(
        &self,
        id: &str,
        secret: &Holder,
        last_seq: u64,
    ) -> Result<Option<Attached<S, T>>, SessionError> {
        let known = self.hub.known.lock().by_id.get(id).cloned();
        let Some(talk) = known else { return self.take_over(id, secret, last_seq).await };
        if !is_same(&talk.new.secret, secret) {
            return Err(SessionError::NotFound);
        }
        // Another instance may have gone on with it meanwhile.
        let is_ours = talk.save().await? && !talk.is_over();
        Ok(is_ours.then(|| Attached::new(talk, last_seq)))
    }

    /// Goes on with a session of another instance, dead or alive.
    async fn take_over(
        &self,
        id: &str,
        secret: &Holder,
        last_seq: u64,
    ) -> Result<Option<Attached<S, T>>, SessionError> {
        let store = &self.hub.engine.shared.store;
        let found = store.session(id).await?.ok_or(SessionError::NotFound)?;
        let record = Record::read(&found.body).ok_or(SessionError::NotFound)?;
        if !is_same(record.secret(), secret) {
            return Err(SessionError::NotFound);
        }
        self.hub.has_room(&self.hub.known.lock(), record.holder())?;
        let hub = Arc::clone(&self.hub);
        let talk = Arc::new(Talk::taken_over(hub, id, found.version, &record, last_seq));
        if !talk.save().await? {
            return Ok(None);
        }
        tracing::info!(session_id = id, "took over a session");
        self.attach(talk, last_seq).map(Some)
    }

    /// Makes a session known here that the store knows as this instance's.
    fn attach(&self, talk: Arc<Talk<S, T>>, last_seq: u64) -> Result<Attached<S, T>, SessionError> {
        self.hub.admit(&talk)?;
        talk.follow_all();
        tokio::spawn(Arc::clone(&talk).keep());
        Ok(Attached::new(talk, last_seq))
    }
}

/// Does it to its end, whether or not somebody waits: half a session would never be forgotten.
async fn finish<A: Send + 'static>(
    work: impl Future<Output = Result<A, SessionError>> + Send + 'static,
) -> Result<A, SessionError> {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        let detail = "this process is ending".to_owned();
        Err(lingua_store::StoreError::Unavailable { detail }.into())
    })
}

impl<S: Store, T: Timer> Hub<S, T> {
    fn has_room(&self, known: &Known<S, T>, holder: Option<&Holder>) -> Result<(), SessionError> {
        let of_holder = holder.and_then(|holder| known.by_holder.get(holder)).copied();
        let all = ("this instance", known.by_id.len(), self.options.sessions_max);
        let own = ("this token", of_holder.unwrap_or(0), self.options.per_token_max);
        match [all, own].into_iter().find(|(_, count, limit)| count >= limit) {
            Some((what, _, limit)) => Err(SessionError::TooMany { what, limit }),
            None => Ok(()),
        }
    }

    fn admit(&self, talk: &Arc<Talk<S, T>>) -> Result<(), SessionError> {
        let before = self.known.lock().by_id.get(&talk.new.id).cloned();
        if let Some(before) = before {
            before.finish(Over::Superseded);
        }
        let mut known = self.known.lock();
        self.has_room(&known, talk.new.holder.as_ref())?;
        if let Some(holder) = talk.new.holder {
            *known.by_holder.entry(holder).or_insert(0) += 1;
        }
        known.by_id.insert(Arc::clone(&talk.new.id), Arc::clone(talk));
        self.gauge.set(known.by_id.len() as i64);
        Ok(())
    }

    /// A session is over.
    pub(super) fn forget(&self, talk: &Talk<S, T>) {
        let mut known = self.known.lock();
        let is_known = known.by_id.get(&talk.new.id).is_some_and(|k| std::ptr::eq(&**k, talk));
        if !is_known {
            return;
        }
        known.by_id.remove(&talk.new.id);
        if let Some(holder) = &talk.new.holder
            && let Some(count) = known.by_holder.get_mut(holder)
        {
            *count -= 1;
            if *count == 0 {
                known.by_holder.remove(holder);
            }
        }
        self.gauge.set(known.by_id.len() as i64);
    }
}

/// Compares in a time that does not depend on where they differ.
fn is_same(a: &Holder, b: &Holder) -> bool {
    a.iter().zip(b).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}
