//! Where a buffer's bytes lie while the slice is set aside: in memory of the worker's own, or in a file without a name.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub struct Store {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: memory of our own, reached through this value alone.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Room for so many bytes; in `dir`, if one is given.
    pub fn new(bytes: u64, dir: Option<&Path>) -> io::Result<Store> {
        let size = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let file: Option<File> = match dir {
            None => None,
            Some(dir) => {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .mode(0o600)
                    .custom_flags(libc::O_TMPFILE)
                    .open(dir)?;
                reserve(&file, bytes)?;
                Some(file)
            }
        };
        let (flags, fd) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Store { start, bytes: size })
    }

    pub fn start(&self) -> *mut u8 {
        self.start.cast()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// Has the file's room on its disk now. A sparse one would be found too large only when it is written, by a signal that
/// ends the worker and with it what is on the device.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if length == 0 {
        return Ok(());
    }
    // SAFETY: an open file of our own.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_disk_that_is_full_is_said_before_anything_moves() {
        let small = tempfile::tempdir().unwrap();
        let mounted = |args: &[&str]| Command::new(args[0]).args(&args[1..]).arg(small.path()).status();
        let mount = mounted(&["mount", "-t", "tmpfs", "-o", "size=1m", "none"]).unwrap();
        assert!(
            mount.success(),
            "mounting a small file system needs root, as the worker's walls do"
        );
        let fits = Store::new(512 << 10, Some(small.path()));
        let more = Store::new(4 << 20, Some(small.path()));
        let error = more.err().map(|error| error.kind());
        drop(fits.expect("there is room for it"));
        assert!(mounted(&["umount"]).unwrap().success());
        assert_eq!(error, Some(io::ErrorKind::StorageFull));
    }
}
