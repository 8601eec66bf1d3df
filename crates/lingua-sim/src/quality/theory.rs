//! What queueing theory says about servers that are all alike.
//!
//! Start at [`erlang_b`]. The simulation has to agree with these before its other numbers count.

/// Share of the jobs that find all servers busy and are lost, in a system with Poisson arrivals.
/// `offered` is the rate of arrivals times the mean work.
pub fn erlang_b(servers: u32, offered: f64) -> f64 {
    (1..=servers).fold(1.0, |lost, n| offered * lost / (f64::from(n) + offered * lost))
}

/// Mean wait of all jobs if none is lost and work is exponential with a mean of one second, by
/// Erlang's C formula.
pub fn erlang_c_wait_s(servers: u32, offered: f64) -> f64 {
    let lost = erlang_b(servers, offered);
    let busy = offered / f64::from(servers);
    let waiting_share = lost / (1.0 - busy * (1.0 - lost));
    waiting_share / (f64::from(servers) - offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_give_the_values_of_published_tables() {
        assert!((erlang_b(1, 1.0) - 0.5).abs() < 1e-12);
        assert!((erlang_b(100, 90.0) - 0.0270).abs() < 5e-5);
        // M/M/1 at load ρ waits ρ / (1 − ρ).
        assert!((erlang_c_wait_s(1, 0.9) - 9.0).abs() < 1e-9);
        assert!((erlang_c_wait_s(100, 90.0) - 0.0217).abs() < 5e-5);
    }
}
