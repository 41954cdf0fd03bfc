//! A descriptor that is read and written without holding a thread: a pipe, a socket, our end of a terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tenure_api::channel::LogStream;
use tenure_api::channel::stream::MAX_CHUNK;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::{Gone, Outbox};
use crate::kernel;

/// After its writer has ended, how long nothing may come before it is taken to be all.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// And how much of what others write there is still passed on.
const LAST_BYTES: usize = 1 << 20;

#[derive(Clone)]
pub(super) struct Pipe(Arc<AsyncFd<OwnedFd>>);

impl Pipe {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Pipe> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        Ok(Pipe(Arc::new(kernel::awaited(fd)?)))
    }

    pub(super) fn owned(&self) -> &OwnedFd {
        self.0.get_ref()
    }

    /// Nothing at the end; a terminal ends when nobody has it open any more.
    async fn read(&self, buffer: &mut [u8]) -> usize {
        loop {
            let Ok(mut ready) = self.0.readable().await else {
                return 0;
            };
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut *buffer)?));
            match read {
                Ok(Ok(got)) => return got,
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => return 0,
                Err(_) => {}
            }
        }
    }

    /// Writes it all, or says that nobody reads.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            let mut ready = self.0.writable().await.map_err(|_| Gone)?;
            let written = ready.try_io(|fd| match rustix::io::write(fd.get_ref(), bytes) {
                Err(Errno::INTR) => Ok(0),
                other => Ok(other?),
            });
            match written {
                Ok(Ok(count)) => bytes = &bytes[count..],
                Ok(Err(_)) => return Err(Gone),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Passes on what is written there, until its end; once `ended`, until nothing more comes.
    pub(super) async fn copy(
        &self,
        from: LogStream,
        outbox: &Outbox,
        mut ended: watch::Receiver<bool>,
    ) -> Result<u64, Gone> {
        let mut buffer = vec![0; MAX_CHUNK];
        let mut copied = 0;
        loop {
            let got = tokio::select! {
                got = self.read(&mut buffer) => got,
                _ = ended.wait_for(|ended| *ended) => break,
            };
            if got == 0 {
                return Ok(copied);
            }
            copied += got as u64;
            outbox.data(from, &buffer[..got]).await?;
        }
        let mut left = LAST_BYTES;
        while left > 0 {
            match tokio::time::timeout(LAST_WORDS, self.read(&mut buffer)).await {
                Err(_) | Ok(0) => break,
                Ok(got) => {
                    left = left.saturating_sub(got);
                    copied += got as u64;
                    outbox.data(from, &buffer[..got]).await?;
                }
            }
        }
        Ok(copied)
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
