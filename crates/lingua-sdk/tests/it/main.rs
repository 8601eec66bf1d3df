//! The SDK over real sockets, against a scheduler that the tests script.
//!
//! Start at `scheduler.rs` (the other side of the socket) and `worker.rs` (a handler whose jobs end
//! when the test says so).

#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests; clippy only knows those with the attribute"
)]

mod audio;
mod client;
mod connection;
mod jobs;
mod leaving;
mod scheduler;
mod worker;

use std::future::Future;
use std::time::Duration;

/// Longest time that a test may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test that may hang when something is wrong.
async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, test).await.expect("the test hangs")
}
