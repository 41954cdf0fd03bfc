//! A terminal for a process inside: made in the job's own tree, so that its name means something there.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{Winsize, tcsetwinsize};
use tenure_api::channel::stream::Size;

use crate::kernel;

/// Both ends: ours, and the job's, which is its user's.
pub(super) fn open(size: Size, user_id: Option<u32>) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ours = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
    let theirs = kernel::other_end(&ours)?;
    resize(&ours, size)?;
    if let Some(id) = user_id {
        let (user, group) = (rustix::fs::Uid::from_raw(id), rustix::fs::Gid::from_raw(id));
        rustix::fs::fchown(&theirs, Some(user), Some(group))?;
    }
    Ok((ours, theirs))
}

/// Whoever is in front on the terminal is told.
pub fn resize(terminal: &OwnedFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}
