//! Which pools the table has.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::raw_node::{RawNode, register_langs};
use crate::scheduler::Scheduler;

/// The names of the pools of a table.
fn names(table: &Value) -> BTreeSet<&str> {
    let pools = table["pools"].as_array().into_iter().flatten();
    pools.filter_map(|pool| pool["pool"].as_str()).collect()
}

/// Requirements: POOL-16, POOL-17, POOL-18, CONF-06, CONF-07.
#[tokio::test]
async fn the_table_has_the_largest_exact_pools_and_every_mixed_one() {
    let three_nodes = ["zh:en", "en:zh"];
    let two_nodes = ["fr:de", "de:fr"];
    let mixed = ["*:zh", "*:en", "*:fr", "*:de", "*:ko"];
    let more_than_one = [three_nodes, two_nodes].concat();
    for (settings, left_out, exact) in [
        (("POOLS__MAX_POOLS", "2"), 3, &three_nodes[..]),
        (("POOLS__MIN_NODES_PER_POOL", "2"), 1, &more_than_one),
    ] {
        let s = Scheduler::with(&[settings]).await;
        let mut nodes = vec![];
        for (id, langs, pairs) in [
            ("a", &["ja"][..], json!([["ja", "ko"]])),
            ("b", &["fr", "de"], json!([["fr", "de"], ["de", "fr"]])),
            ("c", &["fr", "de"], json!([["fr", "de"], ["de", "fr"]])),
            ("d", &["zh", "en"], json!([["zh", "en"], ["en", "zh"]])),
            ("e", &["zh", "en"], json!([["zh", "en"], ["en", "zh"]])),
            ("f", &["zh", "en"], json!([["zh", "en"], ["en", "zh"]])),
        ] {
            let mut message = register_langs(id, 1, langs);
            message["nmt_pairs"] = pairs;
            nodes.push(RawNode::join_with(&s, message).await);
        }
        let expected: BTreeSet<&str> = exact.iter().chain(&mixed).copied().collect();
        s.until_reply("/v1/pools", |reply| {
            names(&reply.body) == expected && reply.body["left_out"] == left_out
        })
        .await;
    }
}
