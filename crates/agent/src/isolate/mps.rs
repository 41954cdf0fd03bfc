//! NVIDIA's Multi-Process Service, inside one tenant: a control daemon for each tenant and device, under the tenant's own
//! user id, with directories that no other tenant's job is shown.
//!
//! MPS gives each program its own address space, a part of the compute units and a limit on memory, but a fault of one
//! ends all that share a daemon: so no two tenants ever do. Deliberately absent: which jobs meet on a device, which the
//! server decides by the same rule. Called by `node/wall.rs`.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tenure_domain::id::AllocationId;

use super::root::{Bound, TENURE_DIR};
use crate::record::write_synced;
use crate::share;

/// Its program's name, for those who do not say where it is.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";

/// Whose daemon it is, and who uses it; `domain.json` in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Domain {
    tenant: String,
    gpu: String,
    user_id: u32,
    jobs: Vec<AllocationId>,
}

/// The daemons of this node.
pub struct Mps {
    program: PathBuf,
    dir: PathBuf,
    one_at_a_time: Mutex<()>,
}

/// What a job needs to be a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub bound: Bound,
    pub variables: Vec<(String, String)>,
}

impl Mps {
    pub fn open(state_dir: &Path, program: PathBuf) -> io::Result<Mps> {
        // Beside the pages of devices: no daemon outlives a boot, and the tenants' users must get there.
        let mut dir = share::place(state_dir)?.into_os_string();
        dir.push("-mps");
        let dir = PathBuf::from(dir);
        make(&dir, 0o711)?;
        Ok(Mps {
            program,
            dir,
            one_at_a_time: Mutex::default(),
        })
    }

    /// Every domain, by its directory.
    fn domains(&self) -> Vec<(PathBuf, Domain)> {
        let dirs = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        dirs.filter_map(|entry| {
            let bytes = fs::read(entry.path().join("domain.json")).ok()?;
            Some((entry.path(), serde_json::from_slice(&bytes).ok()?))
        })
        .collect()
    }

    /// Why a tenant cannot have the device now.
    ///
    /// INVARIANT: one device's programs under MPS are of one tenant.
    pub fn objection(&self, tenant: &str, gpu: &str) -> Option<String> {
        let domains = self.domains();
        let mut here = domains.iter().filter(|(_, domain)| domain.gpu == gpu);
        here.any(|(_, domain)| domain.tenant != tenant)
            .then(|| format!("programs of another tenant are on device {gpu} under MPS"))
    }

    /// Makes an allocation a client of its tenant's daemon on the device, started if it must be.
    pub fn join(
        &self,
        id: AllocationId,
        (tenant, user_id): (&str, u32),
        gpu: &str,
        (permille, vram_mib): (u16, u64),
    ) -> io::Result<Client> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = self.objection(tenant, gpu) {
            return Err(io::Error::other(why));
        }
        let domains = self.domains();
        let mut here = domains.iter().filter(|(_, domain)| domain.gpu == gpu);
        let (dir, mut domain) = match here.next().cloned() {
            Some(known) => known,
            None => {
                let taken = |number: &u32| self.dir.join(number.to_string()).exists();
                let number = (0..).find(|number| !taken(number)).unwrap_or(0);
                let domain = Domain {
                    tenant: tenant.to_owned(),
                    gpu: gpu.to_owned(),
                    user_id,
                    jobs: Vec::new(),
                };
                (self.dir.join(number.to_string()), domain)
            }
        };
        let is_new = domain.jobs.is_empty();
        if !domain.jobs.contains(&id) {
            domain.jobs.push(id);
        }
        make(&dir, 0o711)?;
        write_synced(&dir, "domain.json", &serde_json::to_vec(&domain)?)?;
        if is_new {
            for name in ["pipe", "log"] {
                make(&dir.join(name), 0o700)?;
                chown(dir.join(name), Some(user_id), Some(user_id))?;
            }
            if let Err(error) = self.run(&dir, &domain, Some("-d"), "") {
                let _ = fs::remove_dir_all(&dir);
                return Err(io::Error::other(format!(
                    "{} could not be started for device {gpu}: {error}",
                    self.program.display()
                )));
            }
        }
        let inside = Path::new(TENURE_DIR).join("mps");
        let variables = [
            ("CUDA_MPS_PIPE_DIRECTORY", inside.display().to_string()),
            // A part of one hundredth is the least there is.
            (
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                (permille / 10).max(1).to_string(),
            ),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={vram_mib}M")),
        ];
        Ok(Client {
            bound: Bound {
                from: dir.join("pipe"),
                to: inside,
                writable: true,
            },
            variables: variables.map(|(name, value)| (name.to_owned(), value)).into(),
        })
    }

    /// Takes allocations that are over off their daemons, and ends daemons without any.
    pub fn clear(&self, alive: impl Fn(AllocationId) -> bool) {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        for (dir, mut domain) in self.domains() {
            let before = domain.jobs.len();
            domain.jobs.retain(|&id| alive(id));
            if domain.jobs.len() == before {
                continue;
            }
            let done = if domain.jobs.is_empty() {
                // Gone already, or it goes now: either way nobody is on it.
                let _ = self.run(&dir, &domain, None, "quit\n");
                fs::remove_dir_all(&dir)
            } else {
                serde_json::to_vec(&domain)
                    .map_err(io::Error::from)
                    .and_then(|bytes| write_synced(&dir, "domain.json", &bytes))
            };
            if let Err(error) = done {
                tracing::warn!(gpu = domain.gpu, %error, "could not write down who is under MPS");
            }
        }
    }

    /// Ends every daemon and leaves no directory.
    pub fn leave(&self) -> io::Result<()> {
        self.clear(|_| false);
        fs::remove_dir_all(&self.dir)
    }

    /// Runs the control program, as the tenant's user and with nothing of the agent's environment.
    fn run(&self, dir: &Path, domain: &Domain, argument: Option<&str>, says: &str) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(argument)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("CUDA_VISIBLE_DEVICES", &domain.gpu)
            .env("CUDA_MPS_PIPE_DIRECTORY", dir.join("pipe"))
            .env("CUDA_MPS_LOG_DIRECTORY", dir.join("log"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(domain.user_id).gid(domain.user_id);
        }
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that reads nothing has ended already, and says how.
            let _ = stdin.write_all(says.as_bytes());
        }
        let status = child.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("it ended with {status}")))
        }
    }
}

fn make(dir: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
