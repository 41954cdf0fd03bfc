//! Seats made ready ahead: thin parents with their walls built, waiting for a launch. A job then starts as fast as
//! a program does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::isolate::cgroup;
use crate::kernel;
use crate::launch::{Launch, SEAT, Seat};
use crate::record::start_ticks;

/// After a seat was taken, the next is made only when the job has had this long to start.
const PAUSE: Duration = Duration::from_millis(8);
const CLEAR_PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Seats {
    program: PathBuf,
    seat: String,
    wanted: usize,
    ready: Mutex<Vec<Waiting>>,
    taken: Condvar,
}

struct Waiting {
    pid: u32,
    socket: UnixStream,
}

impl Seats {
    /// Clears away the seats of an older agent that ended, and makes new ones.
    pub(super) fn open(program: PathBuf, seat: &Seat, wanted: usize) -> io::Result<Arc<Seats>> {
        clear(seat);
        match std::fs::create_dir(&seat.stage) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let seats = Arc::new(Seats {
            program,
            seat: serde_json::to_string(seat)?,
            wanted,
            ready: Mutex::default(),
            taken: Condvar::new(),
        });
        if wanted > 0 {
            let keeper = Arc::downgrade(&seats);
            std::thread::Builder::new().name("seats".into()).spawn(move || {
                while let Some(seats) = keeper.upgrade() {
                    seats.fill();
                }
            })?;
        }
        Ok(seats)
    }

    /// Makes one seat if one is missing, or waits a while.
    fn fill(&self) {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.len() >= self.wanted {
            let _ = self.taken.wait_timeout(ready, Duration::from_secs(1));
            return;
        }
        let empty = ready.is_empty();
        drop(ready);
        if !empty {
            std::thread::sleep(PAUSE);
        }
        match self.make() {
            Ok(seat) => self
                .ready
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(seat),
            Err(error) => {
                tracing::warn!(%error, "could not make a seat ready");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }

    fn make(&self) -> io::Result<Waiting> {
        let (mine, theirs) = UnixStream::pair()?;
        let child = Command::new(&self.program)
            .arg0("tenure-agent")
            .arg("exec")
            .env_clear()
            // Not an argument: those of its first process every job can read.
            .env(SEAT, &self.seat)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Waiting {
            pid: child.id(),
            socket: mine,
        })
    }

    /// Gives a launch to a seat, and what comes with it (`exec.rs` says in which order); its thin parent's process
    /// number, of which `before` hears first.
    pub(super) fn launch(
        &self,
        dir: &Path,
        launch: &Launch,
        given: &[BorrowedFd<'_>],
        before: &dyn Fn(u32) -> io::Result<()>,
    ) -> io::Result<u32> {
        let sealed = launch.seal()?;
        let fds: Vec<_> = std::iter::once(sealed.as_fd())
            .chain(given.iter().copied())
            .collect();
        loop {
            let waiting = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop();
            self.taken.notify_one();
            let (waiting, warm) = match waiting {
                Some(waiting) => (waiting, true),
                None => (self.make()?, false),
            };
            before(waiting.pid)?;
            match kernel::send_fds(&waiting.socket, dir.as_os_str().as_bytes(), &fds) {
                Ok(()) => return Ok(waiting.pid),
                // It died meanwhile; another will do.
                Err(_) if warm => {
                    kernel::reap(waiting.pid as i32, false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the cgroups of an agent's seats begin with: agents of different platforms may share a host.
pub(crate) fn cgroup_prefix(state_dir: &Path) -> io::Result<String> {
    let facts = std::fs::metadata(state_dir)?;
    Ok(format!("{:x}-{:x}-", facts.dev(), facts.ino()))
}

/// Removes cgroups whose thin parent is gone.
fn clear(seat: &Seat) {
    for dir in seat.cgroups.beginning(&seat.cgroup_prefix) {
        let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let owner = name[seat.cgroup_prefix.len()..]
            .split_once('-')
            .and_then(|(pid, ticks)| Some((pid.parse().ok()?, ticks.parse().ok()?)));
        let lives = |(pid, ticks): (i32, u64)| start_ticks(pid) == Some(ticks);
        if !owner.is_some_and(lives) {
            cgroup::end(&[dir], CLEAR_PATIENCE);
        }
    }
}
