use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(5);

#[test]
fn delays_stay_within_their_bounds_and_spread() {
    let mut random = StdRng::seed_from_u64(7);
    let mut backoff = Backoff::new(MIN, MAX);
    assert!(backoff.next_delay(&mut random) <= MIN * 2);
    let late: Vec<Duration> = (0..1000).map(|_| backoff.next_delay(&mut random)).collect();
    assert!(late.iter().all(|delay| (MIN..=MAX).contains(delay)));
    assert!(late.iter().any(|&delay| delay < MAX / 4));
    assert!(late.iter().any(|&delay| delay > MAX / 4 * 3));
}

#[test]
fn only_a_healthy_minute_forgets_the_failures() {
    let mut random = StdRng::seed_from_u64(7);
    let mut backoff = Backoff::new(MIN, MAX);
    for _ in 0..10 {
        backoff.next_delay(&mut random);
    }
    backoff.connected_for(HEALTHY / 2);
    assert_eq!(backoff.failures, 10);
    backoff.connected_for(HEALTHY);
    assert!(backoff.next_delay(&mut random) <= MIN * 2);
}
