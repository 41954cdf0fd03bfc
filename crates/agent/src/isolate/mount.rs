//! What a job sees of the host's files: everything its user may, but `/tmp`, `/dev/shm` and `/proc` are its own.

use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

/// Mounts made from here on stay here.
pub fn private() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    // Of the new process namespace: the host's would show the host's processes.
    let plain = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", plain, None)?;
    Ok(())
}

/// Puts the job's own directory over `/tmp` and an empty one over `/dev/shm`.
pub fn own_tmp(tmp: &Path) -> io::Result<()> {
    mount_bind(tmp, "/tmp")?;
    if Path::new("/dev/shm").is_dir() {
        mount(
            "tmpfs",
            "/dev/shm",
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(c"mode=1777"),
        )?;
    }
    Ok(())
}
