//! NVIDIA's devices, by NVML: a child process loads it, reads every device and writes a line, four times a second.
//!
//! The driver may hang or fail in the child, never in the agent: a child that is silent for too long is ended and
//! another started. Deliberately absent: what a device is (discovery).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_api::channel::reading::{Gauges, MAX_SLICES, PartReading, Throttle};
use tenure_domain::schedule::hardware::Placement;

use crate::discover::nvidia::library::{Active, Failure, Handle, Looks, Nvml};
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
    pub parts: Vec<PartReading>,
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
    let mut counters = Counters::default();
    loop {
        let Ok(mut line) = serde_json::to_vec(&read(&nvml, &mut counters)) else {
            return 1;
        };
        line.push(b'\n');
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            return 0;
        }
        std::thread::sleep(PERIOD);
    }
}

/// Looks at devices' own counters, by device and part; none where there are no such counters.
#[derive(Default)]
struct Counters(BTreeMap<(String, Option<u32>), Option<Looks>>);

impl Counters {
    fn look(&mut self, nvml: &Nvml, (device, uuid): (Handle, &str), part: Option<u32>) -> Active {
        let key = (uuid.to_owned(), part);
        let looks = self.0.entry(key).or_insert_with(|| nvml.looks(device).ok());
        let looked = looks
            .as_mut()
            .and_then(|looks| nvml.look(device, part, looks).ok());
        looked.unwrap_or_default()
    }
}

/// Every device that says who it is. What it does not tell is absent.
fn read(nvml: &Nvml, counters: &mut Counters) -> All {
    let devices = (0..nvml.count().unwrap_or(0).min(DEVICES_MAX)).filter_map(|index| {
        let device = nvml.by_index(index).ok()?;
        let uuid = nvml.uuid(device).ok()?;
        let remapped = nvml.remapped(device).ok();
        let active = counters.look(nvml, (device, &uuid), None);
        let gauges = Gauges {
            busy_permille: permille(nvml.busy_percent(device)),
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
            sm_clock_mhz: nvml.sm_clock_mhz(device).ok(),
            memory_clock_mhz: nvml.memory_clock_mhz(device).ok(),
            memory_temperature_c: None,
            memory_busy_permille: permille(nvml.memory_busy_percent(device)),
            encoder_permille: permille(nvml.encoder_percent(device)),
            decoder_permille: permille(nvml.decoder_percent(device)),
            reserved_vram_mib: nvml.reserved_bytes(device).ok().map(|bytes| bytes >> 20),
            pcie_replays: nvml.pcie_replays(device).ok().map(u64::from),
            remapped_correctable: remapped.map(|rows| rows.correctable.into()),
            remapped_uncorrectable: remapped.map(|rows| rows.uncorrectable.into()),
            remap_failed: remapped.map(|rows| rows.failed),
            graphics_active_permille: active.graphics_permille,
            tensor_active_permille: active.tensor_permille,
            memory_active_permille: active.memory_permille,
            pcie_sent_bytes_s: active.sent_bytes_s,
            pcie_received_bytes_s: active.received_bytes_s,
        };
        let told = Told {
            gauges,
            processes: nvml.processes(device).unwrap_or_default(),
            parts: parts(nvml, (device, &uuid), counters),
        };
        Some((uuid, told))
    });
    devices.collect()
}

fn permille(percent: Result<u32, Failure>) -> Option<u16> {
    let percent = percent.ok().filter(|&percent| percent <= 100)?;
    Some(percent as u16 * 10)
}

/// The parts that programs are given. Where one lies is told to root alone.
fn parts(nvml: &Nvml, (device, uuid): (Handle, &str), counters: &mut Counters) -> Vec<PartReading> {
    if !nvml.mig_mode(device).is_ok_and(|(on, _)| on) {
        return Vec::new();
    }
    let instances = nvml.profiles(device).into_iter().flat_map(|profile| {
        let of_kind = nvml.instances(device, profile.id).unwrap_or_default();
        let of_kind = of_kind
            .into_iter()
            .filter(move |instance| instance.profile_id == profile.id);
        of_kind.map(move |instance| (instance, profile.name.clone()))
    });
    let instances: Vec<_> = instances.collect();
    let handles = nvml.mig_devices(device).into_iter();
    let parts = handles.filter_map(|handle| {
        let id = nvml.instance_id(handle).ok()?;
        let (instance, profile) = instances.iter().find(|(instance, _)| instance.id == id)?;
        let memory = nvml.memory_of(handle).ok();
        let active = counters.look(nvml, (device, uuid), Some(id));
        Some(PartReading {
            instance: id,
            profile: profile.clone(),
            placement: Placement {
                start: instance.placement.start,
                size: instance.placement.size,
            },
            vram_mib: memory.map(|(total, _)| total >> 20),
            used_vram_mib: memory.map(|(_, used)| used.div_ceil(1 << 20)),
            graphics_active_permille: active.graphics_permille,
            tensor_active_permille: active.tensor_permille,
            memory_active_permille: active.memory_permille,
        })
    });
    parts.take(MAX_SLICES).collect()
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
