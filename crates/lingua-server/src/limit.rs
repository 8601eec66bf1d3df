//! The rate limit.
//!
//! Start at `Limiter::check`. Every caller has a bucket that fills at a steady rate. A caller with
//! a known token is identified by it, any other by the address of its connection.
//!
//! Invariant: at most `CALLERS_MAX` buckets are kept. A caller whose bucket was dropped to make
//! room starts with a full one, so that strangers cannot lock anybody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;

use governor::clock::{Clock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
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
pub(crate) enum Caller {
    Token(TokenHash),
    /// An IPv4 address, or the network of an IPv6 address.
    Peer(IpAddr),
    Unknown,
}

impl Caller {
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
    buckets: RateLimiter<Caller, Buckets, C, NoOpMiddleware<C::Instant>>,
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

    /// Counts a request; if it is one too many, returns how long to wait, in milliseconds.
    pub(crate) fn check(&self, caller: Caller) -> Result<(), u64> {
        self.buckets.check_key(&caller).map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.now());
            u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
        })
    }
}

/// Buckets in two generations: when the younger is full, the older is dropped. A caller that keeps
/// sending requests moves to the younger generation.
#[derive(Debug, Default)]
struct Buckets(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Caller, InMemoryState>,
    old: HashMap<Caller, InMemoryState>,
}

impl StateStore for Buckets {
    type Key = Caller;

    fn measure_and_replace<T, F, E>(&self, caller: &Caller, f: F) -> Result<T, E>
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
    use std::time::Duration;

    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limiter(per_second: u32, burst: u32) -> (Limiter<FakeRelativeClock>, FakeRelativeClock) {
        let (per_second, burst) =
            (NonZeroU32::new(per_second).unwrap(), NonZeroU32::new(burst).unwrap());
        let clock = FakeRelativeClock::default();
        (Limiter::with_clock(RateLimit { per_second, burst }, clock.clone()), clock)
    }

    fn caller(n: u32) -> Caller {
        Caller::at(Some(IpAddr::V4(n.into())))
    }

    #[test]
    fn a_caller_has_a_burst_and_then_a_rate() {
        let (limiter, clock) = limiter(10, 3);
        for _ in 0..3 {
            assert_eq!(limiter.check(caller(1)), Ok(()));
        }
        assert_eq!(limiter.check(caller(1)), Err(100));
        assert_eq!(limiter.check(caller(2)), Ok(()), "others are not concerned");
        clock.advance(Duration::from_millis(99));
        assert_eq!(limiter.check(caller(1)), Err(1));
        clock.advance(Duration::from_millis(1));
        assert_eq!(limiter.check(caller(1)), Ok(()));
        assert_eq!(limiter.check(caller(1)), Err(100));
    }

    #[test]
    fn buckets_are_bounded_and_a_caller_that_keeps_calling_keeps_its_own() {
        let (limiter, clock) = limiter(1, 1);
        assert_eq!(limiter.check(caller(0)), Ok(()));
        for n in 1..1_000_000 {
            assert_eq!(limiter.check(caller(n)), Ok(()));
            if n % 10_000 == 0 {
                assert!(limiter.check(caller(0)).is_err(), "forgotten at {n}");
            }
        }
        let kept = limiter.buckets.into_state_store().0.into_inner();
        assert!(kept.young.len() + kept.old.len() <= CALLERS_MAX);
        drop(clock);
    }

    #[test]
    fn a_network_is_one_caller() {
        let at = |text: &str| Caller::at(Some(text.parse().unwrap()));
        assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"));
        assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
    }
}
