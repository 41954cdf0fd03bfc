//! Which namespaces a job gets of its own.

use std::io;

use serde::{Deserialize, Serialize};

use crate::kernel;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// A user namespace first, to be allowed the others without root.
    pub user: bool,
    /// Processes, mounts, IPC and host name.
    pub own: bool,
}

impl Namespaces {
    pub fn of_this_host(root: bool, notes: &mut Vec<String>) -> Namespaces {
        let wanted = Namespaces {
            user: !root,
            own: true,
        };
        match wanted.try_out() {
            Ok(()) => {
                let how = if root { "" } else { ", inside a user namespace" };
                notes.push(format!("namespaces: processes, mounts, IPC, host name{how}"));
                wanted
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
            .args(["probe-namespaces", if self.user { "user" } else { "root" }])
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
    pub fn probe(user: bool) -> i32 {
        let probe = || {
            Namespaces { user, own: true }.enter_processes()?;
            match kernel::fork()? {
                kernel::Forked::Child => {
                    let entered = Namespaces { user, own: true }
                        .enter_rest()
                        .and_then(|()| super::mount::private());
                    kernel::exit_now(entered.map_or_else(|e| e.raw_os_error().unwrap_or(1), |()| 0))
                }
                kernel::Forked::Parent(pid) => match kernel::reap(pid, true) {
                    Some((_, 0)) => Ok(()),
                    Some((_, status)) => Err(io::Error::from_raw_os_error(status >> 8 & 0xff)),
                    None => Err(io::Error::other("the probe was lost")),
                },
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
