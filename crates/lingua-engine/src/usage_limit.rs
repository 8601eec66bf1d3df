//! How much each tenant and each token uses of this instance.
//!
//! Start at [`UsageLimiter::take`]. What is used counts for the tenant and, if its token has limits
//! of its own, for the token; it is given back by dropping [`HeldUsage`]. So one caller that has
//! reached a limit takes nothing from others.
//!
//! Invariant: a count is the sum of all [`HeldUsage`] of its owner, and never above its limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lingua_core::{Tenant, UsageLimits, named_enum};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{EngineMetrics, Labels};
use crate::options::Bounds;
use crate::session::SecretHash;
use crate::tenants::TenantTable;

/// Streams of `/v1/events` of a tenant that names no limit.
const EVENT_STREAMS_DEFAULT: usize = 100;

/// Owners in memory before those that use nothing are forgotten.
const OWNERS_KEPT: usize = 1024;

named_enum! {
    /// What is limited. The names are those of the settings.
    pub enum Usage {
        /// Jobs that run or wait.
        OpenJobs = "open_jobs",
        /// Their bytes, with their audio.
        OpenBytes = "open_bytes",
        /// Bytes of those that wait for a slot, with their audio.
        WaitingBytes = "waiting_bytes",
        /// Sessions that are open at once.
        Sessions = "sessions",
        /// Streams of `/v1/events`.
        EventStreams = "event_streams",
    }
}

const KINDS: usize = 5;

impl Usage {
    fn limit(self, limits: &UsageLimits) -> Option<usize> {
        match self {
            Self::OpenJobs => limits.open_jobs,
            Self::OpenBytes => limits.open_bytes,
            Self::WaitingBytes => limits.waiting_bytes,
            Self::Sessions => limits.sessions,
            Self::EventStreams => limits.event_streams,
        }
    }
}

/// A token with limits of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitedToken {
    /// The SHA-256 of its name, or of the token if it has none.
    pub hash: SecretHash,
    /// What its holder may use.
    pub limits: UsageLimits,
}

/// A limit is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{scope} may have {limit} {kind} at a time ({kind}); try again when some have ended")]
pub struct OverLimit {
    /// `this token` or the tenant.
    pub scope: String,
    /// What is limited.
    pub kind: Usage,
    /// How many of these the tenant or the token may have.
    pub limit: usize,
}

impl OverLimit {
    /// The error code that users see.
    pub fn code(&self) -> &'static str {
        "RATE_LIMITED"
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Tenant(Tenant),
    Token(SecretHash),
}

#[derive(Debug, Default)]
struct Counts {
    of_kind: [AtomicUsize; KINDS],
    /// Shows the open jobs of a tenant.
    open_jobs: Option<Gauge>,
}

/// What is used, until it is dropped.
#[derive(Debug)]
pub struct HeldUsage {
    counts: Arc<Counts>,
    /// The same for the token.
    of_token: Option<Arc<Counts>>,
    amounts: [usize; KINDS],
}

impl HeldUsage {
    /// Adds what else the same owner uses.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.counts, &other.counts), "the usage of another tenant");
        let others = std::mem::take(&mut other.amounts);
        self.amounts.iter_mut().zip(others).for_each(|(amount, other)| *amount += other);
    }

    fn add(counts: &Counts, kind: Usage, amount: usize, limit: Option<usize>) -> Result<(), usize> {
        let limit = limit.unwrap_or(usize::MAX);
        let more = |used: usize| used.checked_add(amount).filter(|more| *more <= limit);
        let count = &counts.of_kind[kind as usize];
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| limit)?;
        if let (Usage::OpenJobs, Some(gauge)) = (kind, &counts.open_jobs) {
            gauge.inc_by(amount as i64);
        }
        Ok(())
    }

    fn give_back(counts: &Counts, amounts: &[usize; KINDS]) {
        for (count, &amount) in counts.of_kind.iter().zip(amounts) {
            count.fetch_sub(amount, Ordering::Relaxed);
        }
        if let Some(gauge) = &counts.open_jobs {
            gauge.dec_by(amounts[Usage::OpenJobs as usize] as i64);
        }
    }
}

impl Drop for HeldUsage {
    fn drop(&mut self) {
        Self::give_back(&self.counts, &self.amounts);
        if let Some(of_token) = &self.of_token {
            Self::give_back(of_token, &self.amounts);
        }
    }
}

/// What every tenant and every limited token uses.
#[derive(Debug)]
pub struct UsageLimiter {
    rules: TenantTable,
    /// Of a tenant that names none, while there are several.
    shared: UsageLimits,
    owners: Mutex<HashMap<Owner, Arc<Counts>>>,
    open_jobs: Family<Labels, Gauge>,
    refused: Family<Labels, Counter>,
}

impl UsageLimiter {
    pub(crate) fn new(rules: TenantTable, bounds: &Bounds, metrics: &EngineMetrics) -> Self {
        // Half of the instance is more than a tenant's share, and leaves room for the others.
        let shared = UsageLimits {
            open_jobs: Some(bounds.live_jobs_max / 2),
            open_bytes: Some(bounds.open_bytes_max / 2 + bounds.audio_bytes_max / 2),
            waiting_bytes: Some(bounds.waiting_bytes_max / 2),
            ..UsageLimits::default()
        };
        Self {
            rules,
            shared,
            owners: Mutex::default(),
            open_jobs: metrics.tenant_open_jobs.clone(),
            refused: metrics.usage_refused.clone(),
        }
    }

    /// The limits in force for a tenant.
    pub fn limits_of(&self, tenant: Tenant) -> UsageLimits {
        let own = self.rules.rules(tenant).limits;
        let streams = own.event_streams.unwrap_or(EVENT_STREAMS_DEFAULT);
        let own = UsageLimits { event_streams: Some(streams), ..own };
        if !self.rules.has_several() {
            return own;
        }
        UsageLimits {
            open_jobs: own.open_jobs.or(self.shared.open_jobs),
            open_bytes: own.open_bytes.or(self.shared.open_bytes),
            waiting_bytes: own.waiting_bytes.or(self.shared.waiting_bytes),
            ..own
        }
    }

    /// Most node ids that a tenant may register through this instance.
    pub fn nodes_max_of(&self, tenant: Tenant) -> Option<usize> {
        self.rules.rules(tenant).nodes_max
    }

    /// How much a tenant uses now.
    pub fn used(&self, tenant: Tenant, kind: Usage) -> usize {
        let owners = self.owners.lock();
        let counts = owners.get(&Owner::Tenant(tenant));
        counts.map_or(0, |counts| counts.of_kind[kind as usize].load(Ordering::Relaxed))
    }

    /// How much of this kind is left for a tenant and its token; `None` without a limit.
    pub fn left(&self, tenant: Tenant, token: Option<&LimitedToken>, kind: Usage) -> Option<usize> {
        let left = |owner, limits: &UsageLimits| {
            let owners = self.owners.lock();
            let used = owners.get(&owner).map_or(0, |counts: &Arc<Counts>| {
                counts.of_kind[kind as usize].load(Ordering::Relaxed)
            });
            kind.limit(limits).map(|limit| limit.saturating_sub(used))
        };
        let of_tenant = left(Owner::Tenant(tenant), &self.limits_of(tenant));
        let of_token = token.and_then(|token| left(Owner::Token(token.hash), &token.limits));
        of_tenant.into_iter().chain(of_token).min()
    }

    /// Takes so much of each kind for a tenant and the token, if that has limits.
    pub fn take(
        &self,
        tenant: Tenant,
        token: Option<&LimitedToken>,
        amounts: &[(Usage, usize)],
    ) -> Result<HeldUsage, OverLimit> {
        let limits = self.limits_of(tenant);
        let counts = self.counts(Owner::Tenant(tenant));
        let of_token = token.map(|token| self.counts(Owner::Token(token.hash)));
        // Dropping these gives back what was taken before a refusal.
        let mut tenants = HeldUsage { counts, of_token: None, amounts: [0; KINDS] };
        let mut tokens =
            of_token.map(|counts| HeldUsage { counts, of_token: None, amounts: [0; KINDS] });
        for &(kind, amount) in amounts {
            let refuse = |scope: String, limit| {
                self.count_refused(tenant, kind);
                OverLimit { scope, kind, limit }
            };
            HeldUsage::add(&tenants.counts, kind, amount, kind.limit(&limits))
                .map_err(|limit| refuse(format!("tenant {tenant}"), limit))?;
            tenants.amounts[kind as usize] += amount;
            let (Some(held), Some(token)) = (&mut tokens, token) else { continue };
            HeldUsage::add(&held.counts, kind, amount, kind.limit(&token.limits))
                .map_err(|limit| refuse("this token".to_owned(), limit))?;
            held.amounts[kind as usize] += amount;
        }
        if let Some(mut tokens) = tokens {
            tokens.amounts = [0; KINDS];
            tenants.of_token = Some(Arc::clone(&tokens.counts));
        }
        Ok(tenants)
    }

    fn counts(&self, owner: Owner) -> Arc<Counts> {
        let mut owners = self.owners.lock();
        if let Some(counts) = owners.get(&owner) {
            return Arc::clone(counts);
        }
        if owners.len() >= OWNERS_KEPT {
            owners.retain(|_, counts| Arc::strong_count(counts) > 1);
        }
        let open_jobs = match owner {
            Owner::Tenant(tenant) => {
                let labels = vec![("tenant", self.label(tenant))];
                Some(self.open_jobs.get_or_create_owned(&labels))
            }
            Owner::Token(_) => None,
        };
        let counts = Arc::new(Counts { open_jobs, ..Counts::default() });
        owners.insert(owner, Arc::clone(&counts));
        counts
    }

    fn count_refused(&self, tenant: Tenant, kind: Usage) {
        let labels = vec![("tenant", self.label(tenant)), ("limit", kind.as_str().to_owned())];
        self.refused.get_or_create(&labels).inc();
    }

    /// Only tenants of the configuration get a label of their own.
    fn label(&self, tenant: Tenant) -> String {
        let is_known = tenant == Tenant::default() || self.rules.knows(tenant);
        if is_known { tenant.to_string() } else { "other".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use lingua_core::TenantRules;
    use prometheus_client::registry::Registry;

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn limiter(limits: UsageLimits) -> UsageLimiter {
        let rules = TenantRules { limits, ..TenantRules::default() };
        let table = TenantTable::new([(tenant("a"), rules), (tenant("b"), TenantRules::default())]);
        let bounds = Bounds { live_jobs_max: 10, ..Bounds::default() };
        UsageLimiter::new(table, &bounds, &EngineMetrics::new(&mut Registry::default()))
    }

    #[test]
    fn a_tenant_at_its_limit_costs_nobody_else_anything() {
        let limits = UsageLimits { open_jobs: Some(2), ..UsageLimits::default() };
        let limiter = limiter(limits);
        let take = |name| limiter.take(tenant(name), None, &[(Usage::OpenJobs, 1)]);
        let held = [take("a").unwrap(), take("a").unwrap()];
        let refused = take("a").unwrap_err();
        assert_eq!((refused.limit, refused.code()), (2, "RATE_LIMITED"));
        assert!(refused.to_string().contains("open_jobs"), "{refused}");
        assert!(take("b").is_ok());
        drop(held);
        assert_eq!(limiter.used(tenant("a"), Usage::OpenJobs), 0);
        assert!(take("a").is_ok());
    }

    #[test]
    fn a_token_lowers_the_limit_of_its_tenant_for_itself_only() {
        let limiter = limiter(UsageLimits::default());
        let limits = UsageLimits { open_bytes: Some(100), ..UsageLimits::default() };
        let token = LimitedToken { hash: [1; 32], limits };
        let job = |token, bytes| {
            limiter.take(tenant("a"), token, &[(Usage::OpenJobs, 1), (Usage::OpenBytes, bytes)])
        };
        let mut held = job(Some(&token), 60).unwrap();
        assert_eq!(job(Some(&token), 60).unwrap_err().scope, "this token");
        assert_eq!(limiter.used(tenant("a"), Usage::OpenJobs), 1, "nothing is left of a refusal");
        held.absorb(job(Some(&token), 40).unwrap());
        assert!(job(Some(&token), 1).is_err() && job(None, 60).is_ok());
        drop(held);
        assert!(job(Some(&token), 100).is_ok());
    }

    #[test]
    fn one_of_several_tenants_may_use_half_of_the_instance() {
        let limiter = limiter(UsageLimits::default());
        assert_eq!(limiter.limits_of(tenant("b")).open_jobs, Some(5));
        let alone = TenantTable::default();
        let metrics = EngineMetrics::new(&mut Registry::default());
        let limiter = UsageLimiter::new(alone, &Bounds::default(), &metrics);
        assert_eq!(limiter.limits_of(tenant("b")).open_jobs, None);
    }

    #[test]
    fn labels_are_bounded() {
        let limiter = limiter(UsageLimits::default());
        assert_eq!(limiter.label(tenant("a")), "a");
        assert_eq!(limiter.label(Tenant::default()), "default");
        assert_eq!(limiter.label(tenant("somebody")), "other");
    }
}
