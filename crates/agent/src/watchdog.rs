//! The watchdog: what drivers say each process holds of a device, against what its slice may hold.
//!
//! The guard stands inside the job's process, where a hostile program may pass it by; this looks from outside, and
//! ends what holds more, and what uses a driver without the guard (`past`). A processor as a device has no driver to ask: its memory is the job's own, which the kernel
//! limits. Deliberately absent: compute, which no driver tells by process soon enough.

mod fdinfo;
mod past;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;

use crate::discover::{Device, Found};
use crate::isolate::guard::Mapping;
use crate::share::SharedReading;
use crate::stop::StopRequest;
use crate::telemetry::ByProcess;

/// Readings in a row that must agree: memory given back shows a moment late.
const AGREE: u32 = 2;
const MIB: u64 = 1 << 20;

/// What is known of the jobs that run: which processes are whose.
pub trait Jobs {
    fn processes(&self, id: AllocationId) -> Vec<i32>;

    /// Those whose drivers run in the job itself; none where a worker has them.
    fn processes_with_drivers(&self, id: AllocationId) -> Vec<i32>;
}

pub struct Watchdog {
    /// Above `proc`.
    root: PathBuf,
    /// What a driver takes of a device for each process, beside what the process asks for.
    context_bytes: u64,
    /// How a process is known that has the guard.
    guard: Option<Mapping>,
    suspects: Mutex<BTreeMap<(AllocationId, String), Suspect>>,
    past: Mutex<past::Past>,
}

struct Suspect {
    since: Instant,
    readings: u32,
}

impl Watchdog {
    pub fn new(root: PathBuf, context_bytes: u64, guard: Option<Mapping>) -> Watchdog {
        Watchdog {
            root,
            context_bytes,
            guard,
            suspects: Mutex::default(),
            past: Mutex::default(),
        }
    }

    /// What holds more than it may, and the line that says so. `nvidia` is what its driver told and when.
    pub fn look(
        &self,
        found: &Found,
        pages: &[SharedReading],
        nvidia: Option<&(Instant, ByProcess)>,
        jobs: &impl Jobs,
    ) -> Vec<(AllocationId, String)> {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *suspects);
        let mut over = Vec::new();
        for SharedReading { uuid, snapshot } in pages {
            let Some(device) = found.device(uuid) else {
                continue;
            };
            for slice in &snapshot.slices {
                let id = AllocationId(slice.id);
                let Some((at, held)) = self.held(device, nvidia, &jobs.processes(id)) else {
                    continue;
                };
                let allowed = slice.limit_bytes + self.context_bytes * held.len() as u64;
                let bytes: u64 = held.iter().sum();
                let key = (id, uuid.clone());
                let known = before.remove(&key);
                if bytes <= allowed {
                    continue;
                }
                let readings = match &known {
                    Some(known) if known.since == at => known.readings,
                    Some(known) => known.readings + 1,
                    None => 1,
                };
                if readings >= AGREE {
                    over.push((
                        id,
                        format!(
                            "ended: it holds {} MiB of device {uuid}, its slice has {} MiB",
                            bytes.div_ceil(MIB),
                            slice.limit_bytes / MIB
                        ),
                    ));
                }
                suspects.insert(key, Suspect { since: at, readings });
            }
        }
        over
    }

    /// Bytes of the device that each process with some holds, and when that was so; none where nobody can tell.
    fn held(
        &self,
        device: &Device,
        nvidia: Option<&(Instant, ByProcess)>,
        processes: &[i32],
    ) -> Option<(Instant, Vec<u64>)> {
        if let Some((at, told)) = nvidia
            && let Some(told) = told.get(&device.facts.uuid)
        {
            let mine = told.iter().filter(|(pid, _)| processes.contains(pid));
            return Some((*at, mine.map(|(_, bytes)| *bytes).collect()));
        }
        let slot = device.slot()?;
        let held = processes
            .iter()
            .map(|pid| fdinfo::held_bytes(&self.root, *pid, &slot))
            .filter(|bytes| *bytes > 0);
        Some((Instant::now(), held.collect()))
    }
}

/// How what held too much is ended: at once.
pub fn request(note: String) -> StopRequest {
    StopRequest {
        reason: StopReason::OverLimit,
        grace_s: 0,
        note: Some(note),
    }
}

#[cfg(test)]
mod tests;
