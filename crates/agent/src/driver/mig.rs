//! Parts of NVIDIA's devices: a GPU instance at its place with one compute instance that has all of it.

use tenure_domain::schedule::hardware::PartChoice;

use super::{Made, capability};
use crate::discover::nvidia::library::{Failure, Handle, Instance, InstancePlacement, Nvml};
use crate::discover::setting::Setting;

fn placement(part: &PartChoice) -> InstancePlacement {
    InstancePlacement {
        start: part.placement.start,
        size: part.placement.size,
    }
}

fn device(nvml: &Nvml, gpu: &str) -> Result<Handle, String> {
    let handle = nvml
        .by_uuid(gpu)
        .map_err(|failure| format!("device {gpu} cannot be found: {failure}"))?;
    match nvml.mig_mode(handle) {
        Ok((true, _)) => Ok(handle),
        Ok((false, _)) => Err(format!("device {gpu} is not in MIG mode")),
        Err(failure) => Err(format!("device {gpu} does not say its MIG mode: {failure}")),
    }
}

fn instances(nvml: &Nvml, gpu: &str, handle: Handle) -> Result<Vec<Instance>, String> {
    nvml.all_instances(handle)
        .map_err(|failure| format!("what lies on device {gpu} is not told: {failure}"))
}

pub fn make(nvml: &Nvml, setting: &Setting, gpu: &str, part: &PartChoice) -> Result<Made, String> {
    let handle = device(nvml, gpu)?;
    let lies = |other: &Instance| {
        let other = tenure_domain::schedule::hardware::Placement {
            start: other.placement.start,
            size: other.placement.size,
        };
        part.placement.overlaps(other)
    };
    // What is there already is somebody's. From here on, what lies at this place is ours.
    if instances(nvml, gpu, handle)?.iter().any(lies) {
        return Err(format!(
            "something lies on device {gpu} at {} already",
            part.placement.start
        ));
    }
    let instance = nvml
        .create_instance(handle, part.id, placement(part))
        .map_err(|failure| {
            format!(
                "no {} could be made at {} of device {gpu}: {failure}",
                part.profile, part.placement.start
            )
        })?;
    complete(nvml, setting, handle, instance, part).map_err(|why| {
        let undone = nvml.destroy(instance);
        match undone {
            Ok(()) => format!("{} of device {gpu}: {why}", part.profile),
            Err(failure) => format!("{} of device {gpu}: {why}, and it stays: {failure}", part.profile),
        }
    })
}

/// Makes what programs see of an instance, and finds it.
fn complete(
    nvml: &Nvml,
    setting: &Setting,
    handle: Handle,
    instance: Handle,
    part: &PartChoice,
) -> Result<Made, String> {
    let told = |failure: Failure| failure.to_string();
    nvml.create_compute(instance)
        .map_err(|failure| format!("no compute instance could be made in it: {failure}"))?;
    let is_it = |mig: &Handle| {
        let id = nvml.instance_id(*mig).ok();
        let inside = id.and_then(|id| nvml.instance_by_id(handle, id).ok());
        inside == Some(instance)
    };
    let mig = nvml
        .mig_devices(handle)
        .into_iter()
        .find(is_it)
        .ok_or("the driver does not show it")?;
    let id = nvml.instance_id(mig).map_err(told)?;
    let minor = nvml.minor(handle).map_err(told)?;
    let own = format!("driver/nvidia/capabilities/gpu{minor}/mig/gi{id}");
    let compute = format!("{own}/ci{}", nvml.compute_id(mig).map_err(told)?);
    let mut notes = Vec::new();
    let shared = [
        format!("nvidia{minor}"),
        "nvidiactl".to_owned(),
        "nvidia-uvm".to_owned(),
    ];
    let mut files = setting.device_files(shared, &part.profile, &mut notes);
    for right in [own, compute] {
        files.push(capability::file(setting, &right)?);
    }
    Ok(Made {
        instance: Some(id),
        uuid: nvml.uuid(mig).map_err(told)?,
        files,
    })
}

/// Removes an instance of ours: of this kind, at this place and, once it was known, of this number. Another that took
/// its place is not touched.
pub fn remove(nvml: &Nvml, gpu: &str, part: &PartChoice, number: Option<u32>) -> Result<(), String> {
    let handle = device(nvml, gpu)?;
    let ours = |other: &Instance| {
        other.profile_id == part.id
            && other.placement == placement(part)
            && number.is_none_or(|number| number == other.id)
    };
    let all = instances(nvml, gpu, handle)?;
    let Some(instance) = all.iter().find(|instance| ours(instance)) else {
        return Ok(());
    };
    nvml.instance_by_id(handle, instance.id)
        .and_then(|instance| nvml.destroy(instance))
        .map_err(|failure| {
            format!(
                "{} at {} of device {gpu} could not be removed: {failure}",
                part.profile, part.placement.start
            )
        })
}
