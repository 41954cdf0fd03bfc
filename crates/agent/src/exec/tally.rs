//! The tally of denied system calls: a small file in the allocation's directory, mapped and counted into as they come,
//! so that whatever ends the job, the counts are there.
//!
//! Kept by the first process of the job's world and by whoever stays with a session, each of which denies the calls it
//! hears of. Read by the agent at the end (`conduct.rs`). The job never sees the file or the mapping.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags};

use crate::kernel;

/// The file's name.
pub const NAME: &str = "denied";
/// Calls told apart by their number; all others share the last place.
const CALLS: usize = 1023;
const PLACES: usize = CALLS + 1;
/// Answered at a time before anything else is looked at.
const AT_ONCE: usize = 64;

pub struct Tally {
    counts: &'static [AtomicU32],
}

impl Tally {
    /// Makes the file in the working directory. Its space is written, not promised: a full disk shows here, and not
    /// when something is counted.
    pub fn create() -> io::Result<Tally> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(NAME)?;
        file.write_all(&[0; PLACES * 4])?;
        Ok(Tally {
            counts: kernel::map_counts(&file, PLACES)?,
        })
    }

    fn count(&self, call: i32) {
        let place = usize::try_from(call).map_or(CALLS, |call| call.min(CALLS));
        let _ = self.counts[place].fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
    }
}

/// How often each call was denied in a run, by number; none where it was not counted. The last is of all the others.
pub fn read(dir: &Path) -> Option<(Vec<(u32, u64)>, u64)> {
    let bytes = std::fs::read(dir.join(NAME)).ok()?;
    let counts: Vec<u64> = bytes
        .chunks_exact(4)
        .map(|count| count.try_into().map_or(0, u32::from_ne_bytes).into())
        .collect();
    let (others, known) = counts.split_last().filter(|_| counts.len() == PLACES)?;
    let denied = (0..).zip(known.iter().copied()).filter(|(_, times)| *times > 0);
    Some((denied.collect(), *others))
}

/// The calls of one filter. Its listener comes from the process that installed it, before it becomes the program.
pub enum Denials {
    Awaited(UnixStream),
    Heard(OwnedFd),
    /// Nothing is counted, or nobody is left to be counted.
    Over,
}

impl Denials {
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        match self {
            Denials::Awaited(stream) => Some(PollFd::new(stream, PollFlags::IN)),
            Denials::Heard(listener) => Some(PollFd::new(listener, PollFlags::IN)),
            Denials::Over => None,
        }
    }

    /// Takes what made it readable: the listener itself, or calls that wait.
    pub fn take(&mut self, readable: PollFlags, tally: Option<&Tally>) {
        match self {
            Denials::Awaited(stream) => {
                let mut word = Vec::new();
                let listener = kernel::receive_fds(stream, &mut word)
                    .ok()
                    .and_then(|mut fds| fds.pop());
                *self = listener.map_or(Denials::Over, Denials::Heard);
            }
            Denials::Heard(listener) if readable.contains(PollFlags::IN) => {
                for _ in 0..AT_ONCE {
                    if let Some(asked) = kernel::hear_call(listener) {
                        if let Some(tally) = tally {
                            tally.count(asked.call);
                        }
                        kernel::deny_call(listener, asked);
                    }
                    if !is_readable(listener) {
                        break;
                    }
                }
            }
            Denials::Heard(_) => *self = Denials::Over,
            Denials::Over => {}
        }
    }
}

fn is_readable(fd: &impl AsFd) -> bool {
    let at_once = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}
