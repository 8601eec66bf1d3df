//! The name of every key. docs/redis-data-model.md says what is in them.
//!
//! Invariant: all keys of one script have the same hash tag (the part in braces), so that they are
//! on the same server of a Cluster.

use std::sync::OnceLock;

use lingua_core::id::{CELLS_MAX, hex};
use lingua_core::{CellId, InstanceId, JobId, Tenant};
use lingua_store::contract::Digest;

/// Jobs, and idempotency keys, are spread over this many hash tags. Another number would be another
/// layout of the data.
pub(crate) const SHARDS: u32 = 16;

/// Bindings are spread over this many hash tags.
const BINDING_SHARDS: u32 = 256;

/// Builds the names of keys. Those that every job needs are built once.
#[derive(Debug)]
pub(crate) struct Keys {
    prefix: String,
    cells: Box<[OnceLock<CellKeys>]>,
    shards: Vec<ShardKeys>,
}

/// The keys of a cell.
#[derive(Debug)]
pub(crate) struct CellKeys {
    pub(crate) hot: String,
    pub(crate) cold: String,
    pub(crate) fresh: String,
    pub(crate) nodes: String,
    pub(crate) index: String,
    pub(crate) leases: String,
    pub(crate) due: String,
    /// Changes that are not on the feed yet.
    pub(crate) unpublished: String,
}

impl CellKeys {
    /// All keys, in the order of the scripts that need all of them.
    pub(crate) fn all(&self) -> [&String; 8] {
        let Self { hot, cold, fresh, nodes, index, leases, due, unpublished } = self;
        [hot, cold, fresh, nodes, index, leases, due, unpublished]
    }
}

/// The keys of a shard of jobs.
#[derive(Debug)]
pub(crate) struct ShardKeys {
    /// The prefix of its jobs' keys.
    job: String,
    pub(crate) all: String,
    pub(crate) open: String,
    pub(crate) ended: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let shard = |shard| {
            let key = |name: &str| format!("{prefix}{{j{shard}}}:{name}");
            ShardKeys { job: key("job:"), all: key("all"), open: key("open"), ended: key("ended") }
        };
        Self {
            prefix: prefix.to_owned(),
            cells: (0..CELLS_MAX).map(|_| OnceLock::new()).collect(),
            shards: (0..SHARDS).map(shard).collect(),
        }
    }

    pub(crate) fn cell(&self, cell: CellId) -> &CellKeys {
        self.cells[cell.index()].get_or_init(|| {
            let key = |name: &str| format!("{}{{{cell}}}:{name}", self.prefix);
            CellKeys {
                hot: key("hot"),
                cold: key("cold"),
                fresh: key("fresh"),
                nodes: key("nodes"),
                index: key("index"),
                leases: key("leases"),
                due: key("due"),
                unpublished: key("news"),
            }
        })
    }

    /// Keys of the directory: places, counts, taken, classes, epoch, owned.
    pub(crate) fn directory(&self) -> [String; 6] {
        ["places", "counts", "taken", "classes", "epoch", "owned"]
            .map(|name| format!("{}{{dir}}:{name}", self.prefix))
    }

    /// The feed, and its newest number.
    pub(crate) fn feed(&self) -> [String; 2] {
        [self.cluster("feed"), self.cluster("feed_head")]
    }

    pub(crate) fn cluster(&self, name: &str) -> String {
        format!("{}{{hub}}:{name}", self.prefix)
    }

    pub(crate) fn usage(&self, name: &str) -> String {
        format!("{}{{usage}}:{name}", self.prefix)
    }

    /// An instance's presence and its inbox.
    pub(crate) fn instance(&self, instance: &InstanceId) -> [String; 2] {
        ["presence", "inbox"].map(|name| format!("{}{{i:{instance}}}:{name}", self.prefix))
    }

    pub(crate) fn session(&self, id: &str) -> String {
        // A brace in a name would move the tag.
        format!("{}{{s:{}}}:session", self.prefix, id.replace(['{', '}'], "_"))
    }

    /// The idempotency keys of a shard, and the order of their claims.
    pub(crate) fn idempotency(&self, key: &Digest) -> [String; 2] {
        let shard = u32::from(key[0]) % SHARDS;
        ["keys", "claims"].map(|name| format!("{}{{k{shard}}}:{name}", self.prefix))
    }

    /// A binding. The tenant has no slash, so that the two parts cannot be confused.
    pub(crate) fn binding(&self, tenant: Tenant, key: &str) -> String {
        let bytes = tenant.as_str().bytes().chain(key.bytes());
        let hash = bytes.fold(0x811c_9dc5, |hash: u32, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        format!("{}{{b{}}}:bind:{tenant}/{key}", self.prefix, hash % BINDING_SHARDS)
    }

    pub(crate) fn job(&self, job: JobId) -> Vec<u8> {
        let before = self.shard(shard_of(job)).job.as_bytes();
        [before, &hex(job.number())].concat()
    }

    pub(crate) fn shard(&self, shard: u32) -> &ShardKeys {
        &self.shards[shard as usize]
    }
}

/// Which shard a job is in. The low bits of an id are random.
pub(crate) fn shard_of(job: JobId) -> u32 {
    (job.number() % u128::from(SHARDS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/redis-data-model.md");

    /// The sources that name keys of the hub or of the usage.
    const SOURCES: [&str; 4] = [
        include_str!("cluster.rs"),
        include_str!("format.rs"),
        include_str!("instances.rs"),
        include_str!("usage.rs"),
    ];

    /// What follows a call of this function: `name("leader")` gives `leader`.
    fn named(function: &str) -> impl Iterator<Item = &str> {
        let calls = SOURCES.into_iter().flat_map(move |source| source.split(function).skip(1));
        calls.filter_map(|rest| rest.strip_prefix("(\"")?.split('"').next())
    }

    fn every_key() -> Vec<String> {
        let keys = Keys::new("");
        let cell = CellId::new(7).expect("a cell");
        let instance: InstanceId = "a".parse().expect("an id");
        let tenant = Tenant::new(Tenant::DEFAULT).expect("a name");
        let shard = keys.shard(3);
        let mut all: Vec<String> = keys.cell(cell).all().map(String::clone).into();
        all.extend([shard.job.clone(), shard.all.clone(), shard.open.clone(), shard.ended.clone()]);
        all.extend(keys.directory());
        all.extend(keys.feed());
        all.extend(keys.instance(&instance));
        all.extend(keys.idempotency(&[3; 32]));
        all.extend([keys.session("sess-…"), keys.binding(tenant, "turn-3")]);
        all.extend(named(".cluster").map(|name| keys.cluster(name)));
        all.extend(named(".usage").map(|name| keys.usage(name)));
        all.push(keys.usage("last:"));
        all
    }

    #[test]
    fn the_document_lists_every_key() {
        let rows: Vec<&str> = DOCUMENT.lines().filter(|line| line.starts_with("| `{")).collect();
        for key in every_key() {
            let is_listed = |row: &&str| {
                // The number of a binding's shard is a hash.
                let name = row.split('`').nth(1).expect("a key");
                match name.split_once(":bind:") {
                    Some((_, name)) => key.ends_with(&format!(":bind:{name}")),
                    None => name == key || key.ends_with(':') && name.starts_with(&key),
                }
            };
            assert!(rows.iter().any(is_listed), "{key} is not in docs/redis-data-model.md");
        }
        assert!(every_key().contains(&"{hub}:leader".to_owned()));
        assert!(every_key().contains(&"{usage}:counts".to_owned()));
    }
}
