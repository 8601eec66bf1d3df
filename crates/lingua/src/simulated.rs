//! Nodes that only pretend to translate: they wait, then answer or fail.
//!
//! Start at [`Simulated`], the handler, and [`Quit`], which ends any number of nodes at once.
//! Everything around it is the real node SDK over a real socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use lingua_sdk::{Context, Failure, Handler, Job, Output, Sound, SoundStream};
use lingua_wire::view::NodeList;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::api::{self, Api};

/// How much working times scatter: most lie between half and double the mean.
const SPREAD: f64 = 0.4;

/// No job takes longer than so many times the mean.
const WORK_FACTOR_MAX: f64 = 5.0;

/// The reason that a node gives when it fails on purpose.
const REASON: &str = "SIMULATED_FAILURE";

/// A node that listens along says something after so much audio: half a second of 16 kHz.
const PARTIAL_BYTES: usize = 16_000;

/// What a simulated node says: a quarter of a second of nothing.
const TTS_BYTES: usize = 8_000;

/// How long nodes may take to be registered, and how often to look.
const REGISTERED_MAX: Duration = Duration::from_secs(10);
const REGISTERED_POLL: Duration = Duration::from_millis(20);

/// How a simulated node works.
#[derive(Debug)]
pub(crate) struct Simulated {
    work_ms: f64,
    fail_rate: f64,
    seed: u64,
    jobs: AtomicU64,
}

impl Simulated {
    /// Works for about so long, and fails at this rate (0 to 1).
    pub(crate) fn new(work_ms: u64, fail_rate: f64, seed: u64) -> Self {
        Self { work_ms: work_ms as f64, fail_rate, seed, jobs: AtomicU64::new(0) }
    }

    /// Luck for the next job: the same for the same seed, without a lock.
    fn luck(&self) -> StdRng {
        let job = self.jobs.fetch_add(1, Ordering::Relaxed);
        StdRng::seed_from_u64(self.seed.rotate_left(32) ^ job)
    }
}

impl Handler for Simulated {
    async fn handle(&self, job: Job, context: Context) -> Result<Output, Failure> {
        let mut heard_bytes = 0;
        if let Some(stream) = &job.stream {
            heard_bytes = listen(stream, &context).await?;
        } else if let Some(audio) = &job.audio {
            heard_bytes = audio.bytes.len();
        }
        // Without work or failures there is nothing to draw, which load tests notice.
        if self.work_ms > 0.0 || self.fail_rate > 0.0 {
            let mut luck = self.luck();
            let work = work_time(self.work_ms, &mut luck);
            tokio::select! {
                () = sleep(work) => {}
                _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
            }
            if luck.random_bool(self.fail_rate) {
                return Err(Failure::retryable(REASON));
            }
        }
        let said = match (job.text, job.audio_ref) {
            (Some(text), _) => text,
            (None, Some(place)) => format!("what is said in {place}"),
            (None, None) if heard_bytes > 0 => format!("{heard_bytes} bytes of speech"),
            (None, None) => "what is said".to_owned(),
        };
        let output = Output::translated(format!("[{}] {said}", job.tgt_lang)).with_asr(said);
        Ok(match job.options.require_tts && heard_bytes > 0 {
            true => output.with_speech(Sound::pcm16(16_000, vec![0; TTS_BYTES])),
            false => output,
        })
    }
}

/// Listens along, and says now and then how much it has heard.
async fn listen(stream: &SoundStream, context: &Context) -> Result<usize, Failure> {
    let (mut bytes, mut told) = (0, 0);
    loop {
        let piece = tokio::select! {
            piece = stream.next() => piece,
            _ = context.cancelled() => return Err(Failure::permanent(Failure::CANCELLED)),
        };
        let Some(piece) = piece else { break };
        bytes += piece.len();
        if bytes >= told + PARTIAL_BYTES {
            told = bytes;
            context.partial(format!("{bytes} bytes so far"));
        }
    }
    match stream.is_whole() {
        true => Ok(bytes),
        false => Err(Failure::retryable(Failure::BAD_AUDIO)),
    }
}

/// How long a job takes: log-normal around the mean, as real ones are, with the tail cut.
fn work_time(mean_ms: f64, luck: &mut impl Rng) -> Duration {
    // Box and Muller; 1 - u keeps the logarithm away from zero.
    let (u, v): (f64, f64) = (1.0 - luck.random::<f64>(), luck.random());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    let factor = (SPREAD * normal - SPREAD * SPREAD / 2.0).exp();
    Duration::from_secs_f64(mean_ms * factor.min(WORK_FACTOR_MAX) / 1000.0)
}

/// Tells any number of tasks to end. Clones are one and the same.
#[derive(Debug, Clone)]
pub(crate) struct Quit(watch::Sender<bool>);

impl Quit {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Everyone who waits may go.
    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }

    /// Waits for it; to be given to a task.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut told = self.0.subscribe();
        async move {
            // A sender that is gone is as good as a word.
            told.wait_for(|quit| *quit).await.ok();
        }
    }
}

/// Waits until so many of the nodes with these names take jobs.
pub(crate) async fn until_registered(
    api: &Api,
    count: usize,
    is_ours: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let waiting = async {
        loop {
            let answer = api.get("/v1/nodes").await?;
            let NodeList { nodes } = api::read(&answer)?;
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

/// The address of the node socket, also for somebody who gives that of the HTTP side.
pub(crate) fn node_url(url: &str) -> String {
    socket_url(url, "/v1/node/ws")
}

/// The address of a socket, also for somebody who gives that of the HTTP side.
pub(crate) fn socket_url(url: &str, path: &str) -> String {
    let socket =
        |scheme: &str, rest: &str| format!("{scheme}://{}{path}", rest.trim_end_matches('/'));
    match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => socket("ws", rest),
        (_, Some(rest)) => socket("wss", rest),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_times_have_the_asked_mean_and_a_bounded_tail() {
        let mut luck = StdRng::seed_from_u64(7);
        let times: Vec<f64> =
            (0..20_000).map(|_| work_time(300.0, &mut luck).as_secs_f64() * 1000.0).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        assert!((285.0..315.0).contains(&mean), "{mean}");
        assert!(times.iter().all(|&ms| ms > 0.0 && ms <= 300.0 * WORK_FACTOR_MAX));
        assert!(times.iter().any(|&ms| ms < 150.0) && times.iter().any(|&ms| ms > 600.0));
    }

    #[test]
    fn either_address_leads_to_the_node_socket() {
        let socket = "ws://127.0.0.1:7410/v1/node/ws";
        assert_eq!(node_url("http://127.0.0.1:7410/"), socket);
        assert_eq!(node_url(socket), socket);
    }

    #[tokio::test]
    async fn quitting_reaches_those_who_wait_and_those_who_come_later() {
        let quit = Quit::new();
        let early = quit.wait();
        quit.now();
        early.await;
        quit.wait().await;
    }
}
