//! The agent's end of the maker of seats (`exec/maker.rs`): started when a seat is wanted and none is there, and
//! started anew when it is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

use crate::kernel;
use crate::launch::SEAT;

/// Forking takes less than a millisecond; one that does not answer for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Maker {
    program: PathBuf,
    seat: String,
    running: Option<Running>,
}

struct Running {
    process: Child,
    socket: OwnedFd,
}

impl Maker {
    pub(super) fn new(program: PathBuf, seat: String) -> Maker {
        Maker {
            program,
            seat,
            running: None,
        }
    }

    /// Has a seat made with these cgroups that is spoken with by the other end of this socket; its process number. It is
    /// a child of this process.
    pub(super) fn make(&mut self, cgroup: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
        if let Some(running) = &mut self.running {
            match running.make(cgroup, socket) {
                Ok(pid) => return Ok(pid),
                Err(error) => tracing::warn!(%error, "the maker of seats is gone; starting another"),
            }
        }
        self.running = None;
        let mut running = Running::start(&self.program, &self.seat)?;
        let pid = running.make(cgroup, socket)?;
        self.running = Some(running);
        Ok(pid)
    }
}

impl Running {
    fn start(program: &Path, seat: &str) -> io::Result<Running> {
        let (mine, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_timeout(&mine, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let process = Command::new(program)
            .arg0("tenure-agent")
            .arg("exec")
            .env_clear()
            // Not an argument: those of its first process every job can read.
            .env(SEAT, seat)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Running {
            process,
            socket: mine,
        })
    }

    fn make(&mut self, cgroup: &str, socket: BorrowedFd<'_>) -> io::Result<u32> {
        kernel::send_fds(&self.socket, cgroup.as_bytes(), &[socket])?;
        let mut answer = Vec::new();
        kernel::receive_fds(&self.socket.as_fd(), &mut answer)?;
        let number: [u8; 4] = answer
            .try_into()
            .map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let number = i32::from_ne_bytes(number);
        u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(-number))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Seats it made live on: they are not its children.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
