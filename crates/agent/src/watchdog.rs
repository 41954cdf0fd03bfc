//! The watchdog: what drivers say each process holds of a device, against what its slice may hold.
//!
//! The guard stands inside the job's process, where a hostile program may pass it by; this looks from outside, and
//! ends what holds more, and what uses a driver without the guard (`past`). What a slice may hold is what was given, not
//! what its page says, on which such a program can write. A processor as a device has no driver to ask: its memory is the
//! job's own, which the kernel limits. Deliberately absent: compute, which no driver tells by process soon enough.

mod fdinfo;
mod known;
mod pace;
mod past;
mod round;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;

use crate::discover::{Device, Found};
use crate::isolate::guard::Mapping;
use crate::share::Given;
use crate::stop::StopRequest;
use crate::telemetry::ByProcess;
use round::{Budget, Round};

/// Readings in a row that must agree: memory given back shows a moment late.
const AGREE: u32 = 2;
const MIB: u64 = 1 << 20;
/// What one look at everybody's processes may take of a processor, and what each allocation has of it at least.
const LOOK: Duration = Duration::from_millis(60);
const LOOK_LEAST: Duration = Duration::from_millis(4);
/// For how many looks on end a process may not have been looked at, for want of time: whoever has so many processes, or so
/// large ones, that it comes to this is not to be watched.
const UNSEEN: u64 = 100;

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
    /// Drivers' libraries that lie where none is looked for.
    libraries: Vec<PathBuf>,
    /// What this host's drivers were last known by.
    drivers: Mutex<Option<(Instant, Arc<known::Drivers>)>>,
    suspects: Mutex<BTreeMap<(AllocationId, String), Suspect>>,
    /// What the kernel's drivers said of each process.
    told: Mutex<BTreeMap<(AllocationId, String), Round<u64>>>,
    past: Mutex<past::Past>,
    look: Duration,
}

struct Suspect {
    since: Instant,
    readings: u32,
}

impl Watchdog {
    pub fn new(
        root: PathBuf,
        context_bytes: u64,
        guard: Option<Mapping>,
        libraries: Vec<PathBuf>,
    ) -> Watchdog {
        Watchdog {
            root,
            context_bytes,
            guard,
            libraries,
            drivers: Mutex::default(),
            suspects: Mutex::default(),
            told: Mutex::default(),
            past: Mutex::default(),
            look: LOOK,
        }
    }

    /// What holds more than it may, and the line that says so. `nvidia` is what its driver told and when.
    pub fn look(
        &self,
        found: &Found,
        given: &[Given],
        nvidia: Option<&(Instant, ByProcess)>,
        jobs: &impl Jobs,
    ) -> Vec<(AllocationId, String)> {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *suspects);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rounds = std::mem::take(&mut *told);
        let mut over = Vec::new();
        for slice in given {
            let (id, uuid) = (slice.allocation, &slice.uuid);
            let Some(device) = found.device(uuid) else {
                continue;
            };
            let key = (id, uuid.clone());
            let processes = jobs.processes(id);
            let held = match by_nvidia(device, nvidia, &processes) {
                Some(held) => held,
                None => {
                    let Some(slot) = device.slot() else { continue };
                    let mut round = rounds.remove(&key).unwrap_or_default();
                    round.go(
                        &processes,
                        &self.budget(given.len()),
                        |bytes| *bytes > 0,
                        |pid| fdinfo::held_bytes(&self.root, pid, &slot),
                    );
                    if round.unseen() > UNSEEN {
                        over.push((id, too_many()));
                    }
                    let held = round.seen().map(|(_, bytes)| *bytes);
                    let held = held.filter(|bytes| *bytes > 0).collect();
                    told.insert(key.clone(), round);
                    (Instant::now(), held)
                }
            };
            let (at, held) = held;
            let bytes = held.iter().fold(0u64, |sum, one| sum.saturating_add(*one));
            let contexts = self.context_bytes.saturating_mul(held.len() as u64);
            let known = before.remove(&key);
            if bytes <= slice.limit_bytes.saturating_add(contexts) {
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
        over
    }

    /// What there is time for at one look at one of so many.
    fn budget(&self, of: usize) -> Budget {
        let share = self.look / u32::try_from(of.max(1)).unwrap_or(u32::MAX);
        Budget::new(share.max(LOOK_LEAST.min(self.look)))
    }
}

/// Bytes of the device that each process with some holds, as its driver told, and when that was; none where it tells
/// nothing of it.
fn by_nvidia(
    device: &Device,
    nvidia: Option<&(Instant, ByProcess)>,
    processes: &[i32],
) -> Option<(Instant, Vec<u64>)> {
    let (at, told) = nvidia?;
    let told = told.get(&device.facts.uuid)?;
    let mine = told.iter().filter(|(pid, _)| processes.contains(pid));
    Some((*at, mine.map(|(_, bytes)| *bytes).collect()))
}

fn too_many() -> String {
    "ended: it has more processes, or larger ones, than can be watched".to_owned()
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
