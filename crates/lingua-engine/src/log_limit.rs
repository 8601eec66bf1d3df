//! Keeps one cause from filling the log: a few lines for each reason in a period.
//!
//! Start at [`LogLimit::admit`].

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Reasons with a limit of their own; the lines of all others share one limit.
const REASONS_MAX: usize = 64;

/// Lines of one reason in the current period.
#[derive(Debug, Default)]
struct Period {
    began_ms: u64,
    lines: u32,
    left_out: u64,
}

/// Limits log lines by reason.
#[derive(Debug)]
pub struct LogLimit {
    lines_max: u32,
    period_ms: u64,
    periods: Mutex<BTreeMap<&'static str, Period>>,
}

impl LogLimit {
    /// At most so many lines for each reason in a period.
    pub const fn new(lines_max: u32, period_ms: u64) -> Self {
        Self { lines_max, period_ms, periods: Mutex::new(BTreeMap::new()) }
    }

    /// Whether a line may be written; if so, how many were left out since the last one.
    pub fn admit(&self, reason: &'static str, now_ms: u64) -> Option<u64> {
        let mut periods = self.periods.lock();
        let is_known = periods.len() < REASONS_MAX || periods.contains_key(reason);
        let period = periods.entry(if is_known { reason } else { "other" }).or_default();
        if period.lines == 0 || now_ms.saturating_sub(period.began_ms) >= self.period_ms {
            *period = Period { began_ms: now_ms, lines: 0, left_out: period.left_out };
        }
        if period.lines == self.lines_max {
            period.left_out += 1;
            return None;
        }
        period.lines += 1;
        Some(std::mem::take(&mut period.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_few_lines_of_each_reason_and_the_next_says_what_was_left_out() {
        let limit = LogLimit::new(2, 1000);
        assert_eq!([0, 1, 2, 999].map(|ms| limit.admit("a", ms)), [Some(0), Some(0), None, None]);
        assert_eq!(limit.admit("b", 5), Some(0), "another reason");
        assert_eq!(limit.admit("a", 1000), Some(2));
        assert_eq!(limit.admit("a", 1001), Some(0));
    }
}
