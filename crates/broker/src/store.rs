//! Where a buffer's bytes lie while the slice is set aside: in memory of the worker's own, or in the one file that it was
//! given for this.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stores begin at multiples of this.
const ALIGNED: u64 = 64;

/// The file for all that is set aside. How large it may become is for whoever gave it to say.
pub struct Spill {
    file: File,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    end: u64,
    stores: usize,
}

impl Spill {
    /// Takes up the file, which is there.
    pub fn open(path: &Path) -> io::Result<Arc<Spill>> {
        let file = File::options().read(true).write(true).open(path)?;
        // A file that would become too large is said to be so, and does not end the worker.
        // SAFETY: only has a signal ignored.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        Ok(Arc::new(Spill {
            file,
            taken: Mutex::default(),
        }))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has room on the disk now: what is found missing when it is written ends the worker by a signal, and with it what
    /// is on the device.
    fn take(&self, bytes: u64) -> io::Result<u64> {
        let mut taken = self.taken();
        let at = taken.end.next_multiple_of(ALIGNED);
        let signed = |number: u64| libc::off_t::try_from(number).map_err(|_| io::ErrorKind::OutOfMemory);
        // SAFETY: an open file of our own.
        match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), signed(at)?, signed(bytes.max(1))?) } {
            0 => {
                taken.end = at + bytes;
                taken.stores += 1;
                Ok(at)
            }
            code => {
                self.empty(&mut taken);
                Err(io::Error::from_raw_os_error(code))
            }
        }
    }

    fn give_back(&self) {
        let mut taken = self.taken();
        taken.stores -= 1;
        self.empty(&mut taken);
    }

    /// Gives the disk's room back when nothing is set aside.
    fn empty(&self, taken: &mut Taken) {
        if taken.stores > 0 {
            return;
        }
        taken.end = 0;
        let length = self.file.metadata().map_or(0, |file| file.len());
        // The last block too, whatever of it is in use.
        let length = length.next_multiple_of(1 << 20);
        if let Ok(length) = libc::off_t::try_from(length)
            && length > 0
        {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: an open file of our own, of which nothing is mapped any more.
            unsafe { libc::fallocate(self.file.as_raw_fd(), hole, 0, length) };
        }
    }
}

pub struct Store {
    /// The mapping, and where in it the store begins.
    mapped: *mut libc::c_void,
    ahead: usize,
    bytes: usize,
    spill: Option<Arc<Spill>>,
}

// SAFETY: memory of our own, reached through this value alone.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// Room for so many bytes; in the file, if there is one.
    pub fn new(bytes: u64, spill: Option<&Arc<Spill>>) -> io::Result<Store> {
        let size = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let at = spill.map(|spill| spill.take(bytes)).transpose()?;
        let mut store = Store {
            mapped: libc::MAP_FAILED,
            ahead: 0,
            bytes: size,
            spill: spill.cloned(),
        };
        let (flags, fd) = match spill {
            Some(spill) => (libc::MAP_SHARED, spill.file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // A mapping begins at a page.
        // SAFETY: asks for a number.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let at = at.unwrap_or(0);
        store.ahead = (at % page) as usize;
        let from = (at - at % page) as libc::off_t;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        store.mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), store.ahead + size, access, flags, fd, from) };
        if store.mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(store)
    }

    pub fn start(&self) -> *mut u8 {
        // SAFETY: within the mapping, which is so much longer than the store.
        unsafe { self.mapped.cast::<u8>().add(self.ahead) }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.mapped != libc::MAP_FAILED {
            // SAFETY: our own mapping.
            unsafe { libc::munmap(self.mapped, self.ahead + self.bytes) };
        }
        if let Some(spill) = &self.spill {
            spill.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
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
        let path = small.path().join("spill");
        File::create(&path).unwrap();
        let spill = Spill::open(&path).unwrap();
        let fits = Store::new(512 << 10, Some(&spill));
        let more = Store::new(4 << 20, Some(&spill));
        let error = more.err().map(|error| error.kind());
        drop(fits.expect("there is room for it"));
        drop(spill);
        assert!(mounted(&["umount"]).unwrap().success());
        assert_eq!(error, Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn stores_lie_apart_in_one_file_and_leave_it_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spill");
        File::create(&path).unwrap();
        let spill = Spill::open(&path).unwrap();
        let sizes = [1, 63, 64, 65, 5000, 100_000];
        for _ in 0..2 {
            let stores = sizes.map(|size| Store::new(size, Some(&spill)).unwrap());
            for (store, mark) in stores.iter().zip(1..) {
                // SAFETY: the store's own bytes.
                unsafe { std::ptr::write_bytes(store.start(), mark, store.bytes) };
            }
            for (store, mark) in stores.iter().zip(1u8..) {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(store.start(), store.bytes) };
                assert!(bytes.iter().all(|byte| *byte == mark));
            }
            let file = std::fs::metadata(&path).unwrap();
            let tight: u64 = sizes.iter().map(|size| size + ALIGNED).sum();
            assert!(file.len() <= tight && file.blocks() > 0, "{file:?}");
            drop(stores);
            assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
        }
    }
}
