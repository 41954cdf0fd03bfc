//! Limits that each process of a job has by itself, whatever the agent was started with. What all have together is the
//! cgroup's (`cgroup.rs`).

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::broker::Worker;

/// Open files: what programs have that ask for nothing, and what they may ask for. The watchdog looks at each.
const FILES: u64 = 1024;
const FILES_MAX: u64 = 65_536;
/// When the host is out of memory, jobs go before what the host itself needs.
const OUT_OF_MEMORY_SCORE: i32 = 500;

/// Before privileges are given up.
pub fn limit(worker: Option<&Worker>) -> io::Result<()> {
    let had = getrlimit(Resource::Nofile).maximum;
    let most = had.map_or(FILES_MAX, |had| had.min(FILES_MAX));
    set(Resource::Nofile, FILES.min(most), most)?;
    if let Some(worker) = worker {
        let bytes = worker.file_mib_max.saturating_mul(1 << 20);
        set(Resource::Fsize, bytes, bytes)?;
    }
    let file = "/proc/self/oom_score_adj";
    let score: i32 = fs::read_to_string(file)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    if score < OUT_OF_MEMORY_SCORE {
        // Without root's rights the file is not its own just now; then the agent has no score that would matter.
        let _ = fs::write(file, OUT_OF_MEMORY_SCORE.to_string());
    }
    Ok(())
}

fn set(resource: Resource, current: u64, maximum: u64) -> io::Result<()> {
    let limits = Rlimit {
        current: Some(current),
        maximum: Some(maximum),
    };
    Ok(setrlimit(resource, limits)?)
}
