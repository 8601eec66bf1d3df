//! The audit log: who was refused, and what administrators did, as lines of JSON.
//!
//! Start at `Audit::act` and `Audit::refusal`.
//!
//! Invariants: an act is written before it is answered. Refusals of one caller are written once
//! when they begin, and then with their number every `REPEAT_MS`; at most `CALLERS_MAX` callers
//! are told apart, so that nobody fills the disk or the memory.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lingua_core::{Tenant, is_hidden};
use parking_lot::Mutex;
use serde::Serialize;

use crate::auth::{Sender, wall_ms};

/// How long refusals of one caller are counted before their number is written.
const REPEAT_MS: u64 = 10_000;

/// Most callers whose refusals are counted separately; those of others are counted together.
const CALLERS_MAX: usize = 1_000;

/// Longest name of an object, which a caller may have chosen.
const OBJECT_CHARS_MAX: usize = 200;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
struct AuditRecord {
    actor: String,
    tenant: Option<String>,
    action: String,
    object: String,
    outcome: String,
    remote: Option<IpAddr>,
}

#[derive(Serialize)]
struct Written<'a> {
    ts: u64,
    #[serde(flatten)]
    line: &'a AuditRecord,
    /// How often, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// The audit log. Clones share it; without a file nothing is written.
#[derive(Debug, Clone, Default)]
pub struct Audit(Option<Arc<AuditLog>>);

#[derive(Debug)]
struct AuditLog {
    path: PathBuf,
    inner: Mutex<AuditState>,
}

#[derive(Debug)]
struct AuditState {
    file: File,
    repeated: HashMap<RefusalKey, Repeated>,
}

/// Refusals of one caller for one reason are counted together, whatever it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RefusalKey {
    Caller { actor: String, remote: Option<IpAddr>, outcome: String },
    Others,
}

#[derive(Debug)]
struct Repeated {
    /// The last one.
    line: AuditRecord,
    /// Those that were not written yet.
    count: u64,
    since_ms: u64,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl Audit {
    /// Appends to a file; only its owner can read a new one.
    pub fn open(path: &Path) -> io::Result<Self> {
        let inner = AuditState { file: open(path)?, repeated: HashMap::new() };
        Ok(Self(Some(Arc::new(AuditLog { path: path.to_owned(), inner: Mutex::new(inner) }))))
    }

    /// Opens the file again, after it was moved away.
    pub fn reopen(&self) {
        let Some(log) = &self.0 else { return };
        match open(&log.path) {
            Ok(file) => log.inner.lock().file = file,
            Err(error) => tracing::error!(%error, "cannot open audit.file; the old one goes on"),
        }
    }

    /// Records what the program did by itself, such as reading tokens again.
    pub fn own_act(&self, action: &str, object: &str, outcome: &str) {
        self.write(&AuditRecord {
            actor: "lingua".to_owned(),
            tenant: None,
            action: action.to_owned(),
            object: clean(object),
            outcome: clean(outcome),
            remote: None,
        });
    }

    /// Records an administrative act; `error` is the code of the error it ended with.
    pub(crate) fn act(&self, sender: &Sender, action: &str, object: &str, error: Option<&str>) {
        self.write(&line(Some(sender), sender.remote, action, object, error.unwrap_or("ok")));
    }

    /// Records that a caller was refused; `None` if nobody knows who it is.
    pub(crate) fn refusal(
        &self,
        sender: Option<&Sender>,
        remote: Option<IpAddr>,
        action: &str,
        object: &str,
        reason: &str,
    ) {
        let Some(log) = &self.0 else { return };
        let line = line(sender, remote, action, object, reason);
        let (actor, outcome) = (line.actor.clone(), line.outcome.clone());
        let mut key = RefusalKey::Caller { actor, remote, outcome };
        let mut state = log.inner.lock();
        if !state.repeated.contains_key(&key) && state.repeated.len() >= CALLERS_MAX {
            key = RefusalKey::Others;
        }
        if let Some(repeated) = state.repeated.get_mut(&key) {
            repeated.count += 1;
            repeated.line = line;
            return;
        }
        state.write(&line, 1);
        state.repeated.insert(key, Repeated { line, count: 0, since_ms: wall_ms() });
    }

    /// Writes the numbers of refusals whose time is over.
    pub(crate) fn flush(&self) {
        let Some(log) = &self.0 else { return };
        let (mut state, now_ms) = (log.inner.lock(), wall_ms());
        let is_over = |repeated: &mut Repeated| now_ms.abs_diff(repeated.since_ms) >= REPEAT_MS;
        let over: Vec<_> = state.repeated.extract_if(|_, repeated| is_over(repeated)).collect();
        for (key, repeated) in over {
            if repeated.count > 0 {
                state.write(&repeated.line, repeated.count);
                let fresh = Repeated { count: 0, since_ms: now_ms, ..repeated };
                state.repeated.insert(key, fresh);
            }
        }
    }

    fn write(&self, line: &AuditRecord) {
        if let Some(log) = &self.0 {
            log.inner.lock().write(line, 1);
        }
    }
}

impl AuditState {
    fn write(&mut self, line: &AuditRecord, count: u64) {
        let written = Written { ts: wall_ms(), line, count: (count > 1).then_some(count) };
        let mut json = serde_json::to_vec(&written).unwrap_or_default();
        json.push(b'\n');
        // One call, so that lines of several processes do not mix.
        if let Err(error) = self.file.write_all(&json) {
            tracing::error!(%error, "cannot write audit.file");
        }
    }
}

fn line(
    sender: Option<&Sender>,
    remote: Option<IpAddr>,
    action: &str,
    object: &str,
    outcome: &str,
) -> AuditRecord {
    AuditRecord {
        actor: sender.map_or_else(|| "unknown".to_owned(), |sender| clean(&sender.actor())),
        tenant: sender
            .and_then(|sender| sender.holder.tenant)
            .map(|tenant: Tenant| tenant.to_string()),
        action: action.to_owned(),
        object: clean(object),
        outcome: outcome.to_owned(),
        remote,
    }
}

/// What a caller wrote, without what a terminal would obey and nobody would see.
fn clean(text: &str) -> String {
    let shown = |c: char| if is_hidden(c) { '\u{fffd}' } else { c };
    text.chars().take(OBJECT_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{KnownToken, Role, TokenHash, Tokens};

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn refusals_of_one_caller_are_counted_together_and_callers_are_bounded() {
        let dir = std::env::temp_dir().join(format!("lingua-audit-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("audit.jsonl");
        let audit = Audit::open(&path).unwrap();
        let address = |n: u32| Some(IpAddr::V4(n.into()));
        for _ in 0..500 {
            audit.refusal(None, address(1), "GET /v1/nodes", "/v1/nodes", "UNAUTHORIZED");
        }
        assert_eq!(lines(&path).len(), 1);
        for n in 0..5_000 {
            audit.refusal(None, address(n), "GET /v1/nodes", "/v1/nodes", "UNAUTHORIZED");
        }
        assert_eq!(lines(&path).len(), CALLERS_MAX + 1);
        let log = audit.0.as_ref().unwrap();
        assert_eq!(log.inner.lock().repeated.len(), CALLERS_MAX + 1);
        log.inner.lock().repeated.values_mut().for_each(|repeated| repeated.since_ms = 0);
        audit.flush();
        let counted: Vec<u64> =
            lines(&path).iter().filter_map(|line| line["count"].as_u64()).collect();
        assert_eq!(counted.iter().sum::<u64>(), 499 + 1 + 3_999, "all but the first of each");
        log.inner.lock().repeated.values_mut().for_each(|repeated| repeated.since_ms = 0);
        audit.flush();
        assert!(log.inner.lock().repeated.is_empty(), "who stays away is forgotten");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_a_caller_wrote_cannot_make_a_line() {
        assert_eq!(clean("a\nb\u{1b}[0m"), "a\u{fffd}b\u{fffd}[0m");
        assert_eq!(clean("a\u{202e}b\u{9b}c\u{200b}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(clean(&"x".repeat(10_000)).len(), OBJECT_CHARS_MAX);
        let holder = KnownToken { name: "a\u{202e}b".into(), ..KnownToken::new(Role::Client) };
        let tokens = Tokens::new([(TokenHash::of("x"), holder)]);
        let sender = tokens.identify(Some("x"), 0).unwrap();
        assert_eq!(line(Some(&sender), None, "", "", "").actor, "a\u{fffd}b");
    }
}
