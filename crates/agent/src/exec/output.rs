//! One of the job's output streams, kept in a file up to a size; what comes after is dropped, so that the job
//! is never held up by its own noise.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

pub(super) struct Output {
    pipe: Option<OwnedFd>,
    raw: OwnedFd,
    path: PathBuf,
    /// Made with the first byte: a stream that says nothing has none.
    file: Option<File>,
    left: u64,
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
        for _ in 0..16 {
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

    /// Takes the rest once all writers are gone, and says what was dropped.
    pub(super) fn finish(&mut self) {
        while self.is_open() {
            let before = (self.left, self.dropped);
            self.pump();
            if before == (self.left, self.dropped) {
                // A writer outside our reach holds the pipe; what it says belongs to nobody.
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
