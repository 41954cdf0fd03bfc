//! Which namespaces a job gets of its own.

use std::io;

use serde::{Deserialize, Serialize};

use crate::kernel;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// A user namespace first, to be allowed the others without root.
    pub user: bool,
    /// Processes, files, IPC and host name.
    pub own: bool,
    /// The job itself in a user namespace, where no right of the host's can be had even by mistake.
    pub job_user: bool,
}

impl Namespaces {
    pub fn of_this_host(root: bool, notes: &mut Vec<String>) -> Namespaces {
        let wanted = Namespaces {
            user: !root,
            own: true,
            job_user: root,
        };
        match wanted.try_out() {
            Ok(()) => {
                notes.push("namespaces: users, processes, files, IPC, host name".to_owned());
                wanted
            }
            Err(error)
                if root
                    && Namespaces {
                        job_user: false,
                        ..wanted
                    }
                    .try_out()
                    .is_ok() =>
            {
                notes.push(format!(
                    "namespaces: processes, files, IPC, host name; not users ({error})"
                ));
                Namespaces {
                    job_user: false,
                    ..wanted
                }
            }
            Err(error) => {
                notes.push(format!(
                    "namespaces: none ({error}); jobs see other processes and share /tmp"
                ));
                Namespaces::default()
            }
        }
    }

    /// Enters them in a process of its own, which is the only honest way to know.
    fn try_out(self) -> io::Result<()> {
        let status = std::process::Command::new(crate::PROGRAM)
            .arg("probe-namespaces")
            .arg(serde_json::to_string(&self)?)
            .env_clear()
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()?;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Err(io::Error::other("the probe was killed")),
        }
    }

    /// What `probe-namespaces` does: exits with the error's number.
    pub fn probe(wanted: &str) -> i32 {
        let probe = || {
            let wanted: Namespaces = serde_json::from_str(wanted)?;
            let stage = std::env::temp_dir().join(format!("tenure-probe-{}", std::process::id()));
            std::fs::create_dir(&stage)?;
            wanted.enter_processes()?;
            let status = match kernel::fork()? {
                kernel::Forked::Child => {
                    let entered = wanted
                        .enter_rest()
                        .and_then(|()| super::root::prepare(&stage, &[]))
                        .and_then(|()| {
                            if wanted.job_user {
                                kernel::unshare(libc::CLONE_NEWUSER)?;
                            }
                            Ok(())
                        });
                    kernel::exit_now(entered.map_or_else(|e| e.raw_os_error().unwrap_or(1), |()| 0))
                }
                kernel::Forked::Parent(pid) => kernel::reap(pid, true),
            };
            std::fs::remove_dir(&stage)?;
            match status {
                Some((_, 0)) => Ok(()),
                Some((_, status)) => Err(io::Error::from_raw_os_error(status >> 8 & 0xff)),
                None => Err(io::Error::other("the probe was lost")),
            }
        };
        probe().map_or_else(|error: io::Error| error.raw_os_error().unwrap_or(1), |()| 0)
    }

    /// Called by the thin parent: its next child is the first process of a new world.
    pub fn enter_processes(self) -> io::Result<()> {
        if self.user {
            let (uid, gid) = (
                rustix::process::getuid().as_raw(),
                rustix::process::getgid().as_raw(),
            );
            kernel::show_memory()?;
            kernel::unshare(libc::CLONE_NEWUSER)?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
            kernel::hide_memory()?;
        }
        if self.own {
            kernel::unshare(libc::CLONE_NEWPID)
        } else {
            Ok(())
        }
    }

    /// Called by that child.
    pub fn enter_rest(self) -> io::Result<()> {
        if self.own {
            kernel::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS)
        } else {
            Ok(())
        }
    }
}
