//! The clock of the benchmarks: the time since their start.

use std::time::Instant;

use lingua_store::Clock;

#[derive(Debug)]
pub(crate) struct SinceStart(Instant);

impl SinceStart {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SinceStart {
    fn now_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}
