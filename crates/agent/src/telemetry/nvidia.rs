//! NVIDIA's devices, by NVML: a child process loads it, reads every device and writes a line, four times a second.
//!
//! The driver may hang or fail in the child, never in the agent: a child that is silent for too long is ended and
//! another started. Deliberately absent: what a device is (discovery), and partitions, which NVML does not measure so.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_api::channel::reading::{Gauges, Throttle};

use crate::discover::nvidia::library::Nvml;
use crate::discover::setting::Setting;

/// Short, for the watchdog looks at it.
const PERIOD: Duration = Duration::from_millis(250);
/// Between the end of a child and the next.
const PAUSE: Duration = Duration::from_secs(5);
const LINE_BYTES_MAX: u64 = 1 << 20;
const DEVICES_MAX: u32 = 256;

pub(super) type All = BTreeMap<String, Told>;

/// What NVML says of one device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Told {
    pub gauges: Gauges,
    /// Bytes that each process holds of its memory.
    pub processes: Vec<(i32, u64)>,
}

/// What `measure-nvidia` does, until nobody reads it.
pub fn main() -> i32 {
    let nvml = match Nvml::load(&Setting::from_environment().nvml_library) {
        Ok(nvml) => nvml,
        Err(why) => {
            eprintln!("{why}");
            return 1;
        }
    };
    let mut out = io::stdout().lock();
    loop {
        let Ok(mut line) = serde_json::to_vec(&read(&nvml)) else {
            return 1;
        };
        line.push(b'\n');
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            return 0;
        }
        std::thread::sleep(PERIOD);
    }
}

/// Every device that says who it is. What it does not tell is absent.
fn read(nvml: &Nvml) -> All {
    let devices = (0..nvml.count().unwrap_or(0).min(DEVICES_MAX)).filter_map(|index| {
        let device = nvml.by_index(index).ok()?;
        let uuid = nvml.uuid(device).ok()?;
        let busy = nvml.busy_percent(device).ok().filter(|&percent| percent <= 100);
        let gauges = Gauges {
            busy_permille: busy.map(|percent| percent as u16 * 10),
            used_vram_mib: nvml.used_bytes(device).ok().map(|bytes| bytes.div_ceil(1 << 20)),
            temperature_c: nvml
                .temperature_c(device)
                .ok()
                .and_then(|celsius| celsius.try_into().ok()),
            power_mw: nvml.power_mw(device).ok().map(u64::from),
            energy_mj: nvml.energy_mj(device).ok(),
            ecc_corrected: nvml.corrected_errors(device).ok(),
            ecc_uncorrected: nvml.uncorrected_errors(device).ok(),
            throttled_by: nvml.throttle_reasons(device).ok().map(reasons),
        };
        let told = Told {
            gauges,
            processes: nvml.processes(device).unwrap_or_default(),
        };
        Some((uuid, told))
    });
    devices.collect()
}

/// Idleness and clocks set on purpose hold nothing back.
fn reasons(bits: u64) -> BTreeSet<Throttle> {
    const POWER: u64 = 0x04 | 0x80;
    const THERMAL: u64 = 0x20 | 0x40;
    const OTHER: u64 = 0x08 | 0x10;
    let all = [
        (POWER, Throttle::Power),
        (THERMAL, Throttle::Thermal),
        (OTHER, Throttle::Other),
    ];
    let set = all.into_iter().filter(|(mask, _)| bits & mask != 0);
    set.map(|(_, reason)| reason).collect()
}

/// The agent's side: the child at work and its last line.
#[derive(Default)]
pub struct Stream {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    told: Mutex<Option<(Instant, All)>>,
    child: Mutex<Option<(Instant, Child)>>,
    /// A thread reads.
    begun: AtomicBool,
    over: AtomicBool,
}

impl Stream {
    /// What was last told and when. Begins to listen, and ends a child that has been silent for longer than the
    /// setting's patience.
    pub fn read(&self, setting: &Setting) -> Option<(Instant, All)> {
        if !self.shared.begun.swap(true, Ordering::Relaxed) {
            let (shared, setting) = (self.shared.clone(), setting.clone());
            let listening = move || shared.listen(&setting);
            let spawned = std::thread::Builder::new().name("nvidia".into()).spawn(listening);
            if spawned.is_err() {
                self.shared.begun.store(false, Ordering::Relaxed);
            }
        }
        let told = lock(&self.shared.told).clone();
        if let Some((since, child)) = &mut *lock(&self.shared.child) {
            let heard = told.as_ref().map_or(*since, |(at, _)| (*at).max(*since));
            if heard.elapsed() > setting.patience {
                // One in the driver may not die at once; the thread waits for it, and nobody for the thread.
                let _ = child.kill();
            }
        }
        told
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some((_, child)) = &mut *lock(&self.shared.child) {
            let _ = child.kill();
        }
    }
}

impl Shared {
    fn listen(&self, setting: &Setting) {
        while !self.over.load(Ordering::Relaxed) {
            if let Err(error) = self.hear_one(setting) {
                tracing::debug!(%error, "NVIDIA's devices are not measured");
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Hears a child out.
    fn hear_one(&self, setting: &Setting) -> io::Result<()> {
        let mut child = Command::new(crate::PROGRAM)
            .arg("measure-nvidia")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", "/nonexistent")
            .envs(setting.variables())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let said = child.stdout.take();
        *lock(&self.child) = Some((Instant::now(), child));
        let mut said = BufReader::new(said.ok_or_else(|| io::Error::other("no pipe"))?);
        let heard = loop {
            let mut line = String::new();
            match said.by_ref().take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) => break Ok(()),
                Err(error) => break Err(error),
                Ok(_) => match serde_json::from_str(&line) {
                    Ok(all) => *lock(&self.told) = Some((Instant::now(), all)),
                    Err(error) => break Err(error.into()),
                },
            }
        };
        // Taken out first: waiting may take long, and must not hold up who asks for readings.
        if let Some((_, mut child)) = lock(&self.child).take() {
            let _ = child.kill();
            child.wait()?;
        }
        heard
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_in_words() {
        assert_eq!(reasons(0), [].into());
        assert_eq!(reasons(0x1 | 0x2 | 0x100), [].into(), "idle, or set so");
        assert_eq!(reasons(0x4 | 0x40), [Throttle::Power, Throttle::Thermal].into());
        assert_eq!(reasons(0x8), [Throttle::Other].into());
    }
}
