//! Which isolation levels a device gives, and why; and of those it does not give, why not.
//!
//! Decided last, when it is known who serves the device.

use tenure_domain::schedule::hardware::Partitioning;
use tenure_domain::workload::spec::Isolation;

use super::{Device, MemoryWall};

/// The modes of a GPU that NVIDIA's MIG can cut.
pub const MIG: &str = "mig";
pub const MIG_OFF: &str = "mig off";

/// What of a device is cut into parts, as far as it matters here.
enum Cut<'a> {
    /// One piece; it could be cut if there is a `Partitioning`.
    Whole(Option<&'a Partitioning>),
    /// By MIG: programs see a part or nothing.
    Mig(&'a Partitioning),
    /// Into parts that programs see side by side.
    Parts(&'a Partitioning),
}

fn cut(device: &Device) -> Cut<'_> {
    let partitioning = device
        .hardware()
        .and_then(|hardware| hardware.partitioning.as_ref());
    match partitioning {
        Some(how) if how.mode == MIG => Cut::Mig(how),
        Some(how) if how.parts.len() > 1 => Cut::Parts(how),
        other => Cut::Whole(other),
    }
}

pub fn set(device: &mut Device, notes: &mut Vec<String>) {
    let title = device.title();
    let mut given = Vec::new();
    let mut missing = |level: Isolation, why: &str| {
        notes.push(format!("{title}: not {}, as {why}", level.as_str()));
    };
    match cut(device) {
        Cut::Whole(partitioning) => {
            given.push((
                Isolation::Exclusive,
                "given whole: no other slice is given on it".to_owned(),
            ));
            match partitioning {
                Some(how) if how.uniform && !how.profiles.is_empty() => given.push(cut_on_demand(how)),
                Some(how) => {
                    let why = format!("it is in one piece (mode {})", how.mode);
                    missing(Isolation::Partition, &why);
                }
                None => {}
            }
            let walled = device.memory_wall.as_ref().map(by_wall);
            if device.opencl.is_some() {
                given.push((Isolation::Fenced, fenced(device)));
                given.push((
                    Isolation::Guarded,
                    match walled {
                        Some(who) => format!(
                            "slices are kept apart inside the job's process; outside it {who} limits device memory, and nothing limits compute or time"
                        ),
                        None => "slices are kept apart inside the job's process only: nothing outside it limits device memory or compute".to_owned(),
                    },
                ));
            } else if let Some(who) = walled {
                let why = format!(
                    "{who} limits device memory outside the job's process; nothing limits compute or time"
                );
                missing(Isolation::Fenced, &why);
                given.push((Isolation::Guarded, why));
            } else {
                missing(
                    Isolation::Guarded,
                    "the guard stands in front of OpenCL and no OpenCL driver serves it",
                );
            }
        }
        Cut::Mig(how) => {
            missing(
                Isolation::Exclusive,
                "in MIG mode a program sees one part of it, never the whole",
            );
            let known = how.parts.iter().all(|part| part.placement.is_some());
            if known && how.profiles.iter().any(|profile| !profile.placements.is_empty()) {
                given.push((
                    Isolation::Partition,
                    "made by MIG for the job, with compute and memory of its own in hardware".to_owned(),
                ));
            } else {
                missing(
                    Isolation::Partition,
                    "it is in MIG mode and does not say where parts lie and may lie",
                );
            }
        }
        Cut::Parts(how) => {
            given.push((
                Isolation::Exclusive,
                format!(
                    "given whole, with its {}: no other slice is given on it",
                    parts(how)
                ),
            ));
            given.push(cut_on_demand(how));
            missing(
                Isolation::Guarded,
                "a program sees its parts side by side, and the guard counts one device",
            );
        }
    }
    if let Some(flaw) = &device.flaw {
        let (kept, lost): (Vec<_>, Vec<_>) = given
            .into_iter()
            .partition(|(level, _)| *level == Isolation::Exclusive);
        given = kept;
        for (level, _) in lost {
            notes.push(format!("{title}: not {}, as {flaw}", level.as_str()));
        }
    }
    device.facts.isolation = given.into_iter().collect();
}

fn fenced(device: &Device) -> String {
    let why =
        "a worker owns the driver outside the job's processes: memory, compute and time are limited there";
    match device.files.is_empty() {
        true => format!(
            "{why}; kernels on a processor are code of that worker, which reaches the page all of the device's slices share"
        ),
        false => why.to_owned(),
    }
}

/// Of a device whose mode cuts all of it.
fn cut_on_demand(how: &Partitioning) -> (Isolation, String) {
    let why = format!(
        "a part of it in the mode that is asked for (now {}), with compute units of its own and held to its part of the memory by the kernel driver",
        how.mode
    );
    (Isolation::Partition, why)
}

fn by_wall(wall: &MemoryWall) -> &'static str {
    match wall {
        MemoryWall::Driver => "its driver",
        MemoryWall::Dmem { .. } => "the kernel",
    }
}

fn parts(how: &Partitioning) -> String {
    match how.parts.len() {
        1 => "1 part".to_owned(),
        count => format!("{count} parts"),
    }
}
