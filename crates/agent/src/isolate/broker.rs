//! The wall between a job and a driver: a worker process owns the driver, with the guard before it, and the job has a
//! socket to it and a small library that speaks over it.
//!
//! What the worker is and does is `broker`'s; how one is started is `node/worker.rs`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::root::{Bound, TENURE_DIR};

/// Files beside the agent's own.
pub const PROGRAM: &str = "tenure-broker";
pub const LIBRARY: &str = "libtenure_remote.so";
/// What a worker's slice is set aside in, in its directory and in its tree.
pub const SPILL: &str = "spill";

/// What this host has to make workers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    pub program: PathBuf,
    pub library: PathBuf,
}

impl Broker {
    /// Both are beside this program, or it is said which is not.
    pub fn beside_this_program() -> Result<Broker, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let beside = |name: &str| {
            let path = this.with_file_name(name);
            match path.is_file() {
                true => Ok(path),
                false => Err(format!("{name} is not beside the agent")),
            }
        };
        Ok(Broker {
            program: beside(PROGRAM)?,
            library: beside(LIBRARY)?,
        })
    }
}

/// What a job is given instead of a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brokered {
    pub library: PathBuf,
    pub socket: PathBuf,
    /// A directory that names the library to OpenCL loaders.
    pub vendors: PathBuf,
}

/// What the directory's one file says.
pub fn vendor_file() -> (&'static str, String) {
    ("tenure.icd", format!("{TENURE_DIR}/{LIBRARY}\n"))
}

impl Brokered {
    /// What must be in the job's tree.
    pub fn bound(&self) -> Vec<Bound> {
        let inside = |name: &str| Path::new(TENURE_DIR).join(name);
        let bound = |from: &Path, name: &str, writable| Bound {
            from: from.to_owned(),
            to: inside(name),
            writable,
        };
        vec![
            bound(&self.library, LIBRARY, false),
            bound(&self.vendors, "vendors", false),
            bound(&self.socket, "broker.sock", true),
        ]
    }

    pub fn variables(&self) -> Vec<(String, String)> {
        [
            ("OCL_ICD_VENDORS", format!("{TENURE_DIR}/vendors")),
            ("TENURE_BROKER_SOCKET", format!("{TENURE_DIR}/broker.sock")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// The worker's own: its program, and where it sets its slice aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub program: PathBuf,
    /// The one file on a disk that it may write, and how large any file of its may be.
    pub spill: PathBuf,
    pub file_mib_max: u64,
}

impl Worker {
    pub fn bound(&self) -> Vec<Bound> {
        let inside = |name: &str| Path::new(TENURE_DIR).join(name);
        vec![
            Bound {
                from: self.program.clone(),
                to: inside(PROGRAM),
                writable: false,
            },
            Bound {
                from: self.spill.clone(),
                to: inside(SPILL),
                writable: true,
            },
        ]
    }

    /// Its command; it finds its listeners as descriptors 3 and 4. What is set aside of a device goes to a file: it may
    /// be more than the worker may have of memory.
    pub fn command(bulk_mib: u64) -> Vec<String> {
        let inside = |name: &str| format!("{TENURE_DIR}/{name}");
        let mut command = vec![inside(PROGRAM)];
        command.extend(["--listen-fd", "3", "--control-fd", "4", "--spill"].map(str::to_owned));
        command.extend([inside(SPILL), "--bulk-mib".to_owned(), bulk_mib.to_string()]);
        command
    }
}
