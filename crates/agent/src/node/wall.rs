//! Walls around the slices of one launch that stand outside its processes: limits on device memory by the driver or the
//! kernel, and MPS between the jobs of one tenant.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenure_api::channel::{DeviceSlice, Order};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation as Level;

use super::Node;
use crate::discover::{Device, Found, MemoryWall};
use crate::isolate::dmem;
use crate::isolate::mps::Client;

/// A seat makes its cgroups first of all.
const PATIENCE: Duration = Duration::from_secs(5);

/// A wall that could not be built: the node's fault, so the job may run elsewhere.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoWall(String);

pub(super) fn no_wall(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(NoWall(error.to_string()))
}

/// Whether starting failed for want of a wall.
pub(super) fn is_no_wall(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<NoWall>())
}

/// Slices that are shares of a device with such a wall: a part has its own, and a whole device needs none.
fn walled<'a>(order: &'a Order, found: &'a Found) -> impl Iterator<Item = (&'a DeviceSlice, &'a MemoryWall)> {
    let shares = order
        .devices
        .iter()
        .filter(|_| order.isolation < Level::Partition);
    shares.filter_map(|slice| Some((slice, found.device(&slice.uuid)?.memory_wall.as_ref()?)))
}

/// What the kernel is to hold the launch to.
pub(super) fn device_memory(order: &Order, found: &Found) -> Vec<(String, u64)> {
    let regions = walled(order, found).filter_map(|(slice, wall)| match wall {
        MemoryWall::Dmem { region } => Some((region.clone(), slice.vram_mib << 20)),
        MemoryWall::Driver => None,
    });
    regions.collect()
}

fn under_mps<'a>(order: &'a Order, found: &'a Found) -> impl Iterator<Item = &'a DeviceSlice> {
    let is_nvidia = |device: &Device| device.facts.vendor == "NVIDIA";
    let shares = order.devices.iter().filter(|_| order.isolation == Level::Guarded);
    shares.filter(move |slice| found.device(&slice.uuid).is_some_and(is_nvidia))
}

impl Node {
    /// Has drivers limit the launch that the seat with these cgroups is about to get.
    pub(super) fn limit_by_driver(&self, order: &Order, found: &Found, cgroup: &str) -> io::Result<()> {
        let mut by_driver = walled(order, found)
            .filter(|(_, wall)| **wall == MemoryWall::Driver)
            .peekable();
        if by_driver.peek().is_none() {
            return Ok(());
        }
        let cgroup = self
            .isolation
            .cgroups
            .version_2(cgroup)
            .ok_or_else(|| no_wall("the driver limits cgroups of version 2, and jobs have none here"))?;
        await_dir(&cgroup)?;
        by_driver.try_for_each(|(slice, _)| {
            self.drivers
                .limit_memory(&slice.uuid, &cgroup, slice.vram_mib << 20)
                .map_err(no_wall)
        })
    }

    /// Sets the limits of a running allocation, or of its worker, to the new size of its slices.
    pub(super) fn limit_anew(&self, id: AllocationId, devices: &[DeviceSlice]) -> io::Result<()> {
        self.limit_spill(id, devices);
        let found = self.found();
        let walls = devices
            .iter()
            .filter_map(|slice| Some((slice, found.device(&slice.uuid)?.memory_wall.as_ref()?)));
        for (slice, wall) in walls {
            let places = self.processes_of(id);
            let version_2 = self.isolation.cgroups.version_2("");
            let here = |dir: &&PathBuf| version_2.as_ref().is_some_and(|tree| dir.starts_with(tree));
            let cgroup = places
                .iter()
                .find(here)
                .ok_or_else(|| io::Error::other(format!("{id} has no cgroup that could be limited anew")))?;
            let bytes = slice.vram_mib << 20;
            match wall {
                MemoryWall::Dmem { region } => dmem::limit(cgroup, region, bytes)?,
                MemoryWall::Driver => self.drivers.limit_memory(&slice.uuid, cgroup, bytes)?,
            }
        }
        Ok(())
    }

    /// Why the job's devices cannot be had under MPS.
    pub(super) fn mps_objection(&self, order: &Order, found: &Found) -> Option<String> {
        let several = self.mps.is_some() && under_mps(order, found).count() > 1;
        several.then(|| "a program is under the MPS of one device only, and it was given several".to_owned())
    }

    /// Puts the launch under its tenant's MPS, where this node has it.
    /// Why a device is another tenant's for now.
    pub(super) fn mps_strangers(&self, order: &Order, found: &Found) -> Option<String> {
        let mps = self.mps.as_ref()?;
        under_mps(order, found).find_map(|slice| mps.objection(&order.tenant, &slice.uuid))
    }

    pub(super) fn join_mps(
        &self,
        order: &Order,
        found: &Found,
        user_id: Option<u32>,
    ) -> io::Result<Option<Client>> {
        let (Some(mps), Some(slice)) = (&self.mps, under_mps(order, found).next()) else {
            return Ok(None);
        };
        let user_id = user_id.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let size = (slice.compute_permille, slice.vram_mib);
        mps.join(order.allocation, (&order.tenant, user_id), &slice.uuid, size)
            .map(Some)
            .map_err(no_wall)
    }

    /// Takes what is over off MPS.
    pub fn clear_mps(&self) {
        if let Some(mps) = &self.mps {
            mps.clear(|id| self.lives(id));
        }
    }
}

fn await_dir(dir: &Path) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !dir.is_dir() {
        if Instant::now() >= deadline {
            return Err(no_wall(format!("{} never came", dir.display())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
