//! Two tenants and their own nodes: who gets whose jobs, over HTTP and in sessions.

use serde_json::{Value, json};

use crate::http::Reply;
use crate::raw_node::{RawNode, register};
use crate::redis::Redis;
use crate::scheduler::{Scheduler, job_with, new_token};
use crate::session::SessionClient;

struct Tenant {
    client: String,
    node: String,
}

/// Makes the tokens of a tenant; adds them to the configuration.
async fn tenant(name: &str, config: &mut String) -> Tenant {
    let mut token = async |role: &str| {
        let label = format!("{name}-{role}");
        let args = ["--role", role, "--name", &label, "--tenant", name];
        let (token, section) = new_token(&args).await;
        config.push_str(&section);
        token
    };
    Tenant { client: token("client").await, node: token("node").await }
}

async fn dispatch(s: &Scheduler, tenant: &Tenant, options: Value) -> Reply {
    let bearer = format!("Bearer {}", tenant.client);
    let body = job_with(options).to_string();
    s.send("POST", "/v1/dispatch/f2f", &[("Authorization", &bearer)], &body).await
}

async fn join(s: &Scheduler, tenant: &Tenant, id: &str, is_private: bool) -> RawNode {
    let mut message = register(id, 8);
    message["accept_public_jobs"] = json!(!is_private);
    RawNode::join_at(&s.address, Some(&tenant.node), message).await
}

/// Requirements: NODE-20, PICK-09, PICK-10.
#[tokio::test]
async fn private_jobs_and_private_nodes_stay_with_their_tenant() {
    let redis = Redis::start().await;
    let mut config = String::new();
    let alice = tenant("alice", &mut config).await;
    let bob = tenant("bob", &mut config).await;
    let shared = format!("{config}[store]\nurl = {:?}\n", redis.url());
    for config in [config, shared] {
        let s = Scheduler::from_toml(&config).await;
        let mut own = join(&s, &alice, "own", true).await;
        let private = || json!({"public": false, "wait_ms": 0});
        let public = || json!({"public": true, "wait_ms": 0});

        // A private node takes private jobs of its own tenant only.
        let sent = dispatch(&s, &alice, private()).await;
        assert_eq!((sent.status, &sent.body["node_id"]), (200, &json!("own")), "{sent:?}");
        own.work().await;
        for (tenant, options) in [(&bob, private()), (&bob, public()), (&alice, public())] {
            let refused = dispatch(&s, tenant, options).await;
            assert_eq!(refused.error(), (503, "NO_CAPABLE_NODE"), "{refused:?}");
        }
        let bobs = dispatch(&s, &bob, private()).await;
        assert!(!bobs.text.contains("own"), "nobody's business: {bobs:?}");

        // A public node of one tenant takes public jobs of all, and private ones of its own.
        let mut open = join(&s, &bob, "open", false).await;
        for (tenant, options) in [(&bob, private()), (&bob, public()), (&alice, public())] {
            let sent = dispatch(&s, tenant, options).await;
            assert_eq!((sent.status, &sent.body["node_id"]), (200, &json!("open")), "{sent:?}");
            open.work().await;
        }
        for _ in 0..4 {
            let sent = dispatch(&s, &alice, private()).await;
            assert_eq!(sent.body["node_id"], "own", "never bob's: {sent:?}");
            own.work().await;
        }

        // Segments of sessions are public jobs.
        for tenant in [&alice, &bob] {
            let start = json!({"type": "session_start", "src_lang": "zh", "tgt_lang": "en"});
            let mut client = SessionClient::open_as(&s.address, start, Some(&tenant.client)).await;
            client.send(json!({"type": "text", "text": "你好"})).await;
            open.work().await;
            assert_eq!(client.outcome().await["type"], "result");
        }
    }
}
