//! Changing something in a vendor's driver: parts made and removed, memory limited.
//!
//! As with discovery a child process does it, and is given up when it takes too long: a driver that hangs holds up
//! one job's start, not the agent. Deliberately absent: which part, which is the server's, and whose it is (`part.rs`).

mod amd;
mod capability;
pub(crate) mod mig;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_domain::schedule::hardware::PartChoice;

use crate::discover::ask;
use crate::discover::nvidia::library::Nvml;
use crate::discover::setting::Setting;

/// What is asked of the child, as its one argument.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    MakePart {
        site: Site,
        part: PartChoice,
    },
    RemovePart {
        site: Site,
        part: PartChoice,
        instance: Option<u32>,
    },
    LimitMemory {
        gpu: String,
        cgroup: PathBuf,
        bytes: u64,
    },
}

/// A device, as its driver finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    pub gpu: String,
    /// Of AMD's, where it is on the bus.
    #[serde(default)]
    pub amd: Option<String>,
}

/// A part that is there, and how programs find it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The driver's number of it, where it has one.
    pub instance: Option<u32>,
    /// The vendor's identity of it.
    pub uuid: String,
    /// Device files of it, and of nothing else of its device.
    pub files: Vec<PathBuf>,
}

/// What can be changed.
pub trait Driver: Send + Sync {
    /// Makes a part where it was chosen to lie, or leaves nothing behind. One that did not answer in time may have
    /// made it.
    fn make_part(&self, site: &Site, part: &PartChoice) -> io::Result<Made>;

    /// Removes a part; one that is gone is removed.
    fn remove_part(&self, site: &Site, part: &PartChoice, instance: Option<u32>) -> io::Result<()>;
}

/// The drivers of this machine, by children.
pub struct Drivers(pub Setting);

impl Drivers {
    /// Limits what programs of a cgroup may have of an NVIDIA device's memory. The limit goes with the cgroup.
    pub fn limit_memory(&self, gpu: &str, cgroup: &Path, bytes: u64) -> io::Result<()> {
        let request = Request::LimitMemory {
            gpu: gpu.to_owned(),
            cgroup: cgroup.to_owned(),
            bytes,
        };
        self.ask(&request).map(drop)
    }

    fn ask(&self, request: &Request) -> io::Result<Vec<u8>> {
        ask::child(&["driver", &serde_json::to_string(request)?], &self.0)
    }
}

impl Driver for Drivers {
    fn make_part(&self, site: &Site, part: &PartChoice) -> io::Result<Made> {
        let request = Request::MakePart {
            site: site.clone(),
            part: part.clone(),
        };
        Ok(serde_json::from_slice(&self.ask(&request)?)?)
    }

    fn remove_part(&self, site: &Site, part: &PartChoice, instance: Option<u32>) -> io::Result<()> {
        let request = Request::RemovePart {
            site: site.clone(),
            part: part.clone(),
            instance,
        };
        self.ask(&request).map(drop)
    }
}

/// What `driver REQUEST` does, in a process of its own.
pub fn main(request: &str) -> i32 {
    let setting = Setting::from_environment();
    let done = serde_json::from_str(request)
        .map_err(|error| error.to_string())
        .and_then(|request| obey(request, &setting));
    match done {
        Ok(said) => {
            println!("{said}");
            0
        }
        Err(why) => {
            println!("{why}");
            1
        }
    }
}

fn obey(request: Request, setting: &Setting) -> Result<String, String> {
    let nvml = || Nvml::load(&setting.nvml_library);
    match request {
        Request::MakePart { site, part } => {
            let made = match &site.amd {
                Some(slot) => amd::make(setting, slot, &part)?,
                None => mig::make(&nvml()?, setting, &site.gpu, &part)?,
            };
            serde_json::to_string(&made).map_err(|error| error.to_string())
        }
        Request::RemovePart { site, part, instance } => {
            // The parts of AMD's devices stand in the mode of the whole device, and stay for the next.
            if site.amd.is_none() {
                mig::remove(&nvml()?, &site.gpu, &part, instance)?;
            }
            Ok(String::new())
        }
        Request::LimitMemory { gpu, cgroup, bytes } => {
            let nvml = nvml()?;
            let handle = nvml.by_uuid(&gpu).map_err(|failure| failure.to_string())?;
            nvml.limit_memory(handle, &cgroup, Some(bytes))
                .map_err(|failure| {
                    format!("the driver did not limit the memory of device {gpu}: {failure}")
                })?;
            Ok(String::new())
        }
    }
}
