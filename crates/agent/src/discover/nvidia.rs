//! NVIDIA's devices, as NVML tells them. Runs in a process of its own: the driver may hang.
//!
//! A device that does not say its name, identity and memory is not here: lost ones are noted and left out. What else
//! it does not say is left open. Deliberately absent: changing anything, and readings that move.

pub(crate) mod library;
mod link;
mod mig;
mod toolkit;

use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::Hardware;

use super::ask::Answer;
use super::pci::{PciAddress, PciBus};
use super::setting::Setting;
use super::{Device, MemoryWall, class, floor};
use crate::isolate::cgroup;
use library::{Failure, Handle, Nvml};

const DEVICES_MAX: u32 = 256;
/// The first branch of the driver that limits the memory of cgroups.
const LIMITS_SINCE: u32 = 615;
/// The first branch that sets programs aside in steps that can be asked after.
const CHECKPOINTS_SINCE: u32 = 570;

/// A device that answered.
struct Gpu {
    handle: Handle,
    uuid: String,
    name: String,
    vram_mib: u64,
    pci: Option<PciAddress>,
}

pub fn devices(setting: &Setting) -> Result<Answer, String> {
    let nvml = Nvml::load(&setting.nvml_library)?;
    let count = nvml
        .count()
        .map_err(|failure| format!("the devices cannot be counted: {failure}"))?;
    let mut answer = Answer::default();
    let mut gpus = Vec::new();
    for index in 0..count.min(DEVICES_MAX) {
        match gpu(&nvml, index) {
            Ok(gpu) => gpus.push(gpu),
            Err(why) => answer
                .notes
                .push(format!("NVIDIA GPU {index}: left out, as {why}")),
        }
    }
    let bus = PciBus::below(&setting.sys());
    let driver = nvml
        .driver_version()
        .ok()
        .map(|version| format!("nvidia {version}"));
    let toolkits = toolkit::wrong(setting);
    answer.notes.extend(toolkits.iter().cloned());
    let wrong = nvml.driver_version().ok().and_then(|version| {
        let why = floor::wrong_driver(&version)?;
        Some(format!("its driver: {why}"))
    });
    let flaw = wrong.or_else(|| toolkits.first().cloned());
    let walled = nvml.has_memory_limits()
        && nvml
            .driver_version()
            .is_ok_and(|version| floor::branch(&version) >= Some(LIMITS_SINCE))
        && cgroup::has_version_2(&setting.root);
    let checkpoint = setting.checkpoint().is_some()
        && nvml
            .driver_version()
            .is_ok_and(|version| floor::branch(&version) >= Some(CHECKPOINTS_SINCE));
    let links = link::all(&nvml, &gpus);
    for (gpu, links) in gpus.iter().zip(links) {
        let mut hardware = Hardware {
            pci: gpu.pci.map(|pci| pci.to_string()),
            numa_node: gpu.pci.and_then(|pci| bus.numa_node(pci)),
            driver: driver.clone(),
            architecture: nvml
                .capability(gpu.handle)
                .ok()
                .map(|(major, minor)| format!("sm_{major}{minor}")),
            ecc: nvml.ecc_mode(gpu.handle).ok().map(|(current, _)| current),
            partitioning: None,
            one_tenant: false,
            checkpoint,
            links,
        };
        hardware.partitioning = mig::partitioning(&nvml, gpu, &mut answer.notes);
        if let Ok(errors @ 1..) = nvml.uncorrected_errors(gpu.handle) {
            answer.notes.push(format!(
                "{} ({}): {errors} memory errors could not be corrected since its driver was loaded",
                gpu.name, gpu.uuid
            ));
        }
        answer.devices.push(Device {
            facts: GpuFacts {
                uuid: gpu.uuid.clone(),
                vendor: "NVIDIA".to_owned(),
                class: class::nvidia(&gpu.name, gpu.vram_mib).into(),
                model: gpu.name.clone(),
                vram_mib: gpu.vram_mib,
                isolation: Default::default(),
                hardware: Some(Box::new(hardware)),
            },
            opencl: None,
            files: setting.device_files(
                files(&nvml, gpu),
                &format!("{} ({})", gpu.name, gpu.uuid),
                &mut answer.notes,
            ),
            memory_wall: walled.then_some(MemoryWall::Driver),
            flaw: flaw.clone(),
        });
    }
    Ok(answer)
}

fn files(nvml: &Nvml, gpu: &Gpu) -> Vec<String> {
    let own = nvml.minor(gpu.handle).ok().map(|minor| format!("nvidia{minor}"));
    let shared = ["nvidiactl", "nvidia-uvm"].map(str::to_owned);
    own.into_iter().chain(shared).collect()
}

/// A device, or why it cannot be used.
fn gpu(nvml: &Nvml, index: u32) -> Result<Gpu, String> {
    let handle = nvml.by_index(index).map_err(|failure| failure.to_string())?;
    let pci = nvml.pci(handle).ok();
    let place = || pci.map_or(String::new(), |pci| format!(" (at {pci})"));
    let lacks = |what: &str, failure: Failure| format!("its {what} cannot be read{}: {failure}", place());
    let name = nvml.name(handle).map_err(|failure| lacks("name", failure))?;
    let uuid = nvml.uuid(handle).map_err(|failure| lacks("uuid", failure))?;
    let bytes = nvml
        .memory_bytes(handle)
        .map_err(|failure| lacks("memory", failure))?;
    // The driver counts what the device has; what no device has is a driver gone wrong.
    if uuid.is_empty() || bytes >> 20 == 0 || bytes >> 50 > 0 {
        return Err(format!(
            "it says it is called {uuid:?} and has {bytes} bytes of memory{}",
            place()
        ));
    }
    Ok(Gpu {
        handle,
        uuid,
        name,
        vram_mib: bytes >> 20,
        pci,
    })
}
