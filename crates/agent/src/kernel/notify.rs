//! Hearing of the system calls a filter denies: the kernel holds the caller until somebody who has the filter's
//! listener answers. What nobody listens to any more answers "no such call": denied all the same.
//!
//! See seccomp_unotify(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::check;

/// A system call that waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    id: u64,
    /// Its number.
    pub call: i32,
}

/// Installs a filter as `filter_calls` does, and gives where its `SECCOMP_RET_USER_NOTIF` are heard.
pub fn filter_calls_heard(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::other("the filter is too long"))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the program, which is live and as long as is said.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &program,
        )
    } as libc::c_int)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The next call that waits; none when its caller was ended meanwhile. Does not wait when the listener was readable.
pub fn hear_call(listener: &OwnedFd) -> Option<Asked> {
    // SAFETY: the kernel wants it all zero.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is live and of the type this call fills.
    let heard = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &mut asked) };
    check(heard).ok().map(|_| Asked {
        id: asked.id,
        call: asked.data.nr,
    })
}

/// Lets the caller go on with "not permitted". Never anything else: there is no way here to let a call pass.
pub fn deny_call(listener: &OwnedFd, asked: Asked) {
    let answer = libc::seccomp_notif_resp {
        id: asked.id,
        val: 0,
        error: -libc::EPERM,
        flags: 0,
    };
    // SAFETY: the struct is live and of the type this call reads. Whose caller is gone needs no answer.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &answer) };
}
