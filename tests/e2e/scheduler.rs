//! A scheduler process under test, and the requests that most tests send to it.
//!
//! Start at [`Scheduler::start`].

use std::ops::Deref;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::http::{HttpClient, Reply};

/// Longer than anything takes, even on a slow machine.
const TEST_LIMIT: Duration = Duration::from_secs(20);

/// How often a test looks whether a condition holds.
const POLL: Duration = Duration::from_millis(20);

/// The path of the program under test. `cargo xtask ci` sets `TESTED_LINGUA` to the one that ships;
/// the one that cargo builds with the tests may have features that only tests need.
pub(crate) fn binary() -> String {
    let built = || option_env!("CARGO_BIN_EXE_lingua").map(str::to_owned);
    let given = std::env::var("TESTED_LINGUA").ok();
    given.or_else(built).expect("cargo builds the program for its tests")
}

/// A scheduler process; it is killed when the test ends.
pub(crate) struct Scheduler {
    pub(crate) child: Child,
    pub(crate) address: String,
    http: HttpClient,
    log: Arc<Mutex<Vec<Value>>>,
}

/// Requests go over the scheduler's own client.
impl Deref for Scheduler {
    type Target = HttpClient;

    fn deref(&self) -> &HttpClient {
        &self.http
    }
}

impl Scheduler {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts it with a configuration file.
    pub(crate) async fn from_file(path: &str) -> Self {
        Self::launch(&["--config", path], &[]).await
    }

    /// Starts it with this configuration.
    pub(crate) async fn from_toml(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lingua.toml");
        std::fs::write(&path, config).expect("a file");
        // The file is read before the address is logged.
        Self::from_file(path.to_str().expect("a path")).await
    }

    /// Starts it with settings from the environment, such as `("SCHEDULER__MAX_RETRY", "0")`.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::launch(&[], settings).await
    }

    /// Starts an instance over a shared store whose death the others notice soon.
    pub(crate) async fn over(url: &str, name: &str) -> Self {
        Self::with(&[
            ("STORE__URL", url),
            ("STORE__TIMEOUT_MS", "500"),
            ("STORE__RECONNECT_MAX_MS", "200"),
            ("INSTANCE__ID", name),
            ("SCHEDULER__LEADER_LEASE_MS", "1500"),
        ])
        .await
    }

    async fn launch(args: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        command.stderr(Stdio::piped()).kill_on_drop(true);
        command.env("LINGUA_LOG__FORMAT", "json");
        command.envs(settings.iter().map(|(key, value)| (format!("LINGUA_{key}"), value)));
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a log")).lines();
        let log = Arc::<Mutex<Vec<Value>>>::default();
        let address = loop {
            let line = within(lines.next_line()).await.expect("a readable log");
            let line = line.expect("the program logs its address");
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            log.lock().push(line.clone());
            if line["fields"]["message"] == "listening" {
                break line["fields"]["address"].as_str().expect("an address").to_owned();
            }
        };
        // Without a reader of its log the process would stop at a full pipe.
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().push(serde_json::from_str(&line).unwrap_or_default());
            }
        });
        let http = HttpClient::new(&address);
        Self { child, address, http, log }
    }

    /// The lines of its log so far that have these values among their fields.
    pub(crate) fn log_lines(&self, fields: &[(&str, &str)]) -> Vec<Value> {
        let log = self.log.lock();
        let fits =
            |line: &&Value| fields.iter().all(|(name, value)| line["fields"][name] == *value);
        log.iter().filter(fits).cloned().collect()
    }

    /// Waits for a line of its log that has these values among its fields.
    pub(crate) async fn until_logged(&self, fields: &[(&str, &str)]) -> Value {
        within(async {
            loop {
                if let Some(line) = self.log_lines(fields).pop() {
                    return line;
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await
    }

    /// A client with connections of its own.
    pub(crate) fn new_client(&self) -> HttpClient {
        HttpClient::new(&self.address)
    }

    /// Repeats a GET until the status is this one; gives the body.
    pub(crate) async fn until(&self, path: &str, status: u16) -> Value {
        self.until_reply(path, |reply| reply.status == status).await.body
    }

    /// Repeats a GET until the reply fits.
    pub(crate) async fn until_reply(&self, path: &str, fits: impl Fn(&Reply) -> bool) -> Reply {
        within(async {
            loop {
                let reply = self.get(path).await;
                if fits(&reply) {
                    return reply;
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await
    }

    /// The value of a metric, by its name and labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").await.text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no metric {name}"))
    }

    /// Waits until a metric has this value.
    pub(crate) async fn until_metric(&self, name: &str, value: f64) {
        within(async {
            while self.metric(name).await != value {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    /// Dispatches a job that must be accepted; gives the ids of job and node.
    pub(crate) async fn dispatch(&self, body: Value) -> (String, String) {
        let reply = self.post("/v1/dispatch/f2f", body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let text = |key: &str| reply.body[key].as_str().expect(key).to_owned();
        (text("job_id"), text("node_id"))
    }

    /// Waits for the end of a job; gives the job.
    pub(crate) async fn ended(&self, job: &str) -> Value {
        let reply = self.get(&format!("/v1/jobs/{job}?wait_ms=15000")).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let state = reply.body["state"].as_str().expect("a state");
        assert!(["DONE", "FAILED", "CANCELLED"].contains(&state), "{}", reply.body);
        reply.body
    }

    /// The slots in use on all nodes.
    pub(crate) async fn used(&self) -> u64 {
        let body = self.get("/v1/nodes").await.body;
        let nodes = body["nodes"].as_array().expect("nodes");
        nodes.iter().map(|node| node["used"].as_u64().unwrap_or(0)).sum()
    }

    /// Waits until no slot of any node is in use.
    pub(crate) async fn until_unused(&self) {
        within(async {
            while self.used().await > 0 {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    /// Kills the process as a power cut would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Sends SIGTERM.
    pub(crate) async fn begin_stop(&self) {
        signal(&self.child, "TERM").await;
    }

    /// Waits for the process to end; gives the exit code.
    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        within(self.child.wait()).await.expect("the process ends").code()
    }

    /// Stops the process as an operator does; gives the exit code.
    pub(crate) async fn terminate(self) -> Option<i32> {
        self.begin_stop().await;
        self.exit_code().await
    }
}

/// Sends a signal, such as `STOP`, to a process.
pub(crate) async fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("the process runs").to_string();
    let status = Command::new("kill").args([&format!("-{name}"), &pid]).status().await;
    assert!(status.expect("kill runs").success());
}

/// Runs the program to its end; gives exit code, output and error output.
pub(crate) async fn run(args: &[&str], settings: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.envs(settings.iter().copied());
    let output = within(command.output()).await.expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Makes a token; gives it and its section of the configuration.
pub(crate) async fn new_token(args: &[&str]) -> (String, String) {
    let (code, out, err) = run(&[&["token", "new"], args].concat(), &[]).await;
    assert_eq!(code, Some(0), "{err}");
    let printed = format!("{out}\n{err}");
    let token = printed.split_whitespace().find(|word| word.starts_with("lingua_"));
    let config = printed[printed.find("[[auth").expect("a section of the configuration")..].lines();
    let config = config.take_while(|line| line.starts_with("[[") || line.contains(" = "));
    let config = config.map(|line| format!("{line}\n")).collect();
    (token.expect("a token").to_owned(), config)
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_LIMIT, future).await.expect("the test does not hang")
}

/// A job from zh to en.
pub(crate) fn job() -> Value {
    json!({"session_id": "room-1", "src_lang": "zh", "tgt_lang": "en", "audio_ref": "blob://1"})
}

/// The same job with these options.
pub(crate) fn job_with(options: Value) -> Value {
    let mut job = job();
    job["options"] = options;
    job
}
