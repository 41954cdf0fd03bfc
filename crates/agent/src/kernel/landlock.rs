//! The three calls of Landlock, as in linux/landlock.h.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::check;

/// The version of Landlock this kernel has.
pub fn landlock_version() -> Option<u32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no struct and only answers.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(version).ok().filter(|version| *version > 0)
}

/// What a Landlock rule allows below a directory, or of a file.
#[derive(Clone, Copy)]
pub enum Access {
    ReadAndRun,
    /// And to write into files that are there, which neither come nor go, nor become shorter.
    Use,
    /// One file, to read, write and cut short.
    OneFile,
    All,
}

/// Landlock's rules for this process and its descendants.
pub struct Ruleset {
    fd: OwnedFd,
    handled: u64,
}

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// EXECUTE, READ_FILE, READ_DIR of linux/landlock.h.
const READ_AND_RUN: u64 = 1 | 1 << 2 | 1 << 3;
/// WRITE_FILE and IOCTL_DEV. Without TRUNCATE: a file that others have mapped and that is cut short ends them.
const WRITE: u64 = 1 << 1 | 1 << 15;
/// WRITE_FILE, READ_FILE and TRUNCATE.
const ONE_FILE: u64 = 1 << 1 | 1 << 2 | 1 << 14;

impl Ruleset {
    pub fn new(version: u32) -> io::Result<Ruleset> {
        // The file rights each version knows: 13 at first, then REFER, TRUNCATE and IOCTL_DEV.
        let rights = match version {
            1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        };
        let attributes = RulesetAttributes {
            handled_access_fs: (1 << rights) - 1,
            handled_access_net: 0,
            // Abstract sockets and signals, from version 6.
            scoped: if version >= 6 { 0b11 } else { 0 },
        };
        let size = match version {
            1..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        // SAFETY: the struct is live and at least as long as is said.
        let fd = check(
            unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &attributes, size, 0) } as libc::c_int,
        )?;
        Ok(Ruleset {
            // SAFETY: a new descriptor that nobody else owns.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            handled: attributes.handled_access_fs,
        })
    }

    pub fn allow(&self, below: &Path, access: Access) -> io::Result<()> {
        let parent = rustix::fs::open(
            below,
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        let rule = PathBeneath {
            allowed_access: match access {
                Access::ReadAndRun => READ_AND_RUN & self.handled,
                Access::Use => (READ_AND_RUN | WRITE) & self.handled,
                Access::OneFile => ONE_FILE & self.handled,
                Access::All => self.handled,
            },
            parent_fd: parent.as_raw_fd(),
        };
        const PATH_BENEATH: i32 = 1;
        // SAFETY: both descriptors are open and the struct is live.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.fd.as_raw_fd(),
                PATH_BENEATH,
                &rule,
                0,
            )
        } as libc::c_int)
        .map(drop)
    }

    /// Needs `no_new_privileges` first.
    pub fn restrict(self) -> io::Result<()> {
        // SAFETY: takes a descriptor and a number.
        check(
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.fd.as_raw_fd(), 0) } as libc::c_int,
        )
        .map(drop)
    }
}
