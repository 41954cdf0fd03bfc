//! Checks: what a GPU is, measured because the server asks, before the GPU is let to others and now and then afterwards.
//!
//! Its identity is looked up anew; its memory and its speed are tried by a process of its own (`tenure-broker check`), while
//! nobody has anything of the device. Who comes meanwhile has the device at once: the check ends and gives it back, and the
//! answer is that it is in use. A question asked again is answered again; of one that was lost with an agent the device is
//! measured anew. Deliberately absent: what follows from an answer, and what the GPU claims to be (the server's).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tenure_api::channel::GpuQuestion;
use tenure_domain::id::GpuId;
use tenure_domain::market::check::{GpuReport, Untried};

use crate::chore::{self, Unfinished, one_line};
use crate::discover::Device;

/// A processor's memory is the machine's, which others need.
const PROCESSOR_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_GIB: Duration = Duration::from_secs(2);
/// Who takes a device waits so long for a check to leave it; drivers free memory in less.
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);

/// What the checking process says.
#[derive(Debug, Deserialize)]
struct Said {
    identity: String,
    bytes: u64,
    speed: u64,
}

#[derive(Default)]
struct Inner {
    /// By device, and how each is told to stop.
    under_way: BTreeMap<String, Arc<AtomicBool>>,
    /// Devices that somebody is about to have, and how many there are of those.
    taken: BTreeMap<String, usize>,
    /// The last question of each GPU that was answered in full.
    answered: BTreeMap<GpuId, (u64, GpuReport)>,
}

#[derive(Default)]
pub struct Checks {
    inner: Mutex<Inner>,
    ended: Condvar,
}

/// Devices no check begins on, until this is dropped.
pub struct Taken<'a> {
    checks: &'a Checks,
    uuids: Vec<String>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut inner = self.checks.inner();
        for uuid in &self.uuids {
            if let Some(count) = inner.taken.get_mut(uuid) {
                *count -= 1;
            }
        }
        inner.taken.retain(|_, count| *count > 0);
    }
}

/// A check that is under way.
struct Turn<'a> {
    checks: &'a Checks,
    uuid: &'a str,
    stop: Arc<AtomicBool>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.checks.inner().under_way.remove(self.uuid);
        self.checks.ended.notify_all();
    }
}

enum Begun<'a> {
    Turn(Turn<'a>),
    Answered(GpuReport),
    /// Asked again before it was answered.
    UnderWay,
    /// Somebody is about to have the device.
    Taken,
}

impl Checks {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these devices left by what is checked there, and keeps them free of checks.
    pub fn take<'a>(&self, uuids: impl IntoIterator<Item = &'a str>) -> Taken<'_> {
        let uuids: Vec<String> = uuids.into_iter().map(str::to_owned).collect();
        let mut inner = self.inner();
        for uuid in &uuids {
            *inner.taken.entry(uuid.clone()).or_default() += 1;
            if let Some(stop) = inner.under_way.get(uuid) {
                stop.store(true, Ordering::Release);
            }
        }
        let busy = |inner: &mut Inner| uuids.iter().any(|uuid| inner.under_way.contains_key(uuid));
        let waited = self.ended.wait_timeout_while(inner, LEAVE_PATIENCE, busy);
        drop(waited);
        Taken { checks: self, uuids }
    }

    fn begin<'a>(&'a self, question: &'a GpuQuestion) -> Begun<'a> {
        let mut inner = self.inner();
        if let Some((number, report)) = inner.answered.get(&question.gpu)
            && *number == question.number
        {
            return Begun::Answered(report.clone());
        }
        if inner.under_way.contains_key(&question.uuid) {
            return Begun::UnderWay;
        }
        if inner.taken.contains_key(&question.uuid) {
            return Begun::Taken;
        }
        let stop = Arc::new(AtomicBool::new(false));
        inner.under_way.insert(question.uuid.clone(), stop.clone());
        Begun::Turn(Turn {
            checks: self,
            uuid: &question.uuid,
            stop,
        })
    }

    /// Answers a question; `find` looks for its device anew, `is_in_use` whether somebody has some of it. Nothing, where
    /// it is being answered already.
    pub fn answer(
        &self,
        question: &GpuQuestion,
        find: impl FnOnce() -> Option<Device>,
        is_in_use: impl FnOnce() -> bool,
        program: Option<&Path>,
        cache: &Path,
    ) -> Option<GpuReport> {
        let turn = match self.begin(question) {
            Begun::Turn(turn) => turn,
            Begun::Answered(report) => return Some(report),
            Begun::UnderWay => return None,
            Begun::Taken => return Some(untried(question, find().as_ref(), Untried::InUse)),
        };
        let Some(device) = find() else {
            let why = Untried::Because("it is not here".to_owned());
            return Some(untried(question, None, why));
        };
        // Looked at after the turn began: whoever comes later ends it.
        let tried = match is_in_use() {
            true => Err(Untried::InUse),
            false => attempt(question, &device, program, cache, &turn.stop),
        };
        let report = tried.unwrap_or_else(|why| untried(question, Some(&device), why));
        if report.untried.is_none() {
            let answered = (question.number, report.clone());
            self.inner().answered.insert(question.gpu, answered);
        }
        Some(report)
    }
}

/// What is known of a device without touching it.
fn untried(question: &GpuQuestion, device: Option<&Device>, why: Untried) -> GpuReport {
    GpuReport {
        uuid: device.map_or_else(|| question.uuid.clone(), |device| device.facts.uuid.clone()),
        memory_mib: device.map_or(0, |device| device.facts.vram_mib),
        speed: 0,
        untried: Some(why),
    }
}

fn attempt(
    question: &GpuQuestion,
    device: &Device,
    program: Option<&Path>,
    cache: &Path,
    stop: &AtomicBool,
) -> Result<GpuReport, Untried> {
    let because = |why: &str| Untried::Because(one_line(why));
    let cut = device
        .hardware()
        .and_then(|hardware| hardware.partitioning.as_ref());
    if cut.is_some_and(|cut| !cut.parts.is_empty()) {
        return Err(because("it is cut into parts"));
    }
    let name = device
        .opencl
        .as_ref()
        .ok_or_else(|| because("no OpenCL driver serves it, and nothing else here can measure it"))?;
    let program = program.ok_or_else(|| because("there is no program to measure with"))?;
    let (index, bytes) = (name.index.to_string(), (question.memory_mib << 20).to_string());
    let processor = PROCESSOR_BYTES.to_string();
    let command = chore::command(
        program,
        cache,
        [
            "check",
            "--platform",
            &name.platform,
            "--device",
            &index,
            "--bytes",
            &bytes,
            "--processor-bytes",
            &processor,
        ],
    );
    let patience = PATIENCE + PATIENCE_PER_GIB * (question.memory_mib >> 10) as u32;
    let said = chore::run(command, patience, stop).map_err(|unfinished| match unfinished {
        Unfinished::Stopped => Untried::InUse,
        Unfinished::Failed(why) => because(&why),
    })?;
    let said: Said = serde_json::from_str(&said).map_err(|_| because("what was found was not said"))?;
    Ok(GpuReport {
        uuid: identity(device, &said.identity),
        memory_mib: said.bytes >> 20,
        speed: said.speed,
        untried: None,
    })
}

/// As the driver that was just used tells it, where vendors name devices by that; else as it was found.
fn identity(device: &Device, told: &str) -> String {
    let by_vendor =
        device.facts.vendor == "NVIDIA" && told.len() == 32 && told.bytes().any(|digit| digit != b'0');
    if !by_vendor {
        return device.facts.uuid.clone();
    }
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &told[range]);
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u64) -> GpuQuestion {
        GpuQuestion {
            gpu: GpuId(7),
            number,
            uuid: "GPU-1".into(),
            memory_mib: 1024,
        }
    }

    #[test]
    fn one_check_of_a_device_at_a_time_and_none_where_it_is_taken() {
        let checks = Checks::default();
        let (first, second) = (question(1), question(2));
        let turn = match checks.begin(&first) {
            Begun::Turn(turn) => turn,
            _ => panic!("nobody is there"),
        };
        assert!(matches!(checks.begin(&second), Begun::UnderWay));
        let stop = turn.stop.clone();
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| checks.take(["GPU-1"]));
            while !stop.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            assert!(!taking.is_finished(), "it is still there");
            drop(turn);
            let taken = taking.join().expect("it left");
            assert!(matches!(checks.begin(&first), Begun::Taken));
            drop(taken);
        });
        assert!(matches!(checks.begin(&first), Begun::Turn(_)));
    }
}
