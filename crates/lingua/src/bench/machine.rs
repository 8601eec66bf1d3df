//! What the benchmark runs on: cores, programs, limits, and what processes use of them.
//!
//! Start at [`Machine::here`]. Everything is read from `/proc`; what is not there is not shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The unit of CPU times in `/proc`, which is the same on every Linux.
const TICKS_PER_S: u64 = 100;

/// A machine, as far as figures depend on it.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) cpu: String,
    /// The cores that this process may use.
    pub(super) cores: Vec<usize>,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
}

impl Machine {
    /// Asked before anything is pinned.
    pub(super) fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = field(&read("/proc/cpuinfo"), "model name");
        let allowed = field(&read("/proc/self/status"), "Cpus_allowed_list");
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        Self {
            cpu: cpu.unwrap_or_else(|| "unknown".to_owned()),
            cores: core_list(&allowed.unwrap_or_default()),
            memory_gib: kib(memory.as_deref()).div_ceil(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }

    /// One core for the broker and another for the load, if there are two and `taskset` is there.
    pub(super) fn pins(&self) -> Option<Pins> {
        let (&load, &broker) = (self.cores.first()?, self.cores.last()?);
        let taskset = program("taskset")?;
        (load != broker).then_some(Pins { taskset, broker, load })
    }

    pub(super) fn facts(&self, pins: Option<&Pins>) -> Vec<(&'static str, String)> {
        let pinned = match pins {
            Some(pins) => {
                format!("broker on core {}, clients and nodes on core {}", pins.broker, pins.load)
            }
            None => "no: broker and load share all cores".to_owned(),
        };
        let build = if cfg!(debug_assertions) { " (debug build: figures mean little)" } else { "" };
        vec![
            ("processor", format!("{}, {} cores", self.cpu, self.cores.len())),
            ("memory", format!("{} GiB", self.memory_gib)),
            ("kernel", format!("Linux {}", self.kernel)),
            ("pinned", pinned),
            ("lingua", format!("{}{build}", env!("CARGO_PKG_VERSION"))),
            (
                "command",
                std::env::args().skip(1).fold("lingua".to_owned(), |all, arg| all + " " + &arg),
            ),
        ]
    }
}

/// What the machine's cores did up to a moment, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    all: u64,
    busy: u64,
    ours: u64,
}

impl Usage {
    pub(super) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_whitespace().skip(1);
        let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what follows is counted in user.
        let all = fields.iter().take(8).sum();
        let idle: u64 = fields.get(3..5)?.iter().sum();
        let ours = fs::read_to_string("/proc/self/stat").ok()?;
        Some(Self { all, busy: all - idle, ours: ticks(&ours, 4)? })
    }

    /// The share of the machine that others have had since; children count as ours once they ended.
    pub(super) fn others_since(&self, then: &Self) -> f64 {
        let (all, busy) = (self.all - then.all, self.busy - then.busy);
        busy.saturating_sub(self.ours - then.ours) as f64 / all.max(1) as f64
    }
}

/// The facts as JSON.
pub(super) fn facts_json(facts: &[(&'static str, String)]) -> Value {
    facts
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Who runs where.
#[derive(Debug, Clone)]
pub(super) struct Pins {
    pub(super) taskset: PathBuf,
    pub(super) broker: usize,
    pub(super) load: usize,
}

impl Pins {
    /// Keeps this process on its core.
    pub(super) fn pin_self(&self) -> anyhow::Result<()> {
        let pid = std::process::id().to_string();
        let pinned = std::process::Command::new(&self.taskset)
            .args(["-cp", &self.load.to_string(), &pid])
            .output()
            .context("cannot run taskset")?;
        let why = String::from_utf8_lossy(&pinned.stderr);
        ensure!(
            pinned.status.success(),
            "taskset failed ({}); leave it out with --no-pin",
            why.trim()
        );
        Ok(())
    }
}

/// Where a program is, in `PATH` or where administrators' programs are.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// CPU time that a process has used.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    cpu_in(Path::new(&format!("/proc/{pid}/stat")))
}

/// CPU time that this process has used.
pub(super) fn cpu_self() -> anyhow::Result<Duration> {
    cpu_in(Path::new("/proc/self/stat"))
}

fn cpu_in(stat: &Path) -> anyhow::Result<Duration> {
    let text = fs::read_to_string(stat).context("the process is gone")?;
    ticks(&text, 2)
        .map(|ticks| Duration::from_millis(ticks * 1000 / TICKS_PER_S))
        .with_context(|| format!("cannot read {}", stat.display()))
}

/// User and system time are the 14th and 15th field, those of ended children follow; the second
/// field has blanks in it at will.
fn ticks(stat: &str, fields: usize) -> Option<u64> {
    let times = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(fields);
    times.map(|time| time.parse::<u64>().ok()).sum()
}

/// Memory that a process has in RAM, in KiB.
pub(super) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    Ok(kib(field(&status, "VmRSS").as_deref()))
}

fn kib(value: Option<&str>) -> u64 {
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// `0-1,4` is 0, 1 and 4.
fn core_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(core_list("0-1,4,6-7"), [0, 1, 4, 6, 7]);
        assert_eq!(core_list(""), Vec::<usize>::new());
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(program("sh").is_some());
        assert_eq!(program("no-program-has-this-name"), None);
    }

    #[test]
    fn cpu_time_is_found_behind_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 250 50 15 5 20 0 1 0 9";
        assert_eq!((ticks(stat, 2), ticks(stat, 4)), (Some(300), Some(320)));
        assert!(cpu_self().is_ok());
        let then = Usage::now().unwrap();
        assert!((0.0..=1.0).contains(&Usage::now().unwrap().others_since(&then)));
        assert!(resident_kib(std::process::id()).unwrap() > 0);
    }
}
