//! The door into a running job: what the agent asks of the first process of the job's world, which alone stands
//! inside all its walls. Each question is one connection to a socket in the allocation's directory.
//!
//! Whoever asks for a process holds the connection while it runs: when it breaks, the process is ended. Answered
//! in `exec/door.rs`, asked by `interact`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use tenure_api::channel::stream::{Exit, Terminal};
use tokio::io::unix::AsyncFd;

use crate::kernel;

/// The socket's name in the allocation's directory.
pub const NAME: &str = "door";

const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Run a program. Its standard descriptors come along, unless it is to have a terminal.
    Run {
        command: Vec<String>,
        terminal: Option<Terminal>,
    },
    /// Connect to what listens there.
    Connect { port: u16 },
    /// Where the job reads from.
    Input,
    /// The job's input ends.
    EndInput,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done; what was asked for comes along.
    Yes {
        terminal: bool,
    },
    No {
        why: String,
    },
    /// The program ended.
    Ended {
        exit: Exit,
    },
}

/// A question under way.
pub struct Asked {
    socket: AsyncFd<OwnedFd>,
}

impl Asked {
    /// Asks, handing these descriptors over.
    pub async fn ask(dir: &Path, question: &Question, fds: &[BorrowedFd<'_>]) -> io::Result<Asked> {
        // A socket's path is short, the agent's directory may not be.
        let dir = rustix::fs::open(
            dir,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let raw = std::os::fd::AsRawFd::as_raw_fd(&dir);
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{raw}/{NAME}"))?;
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::connect(&socket, &address)?;
        kernel::send_fds(&socket, &serde_json::to_vec(question)?, fds)?;
        Ok(Asked {
            socket: kernel::awaited(socket)?,
        })
    }

    /// The next answer; none when the other side is gone.
    pub async fn answer(&self) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut bytes = Vec::new();
            match ready.try_io(|socket| kernel::receive_fds(&socket.as_fd(), &mut bytes)) {
                Ok(Ok(_)) if bytes.is_empty() => return Ok(None),
                Ok(Ok(fds)) => return Ok(Some((serde_json::from_slice(&bytes)?, fds))),
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// What came of the question, as a person is told it.
    pub async fn granted(&self) -> Result<(bool, Vec<OwnedFd>), String> {
        let gone = || "the job ended".to_owned();
        match tokio::time::timeout(PATIENCE, self.answer()).await {
            Ok(Ok(Some((Answer::Yes { terminal }, fds)))) => Ok((terminal, fds)),
            Ok(Ok(Some((Answer::No { why }, _)))) => Err(why),
            Ok(Ok(Some((Answer::Ended { .. }, _)) | None)) => Err(gone()),
            Ok(Err(error)) => Err(format!("the job's walls gave no answer: {error}")),
            Err(_) => Err("the job's walls gave no answer in time".to_owned()),
        }
    }
}
