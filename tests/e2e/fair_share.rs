//! Tenants share the slots of a fleet, and each keeps within its limits.
//!
//! Start at [`a_flood_costs_the_tenant_that_makes_it`]. The node does its jobs one at a time, so
//! the order of the assignments is the order of the scheduler's choices, whatever the speed of the
//! machine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::callers::{secret, token};
use crate::http::Reply;
use crate::json_socket::JsonSocket;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::revocation::{TokensFile, call};
use crate::scheduler::{Scheduler, job, job_with, new_token, run, within};

/// A scheduler with an administrator and a client for each of two tenants.
#[derive(Clone)]
struct Shared {
    scheduler: Arc<Scheduler>,
    /// Its tokens, as a configuration.
    tokens: String,
    admin: String,
    alice: String,
    bob: String,
}

impl Shared {
    /// `alice` and `bob` are further lines of the tokens, `tenants` of the rest.
    async fn start(alice: &str, bob: &str, tenants: &str) -> Self {
        let (admin, mut file) = new_token(&["--role", "admin", "--name", "operator"]).await;
        let mut tokens = vec![];
        for (tenant, more) in [("alice", alice), ("bob", bob)] {
            let args = ["--role", "client", "--name", tenant, "--tenant", tenant];
            let (token, config) = new_token(&args).await;
            file += &format!("{config}{more}\n");
            tokens.push(token);
        }
        let scheduler = Arc::new(Scheduler::from_toml(&format!("{file}{tenants}")).await);
        let [alice, bob] = tokens.try_into().expect("two tokens");
        Self { scheduler, tokens: file, admin, alice, bob }
    }

    /// Another instance with the same tokens.
    async fn again(&self, tenants: &str) -> Self {
        let scheduler = Scheduler::from_toml(&format!("{}{tenants}", self.tokens)).await;
        Self { scheduler: Arc::new(scheduler), ..self.clone() }
    }

    async fn node(&self, slots: usize) -> RawNode {
        let register = register("n1", slots);
        RawNode::join_at(&self.scheduler.address, Some(&self.admin), register).await
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: Value) -> Reply {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.scheduler.send(method, path, &headers, &body).await
    }

    async fn post(&self, token: &str, body: Value) -> Reply {
        self.send(token, "POST", "/v1/dispatch/f2f", body).await
    }

    /// Sends a job in the background that waits for a slot as long as it takes.
    fn spawn_job(&self, token: &str, name: &str) -> JoinHandle<Reply> {
        let (shared, token) = (self.clone(), token.to_owned());
        let mut job = job_with(json!({"wait_ms": 60_000}));
        job["session_id"] = name.into();
        tokio::spawn(async move { shared.post(&token, job).await })
    }

    /// Sends one job after the other in the background.
    fn spawn_flood(&self, token: &str) -> JoinHandle<()> {
        self.spawn_counted_flood(token, &Arc::default())
    }

    /// The same, and counts those that are done.
    fn spawn_counted_flood(&self, token: &str, done: &Arc<AtomicUsize>) -> JoinHandle<()> {
        let (shared, token, done) = (self.clone(), token.to_owned(), Arc::clone(done));
        tokio::spawn(async move {
            loop {
                let job = job_with(json!({"wait_ms": 60_000, "deadline_ms": 60_000}));
                let reply = shared.send(&token, "POST", "/v1/translate", job).await;
                done.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
            }
        })
    }

    async fn until_at_least_waiting(&self, jobs: usize) {
        within(async {
            while self.metric("lingua_queue_jobs").await < Some(jobs as f64) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    async fn metric(&self, name: &str) -> Option<f64> {
        let text = self.send(&self.admin, "GET", "/metrics", Value::Null).await.text;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok())
    }

    async fn until_waiting(&self, jobs: usize) {
        within(async {
            while self.metric("lingua_queue_jobs").await != Some(jobs as f64) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

/// A node that ends its oldest job with each call.
struct Steps {
    node: RawNode,
    running: VecDeque<Value>,
}

impl Steps {
    /// Takes as many jobs as the node has slots.
    async fn fill(mut node: RawNode, slots: usize) -> Self {
        let mut running = VecDeque::new();
        for _ in 0..slots {
            let assign = node.expect("job_assign").await;
            node.ack(&assign).await;
            running.push_back(assign);
        }
        Self { node, running }
    }

    /// Ends the oldest job; gives the session of the one that gets its slot.
    async fn next(&mut self) -> String {
        let oldest = self.running.pop_front().expect("a job");
        self.node.done(&oldest, "hello").await;
        let assign = self.node.expect("job_assign").await;
        self.node.ack(&assign).await;
        let session = assign["session_id"].as_str().expect("a session").to_owned();
        self.running.push_back(assign);
        session
    }
}

#[tokio::test]
async fn a_flood_costs_the_tenant_that_makes_it() {
    let shared = Shared::start("", "", "").await;
    let node = shared.node(2).await;
    let _flood: Vec<_> = (0..40).map(|_| shared.spawn_job(&shared.alice, "alice")).collect();
    let mut steps = Steps::fill(node, 2).await;
    shared.until_waiting(38).await;
    let _light: Vec<_> = (0..3).map(|_| shared.spawn_job(&shared.bob, "bob")).collect();
    shared.until_waiting(41).await;
    let mut order = vec![];
    for _ in 0..8 {
        order.push(steps.next().await);
    }
    assert_eq!(order[0], "bob", "the next slot is for the tenant without one: {order:?}");
    let bobs = order.iter().filter(|session| *session == "bob").count();
    assert_eq!(bobs, 3, "all of them come before the backlog: {order:?}");
}

#[tokio::test]
async fn slots_are_shared_by_weight() {
    let tenants = "[[auth.tenants]]\nname = \"alice\"\nweight = 2\n";
    let shared = Shared::start("", "", tenants).await;
    // Five slots cannot be divided 2 : 1.
    let node = shared.node(5).await;
    let mut jobs = vec![];
    for _ in 0..70 {
        jobs.push(shared.spawn_job(&shared.alice, "alice"));
        jobs.push(shared.spawn_job(&shared.bob, "bob"));
    }
    let mut steps = Steps::fill(node, 5).await;
    shared.until_waiting(135).await;
    let mut alice = 0;
    for _ in 0..90 {
        alice += i32::from(steps.next().await == "alice");
    }
    assert!((57..=63).contains(&alice), "{alice} of 90 jobs, 60 are due");
}

/// Compares a tenant with itself in one run. Without fair share its jobs would wait behind 200
/// others.
#[tokio::test]
async fn a_light_tenant_hardly_notices_a_flood() {
    let shared = Shared::start("", "", "").await;
    let _node = shared.node(8).await.serve(8, Duration::from_millis(100));
    let alone = times_of_jobs(&shared, 40).await;
    let flood: Vec<_> = (0..200).map(|_| shared.spawn_flood(&shared.alice)).collect();
    shared.until_at_least_waiting(150).await;
    let beside = times_of_jobs(&shared, 40).await;
    flood.iter().for_each(JoinHandle::abort);
    let limit = 2 * alone[alone.len() / 2];
    let within_twice = beside.iter().filter(|took| **took <= limit).count();
    assert!(within_twice >= 36, "alone: {alone:?}\nbeside the flood: {beside:?}");
}

/// How long jobs of bob take that come at a fifth of what the node can do, shortest first.
async fn times_of_jobs(shared: &Shared, jobs: usize) -> Vec<Duration> {
    times_at_pace(shared, jobs, Duration::from_millis(62)).await
}

/// How long jobs of bob take that come one after the other with this pause, shortest first.
async fn times_at_pace(shared: &Shared, jobs: usize, pause: Duration) -> Vec<Duration> {
    let mut sent = vec![];
    for _ in 0..jobs {
        let shared = shared.clone();
        sent.push(tokio::spawn(async move {
            let began = Instant::now();
            let reply = shared.send(&shared.bob, "POST", "/v1/translate", job()).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            began.elapsed()
        }));
        tokio::time::sleep(pause).await;
    }
    let mut times = vec![];
    for job in sent {
        times.push(job.await.expect("a job"));
    }
    times.sort_unstable();
    times
}

/// Alice offers ten times what ten nodes can do, bob a fifth of it.
#[tokio::test]
async fn a_light_tenant_keeps_its_speed_beside_ten_times_the_capacity_of_ten_nodes() {
    const NODES: usize = 10;
    const SLOTS: usize = 2;
    const WORK: Duration = Duration::from_millis(400);
    let shared = Shared::start("", "", "").await;
    let mut nodes = vec![];
    for n in 0..NODES {
        let register = register(&format!("n{n}"), SLOTS);
        let node = RawNode::join_at(&shared.scheduler.address, Some(&shared.admin), register).await;
        nodes.push(node.serve(SLOTS, WORK));
    }
    // The fleet does 50 jobs in a second: bob sends 10, alice as many as if ten fleets were there.
    let pause = WORK / (NODES * SLOTS) as u32 * 5;
    let alone = times_at_pace(&shared, 60, pause).await;
    let flood: Vec<_> =
        (0..10 * NODES * SLOTS).map(|_| shared.spawn_flood(&shared.alice)).collect();
    shared.until_at_least_waiting(8 * NODES * SLOTS).await;
    let beside = times_at_pace(&shared, 60, pause).await;
    flood.iter().for_each(JoinHandle::abort);
    let limit = 2 * alone[alone.len() / 2];
    let late = beside.iter().filter(|took| **took > limit).count();
    assert!(
        late <= 1,
        "{late} of 60 took more than {limit:?}\nalone: {alone:?}\nbeside: {beside:?}"
    );
}

/// Both tenants flood ten nodes at once, through one instance or through two.
async fn shares_of_ten_nodes(schedulers: &[Shared]) -> f64 {
    let mut nodes = vec![];
    for n in 0..10 {
        let shared = &schedulers[n % schedulers.len()];
        let register = register(&format!("n{n}"), 3);
        let node = RawNode::join_at(&shared.scheduler.address, Some(&shared.admin), register).await;
        nodes.push(node.serve(3, Duration::from_millis(100)));
    }
    let mut floods = vec![];
    let (alices, bobs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for shared in schedulers {
        let each = 150 / schedulers.len();
        for (token, count) in [(&shared.alice, &alices), (&shared.bob, &bobs)] {
            floods.extend((0..each).map(|_| shared.spawn_counted_flood(token, count)));
        }
    }
    for shared in schedulers {
        shared.until_at_least_waiting(100 / schedulers.len()).await;
    }
    let done = || (alices.load(Ordering::Relaxed), bobs.load(Ordering::Relaxed));
    let (alice, bob) = done();
    within(async {
        // Many times the slots, so that those who began before do not count.
        while done().0 + done().1 < alice + bob + 1_800 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let (alice_now, bob_now) = done();
    floods.iter().for_each(JoinHandle::abort);
    (alice_now - alice) as f64 / (bob_now - bob) as f64
}

const TWO_TO_ONE: &str = "[[auth.tenants]]\nname = \"alice\"\nweight = 2\n";

#[tokio::test]
async fn ten_nodes_are_shared_by_weight() {
    let ratio = shares_of_ten_nodes(&[Shared::start("", "", TWO_TO_ONE).await]).await;
    assert!((1.9..=2.1).contains(&ratio), "{ratio} instead of 2");
}

#[tokio::test]
async fn ten_nodes_are_shared_by_weight_over_two_instances() {
    let redis = Redis::start().await;
    let one = Shared::start("", "", &over(&redis, "one")).await;
    let two = one.again(&over(&redis, "two")).await;
    let ratio = shares_of_ten_nodes(&[one, two]).await;
    assert!((1.8..=2.2).contains(&ratio), "{ratio} instead of 2");
}

fn over(redis: &Redis, instance: &str) -> String {
    let store = format!("[store]\nurl = \"{}\"\n[instance]\nid = \"{instance}\"\n", redis.url());
    format!("{TWO_TO_ONE}{store}")
}

#[tokio::test]
async fn a_tenant_at_its_limit_is_refused_and_others_are_not() {
    let tenants = "[[auth.tenants]]\nname = \"alice\"\nlimits = { open_jobs = 2 }\n";
    let shared = Shared::start("", "", tenants).await;
    let mut node = shared.node(9).await;
    for _ in 0..2 {
        assert_eq!(shared.post(&shared.alice, job()).await.status, 200);
    }
    let refused = shared.post(&shared.alice, job()).await;
    assert_eq!(refused.error(), (429, "RATE_LIMITED"));
    let me = shared.send(&shared.alice, "GET", "/v1/me", Value::Null).await.body;
    assert_eq!((&me["limits"]["open_jobs"], &me["left"]["open_jobs"]), (&json!(2), &json!(0)));
    let message = refused.body["detail"].as_str().expect("a detail");
    assert!(message.contains("open_jobs") && message.contains("alice"), "{message}");
    assert_eq!(shared.post(&shared.bob, job()).await.status, 200);
    let open = "lingua_tenant_open_jobs{tenant=\"alice\"}";
    assert_eq!(shared.metric(open).await, Some(2.0));
    let refused = "lingua_usage_refused_total{tenant=\"alice\",limit=\"open_jobs\"}";
    assert_eq!(shared.metric(refused).await, Some(1.0));
    node.work().await;
    within(async {
        while shared.post(&shared.alice, job()).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_has_limits_below_those_of_its_tenant() {
    let limits = "limits = { open_bytes = \"64KiB\", priority_max = 3, sessions = 1, \
                  event_streams = 1 }";
    let shared = Shared::start(limits, "", "").await;
    let mut node = shared.node(9).await;
    let mut large = job();
    large["text"] = "x".repeat(16 << 10).into();
    large.as_object_mut().expect("an object").remove("audio_ref");
    let mut accepted = 0;
    let refused = loop {
        let reply = shared.post(&shared.alice, large.clone()).await;
        if reply.status != 200 {
            break reply;
        }
        node.expect("job_assign").await;
        accepted += 1;
        assert!(accepted <= 4, "64 KiB are {accepted} jobs of 16 KiB");
    };
    assert_eq!(refused.error(), (429, "RATE_LIMITED"));
    assert!(refused.text.contains("open_bytes"), "{}", refused.text);
    assert_eq!(shared.post(&shared.bob, large).await.status, 200);
    node.expect("job_assign").await;

    let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
    let url = format!("ws://{}/v1/session/ws", shared.scheduler.address);
    let mut first = JsonSocket::connect(&url, Some(&shared.alice)).await;
    first.send(start.clone()).await;
    assert_eq!(first.next().await["type"], "session_started");
    let mut second = JsonSocket::connect(&url, Some(&shared.alice)).await;
    second.send(start).await;
    let refused = second.next().await;
    assert_eq!(refused["error"], "RATE_LIMITED", "{refused}");
    assert!(refused.to_string().contains("sessions"), "{refused}");
}

/// Tokens and grants of one tenant have its rate together; another tenant has its own.
#[tokio::test]
async fn all_tokens_and_grants_of_a_tenant_share_its_rate() {
    let file = TokensFile::new("");
    let key = file.add("alice.key", "a secret of an app, as long as it has to be", 0o600);
    let alice = "tenant = \"alice\"";
    let config = token("app", "client", alice)
        + &token("eye", "viewer", &format!("{alice}\nlimits = {{ requests_per_second = 1000 }}"))
        + &token("bob", "client", "tenant = \"bob\"")
        + "[[auth.tenants]]\nname = \"alice\"\nlimits = { requests_per_second = 4 }\n"
        + &format!("[[auth.keys]]\nid = \"k\"\ntenant = \"alice\"\nsecret_file = {key:?}\n");
    file.write(&config);
    let s = file.scheduler().await;
    let args = ["grant", "new", "--key-id", "k", "--ttl", "10m", "--key-file", &key];
    let grant = run(&args, &[]).await.1.trim().to_owned();
    let (began, mut accepted, mut refused) = (Instant::now(), 0, [0; 3]);
    for _ in 0..20 {
        for (n, shown) in [&*secret("app"), &*secret("eye"), &*grant].into_iter().enumerate() {
            let reply = call(&s, shown, "/v1/me").await;
            assert_eq!(reply.header("ratelimit-limit"), Some("4"), "{reply:?}");
            match reply.status {
                200 => accepted += 1,
                429 => {
                    assert_eq!(reply.header("ratelimit-remaining"), Some("0"), "{reply:?}");
                    refused[n] += 1;
                }
                status => panic!("{status}: {}", reply.text),
            }
        }
    }
    let most = 4 + began.elapsed().as_secs() * 4 + 4;
    assert!(accepted <= most, "{accepted} requests instead of {most}");
    assert!(refused.iter().all(|refused| *refused > 0), "all three are refused: {refused:?}");
    for _ in 0..20 {
        assert_eq!(call(&s, &secret("bob"), "/v1/me").await.status, 200, "another tenant");
    }
}

/// Reads the head of the answer of an event stream that stays open.
async fn event_stream(shared: &Shared, token: &str) -> (TcpStream, String) {
    let address = &shared.scheduler.address;
    let mut stream = TcpStream::connect(address).await.expect("the scheduler accepts");
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut status = [0; 12];
    within(stream.read_exact(&mut status)).await.expect("a status");
    let status = String::from_utf8_lossy(&status).into_owned();
    (stream, status)
}

/// The limits of a tenant hold for its tokens together; what ends makes room.
#[tokio::test]
async fn sessions_streams_and_bytes_of_a_tenant_are_limited_over_its_tokens() {
    let (second, entry) =
        new_token(&["--role", "client", "--name", "second", "--tenant", "alice"]).await;
    let limits = "{ sessions = 2, event_streams = 2, open_bytes = \"64KiB\" }";
    let tenants = format!("{entry}[[auth.tenants]]\nname = \"alice\"\nlimits = {limits}\n");
    let shared = Shared::start("", "", &tenants).await;
    let _node = shared.node(9).await;
    let tokens = [shared.alice.clone(), second];
    let (ok, full) = ("HTTP/1.1 200", "HTTP/1.1 429");
    let mut streams = vec![];
    for token in &tokens {
        let (stream, status) = event_stream(&shared, token).await;
        assert_eq!(status, ok);
        streams.push(stream);
    }
    for token in &tokens {
        assert_eq!(event_stream(&shared, token).await.1, full);
    }
    assert_eq!(event_stream(&shared, &shared.bob).await.1, ok, "another tenant");
    streams.pop();
    within(async { while event_stream(&shared, &tokens[0]).await.1 != ok {} }).await;

    let url = format!("ws://{}/v1/session/ws", shared.scheduler.address);
    let session = async |token: &str| {
        let mut socket = JsonSocket::connect(&url, Some(token)).await;
        socket.send(json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"})).await;
        let first = socket.next().await;
        (socket, first)
    };
    let mut open = vec![];
    for token in &tokens {
        let (socket, first) = session(token).await;
        assert_eq!(first["type"], "session_started", "{first}");
        open.push(socket);
    }
    for token in &tokens {
        let refused = session(token).await.1;
        let detail = refused["detail"].as_str().unwrap_or_default();
        assert_eq!(refused["error"], "RATE_LIMITED", "{refused}");
        assert!(detail.contains("sessions") && detail.contains("alice"), "{refused}");
    }
    assert_eq!(session(&shared.bob).await.1["type"], "session_started", "another tenant");
    open[0].send(json!({"type": "session_end"})).await;
    open[0].close_code().await;
    within(async { while session(&tokens[1]).await.1["type"] != "session_started" {} }).await;

    let mut large = job();
    large["text"] = "x".repeat(16 << 10).into();
    large.as_object_mut().expect("an object").remove("audio_ref");
    let mut accepted = 0;
    let refused = loop {
        let reply = shared.post(&tokens[accepted % 2], large.clone()).await;
        if reply.status != 200 {
            break reply;
        }
        accepted += 1;
        assert!(accepted <= 4, "64 KiB are {accepted} jobs of 16 KiB");
    };
    assert!(accepted >= 2, "both tokens had one");
    assert_eq!(refused.error(), (429, "RATE_LIMITED"));
    assert!(refused.text.contains("open_bytes") && refused.text.contains("alice"), "{refused:?}");
    let refused = shared.post(&tokens[(accepted + 1) % 2], large.clone()).await;
    assert_eq!(refused.status, 429, "the other token has no more: {}", refused.text);
    assert_eq!(shared.post(&shared.bob, large).await.status, 200);
}

#[tokio::test]
async fn a_priority_above_the_limit_is_lowered() {
    let shared = Shared::start("limits = { priority_max = 3 }", "", "").await;
    let mut node = shared.node(9).await;
    for (asked, given) in [(100, 3), (3, 3), (-5, -5)] {
        let reply = shared.post(&shared.alice, job_with(json!({"priority": asked}))).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let assign = node.expect("job_assign").await;
        assert_eq!(assign["options"]["priority"], given, "{assign}");
    }
}

#[tokio::test]
async fn the_jobs_of_a_tenant_are_private_if_its_rule_says_so() {
    let tenants = "[[auth.tenants]]\nname = \"alice\"\npublic = false\n";
    let shared = Shared::start("", "", tenants).await;
    let mut node = shared.node(9).await;
    let refused = shared.post(&shared.alice, job_with(json!({"wait_ms": 0}))).await;
    assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"), "the node is the operator's");
    let public = job_with(json!({"public": true}));
    assert_eq!(shared.post(&shared.alice, public).await.status, 200);
    assert_eq!(shared.post(&shared.bob, job()).await.status, 200);
    node.expect("job_assign").await;
}
