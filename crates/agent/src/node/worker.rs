//! Workers: for each allocation with fenced slices a process that owns their driver, walled off as a job is, under a
//! user id of its own. Of its directory it has one file, in which it sets its slices aside; all else it writes is memory.
//!
//! A worker is tied to its job by a pipe that only the job's thin parent holds open: it ends with it, agent or no
//! agent. The slices of one allocation share a worker, for a program may use them together.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tenure_api::channel::{DeviceSlice, Order};
use tenure_domain::id::AllocationId;
use tenure_domain::tenancy::policy::{Egress, Network};

use super::start::make_dir;
use super::{Node, wall, watch};
use crate::isolate::broker::{Broker, Brokered, SPILL, Worker, vendor_file};
use crate::isolate::front::vulkan_file;
use crate::isolate::guard::Guard;
use crate::launch::Launch;
use crate::record::Record;

/// Memory that programs and their worker share for what is copied between them.
const BULK_MIB: u64 = 1024;
/// What drivers and compilers take beside that.
const DRIVER_MIB: u64 = 2048;
/// What lies between the things that are set aside.
const SPILL_MARGIN_MIB: u64 = 64;
/// Its job ends it, whenever that is: ten years are for ever.
const RUN_TIME_S: u64 = 10 * 365 * 86_400;
/// Where a worker listens for the agent, in its directory.
pub(super) const CONTROL: &str = "control.sock";
/// Programs of the job that may be about to connect.
const BACKLOG: i32 = 128;

impl Node {
    pub(super) fn worker_dir(&self, id: AllocationId) -> PathBuf {
        self.dir.root().join("workers").join(id.to_string())
    }

    /// Starts the worker of an order with fenced slices. Gives what the job gets, and the end of the pipe that its
    /// thin parent is to hold.
    pub(super) fn start_worker(
        self: &Arc<Self>,
        broker: &Broker,
        order: &Order,
        guard: Guard,
        job_user: u32,
    ) -> io::Result<(Brokered, OwnedFd)> {
        let dir = self.worker_dir(order.allocation);
        self.clear_worker(order.allocation);
        make_dir(&self.dir.root().join("workers"))?;
        make_dir(&dir)?;
        let user_id = self
            .users
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .of(&format!("{} worker", order.tenant))?;
        let spill = dir.join(SPILL);
        fs::File::create(&spill)?;
        fs::set_permissions(&spill, fs::Permissions::from_mode(0o600))?;
        chown(&spill, Some(user_id), Some(user_id))?;
        let socket = self.dir.allocation(order.allocation).join("broker.sock");
        let listener = listen_at(&socket)?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        chown(&socket, Some(job_user), Some(job_user))?;
        let control = listen_at(&dir.join(CONTROL))?;
        let (leash, tether) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let found = self.found();
        let devices: Vec<_> = order
            .devices
            .iter()
            .filter_map(|slice| found.device(&slice.uuid))
            .collect();
        let device_files: Vec<PathBuf> = devices.iter().flat_map(|device| device.files.clone()).collect();
        // A processor as a device computes with the host's processors, and its memory is the host's.
        let is_processor = device_files.is_empty();
        let held_mib: u64 = order.devices.iter().map(|slice| slice.vram_mib).sum();
        // As much as its job has, and its slices' part of what is computed with: it does not count as a job's whole host.
        let permille = order.devices.iter().map(|slice| slice.compute_permille).max();
        let of_device = match is_processor {
            true => u64::from(found.cpu_milli) * u64::from(permille.unwrap_or(0)) / 1000,
            false => 0,
        };
        let cpu_weight_milli = u32::try_from(of_device)
            .unwrap_or(u32::MAX)
            .saturating_add(order.cpu_milli);
        let worker_order = Order {
            name: format!("{}, its worker", order.name),
            command: Worker::command(BULK_MIB),
            env: Vec::new(),
            secrets: Vec::new(),
            workdir: None,
            image: None,
            volumes: Vec::new(),
            cpu_milli: if is_processor {
                found.cpu_milli
            } else {
                order.cpu_milli.max(1000)
            },
            memory_mib: BULK_MIB + DRIVER_MIB + if is_processor { held_mib } else { 0 },
            network: Network {
                egress: Egress::None,
                ..order.network
            },
            run_time_s: RUN_TIME_S,
            grace_s: 0,
            stdin: false,
            tty: false,
            ..order.clone()
        };
        let network = match &self.networks {
            Some(networks) => Some(fs::File::open(networks.of(&order.tenant, worker_order.network)?)?),
            None => None,
        };
        let launch = Launch {
            order: worker_order,
            user_id: Some(user_id),
            // Its driver is OpenCL's, with the layer before it; what that driver stands on is its own.
            guard: Some(Guard {
                fronts: Vec::new(),
                vulkan: None,
                ..guard
            }),
            brokered: None,
            worker: Some(Worker {
                program: broker.program.clone(),
                spill,
                file_mib_max: file_mib_max(held_mib),
            }),
            cpu_weight_milli: Some(cpu_weight_milli),
            device_files,
            variables: Vec::new(),
            device_memory: wall::device_memory(order, &found),
            bound: Vec::new(),
            log_bytes_max: 1 << 20,
            processes_max: self.config.processes_max,
            image: None,
        };
        let mut given = vec![leash.as_fd(), listener.as_fd(), control.as_fd()];
        given.extend(network.as_ref().map(AsFd::as_fd));
        let (child, left) = self.seats.launch(&dir, &launch, &given, &|cgroup| {
            self.limit_by_driver(order, &found, cgroup)
        })?;
        watch::worker(self, order.allocation, child, left)?;
        Ok((
            Brokered {
                library: broker.library.clone(),
                socket,
                vendors: self.vendors()?,
            },
            tether,
        ))
    }

    /// The directory that names the small library to OpenCL loaders, alike for all jobs.
    fn vendors(&self) -> io::Result<PathBuf> {
        let (name, text) = vendor_file();
        self.shown("vendors", name, &text)
    }

    /// The directory that names the guard to Vulkan loaders, alike for all jobs.
    pub(super) fn vulkan(&self) -> io::Result<PathBuf> {
        let (name, text) = vulkan_file();
        self.shown("vulkan", name, text)
    }

    /// A directory of one file that jobs may read.
    fn shown(&self, dir: &str, name: &str, text: &str) -> io::Result<PathBuf> {
        let dir = self.dir.root().join(dir);
        make_dir(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let file = dir.join(name);
        if fs::read_to_string(&file).ok().as_deref() != Some(text) {
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        }
        Ok(dir)
    }

    /// Lets a worker set aside slices that have this size now.
    pub(super) fn limit_spill(&self, id: AllocationId, devices: &[DeviceSlice]) {
        let Some(cgroup) = self.worker_cgroup(id) else {
            return;
        };
        let held_mib = devices.iter().map(|slice| slice.vram_mib).sum();
        let bytes = Some(file_mib_max(held_mib).saturating_mul(1 << 20));
        let limits = Rlimit {
            current: bytes,
            maximum: bytes,
        };
        let processes = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        for pid in processes
            .lines()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        {
            // One that has ended meanwhile sets nothing aside.
            let _ = prlimit(Some(pid), Resource::Fsize, limits);
        }
    }

    /// Where the processes of an allocation's worker are.
    pub(super) fn worker_cgroup(&self, id: AllocationId) -> Option<PathBuf> {
        let record = Record::read(&self.worker_dir(id)).ok()??;
        record.cgroups.into_iter().next()
    }

    /// The cgroups of whoever has an allocation's devices: its worker, or the job itself.
    pub(super) fn processes_of(&self, id: AllocationId) -> Vec<PathBuf> {
        let worker = Record::read(&self.worker_dir(id)).ok().flatten();
        let record = worker.or_else(|| self.table.get(id));
        record.map(|record| record.cgroups).unwrap_or_default()
    }

    /// Removes what a worker left; its process, if it lives, is about to end.
    pub(super) fn clear_worker(&self, id: AllocationId) {
        let _ = fs::remove_dir_all(self.worker_dir(id));
    }

    /// Removes the directories of workers whose jobs are over.
    pub(super) fn clear_workers(&self) {
        let Ok(dirs) = fs::read_dir(self.dir.root().join("workers")) else {
            return;
        };
        for entry in dirs.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if !id.is_some_and(|id| self.lives(id)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// How large a file of a worker's may be: what it sets aside, or what it shares with its programs, which is a file to the
/// kernel too.
fn file_mib_max(held_mib: u64) -> u64 {
    held_mib.max(BULK_MIB).saturating_add(SPILL_MARGIN_MIB)
}

/// A socket's path is short; that of an open directory always is.
fn listen_at(path: &std::path::Path) -> io::Result<OwnedFd> {
    let _ = fs::remove_file(path);
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = fs::File::open(dir)?;
    let short = format!(
        "/proc/self/fd/{}/{}",
        std::os::fd::AsRawFd::as_raw_fd(&dir),
        name.to_string_lossy()
    );
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&socket, &SocketAddrUnix::new(short)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
