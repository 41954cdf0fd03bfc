//! Memory two processes see: a sealed file in memory, mapped. Never looked at through a reference other than to an
//! atomic word; whole bytes are copied out or in.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::codec::{Field, Malformed, Reader};

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// A part of a numbered region: where bulk bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub region: u32,
    pub at: u64,
    pub bytes: u64,
}

impl Field for Span {
    fn put(&self, out: &mut Vec<u8>) {
        self.region.put(out);
        self.at.put(out);
        self.bytes.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Span, Malformed> {
        Ok(Span {
            region: from.take()?,
            at: from.take()?,
            bytes: from.take()?,
        })
    }
}

/// A mapping of a sealed file in memory.
#[derive(Debug)]
pub struct Shared {
    start: *mut u8,
    bytes: usize,
    file: Option<OwnedFd>,
}

// SAFETY: an address range; every access is an atomic or a copy whose bytes have no meaning until they are checked.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// New memory of zeros, which nobody can shrink or grow from now on.
    pub fn create(bytes: usize) -> io::Result<Shared> {
        // SAFETY: a constant name; the descriptor is checked.
        let file = unsafe {
            let file = libc::memfd_create(
                c"tenure-wire".as_ptr(),
                libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            );
            if file < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(file)
        };
        let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: our own descriptor.
        let done = unsafe {
            libc::ftruncate(file.as_raw_fd(), length) == 0
                && libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
        Shared::adopt(file, bytes)
    }

    /// Memory the other side made; refused unless it has the size it is said to have, for good.
    pub fn adopt(file: OwnedFd, bytes: usize) -> io::Result<Shared> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        // SAFETY: zeros are a valid value; the kernel fills it in.
        let (facts, seals) = unsafe {
            let mut facts: libc::stat = std::mem::zeroed();
            if libc::fstat(file.as_raw_fd(), &mut facts) != 0 {
                return Err(io::Error::last_os_error());
            }
            (facts, libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS))
        };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(refused("shared memory is not sealed"));
        }
        if bytes == 0 || u64::try_from(facts.st_size) != Ok(bytes as u64) {
            return Err(refused("shared memory has another size"));
        }
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared {
            start: start.cast(),
            bytes,
            file: Some(file),
        })
    }

    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Lets the descriptor go; the mapping stays.
    pub fn close_file(&mut self) {
        self.file = None;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a part, if it lies within.
    pub fn part(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let end = at.checked_add(bytes)?;
        // SAFETY: within the mapping, as just checked.
        (end <= self.bytes as u64).then(|| unsafe { self.start.add(at as usize) })
    }

    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.bytes);
        // SAFETY: within the mapping and aligned; an atomic may be written by others.
        unsafe { AtomicU32::from_ptr(self.start.add(at).cast()) }
    }

    pub(crate) fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.start.add(at).cast()) }
    }

    /// Copies bytes out, word by word. `at` is a multiple of eight and the whole words lie within.
    pub(crate) fn copy_out(&self, at: usize, out: &mut [u8]) {
        for (place, chunk) in out.chunks_mut(8).enumerate() {
            let word = self.word64(at + place * 8).load(Relaxed).to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Copies bytes in, word by word; the rest of the last word becomes zero.
    pub(crate) fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (place, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word64(at + place * 8)
                .store(u64::from_ne_bytes(word), Relaxed);
        }
    }

    /// A private copy of a part; nothing if it does not lie within.
    pub fn read(&self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        let from = self.part(at, bytes)?;
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes as usize).ok()?;
        // SAFETY: each byte lies within the mapping; volatile, since the other side may write meanwhile.
        copy.extend((0..bytes as usize).map(|place| unsafe { from.add(place).read_volatile() }));
        Some(copy)
    }

    /// Puts bytes into a part. False if they do not fit.
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.part(at, bytes.len() as u64) else {
            return false;
        };
        // SAFETY: room for the bytes, as just checked; private memory does not overlap the mapping. The other side may
        // write there at the same time: then it spoils its own bytes, for nothing is read back through this.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        true
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nothing borrowed is left.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_within_or_are_none() {
        let shared = Shared::create(4096).unwrap();
        assert!(shared.part(0, 4096).is_some());
        for (at, bytes) in [
            (0, 4097),
            (4096, 1),
            (u64::MAX, 1),
            (1, u64::MAX),
            (u64::MAX, u64::MAX),
        ] {
            assert!(shared.part(at, bytes).is_none(), "{at} {bytes}");
            assert!(shared.read(at, bytes).is_none());
        }
        assert!(shared.write(4090, b"abcdef"));
        assert!(!shared.write(4091, b"abcdef"));
        assert_eq!(shared.read(4090, 6).unwrap(), b"abcdef");
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let open = || {
            // SAFETY: a constant name; the descriptor is owned at once.
            unsafe {
                let file = libc::memfd_create(c"t".as_ptr(), libc::MFD_ALLOW_SEALING);
                libc::ftruncate(file, 4096);
                OwnedFd::from_raw_fd(file)
            }
        };
        assert!(Shared::adopt(open(), 4096).is_err());
        let sealed = open();
        // SAFETY: our own descriptor.
        unsafe { libc::fcntl(sealed.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        assert!(Shared::adopt(sealed.try_clone().unwrap(), 8192).is_err());
        assert!(Shared::adopt(sealed, 4096).is_ok());
        let pipe = std::io::pipe().unwrap().0;
        assert!(Shared::adopt(pipe.into(), 4096).is_err());
    }
}
