//! A scheduler that knows its callers: tokens of two tenants, and one for the nodes.
//!
//! Start at [`BenchTokens::write`].
//!
//! Invariant: the file with the tokens is removed when the benchmark ends.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// The secrets of clients: two of each tenant.
pub(crate) const CLIENTS: [&str; 4] =
    ["bench-client-a1", "bench-client-a2", "bench-client-b1", "bench-client-b2"];

/// The secret of all nodes.
pub(crate) const NODES: &str = "bench-nodes";

/// A configuration file with tokens, tenants, weights and limits that the load does not reach.
#[derive(Debug)]
pub(crate) struct BenchTokens {
    file: PathBuf,
}

impl BenchTokens {
    pub(crate) fn write() -> anyhow::Result<Self> {
        let name = format!("lingua-bench-{:016x}.toml", rand::random::<u64>());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, text())
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self { file })
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for BenchTokens {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
    }
}

fn text() -> String {
    let mut text = String::new();
    let mut add = |part: &str| {
        text.push_str(part);
        text.push('\n');
    };
    for (tenant, weight) in [("bench-a", 2), ("bench-b", 1)] {
        add(&format!(
            "[[auth.tenants]]\nname = \"{tenant}\"\nweight = {weight}\n\
             limits = {{ open_jobs = 20000, open_bytes = \"256MiB\" }}"
        ));
    }
    for secret in CLIENTS {
        let tenant = &secret["bench-client-".len()..][..1];
        add(&format!(
            "[[auth.tokens]]\nname = \"{secret}\"\nrole = \"client\"\n\
             tenant = \"bench-{tenant}\"\nsha256 = \"{}\"\n\
             limits = {{ requests_per_second = 1000000, open_jobs = 10000 }}",
            hash(secret)
        ));
    }
    add(&format!(
        "[[auth.tokens]]\nname = \"{NODES}\"\nrole = \"node\"\nnodes = [\"bench-*\"]\n\
         sha256 = \"{}\"",
        hash(NODES)
    ));
    text
}

fn hash(secret: &str) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(secret.as_bytes()) {
        write!(hex, "{byte:02x}").expect("a string takes every byte");
    }
    hex
}
