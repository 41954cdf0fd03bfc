//! Seats made ready ahead: thin parents with their walls built, waiting for a launch. A job then starts as fast as
//! a program does.

mod maker;
mod pool;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::isolate::cgroup;
use crate::kernel;
use crate::launch::{Launch, Seat};
use crate::record::start_ticks;
use maker::Maker;
use pool::Pool;

pub(super) use pool::Left;

/// After a seat was taken, the next is made only when the job has had this long to start.
const PAUSE: Duration = Duration::from_millis(8);
const CLEAR_PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Seats {
    maker: Mutex<Maker>,
    cgroups: Pool,
    wanted: usize,
    ready: Mutex<Vec<Waiting>>,
    taken: Condvar,
}

struct Waiting {
    pid: u32,
    cgroup: String,
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
            maker: Mutex::new(Maker::new(program, serde_json::to_string(seat)?)),
            cgroups: Pool::new(seat.cgroups.clone(), &seat.cgroup_prefix),
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
        let cgroup = self.cgroups.next();
        let made = self
            .maker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .make(&cgroup, theirs.as_fd());
        let pid = made.inspect_err(|_| self.cgroups.remove(&cgroup))?;
        Ok(Waiting {
            pid,
            cgroup,
            socket: mine,
        })
    }

    /// Gives a launch to a seat, and what comes with it (`exec.rs` says in which order); its thin parent's process number,
    /// and its cgroups, of which `before` hears first.
    pub(super) fn launch(
        &self,
        dir: &Path,
        launch: &Launch,
        given: &[BorrowedFd<'_>],
        before: &dyn Fn(&str) -> io::Result<()>,
    ) -> io::Result<(u32, Left)> {
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
            before(&waiting.cgroup)?;
            match kernel::send_fds(&waiting.socket, dir.as_os_str().as_bytes(), &fds) {
                Ok(()) => return Ok((waiting.pid, Left::of_launch(waiting.cgroup, launch))),
                // It died meanwhile; another will do.
                Err(_) if warm => {
                    kernel::reap(waiting.pid as i32, false);
                    self.cgroups.remove(&waiting.cgroup);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes back what a run had whose end is written down and whose thin parent is gone.
    pub(super) fn take_back(&self, left: Left) {
        self.cgroups.give_back(left);
    }
}

/// What the cgroups of an agent's seats begin with: agents of different platforms may share a host.
pub(crate) fn cgroup_prefix(state_dir: &Path) -> io::Result<String> {
    let facts = std::fs::metadata(state_dir)?;
    Ok(format!("{:x}-{:x}-", facts.dev(), facts.ino()))
}

/// Removes cgroups that no thin parent holds.
fn clear(seat: &Seat) {
    let dirs = seat.cgroups.beginning(&seat.cgroup_prefix);
    let names: BTreeSet<&str> = dirs.iter().filter_map(|dir| dir.file_name()?.to_str()).collect();
    for name in names {
        let dirs = seat.cgroups.dirs(name);
        let held = cgroup::hold(&dirs);
        let in_use = matches!(&held, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if !in_use && !is_of_living(&name[seat.cgroup_prefix.len()..]) {
            cgroup::end(&dirs, CLEAR_PATIENCE);
        }
    }
}

/// Older agents' thin parents hold nothing; their cgroups tell by their name whose they are.
fn is_of_living(name: &str) -> bool {
    name.split_once('-')
        .and_then(|(pid, ticks)| Some((pid.parse().ok()?, ticks.parse().ok()?)))
        .is_some_and(|(pid, ticks): (i32, u64)| start_ticks(pid) == Some(ticks))
}
