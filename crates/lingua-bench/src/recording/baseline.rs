//! The replay compared with `redis-benchmark`: one call, repeated, with as many under way.
//!
//! Start at [`measure`]. If the two agree, the replay is as fast as `redis-benchmark` would be if
//! it could replay a recording.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::BytesMut;
use lingua_redis::StoreUrl;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::calls::CallLog;
use super::connection::{RawRedis, address, put_command};
use super::{BATCH, BATCHES};
use crate::machine;

/// How long each of the two repeats the call.
const REPEATED: Duration = Duration::from_secs(1);

/// Calls a second of each of the two.
#[derive(Debug)]
pub(super) struct ReplayBaseline {
    replay_per_s: f64,
    redis_benchmark_per_s: f64,
}

/// Repeats a call with both; nothing if `redis-benchmark` is missing, or if the server needs a
/// password, which would be visible to all users of the machine.
pub(super) async fn measure(
    connection: &mut RawRedis,
    calls: &CallLog,
    url: &StoreUrl,
) -> anyhow::Result<Option<ReplayBaseline>> {
    let program = machine::find_program("redis-benchmark").filter(|_| url.login.password.is_none());
    let Some((program, call)) = program.zip(calls.plain_call()) else { return Ok(None) };
    let address = address(url)?;
    let (count, replay_per_s) = repeat(connection, &call).await?;
    let output = Command::new(program)
        .args(["-h", &address.host, "-p", &address.port.to_string()])
        .args(["--dbnum", &url.database.to_string(), "-n", &count.to_string(), "--csv"])
        .args(["-c", &BATCHES.to_string(), "-P", &BATCH.to_string()])
        .args(call)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("redis-benchmark does not run")?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let redis_benchmark_per_s =
        rate_in(&output).with_context(|| format!("redis-benchmark printed no rate: {output}"))?;
    Ok(Some(ReplayBaseline { replay_per_s, redis_benchmark_per_s }))
}

/// Repeats a call; returns how often, and how often in a second.
async fn repeat(connection: &mut RawRedis, call: &[&str]) -> anyhow::Result<(usize, f64)> {
    let mut batch = BytesMut::new();
    for _ in 0..BATCH {
        put_command(&mut batch, call);
    }
    let (start, mut batches) = (Instant::now(), 0);
    for _ in 1..BATCHES {
        connection.send(&batch).await?;
    }
    while start.elapsed() < REPEATED {
        connection.send(&batch).await?;
        for _ in 0..BATCH {
            connection.reply().await?;
        }
        batches += 1;
    }
    for _ in 0..BATCH * (BATCHES - 1) {
        connection.reply().await?;
    }
    let calls = (batches + BATCHES - 1) * BATCH;
    ensure!(batches > 0, "the server did not answer a single batch");
    Ok((calls, calls as f64 / start.elapsed().as_secs_f64()))
}

/// The rate in the last line of `redis-benchmark --csv`: `"EVALSHA …","12345.67",…`.
fn rate_in(output: &str) -> Option<f64> {
    let line = output.lines().rfind(|line| line.starts_with('"'))?;
    line.split("\",\"").nth(1)?.parse().ok()
}

impl ReplayBaseline {
    pub(super) fn json(&self) -> Value {
        json!({
            "replay_calls_per_s": self.replay_per_s,
            "redis_benchmark_calls_per_s": self.redis_benchmark_per_s,
        })
    }
}

impl fmt::Display for ReplayBaseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "one call, repeated: {:.0}/s by the replay, {:.0}/s by redis-benchmark",
            self.replay_per_s, self.redis_benchmark_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_last_line() {
        let output =
            "\"test\",\"rps\",\"avg_latency_ms\"\n\"EVALSHA a 1 {c0}:due\",\"98765.43\",\"0.61\"\n";
        assert_eq!(rate_in(output), Some(98765.43));
        assert_eq!(rate_in("Could not connect\n"), None);
    }
}
