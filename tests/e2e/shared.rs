//! Several schedulers over one Redis, seen from the outside.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::world::{Node, Scheduler, job, run, within};

/// A port that is free now. Below those that the system gives to outgoing connections, and elsewhere in
/// each process: else somebody takes it before the server does.
fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const COUNT: u32 = 17_000;
    let from = std::process::id().wrapping_mul(104_729) % COUNT;
    let ports = (from..COUNT).chain(0..from).map(|n| (FIRST + n) as u16);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(free).expect("a free port")
}

/// A server of the test's own; it ends with the test.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    async fn start() -> Self {
        Self::start_on(free_port()).await
    }

    async fn start_on(port: u16) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().expect("redis-server is installed");
        let answers = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        within(answers).await;
        Self { child, port }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Asks until the status is this one.
async fn until(scheduler: &Scheduler, path: &str, status: u16) -> Value {
    let asked = async {
        loop {
            let reply = scheduler.get(path).await;
            if reply.status == status {
                return reply.body;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(asked).await
}

#[tokio::test]
async fn what_one_instance_knows_the_other_knows() {
    let redis = Redis::start().await;
    let url = redis.url();
    let one = Scheduler::with(&[("STORE__URL", &url), ("INSTANCE__ID", "one")]).await;
    let two = Scheduler::with(&[("STORE__URL", &url), ("INSTANCE__ID", "two")]).await;
    let mut node = Node::join(&one, "n1", 2).await;
    let seen = two.get("/v1/nodes/n1").await;
    assert_eq!((seen.status, &seen.body["state"]), (200, &"ready".into()), "{:?}", seen.body);

    let sent = tokio::spawn(async move {
        let accepted = one.dispatch(job()).await;
        (one, accepted)
    });
    node.work().await;
    let (one, (job_id, _)) = sent.await.expect("it was sent");
    assert_eq!(one.ended(&job_id).await["state"], "DONE");
    assert_eq!(two.ended(&job_id).await["state"], "DONE");
    let cluster = two.get("/v1/cluster").await.body;
    assert_eq!(cluster["store"]["kind"], "redis");
    assert_eq!(cluster["instances"].as_array().map(Vec::len), Some(2), "{cluster}");

    // The store itself says the same.
    for (args, said) in [
        (vec!["inspect"], "c0"),
        (vec!["inspect", "cell", "c0"], "n1"),
        (vec!["inspect", "node", "n1"], "0 of 2"),
        (vec!["inspect", "job", &job_id], "DONE"),
    ] {
        let args = [args, vec!["--store", &url]].concat();
        let (code, out, error) = run(&args, &[]).await;
        assert_eq!(code, Some(0), "{args:?}: {error}");
        assert!(out.contains(said), "{args:?}: {out}");
    }
}

#[tokio::test]
async fn without_its_store_an_instance_refuses_work_and_comes_back_by_itself() {
    let mut redis = Redis::start().await;
    let s = Scheduler::with(&[("STORE__URL", &redis.url())]).await;
    until(&s, "/readyz", 200).await;
    redis.child.kill().await.expect("killed");
    let told = until(&s, "/readyz", 503).await;
    assert_eq!(told["error"], "SCHEDULER_DEPENDENCY_DOWN", "{told}");
    let refused = s.post("/v1/dispatch/f2f", job()).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.body["error"], "SCHEDULER_DEPENDENCY_DOWN", "{:?}", refused.body);
    assert!(s.get("/metrics").await.text.contains("lingua_store_up 0"));
    assert_eq!(s.get("/healthz").await.status, 200, "the process itself is well");
    let _redis = Redis::start_on(redis.port).await;
    until(&s, "/readyz", 200).await;
    assert!(s.get("/metrics").await.text.contains("lingua_store_up 1"));
}

#[tokio::test]
async fn an_instance_starts_before_its_store() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let s = Scheduler::with(&[("STORE__URL", &url)]).await;
    assert_eq!(s.get("/readyz").await.status, 503);
    let _redis = Redis::start_on(port).await;
    until(&s, "/readyz", 200).await;
    Node::join(&s, "n1", 1).await;
}
