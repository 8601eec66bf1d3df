//! The rate limit.
//!
//! Start at `Limiter::check`; `OwnRates` has the limits that tokens and tenants have of their own.
//! Every caller has a bucket that fills at a steady rate. A caller with a known token is identified
//! by it, any other by the address of its connection.
//!
//! Invariant: at most `CALLERS_MAX` buckets are kept. A caller whose bucket was dropped to make
//! room starts with a full one, so that strangers cannot lock anybody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, MonotonicClock, Reference};
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{NotUntil, Quota, RateLimiter};
use lingua_core::Tenant;
use parking_lot::Mutex;

use crate::auth::TokenHash;

/// Most callers whose buckets are kept.
const CALLERS_MAX: usize = 65_536;

/// Bits of an IPv6 address that identify one customer of a network.
const V6_PREFIX_BITS: u32 = 64;

/// How many requests one caller may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests a second in the long run.
    pub per_second: NonZeroU32,
    /// Requests at once.
    pub burst: NonZeroU32,
}

impl RateLimit {
    /// So many in a second, and so many at once; at least one of each.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let at_least_one = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self { per_second: at_least_one(per_second), burst: at_least_one(burst) }
    }
}

/// Requests of the same caller are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RateLimitKey {
    Token(TokenHash),
    /// An IPv4 address, or the network of an IPv6 address.
    Peer(IpAddr),
    Unknown,
}

impl RateLimitKey {
    /// The caller at an address.
    pub(crate) fn at(peer: Option<IpAddr>) -> Self {
        match peer {
            Some(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => Self::Peer(v4.into()),
                None => {
                    let network = v6.to_bits() >> (128 - V6_PREFIX_BITS) << (128 - V6_PREFIX_BITS);
                    Self::Peer(IpAddr::V6(network.into()))
                }
            },
            Some(v4) => Self::Peer(v4),
            None => Self::Unknown,
        }
    }
}

/// Counts the requests of all callers.
#[derive(Debug)]
pub(crate) struct Limiter<C: Clock = MonotonicClock> {
    buckets: RateLimiter<RateLimitKey, Buckets, C, StateInformationMiddleware>,
    clock: C,
}

impl Limiter {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self::with_clock(limit, MonotonicClock)
    }
}

impl<C: Clock + Clone> Limiter<C> {
    fn with_clock(limit: RateLimit, clock: C) -> Self {
        let quota = Quota::per_second(limit.per_second).allow_burst(limit.burst);
        Self { buckets: RateLimiter::new(quota, Buckets::default(), clock.clone()), clock }
    }

    /// Counts a request, and says how many more may follow.
    pub(crate) fn check(&self, caller: RateLimitKey) -> Result<RateState, RateExceeded> {
        let checked = self.buckets.check_key(&caller);
        checked.map(RateState::of).map_err(|until| RateExceeded::of(&until, self.clock.now()))
    }
}

/// What is left of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateState {
    /// Requests at once, if none was sent for a while.
    pub(crate) limit: u32,
    /// Requests that may be sent now.
    pub(crate) remaining: u32,
    /// When all may be sent again.
    pub(crate) reset_ms: u64,
}

/// One request too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    pub(crate) wait_ms: u64,
    pub(crate) limit: u32,
}

fn ceil_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl RateState {
    fn of(snapshot: StateSnapshot) -> Self {
        let quota = snapshot.quota();
        let (limit, remaining) = (quota.burst_size().get(), snapshot.remaining_burst_capacity());
        let used = limit.saturating_sub(remaining);
        Self { limit, remaining, reset_ms: ceil_ms(quota.replenish_interval() * used) }
    }

    /// The one of which less is left.
    pub(crate) fn lower(self, other: Option<Self>) -> Self {
        other.filter(|other| other.remaining < self.remaining).unwrap_or(self)
    }
}

impl RateExceeded {
    fn of<P: Reference>(until: &NotUntil<P>, now: P) -> Self {
        let wait_ms = ceil_ms(until.wait_time_from(now)).max(1);
        Self { wait_ms, limit: until.quota().burst_size().get() }
    }

    pub(crate) fn state(self) -> RateState {
        RateState { limit: self.limit, remaining: 0, reset_ms: self.wait_ms }
    }
}

type OwnRate = RateLimiter<NotKeyed, InMemoryState, MonotonicClock, StateInformationMiddleware>;

/// Who has a rate of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RateOwner {
    /// The token of this name; a name may have several tokens.
    Token(String),
    /// All tokens and grants of a tenant together.
    Tenant(Tenant),
}

/// The rates of the tokens and tenants that have a limit of their own.
#[derive(Debug, Default)]
pub(crate) struct OwnRates(Mutex<HashMap<(RateOwner, NonZeroU32), Arc<OwnRate>>>);

impl OwnRates {
    /// Counts a request; an owner may send as many at once as in a second.
    pub(crate) fn check(
        &self,
        owner: RateOwner,
        per_second: NonZeroU32,
    ) -> Result<RateState, RateExceeded> {
        let checked = self.rate_of(owner, per_second).check();
        checked.map(RateState::of).map_err(|until| RateExceeded::of(&until, MonotonicClock.now()))
    }

    fn rate_of(&self, owner: RateOwner, per_second: NonZeroU32) -> Arc<OwnRate> {
        let mut rates = self.0.lock();
        // Only tokens and tenants of the configuration get here; they may have been replaced often.
        if rates.len() >= CALLERS_MAX {
            rates.clear();
        }
        let rate = rates.entry((owner, per_second)).or_insert_with(|| {
            let quota = Quota::per_second(per_second);
            Arc::new(RateLimiter::new(quota, InMemoryState::default(), MonotonicClock))
        });
        Arc::clone(rate)
    }
}

/// Buckets in two generations: when the younger is full, the older is dropped. A caller that keeps
/// sending requests moves to the younger generation.
#[derive(Debug, Default)]
struct Buckets(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<RateLimitKey, InMemoryState>,
    old: HashMap<RateLimitKey, InMemoryState>,
}

impl StateStore for Buckets {
    type Key = RateLimitKey;

    fn measure_and_replace<T, F, E>(&self, caller: &RateLimitKey, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut generations = self.0.lock();
        let Generations { young, old } = &mut *generations;
        if !young.contains_key(caller) {
            if young.len() >= CALLERS_MAX / 2 {
                *old = std::mem::take(young);
            }
            let bucket = old.remove(caller).unwrap_or_default();
            young.insert(*caller, bucket);
        }
        young.entry(*caller).or_default().measure_and_replace(&NotKeyed::NonKey, f)
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limiter(per_second: u32, burst: u32) -> (Limiter<FakeRelativeClock>, FakeRelativeClock) {
        let (per_second, burst) =
            (NonZeroU32::new(per_second).unwrap(), NonZeroU32::new(burst).unwrap());
        let clock = FakeRelativeClock::default();
        (Limiter::with_clock(RateLimit { per_second, burst }, clock.clone()), clock)
    }

    fn caller(n: u32) -> RateLimitKey {
        RateLimitKey::at(Some(IpAddr::V4(n.into())))
    }

    #[test]
    fn a_caller_has_a_burst_and_then_a_rate() {
        let (limiter, clock) = limiter(10, 3);
        let check = |n| limiter.check(caller(n)).map_err(|exceeded| exceeded.wait_ms);
        let left = |remaining, reset_ms| Ok(RateState { limit: 3, remaining, reset_ms });
        assert_eq!(check(1), left(2, 100));
        assert_eq!(check(1), left(1, 200));
        assert_eq!(check(1), left(0, 300));
        assert_eq!(check(1), Err(100));
        assert_eq!(check(2), left(2, 100), "others are not concerned");
        clock.advance(Duration::from_millis(99));
        assert_eq!(check(1), Err(1));
        clock.advance(Duration::from_millis(1));
        assert_eq!(check(1), left(0, 300));
        assert_eq!(check(1), Err(100));
    }

    #[test]
    fn buckets_are_bounded_and_a_caller_that_keeps_calling_keeps_its_own() {
        let (limiter, clock) = limiter(1, 1);
        assert!(limiter.check(caller(0)).is_ok());
        for n in 1..1_000_000 {
            assert!(limiter.check(caller(n)).is_ok());
            if n % 10_000 == 0 {
                assert!(limiter.check(caller(0)).is_err(), "forgotten at {n}");
            }
        }
        let kept = limiter.buckets.into_state_store().0.into_inner();
        assert!(kept.young.len() + kept.old.len() <= CALLERS_MAX);
        drop(clock);
    }

    #[test]
    fn a_token_has_a_rate_of_its_own_and_a_new_rate_holds_at_once() {
        let rates = OwnRates::default();
        let check = |name: &str, rate| {
            rates.check(RateOwner::Token(name.to_owned()), NonZeroU32::new(rate).unwrap())
        };
        assert_eq!(check("app", 1).map(|state| state.remaining), Ok(0));
        assert_eq!(check("app", 1).unwrap_err().limit, 1);
        assert!(check("other", 1).is_ok());
        assert_eq!(check("app", 10).map(|state| state.remaining), Ok(9));
    }

    #[test]
    fn a_network_is_one_caller() {
        let at = |text: &str| RateLimitKey::at(Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
