//! Simulated nodes: they wait, then answer or fail.
//!
//! Start at [`SimulatedHandler`]. Everything around it is the node SDK over a real socket.
//! [`StopSwitch`] ends any number of nodes at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use lingua_sdk::{Client, Context, Failure, Handler, Job, Output, Sound, SoundStream};
use lingua_wire::view::NodeList;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Spread of the working times: most lie between half and double the mean.
const SPREAD: f64 = 0.4;

/// Longest working time, as a multiple of the mean.
const WORK_FACTOR_MAX: f64 = 5.0;

/// The reason of simulated failures.
const FAILURE_REASON: &str = "SIMULATED_FAILURE";

/// A streaming node sends a partial text after this much audio: half a second at 16 kHz.
const PARTIAL_BYTES: usize = 16_000;

/// The synthesised speech: a tone of a quarter of a second.
const TTS_RATE: u32 = 16_000;
const TTS_SAMPLES: u32 = 4_000;
const TTS_HERTZ: f64 = 440.0;
const TTS_VOLUME: f64 = 8_000.0;

/// How long nodes may take to be registered, and how often to look.
const REGISTERED_MAX: Duration = Duration::from_secs(10);
const REGISTERED_POLL: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct SimulatedHandler {
    work_ms: f64,
    fail_rate: f64,
    seed: u64,
    jobs: AtomicU64,
}

impl SimulatedHandler {
    /// Works for about `work_ms` on each job, and fails at a rate from 0 to 1.
    pub(crate) fn new(work_ms: u64, fail_rate: f64, seed: u64) -> Self {
        Self { work_ms: work_ms as f64, fail_rate, seed, jobs: AtomicU64::new(0) }
    }

    /// Random numbers for the next job, derived from the seed without a lock.
    fn next_rng(&self) -> StdRng {
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        StdRng::seed_from_u64(self.seed.rotate_left(32) ^ job)
    }
}

impl Handler for SimulatedHandler {
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let mut audio_bytes = 0;
        if let Some(stream) = &job.stream {
            audio_bytes = read_stream(stream, &context).await?;
        } else if let Some(audio) = &job.audio {
            audio_bytes = audio.bytes.len();
        }
        // Load tests have neither work nor failures, and need no random numbers.
        if self.work_ms > 0.0 || self.fail_rate > 0.0 {
            let mut rng = self.next_rng();
            let work = work_time(self.work_ms, &mut rng);
            tokio::select! {
                () = sleep(work) => {}
                _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
            }
            if rng.random_bool(self.fail_rate) {
                return Err(Failure::retryable(FAILURE_REASON));
            }
        }
        let source = match (job.text, job.audio_ref) {
            (Some(text), _) => text,
            (None, Some(place)) => format!("the speech in {place}"),
            (None, None) if audio_bytes > 0 => format!("{audio_bytes} bytes of speech"),
            (None, None) => "some speech".to_owned(),
        };
        let output = Output::translated(format!("[{}] {source}", job.tgt_lang)).with_asr(source);
        Ok(match job.options.require_tts {
            true => output.with_speech(Sound::pcm16(TTS_RATE, tone())),
            false => output,
        })
    }
}

/// A tone that rises and falls, so that it begins and ends without a click.
fn tone() -> Vec<u8> {
    let sample = |n: u32| {
        let seconds = f64::from(n) / f64::from(TTS_RATE);
        let fade = (std::f64::consts::PI * f64::from(n) / f64::from(TTS_SAMPLES)).sin();
        let wave = (std::f64::consts::TAU * TTS_HERTZ * seconds).sin();
        (TTS_VOLUME * fade * wave) as i16
    };
    (0..TTS_SAMPLES).flat_map(|n| sample(n).to_le_bytes()).collect()
}

/// Reads the audio stream, and sends a partial text now and then.
async fn read_stream(stream: &SoundStream, context: &Context) -> Result<usize, Failure> {
    let (mut bytes, mut reported) = (0, 0);
    loop {
        let piece = tokio::select! {
            piece = stream.next() => piece,
            _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
        };
        let Some(piece) = piece else { break };
        bytes += piece.len();
        if bytes >= reported + PARTIAL_BYTES {
            reported = bytes;
            context.partial(format!("{bytes} bytes so far"));
        }
    }
    match stream.is_whole() {
        true => Ok(bytes),
        false => Err(Failure::retryable(Failure::BAD_AUDIO)),
    }
}

/// Working time of a job: log-normal around the mean, with a bounded tail.
fn work_time(mean_ms: f64, rng: &mut impl Rng) -> Duration {
    // The Box-Muller transform; 1 - u is never zero.
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    let factor = (SPREAD * normal - SPREAD * SPREAD / 2.0).exp();
    Duration::from_secs_f64(mean_ms * factor.min(WORK_FACTOR_MAX) / 1000.0)
}

/// Stops any number of tasks. Clones share one switch.
#[derive(Debug, Clone)]
pub(crate) struct StopSwitch(watch::Sender<bool>);

impl StopSwitch {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Ends all waits.
    pub(crate) fn trigger(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the switch is triggered.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut triggered = self.0.subscribe();
        async move {
            // An error means that the switch is gone, which stops the task, too.
            triggered.wait_for(|is_triggered| *is_triggered).await.ok();
        }
    }
}

/// Waits until `count` of the nodes that `is_ours` accepts are registered.
pub(crate) async fn until_registered(
    client: &Client,
    count: usize,
    is_ours: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let waiting = async {
        loop {
            let NodeList { nodes, .. } = client.nodes().await?;
            let ready = nodes.iter().filter(|node| node.fresh && is_ours(node.node_id.as_str()));
            if ready.count() >= count {
                return Ok(());
            }
            sleep(REGISTERED_POLL).await;
        }
    };
    timeout(REGISTERED_MAX, waiting)
        .await
        .context("the simulated nodes were not registered in time; is the machine very busy?")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_times_have_the_asked_mean_and_a_bounded_tail() {
        let mut rng = StdRng::seed_from_u64(7);
        let times: Vec<f64> =
            (0..20_000).map(|_| work_time(300.0, &mut rng).as_secs_f64() * 1000.0).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((285.0..315.0).contains(&mean), "{mean}");
        assert!(times.iter().all(|&ms| ms > 0.0 && ms <= 300.0 * WORK_FACTOR_MAX));
        assert!(times.iter().any(|&ms| ms < 150.0) && times.iter().any(|&ms| ms > 600.0));
    }

    #[tokio::test]
    async fn a_triggered_switch_ends_earlier_and_later_waits() {
        let stop = StopSwitch::new();
        let early = stop.wait();
        stop.trigger();
        early.await;
        stop.wait().await;
    }
}
