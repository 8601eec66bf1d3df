//! The player against `redis-benchmark`: the same call, over and over, with as many of them under way.
//!
//! Start at [`measure`]. If the two agree, what the player says of a tape is what `redis-benchmark` would say if it could
//! play one.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::BytesMut;
use lingua_redis::StoreUrl;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::line::{Line, address, put_command};
use super::reel::Reel;
use super::{BATCH, BATCHES};
use crate::bench::machine;

/// How long each of the two repeats the call.
const REPEATED: Duration = Duration::from_secs(1);

/// How many calls a second each of the two gets through.
#[derive(Debug)]
pub(super) struct Yardstick {
    player_per_s: f64,
    redis_benchmark_per_s: f64,
}

/// Repeats a call with both; nothing if `redis-benchmark` is not there, or would have to show a password to everybody.
pub(super) async fn measure(
    line: &mut Line,
    reel: &Reel,
    url: &StoreUrl,
) -> anyhow::Result<Option<Yardstick>> {
    let program = machine::program("redis-benchmark").filter(|_| url.login.password.is_none());
    let Some((program, call)) = program.zip(reel.plain_call()) else { return Ok(None) };
    let address = address(url)?;
    let (calls, player_per_s) = repeat(line, &call).await?;
    let said = Command::new(program)
        .args(["-h", &address.host, "-p", &address.port.to_string()])
        .args(["--dbnum", &url.database.to_string(), "-n", &calls.to_string(), "--csv"])
        .args(["-c", &BATCHES.to_string(), "-P", &BATCH.to_string()])
        .args(call)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("redis-benchmark does not run")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let redis_benchmark_per_s = rate_in(&said)
        .with_context(|| format!("redis-benchmark says something else than usual: {said}"))?;
    Ok(Some(Yardstick { player_per_s, redis_benchmark_per_s }))
}

/// Repeats a call; gives how often, and how often in a second.
async fn repeat(line: &mut Line, call: &[&str]) -> anyhow::Result<(usize, f64)> {
    let mut batch = BytesMut::new();
    for _ in 0..BATCH {
        put_command(&mut batch, call);
    }
    let (start, mut batches) = (Instant::now(), 0);
    for _ in 1..BATCHES {
        line.send(&batch).await?;
    }
    while start.elapsed() < REPEATED {
        line.send(&batch).await?;
        for _ in 0..BATCH {
            line.reply().await?;
        }
        batches += 1;
    }
    for _ in 0..BATCH * (BATCHES - 1) {
        line.reply().await?;
    }
    let calls = (batches + BATCHES - 1) * BATCH;
    ensure!(batches > 0, "the server did not answer a single batch");
    Ok((calls, calls as f64 / start.elapsed().as_secs_f64()))
}

/// The calls a second in the last line of what `redis-benchmark --csv` says: `"EVALSHA …","12345.67",…`.
fn rate_in(said: &str) -> Option<f64> {
    let line = said.lines().rfind(|line| line.starts_with('"'))?;
    line.split("\",\"").nth(1)?.parse().ok()
}

impl Yardstick {
    pub(super) fn json(&self) -> Value {
        json!({
            "player_calls_per_s": self.player_per_s,
            "redis_benchmark_calls_per_s": self.redis_benchmark_per_s,
        })
    }
}

impl fmt::Display for Yardstick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "one call over and over: {:.0}/s as the tape is played, {:.0}/s by redis-benchmark",
            self.player_per_s, self.redis_benchmark_per_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_in_what_redis_benchmark_says() {
        let said =
            "\"test\",\"rps\",\"avg_latency_ms\"\n\"EVALSHA a 1 {c0}:due\",\"98765.43\",\"0.61\"\n";
        assert_eq!(rate_in(said), Some(98765.43));
        assert_eq!(rate_in("Could not connect\n"), None);
    }
}
