//! What a thin parent is given: first the seat, which is alike for all jobs and may be made ready before there
//! is one; then the launch, the order and how to wall it off. The launch travels in memory only, for it carries the
//! job's secrets.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_api::channel::Order;

use crate::isolate::broker::{Brokered, Worker};
use crate::isolate::cgroup::Cgroups;
use crate::isolate::guard::Guard;
use crate::isolate::namespace::Namespaces;
use crate::isolate::root::{Bound, HostDir};

/// The variable in which a thin parent finds its seat.
pub const SEAT: &str = "TENURE_SEAT";

/// A place for a job that is not there yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Seat {
    pub namespaces: Namespaces,
    pub cgroups: Cgroups,
    /// What the cgroups of this agent's seats begin with.
    pub cgroup_prefix: String,
    /// An empty directory to build file trees at.
    pub stage: PathBuf,
    pub host_dirs: Vec<HostDir>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Launch {
    pub order: Order,
    /// Whose user id the job runs under; none leaves it the agent's own.
    pub user_id: Option<u32>,
    /// What stands between the job and its slices; none for a job without.
    pub guard: Option<Guard>,
    /// What it has instead of a driver; then its thin parent holds its worker's tether.
    #[serde(default)]
    pub brokered: Option<Brokered>,
    /// It is a worker: it ends with its job, and serves who connects to its listener.
    #[serde(default)]
    pub worker: Option<Worker>,
    /// What it weighs when processors are scarce, in thousandths of one, where that is not what it may use.
    #[serde(default)]
    pub cpu_weight_milli: Option<u32>,
    /// Files of the devices it was given.
    pub device_files: Vec<PathBuf>,
    /// What the drivers in its processes are told.
    #[serde(default)]
    pub variables: Vec<(String, String)>,
    /// What of the kernel's regions of device memory it may have, in bytes.
    #[serde(default)]
    pub device_memory: Vec<(String, u64)>,
    /// What its devices need in its tree.
    #[serde(default)]
    pub bound: Vec<Bound>,
    pub log_bytes_max: u64,
    pub processes_max: u32,
    /// What the job's root is made of; none leaves it the host's.
    pub image: Option<ImageRoot>,
}

/// An image to be mounted as the job's root: `root::finish` stacks its layers.
///
/// The order is complete already: its command, variables and working directory are what the job and its image say
/// together. Opaque directories carry `user.overlay.opaque`, whiteouts are character devices 0/0; files belong to
/// the agent's user and are readable by all. The layers stay while the allocation's directory is among the
/// allocations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageRoot {
    pub digest: String,
    /// Absolute directories, top first.
    pub layers: Vec<PathBuf>,
}

impl Launch {
    /// Whether it comes with an end of the pipe between a job and its worker.
    pub fn is_tied(&self) -> bool {
        self.brokered.is_some() || self.worker.is_some()
    }

    /// Puts the launch into a file that exists only in memory.
    pub fn seal(&self) -> io::Result<File> {
        let mut file = File::from(rustix::fs::memfd_create(
            "launch",
            rustix::fs::MemfdFlags::CLOEXEC,
        )?);
        let mut bytes = serde_json::to_vec(self)?;
        let written = file.write_all(&bytes);
        bytes.fill(0);
        written?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads it from the start; it may be read by several.
    pub fn unseal(mut from: impl Read + Seek) -> io::Result<Launch> {
        let mut bytes = Vec::new();
        from.rewind()?;
        from.read_to_end(&mut bytes)?;
        let launch = serde_json::from_slice(&bytes);
        bytes.fill(0);
        Ok(launch?)
    }
}
