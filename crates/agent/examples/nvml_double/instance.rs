//! GPU instances of the double: made, listed and destroyed as the driver would, kept in `instances.json`.
//!
//! Like the driver it refuses what does not fit and what is in use, and shows each instance below
//! `/proc/driver/nvidia/capabilities`, under the root that the agent looks at.

use std::fs::{self, File};
use std::path::PathBuf;

use super::*;

/// By the uuid of their device.
type Everything = BTreeMap<String, Vec<Instance>>;

#[repr(C)]
pub struct InstanceInfo {
    device: Handle,
    id: c_uint,
    profile_id: c_uint,
    placement: [c_uint; 2],
}

#[repr(C)]
pub struct ComputeInfo {
    device: Handle,
    instance: Handle,
    id: c_uint,
    profile_id: c_uint,
    placement: [c_uint; 2],
}

/// `nvmlComputeInstanceProfileInfo_t`: number, slices, how many, and engines.
type ComputeProfileInfo = [c_uint; 9];

#[repr(C)]
pub struct Attributes {
    engines: [c_uint; 6],
    instance_slices: c_uint,
    own_slices: c_uint,
    memory_mb: c_ulonglong,
}

/// Compute instances by kind: `NVML_COMPUTE_INSTANCE_PROFILE_…`, the driver's number, slices.
const COMPUTE: &[(u32, u32, u32)] = &[(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 4), (4, 4, 7)];

fn read() -> Everything {
    let kept: Option<Everything> = fs::read(beside("instances.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    kept.unwrap_or_else(|| {
        let numbered = |gpu: &Gpu| {
            let each = gpu.instances.iter().zip(1..);
            each.map(|(instance, id)| Instance {
                id,
                ..instance.clone()
            })
            .collect()
        };
        let devices = machine().map_or(&[][..], |machine| &machine.devices);
        devices
            .iter()
            .map(|gpu| (gpu.uuid.clone(), numbered(gpu)))
            .collect()
    })
}

/// Changes what is there, one process after the other.
fn change<T>(how: impl FnOnce(&mut Everything) -> Result<T, Status>) -> Result<T, Status> {
    let lock = File::create(beside("instances.lock")).map_err(|_| 999)?;
    lock.lock().map_err(|_| 999)?;
    let mut all = read();
    let answer = how(&mut all)?;
    let text = serde_json::to_vec(&all).map_err(|_| 999)?;
    fs::write(beside("instances.new"), text).map_err(|_| 999)?;
    fs::rename(beside("instances.new"), beside("instances.json")).map_err(|_| 999)?;
    Ok(answer)
}

fn on(gpu: &Gpu) -> Vec<Instance> {
    read().remove(&gpu.uuid).unwrap_or_default()
}

/// The instance a handle is of: its number stands above 16 bits.
pub fn of(handle: Handle) -> Result<(&'static Gpu, Instance), Status> {
    let (_, gpu) = device(handle)?;
    let id = (handle as usize >> 16 & 0xffff) as u32;
    let found = on(gpu).into_iter().find(|instance| instance.id == id);
    Ok((gpu, found.ok_or(INVALID_ARGUMENT)?))
}

fn inside(handle: Handle, id: u32) -> Handle {
    (handle as usize & 0xffff | (id as usize) << 16) as Handle
}

/// A compute instance's handle has a bit above those of its GPU instance.
const COMPUTE_BIT: usize = 1 << 32;

fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    one.0 < other.0 + other.1 && other.0 < one.0 + one.1
}

fn make(gpu: &Gpu, profile: &MigProfile, start: u32, size: u32) -> Result<u32, Status> {
    if !gpu.mig {
        return Err(NOT_SUPPORTED);
    }
    if size != profile.size || !profile.starts.contains(&start) {
        return Err(INVALID_ARGUMENT);
    }
    change(|all| {
        let here = all.entry(gpu.uuid.clone()).or_default();
        let every = gpu.model().mig.iter().map(|profile| profile.slices).max();
        let slices: u32 = here.iter().map(|instance| gpu.profile_of(instance).slices).sum();
        let of_kind = here
            .iter()
            .filter(|instance| instance.profile == profile.name)
            .count();
        let lies_on =
            |instance: &Instance| overlap((instance.start, gpu.profile_of(instance).size), (start, size));
        if here.iter().any(lies_on)
            || of_kind >= profile.count as usize
            || Some(slices + profile.slices) > every
        {
            return Err(INSUFFICIENT_RESOURCES);
        }
        let id = (1..)
            .find(|id| here.iter().all(|instance| instance.id != *id))
            .unwrap_or(1);
        here.push(Instance {
            id,
            profile: profile.name.to_owned(),
            start,
            uuid: None,
            slices: None,
            used_mib: 0,
        });
        Ok(id)
    })
}

/// Where the driver shows an instance.
fn shown(gpu: &Gpu, id: u32) -> Option<(usize, PathBuf)> {
    let root = std::env::var_os("TENURE_DEVICE_ROOT")?;
    let minor = machine()
        .ok()?
        .devices
        .iter()
        .position(|other| other.uuid == gpu.uuid)?;
    let dir = PathBuf::from(root).join(format!("proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{id}"));
    Some((minor, dir))
}

fn show(gpu: &Gpu, id: u32) {
    let Some((minor, dir)) = shown(gpu, id) else {
        return;
    };
    let _ = fs::create_dir_all(dir.join("ci0"));
    let number = minor * 256 + id as usize * 16;
    for (file, number) in [("access", number + 1), ("ci0/access", number + 2)] {
        let text = format!("DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        let _ = fs::write(dir.join(file), text);
    }
}

fn hide(gpu: &Gpu, id: u32) {
    if let Some((_, dir)) = shown(gpu, id) {
        let _ = fs::remove_dir_all(dir);
    }
}

fn change_one(
    gpu: &Gpu,
    id: u32,
    how: impl FnOnce(&mut Instance) -> Result<(), Status>,
) -> Result<(), Status> {
    change(|all| {
        let here = all.get_mut(&gpu.uuid).ok_or(INVALID_ARGUMENT)?;
        how(here
            .iter_mut()
            .find(|instance| instance.id == id)
            .ok_or(INVALID_ARGUMENT)?)
    })
}

exports! {
    nvmlDeviceGetMigDeviceHandleByIndex(parent: Handle, index: c_uint, handle: *mut Handle) {
        let (_, gpu) = device(parent)?;
        let given = on(gpu).into_iter().filter(|instance| instance.uuid.is_some()).nth(index as usize);
        handle.write(inside(parent, given.ok_or(NOT_FOUND)?.id));
        Ok(())
    }
    nvmlDeviceGetGpuInstanceId(mig: Handle, id: *mut c_uint) {
        id.write(of(mig)?.1.id);
        Ok(())
    }
    nvmlDeviceGetComputeInstanceId(mig: Handle, id: *mut c_uint) {
        of(mig)?;
        id.write(0);
        Ok(())
    }
    nvmlDeviceGetAttributes_v2(mig: Handle, attributes: *mut Attributes) {
        let (gpu, instance) = of(mig)?;
        let profile = gpu.profile_of(&instance);
        attributes.write(Attributes {
            engines: [0; 6],
            instance_slices: profile.slices,
            own_slices: instance.slices.unwrap_or(profile.slices),
            memory_mb: profile.memory_mib,
        });
        Ok(())
    }
    nvmlDeviceGetGpuInstances(parent: Handle, id: c_uint, list: *mut Handle, count: *mut c_uint) {
        let (machine, gpu) = device(parent)?;
        let of_kind = on(gpu).into_iter().filter(|instance| gpu.profile_of(instance).id == id);
        write_list(machine, of_kind.map(|instance| inside(parent, instance.id)).collect(), list, count)
    }
    nvmlDeviceGetGpuInstanceById(parent: Handle, id: c_uint, handle: *mut Handle) {
        of(inside(parent, id)).map_err(|_| NOT_FOUND)?;
        handle.write(inside(parent, id));
        Ok(())
    }
    nvmlGpuInstanceGetInfo(gi: Handle, info: *mut InstanceInfo) {
        let (gpu, instance) = of(gi)?;
        let profile = gpu.profile_of(&instance);
        info.write(InstanceInfo {
            device: (gi as usize & 0xffff) as Handle,
            id: instance.id,
            profile_id: profile.id,
            placement: [instance.start, profile.size],
        });
        Ok(())
    }
    nvmlDeviceCreateGpuInstanceWithPlacement(parent: Handle, id: c_uint, place: *const [c_uint; 2], handle: *mut Handle) {
        let (_, gpu) = device(parent)?;
        let profile = gpu.model().mig.iter().find(|profile| profile.id == id).ok_or(INVALID_ARGUMENT)?;
        let [start, size] = *place;
        handle.write(inside(parent, make(gpu, profile, start, size)?));
        Ok(())
    }
    nvmlGpuInstanceGetComputeInstanceProfileInfo(gi: Handle, kind: c_uint, engine: c_uint, info: *mut ComputeProfileInfo) {
        let (gpu, instance) = of(gi)?;
        let (_, id, slices) = COMPUTE.iter().find(|(known, ..)| *known == kind).ok_or(NOT_SUPPORTED)?;
        let most = gpu.profile_of(&instance).slices;
        if engine != 0 || *slices > most {
            return Err(NOT_SUPPORTED);
        }
        info.write([*id, *slices, most / slices, 0, 0, 0, 0, 0, 0]);
        Ok(())
    }
    nvmlGpuInstanceGetComputeInstances(gi: Handle, id: c_uint, list: *mut Handle, count: *mut c_uint) {
        let (gpu, instance) = of(gi)?;
        let slices = instance.slices.unwrap_or(gpu.profile_of(&instance).slices);
        let is_it = instance.uuid.is_some() && COMPUTE.iter().any(|kind| kind.1 == id && kind.2 == slices);
        let all = is_it.then_some((gi as usize | COMPUTE_BIT) as Handle);
        write_list(machine()?, all.into_iter().collect(), list, count)
    }
    nvmlGpuInstanceCreateComputeInstance(gi: Handle, id: c_uint, handle: *mut Handle) {
        let (gpu, instance) = of(gi)?;
        let whole = gpu.profile_of(&instance).slices;
        let slices = COMPUTE.iter().find(|kind| kind.1 == id && kind.2 <= whole).ok_or(INVALID_ARGUMENT)?.2;
        change_one(gpu, instance.id, |instance| {
            if instance.uuid.is_some() {
                return Err(INSUFFICIENT_RESOURCES);
            }
            instance.uuid = Some(format!("MIG-{}-{}-0", gpu.uuid, instance.id));
            instance.slices = (slices < whole).then_some(slices);
            Ok(())
        })?;
        show(gpu, instance.id);
        handle.write((gi as usize | COMPUTE_BIT) as Handle);
        Ok(())
    }
    nvmlComputeInstanceGetInfo_v2(ci: Handle, info: *mut ComputeInfo) {
        let (gpu, instance) = of(ci)?;
        let slices = instance.slices.unwrap_or(gpu.profile_of(&instance).slices);
        info.write(ComputeInfo {
            device: (ci as usize & 0xffff) as Handle,
            instance: (ci as usize & 0xffff_ffff) as Handle,
            id: 0,
            profile_id: COMPUTE.iter().find(|kind| kind.2 == slices).ok_or(999)?.1,
            placement: [0, slices],
        });
        Ok(())
    }
    nvmlComputeInstanceDestroy(ci: Handle) {
        let (gpu, instance) = of(ci)?;
        if processes().iter().any(|process| instance.uuid.as_ref() == Some(&process.uuid)) {
            return Err(IN_USE);
        }
        change_one(gpu, instance.id, |instance| {
            instance.uuid = None;
            Ok(())
        })?;
        hide(gpu, instance.id);
        Ok(())
    }
    nvmlGpuInstanceDestroy(gi: Handle) {
        let (gpu, instance) = of(gi)?;
        change(|all| {
            let here = all.get_mut(&gpu.uuid).ok_or(INVALID_ARGUMENT)?;
            let at = here.iter().position(|other| other.id == instance.id).ok_or(INVALID_ARGUMENT)?;
            if here[at].uuid.is_some() {
                return Err(IN_USE);
            }
            here.remove(at);
            Ok(())
        })
    }
}
