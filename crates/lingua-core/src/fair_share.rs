//! Which tenant gets the next free slot.
//!
//! Start at [`next`], the rule; [`Shares`] keeps what it needs of each tenant. A tenant's burst
//! costs the tenant itself: the tenant with the fewest slots for its weight goes first.
//!
//! Slots are whole numbers, shares are not: of five slots, 2 : 1 cannot be held. So tenants that
//! one more job would put level count as equal, and among those goes first who was chosen least for
//! its weight. Over time the shares are exact, however few slots there are.
//!
//! Invariant: memory is kept only of tenants that hold a slot or wait for one.

use std::collections::BTreeMap;

/// What being chosen once adds to [`Standing::served`] at weight 1.
const SERVED_ONCE: u64 = 1 << 20;

/// What the rule compares of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Jobs that hold a slot.
    pub running: u64,
    /// Its share, relative to the others; at least 1.
    pub weight: u32,
    /// How often it was chosen, by weight.
    pub served: u64,
}

impl Standing {
    /// Whether this many jobs for its weight are fewer than `other` many for the other's.
    fn is_less(self, running: u64, than: Self, other: u64) -> bool {
        u128::from(running) * u128::from(than.weight) < u128::from(other) * u128::from(self.weight)
    }
}

/// The position of the tenant that goes first; of equals the one that is named first.
pub fn next(standings: impl Iterator<Item = Standing> + Clone) -> Option<usize> {
    // Who would have least for its weight with one more job.
    let least = standings.clone().reduce(|least, tenant| {
        let is_less = tenant.is_less(tenant.running + 1, least, least.running + 1);
        if is_less { tenant } else { least }
    })?;
    let is_level = |tenant: Standing| tenant.is_less(tenant.running, least, least.running + 1);
    let level = standings.enumerate().filter(|(_, tenant)| is_level(*tenant));
    level.min_by_key(|(_, tenant)| tenant.served).map(|(position, _)| position)
}

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    running: u64,
    waiting: u64,
    served: u64,
}

/// What each tenant holds and has got.
#[derive(Debug, Clone)]
pub struct Shares<K> {
    by_tenant: BTreeMap<K, Share>,
    /// What the tenant that was chosen last had been served: others that come do not catch up
    /// what they did not ask for.
    level: u64,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self { by_tenant: BTreeMap::new(), level: 0 }
    }
}

impl<K: Ord + Copy> Shares<K> {
    /// One more job of the tenant holds a slot, or is about to take one.
    pub fn started(&mut self, tenant: K) {
        self.by_tenant.entry(tenant).or_default().running += 1;
    }

    /// Such a job has no slot any more.
    pub fn ended(&mut self, tenant: K) {
        self.change(tenant, |share| share.running = share.running.saturating_sub(1));
    }

    /// One more job of the tenant waits.
    pub fn joined(&mut self, tenant: K) {
        let share = self.by_tenant.entry(tenant).or_default();
        if share.waiting == 0 {
            share.served = share.served.max(self.level);
        }
        share.waiting += 1;
    }

    /// A job of the tenant no longer waits.
    pub fn left(&mut self, tenant: K) {
        self.change(tenant, |share| share.waiting = share.waiting.saturating_sub(1));
    }

    /// A waiting job of the tenant was chosen.
    pub fn chosen(&mut self, tenant: K, weight: u32) {
        if let Some(share) = self.by_tenant.get_mut(&tenant) {
            self.level = self.level.max(share.served);
            share.served += (SERVED_ONCE / u64::from(weight.max(1))).max(1);
        }
    }

    /// How many jobs of the tenant hold a slot.
    pub fn running(&self, tenant: K) -> u64 {
        self.by_tenant.get(&tenant).map_or(0, |share| share.running)
    }

    /// What the rule compares of a tenant of this weight.
    pub fn standing(&self, tenant: K, weight: u32) -> Standing {
        let share = self.by_tenant.get(&tenant).copied().unwrap_or_default();
        let served = if share.waiting == 0 { share.served.max(self.level) } else { share.served };
        Standing { running: share.running, weight: weight.max(1), served }
    }

    fn change(&mut self, tenant: K, change: impl FnOnce(&mut Share)) {
        if let Some(share) = self.by_tenant.get_mut(&tenant) {
            change(share);
            if share.running == 0 && share.waiting == 0 {
                self.by_tenant.remove(&tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(running: u64, weight: u32, served: u64) -> Standing {
        Standing { running, weight, served }
    }

    fn first(standings: &[Standing]) -> Option<usize> {
        next(standings.iter().copied())
    }

    #[test]
    fn who_holds_least_for_its_weight_goes_first() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[tenant(9, 1, 0)]), Some(0));
        assert_eq!(first(&[tenant(40, 1, 0), tenant(3, 1, 9)]), Some(1));
        assert_eq!(first(&[tenant(7, 4, 9), tenant(2, 1, 0)]), Some(0), "7 / 4 is less than 2");
        assert_eq!(first(&[tenant(5, 1, 0), tenant(4, 1, 9)]), Some(1), "equal weights: exactly");
    }

    #[test]
    fn of_those_that_one_more_job_puts_level_the_least_served_goes_first() {
        assert_eq!(first(&[tenant(3, 2, 5), tenant(1, 1, 4)]), Some(1));
        assert_eq!(first(&[tenant(3, 2, 4), tenant(1, 1, 5)]), Some(0));
        assert_eq!(first(&[tenant(2, 1, 7), tenant(2, 1, 7)]), Some(0));
    }

    /// Plays a saturated fleet in which each job takes as long as all others, and counts the jobs.
    fn jobs_of_each(slots: usize, weights: &[u32], rounds: usize) -> Vec<u32> {
        let mut shares = Shares::default();
        let mut running = std::collections::VecDeque::new();
        let mut jobs = vec![0; weights.len()];
        (0..weights.len()).for_each(|tenant| shares.joined(tenant));
        for _ in 0..rounds {
            if running.len() == slots {
                running.pop_front().into_iter().for_each(|tenant| shares.ended(tenant));
            }
            let all = weights.iter().enumerate().map(|(k, &weight)| shares.standing(k, weight));
            let chosen = next(all).unwrap();
            shares.chosen(chosen, weights[chosen]);
            shares.started(chosen);
            running.push_back(chosen);
            jobs[chosen] += 1;
        }
        jobs
    }

    #[test]
    fn shares_are_exact_with_any_number_of_slots() {
        for slots in 1..=40 {
            let jobs = jobs_of_each(slots, &[2, 1], 30_000);
            let ratio = f64::from(jobs[0]) / f64::from(jobs[1]);
            assert!((ratio / 2.0 - 1.0).abs() < 0.01, "{slots} slots: {jobs:?}");
            let jobs = jobs_of_each(slots, &[5, 1, 1], 35_000);
            assert!(jobs[1].abs_diff(jobs[2]) <= 1 + slots as u32, "{slots} slots: {jobs:?}");
        }
    }

    #[test]
    fn a_tenant_that_comes_late_catches_nothing_up() {
        let mut shares = Shares::default();
        shares.joined('a');
        (0..1000).for_each(|_| shares.chosen('a', 1));
        shares.joined('b');
        assert!(shares.standing('b', 1).served >= shares.standing('a', 1).served - SERVED_ONCE);
    }

    #[test]
    fn nothing_is_kept_of_a_tenant_without_jobs() {
        let mut shares = Shares::default();
        shares.started('a');
        shares.joined('a');
        shares.ended('a');
        shares.left('a');
        shares.ended('b');
        assert!(shares.by_tenant.is_empty());
    }
}
