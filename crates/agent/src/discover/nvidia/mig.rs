//! How MIG cuts a device: the parts that are there, and the kinds that may be made and where.

use std::collections::BTreeSet;

use tenure_domain::schedule::hardware::{Part, PartChoice, PartProfile, Partitioning, Placement};

use super::super::level::{MIG, MIG_OFF};
use super::Gpu;
use super::library::{Instance, InstancePlacement, Nvml, Profile};

/// None for a device that cannot be cut.
pub fn partitioning(nvml: &Nvml, gpu: &Gpu, notes: &mut Vec<String>) -> Option<Partitioning> {
    let (current, pending) = nvml.mig_mode(gpu.handle).ok()?;
    let word = |on| if on { MIG } else { MIG_OFF }.to_owned();
    let mut partitioning = Partitioning {
        mode: word(current),
        pending: (current != pending).then(|| word(pending)),
        modes: vec![MIG_OFF.to_owned(), MIG.to_owned()],
        ..Partitioning::default()
    };
    if current != pending {
        notes.push(format!(
            "{} ({}): {} after its next reset",
            gpu.name,
            gpu.uuid,
            word(pending)
        ));
    }
    if current {
        let profiles = nvml.profiles(gpu.handle);
        (partitioning.parts, partitioning.taken) = parts(nvml, gpu, &profiles, notes);
        partitioning.profiles = profiles
            .iter()
            .map(|profile| PartProfile {
                name: profile.name.clone(),
                id: profile.id,
                memory_mib: profile.memory_mib,
                slices: profile.slices,
                count: profile.count,
                placements: nvml
                    .placements(gpu.handle, profile.id)
                    .into_iter()
                    .map(place)
                    .collect(),
            })
            .collect();
    }
    Some(partitioning)
}

fn place(placement: InstancePlacement) -> Placement {
    Placement {
        start: placement.start,
        size: placement.size,
    }
}

/// What programs may be given, and places where something lies that they cannot.
fn parts(
    nvml: &Nvml,
    gpu: &Gpu,
    profiles: &[Profile],
    notes: &mut Vec<String>,
) -> (Vec<Part>, Vec<PartChoice>) {
    let mut instances: Vec<(Instance, &Profile)> = Vec::new();
    for profile in profiles {
        match nvml.instances(gpu.handle, profile.id) {
            Ok(found) => instances.extend(found.into_iter().map(|instance| (instance, profile))),
            Err(failure) => {
                notes.push(format!(
                    "{} ({}): where its parts lie is not told: {failure}",
                    gpu.name, gpu.uuid
                ));
                break;
            }
        }
    }
    instances.retain(|(instance, profile)| instance.profile_id == profile.id);
    let mut used = BTreeSet::new();
    let mut parts = Vec::new();
    for device in nvml.mig_devices(gpu.handle) {
        let (Ok(uuid), Ok(share)) = (nvml.uuid(device), nvml.share(device)) else {
            continue;
        };
        let id = nvml.instance_id(device).ok();
        let inside = instances.iter().find(|(instance, _)| Some(instance.id) == id);
        used.extend(id);
        let kind = match inside {
            Some((_, profile)) => profile.name.clone(),
            None => format!("{}g", share.instance_slices),
        };
        parts.push(Part {
            uuid,
            // A part may have some of its instance's compute only, as `1c.3g.40gb`.
            profile: if share.own_slices < share.instance_slices {
                format!("{}c.{kind}", share.own_slices)
            } else {
                kind
            },
            memory_mib: share.memory_mib,
            placement: inside.map(|(instance, _)| place(instance.placement)),
        });
    }
    let mut taken = Vec::new();
    for (instance, profile) in instances
        .iter()
        .filter(|(instance, _)| !used.contains(&instance.id))
    {
        notes.push(format!(
            "{} ({}): its {} at {} takes room, and nothing was made in it that a program could be given",
            gpu.name, gpu.uuid, profile.name, instance.placement.start
        ));
        taken.push(PartChoice {
            profile: profile.name.clone(),
            id: profile.id,
            placement: place(instance.placement),
        });
    }
    parts.sort_by(|one, other| (one.placement, &one.uuid).cmp(&(other.placement, &other.uuid)));
    (parts, taken)
}
