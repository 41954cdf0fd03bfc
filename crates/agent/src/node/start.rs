//! Starting an allocation: a directory of its own, and a thin parent in it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use tenure_api::channel::{Order, VolumeOrder};
use tenure_domain::storage::volume::MAX_PER_JOB;
use tenure_domain::workload::spec::Isolation as Level;

use super::seat::Left;
use super::{Node, part, wall, watch};
use crate::driver::Made;
use crate::isolate::guard::Guard;
use crate::launch::{ImageRoot, Launch};
use crate::record::{Phase, Record};
use crate::scrub::Taker;

impl Node {
    pub(super) fn start(self: &Arc<Self>, order: Order) -> io::Result<()> {
        let id = order.allocation;
        if self.is_buried(id) {
            self.answer_buried(id);
            return Ok(());
        }
        if self.table.knows(id) {
            self.table.tell_again(id);
            return Ok(());
        }
        if !self.holds_lease() {
            return Err(io::Error::other("no lease, no run"));
        }
        let dir = self.dir.allocation(id);
        make_dir(&dir)?;
        if let Some(why) = self.objection(&order) {
            let record = Record::without_process(id, Phase::NotStarted { why });
            if record.claim(&dir)? {
                record.replace(&dir)?;
                self.table.put(record);
            }
            return Ok(());
        }
        // Before it can speak: what is not expected is not listened to.
        self.table.expect(id);
        if order.image.is_some() || self.scrubs.is_due(&Taker::of(&order)) {
            self.start_when_ready(order);
            return Ok(());
        }
        self.spawn_in(&dir, order, None)
    }

    /// Starts the thin parent of an expected allocation.
    pub(super) fn spawn_in(
        self: &Arc<Self>,
        dir: &Path,
        order: Order,
        image: Option<ImageRoot>,
    ) -> io::Result<()> {
        let id = order.allocation;
        let parts = match self.parts.make(&order, &self.found()) {
            Ok(parts) => parts,
            Err(why) => return self.end_unwalled(dir, id, &why),
        };
        match self.spawn(dir, order, image, &parts) {
            Ok((child, left)) => watch::parent(self, id, child, left),
            Err(error) if wall::is_no_wall(&error) => {
                self.shares.withdraw(id);
                self.parts.remove(id);
                self.end_unwalled(dir, id, &error.to_string())
            }
            Err(error) => {
                // Nothing was started; a later order finds no trace of this one.
                self.table.remove(id);
                self.shares.withdraw(id);
                self.parts.remove(id);
                let _ = fs::remove_dir_all(dir);
                Err(error)
            }
        }
    }

    /// Why the node will not run it at all. Fail closed: no device that is not here, no wall that is not there.
    fn objection(&self, order: &Order) -> Option<String> {
        if order.image.is_some() && !self.isolation.namespaces.own {
            return Some("this node gives jobs no mounts of their own, so it cannot run images".to_owned());
        }
        if !order.volumes.is_empty() {
            if let Some(why) = self.volumes.lacking() {
                return Some(format!("this node has no volumes: {why}"));
            }
            let named = |volume: &VolumeOrder| tenure_domain::name::check(&volume.name, "").is_ok();
            if order.volumes.len() > MAX_PER_JOB || !order.volumes.iter().all(named) {
                return Some("its volumes are not named as volumes are".to_owned());
            }
        }
        let found = self.found();
        if let Some(why) = self.mps_objection(order, &found) {
            return Some(why);
        }
        for slice in &order.devices {
            let Some(device) = found.device(&slice.uuid) else {
                return Some(format!("device {} is not here", slice.uuid));
            };
            if !device.facts.isolation.contains_key(&order.isolation) {
                return Some(format!(
                    "device {} cannot be {}",
                    slice.uuid,
                    order.isolation.as_str()
                ));
            }
            if order.isolation < Level::Partition && self.config.guard.is_none() {
                return Some("no guard, no device: the guard library is not installed here".to_owned());
            }
            if order.isolation == Level::Fenced && (self.config.broker.is_none() || device.opencl.is_none()) {
                return Some(format!(
                    "device {} cannot be fenced: there is no worker for it",
                    slice.uuid
                ));
            }
            if let Some(why) = part::objection(order.isolation, slice, device) {
                return Some(why);
            }
            if order.isolation == Level::Exclusive && slice.compute_permille < 1000 {
                return Some(format!("a slice of device {} cannot be exclusive", slice.uuid));
            }
        }
        None
    }

    fn spawn(
        self: &Arc<Self>,
        dir: &Path,
        order: Order,
        image: Option<ImageRoot>,
        parts: &[Option<Made>],
    ) -> io::Result<(u32, Left)> {
        let user_id = if self.isolation.root {
            Some(
                self.users
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .of(&order.tenant)?,
            )
        } else {
            None
        };
        if !self.isolation.namespaces.own {
            let tmp = dir.join("tmp");
            make_dir(&tmp)?;
            std::os::unix::fs::chown(&tmp, user_id, user_id)?;
        }
        let found = self.found();
        let taker = Taker::of(&order);
        // Until its slices are on their pages, where a check finds them.
        let _alone = self.keep_checks_off(&taker);
        self.scrubs.note(&taker, |id| self.lives(id))?;
        // A page that cannot be had is this node's fault: the job may run elsewhere.
        let slices = self.shares.admit(&order, &found).map_err(wall::no_wall)?;
        let guard = match (&self.config.guard, slices.is_empty()) {
            (Some(library), false) => Some(Guard {
                library: library.clone(),
                slices,
                // An image has no driver's files, so there is nothing to stand for.
                fronts: match image {
                    None => self.config.fronts.clone(),
                    Some(_) => Vec::new(),
                },
                vulkan: match self.config.fronts.is_empty() {
                    true => None,
                    false => Some(self.vulkan()?),
                },
            }),
            _ => None,
        };
        let (guard, brokered, tether) = match (guard, &self.config.broker, user_id) {
            (Some(guard), Some(broker), Some(user_id)) if order.isolation == Level::Fenced => {
                let (brokered, tether) = self.start_worker(broker, &order, guard, user_id)?;
                (None, Some(brokered), Some(tether))
            }
            (guard, _, _) => (guard, None, None),
        };
        let devices: Vec<_> = order
            .devices
            .iter()
            .map(|slice| found.device(&slice.uuid).filter(|_| brokered.is_none()))
            .collect();
        let network = match &self.networks {
            // Opened here: a seat made ready earlier does not see what was mounted since.
            Some(networks) => Some(fs::File::open(networks.of(&order.tenant, order.network)?)?),
            None => None,
        };
        let mps = self.join_mps(&order, &found, user_id)?;
        let mut variables = part::variables(&order, &devices, parts);
        variables.extend(mps.iter().flat_map(|client| client.variables.clone()));
        // Last of what can fail: a volume is in use from here on.
        let volumes = self.volumes.mounts(&order.volumes, user_id.unwrap_or(0))?;
        let launch = Launch {
            device_files: part::files(&devices, parts),
            variables,
            // What a worker has is limited where the worker is.
            device_memory: match brokered {
                None => wall::device_memory(&order, &found),
                Some(_) => Vec::new(),
            },
            bound: mps.map(|client| client.bound).into_iter().collect(),
            order,
            user_id,
            guard,
            brokered,
            worker: None,
            cpu_weight_milli: None,
            log_bytes_max: self.config.log_bytes_max,
            processes_max: self.config.processes_max,
            image,
        };
        let given: Vec<BorrowedFd<'_>> = tether
            .iter()
            .chain(&volumes)
            .map(AsFd::as_fd)
            .chain(network.as_ref().map(AsFd::as_fd))
            .collect();
        let before = |cgroup: &str| match launch.brokered {
            None => self.limit_by_driver(&launch.order, &found, cgroup),
            Some(_) => Ok(()),
        };
        self.seats.launch(dir, &launch, &given, &before)
    }
}

/// Makes the directory; one that is there already stays.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
