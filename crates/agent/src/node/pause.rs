//! Pausing: an allocation gives its devices back and gets them again, and its programs notice nothing but the time.
//!
//! Its worker sets aside what is on the devices, or takes it up; where it has none, their driver does (`checkpoint`), and
//! its processes stand still meanwhile, for they could open a device that is another's. Then the thin parent is told, which
//! writes it down and has the run-time limit stand still. Each step may be repeated, so an agent that ended in between
//! goes on where the server says it again. Off the node's one thread, for there may be many gigabytes to move.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with};
use tenure_domain::id::AllocationId;

use super::Node;
use super::worker::CONTROL;
use crate::checkpoint::Checkpoint;
use crate::discover::Device;
use crate::isolate::cgroup::freeze;
use crate::record::Phase;
use crate::scrub::Taker;
use crate::stop::pause;
use crate::watchdog::Jobs as _;

/// How long a worker may not be able to set its devices aside.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line a worker answers with.
const LINE_MOST: usize = 1024;
/// How long a worker may take for an answer: moving what the largest devices hold takes minutes.
const ANSWER: Duration = Duration::from_secs(900);
const NOBODY: &str = "there is no worker that could set its devices aside, and their driver does not";

impl Node {
    pub(super) fn pause(self: &Arc<Self>, id: AllocationId) -> io::Result<()> {
        self.moved(id, move |node| node.set_aside(id));
        Ok(())
    }

    pub(super) fn resume(self: &Arc<Self>, taker: Taker) -> io::Result<()> {
        self.moved(taker.allocation, move |node| node.take_up(&taker));
        Ok(())
    }

    /// Does it elsewhere, one thing at a time for each allocation; what it cannot do is reported.
    fn moved(
        self: &Arc<Self>,
        id: AllocationId,
        work: impl FnOnce(&Node) -> Result<(), String> + Send + 'static,
    ) {
        let moving = || self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        if !moving().insert(id) {
            return;
        }
        let node = self.clone();
        self.runtime.spawn_blocking(move || {
            if let Err(why) = work(&node) {
                tracing::warn!(allocation = %id, why, "an allocation was not paused or resumed");
                node.table.tell_kept(id, why);
            }
            node.moving
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&id);
        });
    }

    fn set_aside(&self, id: AllocationId) -> Result<(), String> {
        match self.table.get(id).map(|record| record.phase) {
            Some(Phase::Running { .. }) => {}
            // Its report says how it is.
            _ => {
                self.table.tell_again(id);
                return Ok(());
            }
        }
        match (self.worker(id)?, &self.checkpoint) {
            (Some(worker), _) => worker.set_aside(id)?,
            (None, Some(checkpoint)) => self.set_aside_by_driver(checkpoint, id)?,
            (None, None) => return Err(NOBODY.to_owned()),
        }
        // What another is given now is nobody's.
        self.shares.set_aside(id);
        pause::leave(&self.dir.allocation(id), true).map_err(|error| error.to_string())
    }

    /// The worker that serves it, if one does. One that does not answer is no reason to ask the driver: it has the devices,
    /// and the job's own processes have none.
    fn worker(&self, id: AllocationId) -> Result<Option<Control>, String> {
        let dir = self.worker_dir(id);
        match dir.try_exists() {
            Ok(false) => Ok(None),
            Ok(true) => match Control::connect(&dir) {
                Ok(worker) => Ok(Some(worker)),
                Err(error) => Err(format!("its worker does not answer: {error}")),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    /// First the driver, for it needs the processes' help; what opened a device between that and their standing still
    /// would be on a device that is given away, so it is set aside as well. A child has its parent's devices open until
    /// it is another program, so one look says little.
    fn set_aside_by_driver(&self, checkpoint: &Checkpoint, id: AllocationId) -> Result<(), String> {
        self.drivers_set_aside(id)?;
        let cgroups = self.cgroups_of(id);
        let deadline = Instant::now() + PATIENCE;
        let mut asides = BTreeSet::new();
        loop {
            let users = checkpoint.users(&self.processes(id));
            let users = users.inspect_err(|_| self.give_up(checkpoint, &asides))?;
            asides.extend(&users);
            let aside = checkpoint.set_aside(&users);
            let still = aside.and_then(|()| freeze::freeze(&cgroups)).and_then(|()| {
                let now = checkpoint.users(&self.processes(id))?;
                Ok(now.into_iter().find(|pid| !users.contains(pid)))
            });
            let why = match still {
                Ok(None) => {
                    tracing::info!(allocation = %id, processes = users.len(), "set aside by the driver");
                    return Ok(());
                }
                Ok(Some(_)) if Instant::now() < deadline => {
                    freeze::thaw(&cgroups);
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                Ok(Some(pid)) => format!("process {pid} opened a device meanwhile"),
                Err(why) => why,
            };
            freeze::thaw(&cgroups);
            self.give_up(checkpoint, &asides);
            return Err(why);
        }
    }

    /// What could not be set aside whole goes on whole.
    fn give_up(&self, checkpoint: &Checkpoint, asides: &BTreeSet<i32>) {
        let living = asides
            .iter()
            .copied()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists());
        for pid in living {
            if let Err(why) = checkpoint.take_up(&[pid]) {
                tracing::warn!(pid, why, "a process was not taken up again");
            }
        }
    }

    /// Fail closed: standing still with its memory on a device is not paused.
    fn drivers_set_aside(&self, id: AllocationId) -> Result<(), String> {
        let found = self.found();
        let given: Vec<&Device> = found
            .devices
            .iter()
            .filter(|device| self.scrubs.is_on(&device.facts.uuid, id))
            .collect();
        let can = |device: &&Device| device.hardware().is_some_and(|hardware| hardware.checkpoint);
        let record = self.table.get(id);
        let devices = record
            .and_then(|record| record.subject)
            .map_or(0, |subject| subject.devices);
        // A device that is not seen just now may not be one that its driver sets aside.
        let all = !given.is_empty() && given.len() >= devices as usize;
        if all && given.iter().all(can) {
            return Ok(());
        }
        Err(NOBODY.to_owned())
    }

    fn take_up_by_driver(&self, checkpoint: &Checkpoint, taker: &Taker) -> Result<(), String> {
        let id = taker.allocation;
        let cgroups = self.cgroups_of(id);
        let users = checkpoint.users(&self.processes(id))?;
        // Standing still it has no devices, whether or not a process of its had one.
        if freeze::are_frozen(&cgroups) || checkpoint.is_aside(&users)? {
            self.give_again(taker, || {
                // The driver needs the processes' help; without their devices they wait for it.
                freeze::thaw(&cgroups);
                let taken = checkpoint.take_up(&users);
                if taken.is_err() {
                    let _ = checkpoint.set_aside(&users);
                    freeze::freeze(&cgroups)?;
                }
                taken
            })?;
        }
        freeze::thaw(&cgroups);
        Ok(())
    }

    /// Has the devices clean and counted for an allocation before they are its own again.
    fn give_again(&self, taker: &Taker, take: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let id = taker.allocation;
        let _alone = self.keep_checks_off(taker);
        self.clean_for(taker)?;
        let noted = self.scrubs.note(taker, |id| self.lives(id));
        noted.map_err(|error| error.to_string())?;
        let sized = self.shares.resize(id, &taker.devices);
        let taken = sized.map_err(|error| error.to_string()).and_then(|()| take());
        if taken.is_err() {
            self.shares.set_aside(id);
        }
        taken
    }

    fn cgroups_of(&self, id: AllocationId) -> Vec<PathBuf> {
        self.table
            .get(id)
            .map(|record| record.cgroups)
            .unwrap_or_default()
    }

    fn take_up(&self, taker: &Taker) -> Result<(), String> {
        let id = taker.allocation;
        match self.table.get(id).map(|record| record.phase) {
            Some(Phase::Paused { .. }) => {}
            _ => {
                self.table.tell_again(id);
                return Ok(());
            }
        }
        match (self.worker(id)?, &self.checkpoint) {
            (Some(worker), _) => {
                if worker.is_aside()? {
                    self.give_again(taker, || worker.ask("resume").map(drop))?;
                }
            }
            (None, Some(checkpoint)) => self.take_up_by_driver(checkpoint, taker)?,
            (None, None) => return Err(NOBODY.to_owned()),
        }
        pause::leave(&self.dir.allocation(id), false).map_err(|error| error.to_string())
    }
}

/// A word with a worker; what it is and says is `broker`'s.
struct Control(rustix::fd::OwnedFd);

impl Control {
    fn connect(worker_dir: &Path) -> io::Result<Control> {
        // A socket's path is short; that of an open directory always is.
        let dir = std::fs::File::open(worker_dir)?;
        let short = format!("/proc/self/fd/{}/{CONTROL}", dir.as_raw_fd());
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        connect(&socket, &SocketAddrUnix::new(short)?)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER))?;
        Ok(Control(socket))
    }

    fn set_aside(&self, id: AllocationId) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_aside()? {
            match self.ask("suspend") {
                Ok(said) => tracing::info!(allocation = %id, said, "set aside"),
                // A command may wait for the program itself, for a moment.
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn is_aside(&self) -> Result<bool, String> {
        Ok(self.ask("status")?.starts_with("suspended"))
    }

    /// What it answers, or why it refuses.
    fn ask(&self, word: &str) -> Result<String, String> {
        let gone = |error: rustix::io::Errno| format!("its worker does not answer: {error}");
        send(&self.0, word.as_bytes(), rustix::net::SendFlags::NOSIGNAL).map_err(gone)?;
        let mut line = [0; LINE_MOST];
        let (length, _) = recv(&self.0, &mut line[..], rustix::net::RecvFlags::empty()).map_err(gone)?;
        let line = String::from_utf8_lossy(&line[..length]);
        match line.split_once(' ') {
            Some(("ok", said)) => Ok(said.to_owned()),
            Some(("refused", why)) => Err(why.to_owned()),
            _ => Err("its worker has ended".to_owned()),
        }
    }
}
