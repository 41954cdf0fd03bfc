//! A double of NVIDIA's management library, for tests: `libnvml_double.so`, driven by the JSON file that
//! `TENURE_NVML_PROFILE` names. It answers as NVML would on the machine described there, faults included.
//!
//! Names, numbers and layouts are those of `nvml.h` (`model` holds what devices are made of). What is made and set on
//! it (`instance`, `limit`) is kept in files beside the profile, so that it outlives the process as it would in a
//! driver. Deliberately absent: everything the agent does not ask for.

mod model;

use std::collections::BTreeMap;
use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use model::{MODELS, MigProfile, Model};

type Handle = *mut c_void;
type Status = i32;

const SUCCESS: Status = 0;
const UNINITIALIZED: Status = 1;
const INVALID_ARGUMENT: Status = 2;
const NOT_SUPPORTED: Status = 3;
const NOT_FOUND: Status = 6;
const INSUFFICIENT_SIZE: Status = 7;
const GPU_IS_LOST: Status = 15;
const IN_USE: Status = 19;
const INSUFFICIENT_RESOURCES: Status = 23;

/// The machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    driver: String,
    devices: Vec<Gpu>,
    /// The status of `nvmlInit_v2`.
    #[serde(default)]
    init: Status,
    /// The function that never returns.
    #[serde(default)]
    hang: String,
    /// More is counted than there is room for.
    #[serde(default)]
    wrong_counts: bool,
    /// Texts fill their room and do not end.
    #[serde(default)]
    endless_texts: bool,
    /// Memory that no device has.
    #[serde(default)]
    wrong_memory: bool,
    /// Functions that fail, and how.
    #[serde(default)]
    fail: BTreeMap<String, Status>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gpu {
    model: String,
    uuid: String,
    bus: u32,
    #[serde(default)]
    lost: bool,
    #[serde(default)]
    ecc: bool,
    #[serde(default)]
    uncorrected: u64,
    /// What it measures of itself; an old device measures nothing.
    #[serde(default)]
    gauges: Option<Gauges>,
    #[serde(default)]
    mig: bool,
    /// If another mode was asked for.
    #[serde(default)]
    mig_pending: Option<bool>,
    #[serde(default)]
    instances: Vec<Instance>,
    /// Buses at the other ends of its NVLinks; 0 is a switch.
    #[serde(default)]
    links: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Gauges {
    busy_percent: u32,
    used_mib: u64,
    temperature_c: u32,
    power_mw: u32,
    energy_mj: u64,
    throttle_reasons: u64,
    corrected: u64,
    #[serde(default)]
    sm_clock_mhz: Option<u32>,
    #[serde(default)]
    memory_clock_mhz: Option<u32>,
    #[serde(default)]
    memory_percent: u32,
    /// What the counters of its units say; only newer devices have any.
    #[serde(default)]
    graphics_percent: Option<f64>,
    #[serde(default)]
    tensor_percent: Option<f64>,
}

/// A GPU instance, with one compute instance in it or none.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Instance {
    /// Its number on the device; given in the order of a profile that says none.
    #[serde(default)]
    id: u32,
    profile: String,
    start: u32,
    #[serde(default)]
    uuid: Option<String>,
    /// Compute slices, if not all.
    #[serde(default)]
    slices: Option<u32>,
    #[serde(default)]
    used_mib: u64,
}

/// A program on a device. Programs come and go, so they stand in a file of their own, `processes.json` beside the
/// profile, which is read each time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    uuid: String,
    pid: u32,
    mib: u64,
}

/// A file beside the profile.
fn beside(name: &str) -> PathBuf {
    let profile = std::env::var_os("TENURE_NVML_PROFILE").unwrap_or_default();
    PathBuf::from(profile).with_file_name(name)
}

/// What devices have used so far moves while programs look: by uuid, in `energy.json` beside the profile.
fn counters() -> BTreeMap<String, u64> {
    std::fs::read(beside("energy.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn processes() -> Vec<Process> {
    std::fs::read(beside("processes.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// `nvmlProcessInfo_t` as of `_v3`
#[repr(C)]
pub struct ProcessInfo {
    pid: c_uint,
    used_bytes: c_ulonglong,
    instances: [c_uint; 2],
}

impl Gpu {
    fn model(&self) -> &'static Model {
        MODELS
            .iter()
            .find(|model| model.name == self.model)
            .expect("a profile names a known model")
    }

    fn profile_of(&self, instance: &Instance) -> &'static MigProfile {
        let mut profiles = self.model().mig.iter();
        profiles
            .find(|profile| profile.name == instance.profile)
            .expect("an instance has a profile of its model")
    }
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

fn machine() -> Result<&'static Machine, Status> {
    MACHINE.get().ok_or(UNINITIALIZED)
}

/// A handle is a number: a device counts from 1, and above 16 bits stands the instance.
fn device(handle: Handle) -> Result<(&'static Machine, &'static Gpu), Status> {
    let machine = machine()?;
    let index = (handle as usize & 0xffff)
        .checked_sub(1)
        .ok_or(INVALID_ARGUMENT)?;
    let gpu = machine.devices.get(index).ok_or(INVALID_ARGUMENT)?;
    if gpu.lost {
        return Err(GPU_IS_LOST);
    }
    Ok((machine, gpu))
}

fn gauges(handle: Handle) -> Result<&'static Gauges, Status> {
    device(handle)?.1.gauges.as_ref().ok_or(NOT_SUPPORTED)
}

fn hang_if_asked(machine: &Machine, function: &str) {
    if machine.hang == function {
        loop {
            std::thread::park();
        }
    }
}

/// # Safety
/// `text` has `room` letters.
unsafe fn write_text(machine: &Machine, said: &str, text: *mut c_char, room: c_uint) -> Result<(), Status> {
    let mut letters = said.bytes().chain([0]).collect::<Vec<_>>();
    if machine.endless_texts {
        letters = vec![b'x'; room as usize];
    }
    if letters.len() > room as usize {
        return Err(7);
    }
    for (at, letter) in letters.into_iter().enumerate() {
        // SAFETY: within the room, as was just checked.
        unsafe { text.add(at).write(letter as c_char) };
    }
    Ok(())
}

/// # Safety
/// `list` has as many places as `count` says.
unsafe fn write_list<T>(
    machine: &Machine,
    items: Vec<T>,
    list: *mut T,
    count: *mut c_uint,
) -> Result<(), Status> {
    // SAFETY: both as the caller promises; nothing is written beyond the room.
    unsafe {
        let room = *count as usize;
        let length = items.len();
        for (at, item) in items.into_iter().take(room).enumerate() {
            list.add(at).write(item);
        }
        count.write(if machine.wrong_counts {
            1_000_000
        } else {
            length as c_uint
        });
    }
    Ok(())
}

macro_rules! exports {
    ($($name:ident ($($argument:ident : $kind:ty),*) $body:block)*) => {
        $(
            /// # Safety
            /// As nvml.h says of the function of this name.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> Status {
                if let Ok(machine) = machine() {
                    hang_if_asked(machine, stringify!($name));
                    if let Some(&status) = machine.fail.get(stringify!($name)) {
                        return status;
                    }
                }
                // A `?` in the body ends the body alone.
                // SAFETY: the caller's promise is handed on.
                #[allow(unused_unsafe, clippy::redundant_closure_call)]
                let answer = (|| -> Result<(), Status> { unsafe { $body } })();
                answer.err().unwrap_or(SUCCESS)
            }
        )*
    };
}

#[repr(C)]
pub struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    ids: [c_uint; 2],
    bus_id: [c_char; 32],
}

fn pci_info(bus: u32) -> PciInfo {
    let mut bus_id = [0; 32];
    for (place, letter) in bus_id.iter_mut().zip(format!("00000000:{bus:02X}:00.0").bytes()) {
        *place = letter as c_char;
    }
    PciInfo {
        legacy: [0; 16],
        domain: 0,
        bus,
        device: 0,
        ids: [0; 2],
        bus_id,
    }
}

#[repr(C)]
pub struct ProfileInfo {
    version: c_uint,
    id: c_uint,
    p2p: c_uint,
    slices: c_uint,
    count: c_uint,
    engines: [c_uint; 6],
    memory_mb: c_ulonglong,
    name: [c_char; 96],
}

mod instance;
mod limit;
mod measure;

/// Reads the profile.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvmlInit_v2() -> Status {
    let Some(text) = std::env::var("TENURE_NVML_PROFILE")
        .ok()
        .and_then(|path| std::fs::read_to_string(path).ok())
    else {
        return 999;
    };
    let machine = MACHINE.get_or_init(|| serde_json::from_str(&text).expect("a profile"));
    hang_if_asked(machine, "nvmlInit_v2");
    machine.init
}

exports! {
    nvmlSystemGetDriverVersion(text: *mut c_char, room: c_uint) {
        let machine = machine()?;
        write_text(machine, &machine.driver, text, room)
    }
    nvmlDeviceGetCount_v2(count: *mut c_uint) {
        count.write(machine()?.devices.len() as c_uint);
        Ok(())
    }
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut Handle) {
        if index as usize >= machine()?.devices.len() {
            return Err(INVALID_ARGUMENT);
        }
        handle.write((index as usize + 1) as Handle);
        Ok(())
    }
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, handle: *mut Handle) {
        let uuid = std::ffi::CStr::from_ptr(uuid).to_bytes();
        let index = machine()?.devices.iter().position(|gpu| gpu.uuid.as_bytes() == uuid).ok_or(NOT_FOUND)?;
        device((index + 1) as Handle)?;
        handle.write((index + 1) as Handle);
        Ok(())
    }
    nvmlDeviceGetName(of: Handle, text: *mut c_char, room: c_uint) {
        let (machine, gpu) = device(of)?;
        write_text(machine, gpu.model().product, text, room)
    }
    nvmlDeviceGetUUID(of: Handle, text: *mut c_char, room: c_uint) {
        let (machine, gpu) = device(of)?;
        let part = instance::of(of).ok().and_then(|(_, instance)| instance.uuid);
        write_text(machine, part.as_deref().unwrap_or(&gpu.uuid), text, room)
    }
    nvmlDeviceGetMemoryInfo(of: Handle, memory: *mut [c_ulonglong; 3]) {
        let (machine, gpu) = device(of)?;
        let (total, used) = match instance::of(of) {
            Ok((gpu, part)) => (gpu.profile_of(&part).memory_mib, part.used_mib),
            Err(_) => (gpu.model().memory_mib, gpu.gauges.as_ref().map_or(0, |gauges| gauges.used_mib)),
        };
        let (total, used) = (total << 20, used << 20);
        memory.write(if machine.wrong_memory { [u64::MAX; 3] } else { [total, total - used, used] });
        Ok(())
    }
    nvmlDeviceGetPciInfo_v3(of: Handle, info: *mut PciInfo) {
        // Even of a lost device the driver remembers where it was.
        let index = (of as usize & 0xffff).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        info.write(pci_info(machine()?.devices.get(index).ok_or(INVALID_ARGUMENT)?.bus));
        Ok(())
    }
    nvmlDeviceGetMinorNumber(of: Handle, minor: *mut c_uint) {
        device(of)?;
        minor.write((of as usize & 0xffff) as c_uint - 1);
        Ok(())
    }
    nvmlDeviceGetCudaComputeCapability(of: Handle, major: *mut i32, minor: *mut i32) {
        let (_, gpu) = device(of)?;
        major.write(gpu.model().capability.0);
        minor.write(gpu.model().capability.1);
        Ok(())
    }
    nvmlDeviceGetEccMode(of: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let (_, gpu) = device(of)?;
        current.write(gpu.ecc.into());
        pending.write(gpu.ecc.into());
        Ok(())
    }
    nvmlDeviceGetTotalEccErrors(of: Handle, kind: c_uint, counter: c_uint, count: *mut c_ulonglong) {
        let (_, gpu) = device(of)?;
        if !gpu.ecc {
            return Err(NOT_SUPPORTED);
        }
        count.write(match (kind, counter) {
            (1, 0) => gpu.uncorrected,
            (0, 0) => gpu.gauges.as_ref().map_or(0, |gauges| gauges.corrected),
            _ => 0,
        });
        Ok(())
    }
    nvmlDeviceGetUtilizationRates(of: Handle, rates: *mut [c_uint; 2]) {
        let gauges = gauges(of)?;
        rates.write([gauges.busy_percent, gauges.memory_percent]);
        Ok(())
    }
    nvmlDeviceGetTemperature(of: Handle, sensor: c_uint, celsius: *mut c_uint) {
        if sensor != 0 {
            return Err(INVALID_ARGUMENT);
        }
        celsius.write(gauges(of)?.temperature_c);
        Ok(())
    }
    nvmlDeviceGetPowerUsage(of: Handle, power: *mut c_uint) {
        power.write(gauges(of)?.power_mw);
        Ok(())
    }
    nvmlDeviceGetTotalEnergyConsumption(of: Handle, energy: *mut c_ulonglong) {
        let uuid = &device(of)?.1.uuid;
        energy.write(counters().get(uuid).copied().map_or_else(|| gauges(of).map(|gauges| gauges.energy_mj), Ok)?);
        Ok(())
    }
    nvmlDeviceGetComputeRunningProcesses_v3(of: Handle, count: *mut c_uint, infos: *mut ProcessInfo) {
        let (_, gpu) = device(of)?;
        let all: Vec<ProcessInfo> = processes()
            .into_iter()
            .filter(|process| process.uuid == gpu.uuid)
            .map(|process| ProcessInfo { pid: process.pid, used_bytes: process.mib << 20, instances: [u32::MAX; 2] })
            .collect();
        let room = *count as usize;
        count.write(all.len() as c_uint);
        if all.len() > room {
            return Err(INSUFFICIENT_SIZE);
        }
        for (index, info) in all.into_iter().enumerate() {
            infos.add(index).write(info);
        }
        Ok(())
    }
    nvmlDeviceGetCurrentClocksThrottleReasons(of: Handle, reasons: *mut c_ulonglong) {
        reasons.write(gauges(of)?.throttle_reasons);
        Ok(())
    }
    nvmlDeviceGetTopologyCommonAncestor(one: Handle, other: Handle, level: *mut c_uint) {
        let (bus, far) = (device(one)?.1.bus, device(other)?.1.bus);
        // Sixteen buses belong to a host bridge, 128 to a processor.
        level.write(if bus >> 4 == far >> 4 { 10 } else if bus >> 7 == far >> 7 { 40 } else { 50 });
        Ok(())
    }
    nvmlDeviceGetNvLinkState(of: Handle, link: c_uint, state: *mut c_uint) {
        let (_, gpu) = device(of)?;
        if gpu.links.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        state.write((gpu.links.len() > link as usize).into());
        Ok(())
    }
    nvmlDeviceGetNvLinkRemotePciInfo_v2(of: Handle, link: c_uint, info: *mut PciInfo) {
        let (_, gpu) = device(of)?;
        info.write(pci_info(*gpu.links.get(link as usize).ok_or(INVALID_ARGUMENT)?));
        Ok(())
    }
    nvmlDeviceGetNvLinkRemoteDeviceType(of: Handle, link: c_uint, kind: *mut c_uint) {
        let (_, gpu) = device(of)?;
        kind.write(if *gpu.links.get(link as usize).ok_or(INVALID_ARGUMENT)? == 0 { 2 } else { 0 });
        Ok(())
    }
    nvmlDeviceGetMigMode(of: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let (_, gpu) = device(of)?;
        if gpu.model().mig.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        current.write(gpu.mig.into());
        pending.write(gpu.mig_pending.unwrap_or(gpu.mig).into());
        Ok(())
    }
    nvmlDeviceGetMaxMigDeviceCount(of: Handle, count: *mut c_uint) {
        let (machine, gpu) = device(of)?;
        count.write(if machine.wrong_counts { u32::MAX } else if gpu.mig { 7 } else { 0 });
        Ok(())
    }
    nvmlDeviceGetGpuInstanceProfileInfoV(of: Handle, kind: c_uint, info: *mut ProfileInfo) {
        let (_, gpu) = device(of)?;
        if !gpu.mig {
            return Err(NOT_SUPPORTED);
        }
        let known = gpu.model().mig.iter().find(|profile| profile.kind == kind);
        let profile = known.ok_or(NOT_SUPPORTED)?;
        let info = &mut *info;
        if info.version != 0x0200_0098 {
            return Err(25);
        }
        info.id = profile.id;
        info.slices = profile.slices;
        info.count = profile.count;
        info.memory_mb = profile.memory_mib;
        for (place, letter) in info.name.iter_mut().zip(format!("MIG {}\0", profile.name).bytes()) {
            *place = letter as c_char;
        }
        Ok(())
    }
    nvmlDeviceGetGpuInstancePossiblePlacements_v2(of: Handle, id: c_uint, list: *mut [c_uint; 2], count: *mut c_uint) {
        let (machine, gpu) = device(of)?;
        let profile = gpu.model().mig.iter().find(|profile| profile.id == id).ok_or(INVALID_ARGUMENT)?;
        let places = profile.starts.iter().map(|start| [*start, profile.size]);
        write_list(machine, places.collect(), list, count)
    }
}
