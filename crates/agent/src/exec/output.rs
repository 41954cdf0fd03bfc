//! One of the job's output streams, kept in a file up to a size; what comes after is dropped, so that the job
//! is not held up by its own noise, but for a pace: taking it costs the node time that nobody pays for.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

/// Once the job has ended, how much is still taken, and for how long. What it wrote itself is in the pipe, which
/// holds no more than the kernel lets a job make of it; one round takes that.
const LAST_BYTES: u64 = 1 << 20;
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The rest after each 64 KiB that are dropped: 32 MB a second at most.
const PACE: Duration = Duration::from_millis(2);

pub(super) struct Output {
    pipe: Option<OwnedFd>,
    raw: OwnedFd,
    path: PathBuf,
    /// Made with the first byte: a stream that says nothing has none.
    file: Option<File>,
    left: u64,
    taken: u64,
    dropped: u64,
}

impl Output {
    pub(super) fn new(pipe: OwnedFd, path: &Path, bytes_max: u64) -> io::Result<Self> {
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        let raw = pipe.try_clone()?;
        Ok(Output {
            pipe: Some(pipe),
            raw,
            path: path.to_owned(),
            file: None,
            left: bytes_max,
            taken: 0,
            dropped: 0,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }

    /// Takes what is there, up to a bound so that one stream does not starve the other.
    pub(super) fn pump(&mut self) {
        let mut buffer = [0; 65536];
        let dropped = self.dropped;
        for _ in 0..16 {
            if self.dropped > dropped {
                std::thread::sleep(PACE);
                return;
            }
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(got) => self.keep(&buffer[..got]),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.taken += bytes.len() as u64;
        let fits = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        // A full disk loses the log, not the job.
        let kept = if self.write(&bytes[..fits]).is_ok() {
            fits
        } else {
            0
        };
        self.left -= kept as u64;
        self.dropped += (bytes.len() - kept) as u64;
    }

    /// Takes the rest once the job's own writers are gone, and says what was dropped. One outside our reach may
    /// hold the pipe for ever; what it says belongs to nobody, and waiting for its end would hold up the job's.
    pub(super) fn finish(&mut self) {
        let (begun, until) = (self.taken, Instant::now() + LAST_WORDS);
        while self.is_open() {
            let before = self.taken;
            self.pump();
            let all = self.taken == before || self.taken - begun >= LAST_BYTES;
            if all || Instant::now() >= until {
                break;
            }
        }
        if self.dropped > 0 {
            self.note(&format!(
                "tenure: the log is full; {} bytes were dropped",
                self.dropped
            ));
        }
    }

    /// A line of our own, whatever the size.
    pub(super) fn note(&mut self, line: &str) {
        let _ = self.write(format!("{line}\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(
                File::options()
                    .create(true)
                    .append(true)
                    .mode(0o600)
                    .open(&self.path)?,
            ),
        };
        file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_keeps_is_taken_in_small_rounds() {
        let dir = tempfile::tempdir().unwrap();
        let rounds = |bytes_max| {
            let endless = File::open("/dev/zero").unwrap();
            let mut output = Output::new(endless.into(), &dir.path().join("stdout"), bytes_max).unwrap();
            output.pump();
            output.taken
        };
        assert_eq!((rounds(4 << 20), rounds(0)), (1 << 20, 65536));
    }

    #[test]
    fn who_writes_for_ever_holds_up_no_end() {
        let dir = tempfile::tempdir().unwrap();
        let endless = File::open("/dev/zero").unwrap();
        let mut output = Output::new(endless.into(), &dir.path().join("stdout"), 1 << 20).unwrap();
        let (say, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            output.finish();
            let _ = say.send(output.taken);
        });
        let taken = done
            .recv_timeout(Duration::from_secs(20))
            .expect("it waits for an end that never comes");
        assert!(taken <= 2 * LAST_BYTES, "{taken}");
    }

    #[test]
    fn all_that_the_job_left_in_its_pipe_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = rustix::pipe::pipe().unwrap();
        let room = rustix::pipe::fcntl_setpipe_size(&to, 1 << 20).unwrap();
        rustix::fs::fcntl_setfl(&to, OFlags::NONBLOCK).unwrap();
        let said: Vec<u8> = (0..room).map(|at| (at % 251) as u8).collect();
        assert_eq!(rustix::io::write(&to, &said).unwrap(), said.len());
        let path = dir.path().join("stdout");
        let mut output = Output::new(from, &path, 4 << 20).unwrap();
        output.finish();
        assert!(std::fs::read(path).unwrap() == said);
        // Another still holds it.
        drop(to);
    }
}
