//! The machine: cores, programs, limits, and the CPU time and memory of processes.
//!
//! Start at [`BenchMachine::here`]. Everything is read from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

/// The unit of CPU times in `/proc`, which is the same on every Linux.
const TICKS_PER_S: u64 = 100;

/// What the figures depend on.
#[derive(Debug, Clone)]
pub(crate) struct BenchMachine {
    pub(crate) cpu: String,
    /// The cores that this process may use.
    pub(crate) cores: Vec<usize>,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
}

impl BenchMachine {
    /// To be called before this process is pinned.
    pub(crate) fn here() -> Self {
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
    pub(crate) fn pins(&self) -> Option<CorePins> {
        let (&load, &broker) = (self.cores.first()?, self.cores.last()?);
        let taskset = find_program("taskset")?;
        (load != broker).then_some(CorePins { taskset, broker, load })
    }

    pub(crate) fn facts(&self, pins: Option<&CorePins>) -> Vec<(&'static str, String)> {
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
            ("lingua-bench", format!("{}{build}", env!("CARGO_PKG_VERSION"))),
            (
                "command",
                std::env::args()
                    .skip(1)
                    .fold(env!("CARGO_PKG_NAME").to_owned(), |all, arg| all + " " + &arg),
            ),
        ]
    }
}

/// CPU time of all cores since the machine started, in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuUsage {
    all: u64,
    busy: u64,
    steal: u64,
    ours: u64,
}

impl CpuUsage {
    pub(crate) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let fields = stat.lines().next()?.split_whitespace().skip(1);
        let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what follows is counted in user.
        let all = fields.iter().take(8).sum();
        let idle: u64 = fields.get(3..5)?.iter().sum();
        let ours = fs::read_to_string("/proc/self/stat").ok()?;
        let steal = fields.get(7).copied().unwrap_or(0);
        Some(Self { all, busy: all - idle, steal, ours: ticks(&ours, 4)? })
    }

    /// The share of the machine that other programs used since `before`. Children of this process
    /// count as its own once they have ended.
    pub(crate) fn others_since(&self, before: &Self) -> f64 {
        let (all, busy) = (self.all - before.all, self.busy - before.busy);
        busy.saturating_sub(self.ours - before.ours) as f64 / all.max(1) as f64
    }

    /// The share of the machine that its host gave to other virtual machines since `before`.
    pub(crate) fn steal_since(&self, before: &Self) -> f64 {
        (self.steal - before.steal) as f64 / (self.all - before.all).max(1) as f64
    }
}

/// The cores of the broker and of the load.
#[derive(Debug, Clone)]
pub(crate) struct CorePins {
    pub(crate) taskset: PathBuf,
    pub(crate) broker: usize,
    pub(crate) load: usize,
}

impl CorePins {
    /// Keeps this process on its core.
    pub(crate) fn pin_self(&self) -> anyhow::Result<()> {
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

/// Finds a program in `PATH` or in `/usr/sbin`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// CPU time that a process has used.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    cpu_in(Path::new(&format!("/proc/{pid}/stat")))
}

/// CPU time that this process has used.
pub(crate) fn cpu_self() -> anyhow::Result<Duration> {
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
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
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
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-program-has-this-name"), None);
    }

    #[test]
    fn cpu_time_is_found_behind_a_name_with_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 250 50 15 5 20 0 1 0 9";
        assert_eq!((ticks(stat, 2), ticks(stat, 4)), (Some(300), Some(320)));
        assert!(cpu_self().is_ok());
        let then = CpuUsage::now().unwrap();
        assert!((0.0..=1.0).contains(&CpuUsage::now().unwrap().others_since(&then)));
        assert!(resident_kib(std::process::id()).unwrap() > 0);
    }
}
