//! What the first process of the job's world tells its thin parent through a pipe: that the walls stand, and how the job
//! ended. Never waited for but at the end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::clock;

/// No program ends so: before a moment, and not an end.
const WALLS: i32 = i32::MIN;

/// Says, from inside, that the walls stand.
pub(super) fn tell_walls(status: BorrowedFd<'_>) {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&WALLS.to_ne_bytes());
    bytes[4..].copy_from_slice(&clock::monotonic_us().to_ne_bytes());
    // It is for people to look at; nothing rests on it.
    let _ = rustix::io::write(status, &bytes);
}

pub(super) struct Status {
    pipe: File,
    walls_us: Option<u64>,
    how: Option<i32>,
}

impl Status {
    pub fn new(pipe: File) -> Status {
        Status {
            pipe,
            walls_us: None,
            how: None,
        }
    }

    /// When the walls stood, if that was said.
    pub fn walls_us(&mut self) -> Option<u64> {
        let nothing = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::from_borrowed_fd(self.pipe.as_fd(), PollFlags::IN)];
        let readable = poll(&mut fds, Some(&nothing)).is_ok_and(|ready| ready > 0);
        if self.walls_us.is_none() && self.how.is_none() && readable {
            let _ = self.read();
        }
        self.walls_us
    }

    /// How the job ended; none where its world was killed before it could say.
    pub fn end(&mut self) -> Option<i32> {
        while self.how.is_none() {
            self.read().ok()?;
        }
        self.how
    }

    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4];
        self.pipe.read_exact(&mut bytes)?;
        match i32::from_ne_bytes(bytes) {
            WALLS => {
                let mut moment = [0; 8];
                self.pipe.read_exact(&mut moment)?;
                self.walls_us = Some(u64::from_ne_bytes(moment));
            }
            how => self.how = Some(how),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_walls_and_the_end_are_told_apart_and_either_may_be_missing() {
        let pipe = || rustix::pipe::pipe().unwrap();
        let (read, write) = pipe();
        let mut status = Status::new(read.into());
        assert_eq!(status.walls_us(), None, "nothing was said, and nobody waits");
        tell_walls(write.as_fd());
        let walls = status.walls_us();
        assert!(walls.is_some_and(|walls| walls <= clock::monotonic_us()));
        File::from(write).write_all(&768i32.to_ne_bytes()).unwrap();
        assert_eq!(status.walls_us(), walls);
        assert_eq!(status.end(), Some(768));

        let (read, write) = pipe();
        let mut status = Status::new(read.into());
        tell_walls(write.as_fd());
        File::from(write).write_all(&9i32.to_ne_bytes()).unwrap();
        assert_eq!(status.end(), Some(9), "the walls were never asked for");

        let (read, write) = pipe();
        let mut status = Status::new(read.into());
        File::from(write.try_clone().unwrap())
            .write_all(&0i32.to_ne_bytes())
            .unwrap();
        drop(write);
        assert_eq!((status.walls_us(), status.end()), (None, Some(0)));

        let (read, write) = pipe();
        tell_walls(write.as_fd());
        drop(write);
        assert_eq!(Status::new(read.into()).end(), None);
    }
}
