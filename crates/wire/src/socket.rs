//! Sockets that keep messages apart and carry descriptors. A closed socket is how each side learns of the other's
//! death.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest message here; calls go over the ring.
const MOST: usize = 256;

pub struct Socket(OwnedFd);

pub struct Listener(OwnedFd);

fn checked(code: libc::c_int) -> io::Result<libc::c_int> {
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(code)
    }
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the descriptor is owned at once.
    unsafe {
        let fd = checked(libc::socket(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

impl Listener {
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let socket = socket()?;
        let (address, length) = address(path)?;
        // SAFETY: a whole address of the length given.
        unsafe {
            checked(libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                length,
            ))?;
            checked(libc::listen(socket.as_raw_fd(), 64))?;
        }
        Ok(Listener(socket))
    }

    /// An inherited socket that listens already.
    pub fn inherited(fd: OwnedFd) -> Listener {
        Listener(fd)
    }

    pub fn accept(&self) -> io::Result<Socket> {
        loop {
            // SAFETY: no address is asked for; the descriptor is owned at once.
            let fd = unsafe {
                libc::accept4(
                    self.0.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            };
            match checked(fd) {
                // SAFETY: a new descriptor.
                Ok(fd) => return Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) })),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    pub fn connect(path: &Path) -> io::Result<Socket> {
        let socket = socket()?;
        let (address, length) = address(path)?;
        loop {
            // SAFETY: a whole address of the length given.
            let code = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) };
            match checked(code) {
                Ok(_) => return Ok(Socket(socket)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Two ends of one connection.
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let mut fds = [0; 2];
        // SAFETY: room for two descriptors, owned at once.
        unsafe {
            checked(libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                fds.as_mut_ptr(),
            ))?;
            Ok((
                Socket(OwnedFd::from_raw_fd(fds[0])),
                Socket(OwnedFd::from_raw_fd(fds[1])),
            ))
        }
    }

    /// Sends a message, with a descriptor if one is given.
    pub fn send(&self, message: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut part = libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let mut control = [0u64; 8];
        // SAFETY: zeros are a valid header; the parts it names live for the call; the control block has room for one
        // descriptor, written where CMSG_DATA says.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &mut part;
            header.msg_iovlen = 1;
            if let Some(file) = file {
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = libc::CMSG_SPACE(4) as _;
                let first = libc::CMSG_FIRSTHDR(&header);
                (*first).cmsg_level = libc::SOL_SOCKET;
                (*first).cmsg_type = libc::SCM_RIGHTS;
                (*first).cmsg_len = libc::CMSG_LEN(4) as _;
                libc::CMSG_DATA(first)
                    .cast::<i32>()
                    .write_unaligned(file.as_raw_fd());
            }
            loop {
                match libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL) {
                    sent if sent >= 0 => return Ok(()),
                    _ => {
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            return Err(error);
                        }
                    }
                }
            }
        }
    }

    /// The next message and the descriptor that came with it; an empty one is the other side's end. Descriptors
    /// beyond the first are closed.
    pub fn receive(&self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        let mut message = vec![0; MOST];
        let mut part = libc::iovec {
            iov_base: message.as_mut_ptr().cast(),
            iov_len: message.len(),
        };
        let mut control = [0u64; 8];
        let mut file = None;
        // SAFETY: zeros are a valid header; the parts it names live for the call and have the sizes given; the kernel
        // writes whole control messages, which are walked as it says.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = &mut part;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = size_of_val(&control) as _;
            let received = loop {
                match libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) {
                    received if received >= 0 => break received as usize,
                    _ => {
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            return Err(error);
                        }
                    }
                }
            };
            message.truncate(received);
            let mut each = libc::CMSG_FIRSTHDR(&header);
            while !each.is_null() {
                if (*each).cmsg_level == libc::SOL_SOCKET && (*each).cmsg_type == libc::SCM_RIGHTS {
                    let bytes = (*each).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    let data = libc::CMSG_DATA(each).cast::<i32>();
                    for place in 0..bytes / 4 {
                        let came = OwnedFd::from_raw_fd(data.add(place).read_unaligned());
                        file.get_or_insert(came);
                    }
                }
                each = libc::CMSG_NXTHDR(&header, each);
            }
            if header.msg_flags & libc::MSG_TRUNC != 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok((message, file))
    }

    /// Whether the other side still holds its end.
    pub fn is_open(&self) -> bool {
        let mut watched = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: one descriptor to look at, without waiting.
        unsafe { libc::poll(&mut watched, 1, 0) };
        watched.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP | libc::POLLNVAL) == 0
    }

    /// Ends the connection for both sides, whoever else holds the descriptor.
    pub fn hang_up(&self) {
        // SAFETY: our own descriptor.
        unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
