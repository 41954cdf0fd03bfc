//! Handing open files to another process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// The most that travel together (the launch, a tie, a listener, the network, and volumes), and the longest message
/// with them.
const MOST: usize = 4 + tenure_domain::storage::volume::MAX_PER_JOB;
const MAX_BYTES: usize = 128 * 1024;

/// Sends a message and descriptors.
pub fn send_fds(socket: &impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors at once"));
    }
    sendmsg(
        socket,
        &[io::IoSlice::new(message)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// The next message and its descriptors; an empty one when the other side is gone.
pub fn receive_fds(socket: &impl AsFd, message: &mut Vec<u8>) -> io::Result<Vec<OwnedFd>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(
            socket,
            &mut [io::IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    bytes.truncate(received.bytes);
    *message = bytes;
    Ok(control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect())
}

/// Waits for a descriptor without holding a thread.
pub fn awaited(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the owner is moved in and always gives the same open descriptor, which it closes only when dropped.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// The other end of a terminal that was just made, without looking for its name.
pub fn other_end(ours: &OwnedFd) -> io::Result<OwnedFd> {
    let unlocked: libc::c_int = 0;
    // SAFETY: the call reads one live number.
    super::check(unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCSPTLCK, &unlocked) })?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the call takes a number and returns a new descriptor that nobody else owns.
    let fd = super::check(unsafe { libc::ioctl(ours.as_raw_fd(), libc::TIOCGPTPEER, flags) })?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
