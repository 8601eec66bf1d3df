//! The metrics `process_*`, under the names that every Prometheus client uses.
//!
//! Start at [`ProcessMetrics`]. They are read from `/proc` when they are asked for; on other
//! systems than Linux there are none.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// Linux shows times to programs in hundredths of a second, on every machine.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
struct ProcessMetrics;

/// A registry with the metrics of this process; their names have no prefix.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessMetrics));
    registry
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let (name, help) = ("process_cpu_seconds", "Processor time used, in seconds");
            let value = ConstCounter::new(seconds);
            let encoder = encoder.encode_descriptor(name, help, None, value.metric_type())?;
            value.encode(encoder)?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory in use", status_bytes("VmRSS:")),
            ("process_virtual_memory_bytes", "Memory reserved", status_bytes("VmSize:")),
            ("process_open_fds", "Open files and connections", open_files()),
            ("process_max_fds", "Most open files and connections", open_files_max()),
            ("process_start_time_seconds", "When the process started, since 1970", start_seconds()),
        ] {
            let Some(value) = value.map(ConstGauge::new) else { continue };
            let encoder = encoder.encode_descriptor(name, help, None, value.metric_type())?;
            value.encode(encoder)?;
        }
        Ok(())
    }
}

/// The fields of `/proc/self/stat` after the name, which may have blanks.
fn stat_field(number: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    // The first field after the name is number 3 of the manual page.
    fields.split(' ').nth(number - 3)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let (user, system) = (14, 15);
    Some((stat_field(user)? + stat_field(system)?) / TICKS_PER_SECOND)
}

fn start_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + stat_field(22)? / TICKS_PER_SECOND)
}

fn status_bytes(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

fn open_files() -> Option<f64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64)
}

fn open_files_max() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
