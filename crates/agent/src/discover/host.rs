//! Processors and memory, as far as this process may use them.

use std::fs;

pub fn cpu_milli() -> u32 {
    // Knows of affinity and cgroup quotas.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores)
        .unwrap_or(u32::MAX / 1000)
        .saturating_mul(1000)
}

pub fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = text.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let total = total_kib.unwrap_or(1024) / 1024;
    let limit = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .find_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    limit.map_or(total, |bytes| total.min(bytes >> 20)).max(1)
}
