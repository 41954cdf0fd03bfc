//! The devices' memory: how much there is, and pieces of it. A piece is a file in memory, so that it can be mapped
//! anywhere, in another process too; it is gone when nothing has it any more.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use crate::export::{Code, INVALID_VALUE, OUT_OF_MEMORY};

/// What every byte of a new piece is: somebody was here before.
pub const DIRT: u8 = 0xA5;
/// Pieces up to this size come dirty throughout; of larger ones the first so many bytes.
const DIRTY: usize = 4 << 20;

fn setting(name: &str, ordinary: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary)
}

pub fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let total = setting("TENURE_CUDA_DOUBLE_MIB", 8192) << 20;
        let device = |_| Device {
            total,
            used: AtomicU64::new(0),
        };
        (0..setting("TENURE_CUDA_DOUBLE_DEVICES", 1))
            .map(device)
            .collect()
    })
}

pub struct Device {
    pub total: u64,
    used: AtomicU64,
}

impl Device {
    pub fn free(&self) -> u64 {
        self.total - self.used.load(Relaxed)
    }

    pub fn take(&'static self, bytes: u64) -> Result<Room, Code> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        let taken = self.used.fetch_update(Relaxed, Relaxed, fits);
        taken
            .map(|_| Room { device: self, bytes })
            .map_err(|_| OUT_OF_MEMORY)
    }
}

/// So much of a device, given back when dropped.
pub struct Room {
    device: &'static Device,
    pub bytes: u64,
}

impl Room {
    pub fn resize(&mut self, bytes: u64) -> Result<(), Code> {
        if bytes > self.bytes {
            let more = self.device.take(bytes - self.bytes)?;
            std::mem::forget(more);
        } else {
            self.device.used.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.device.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// A piece of memory.
pub struct Piece {
    file: OwnedFd,
    pub bytes: usize,
    _room: Option<Room>,
}

impl Piece {
    pub fn new(bytes: usize, room: Option<Room>) -> Result<Arc<Piece>, Code> {
        // SAFETY: a C string; the descriptor is checked below.
        let file = unsafe { libc::memfd_create(c"cuda-double".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is ours; checked before it is owned.
        if file < 0 || unsafe { libc::ftruncate(file, bytes as i64) } != 0 {
            return Err(OUT_OF_MEMORY);
        }
        Ok(Arc::new(Piece {
            // SAFETY: open, and nobody else's.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            bytes,
            _room: room,
        }))
    }

    /// The piece another process has open.
    pub fn of_another(process: u32, descriptor: RawFd, bytes: usize) -> Result<Arc<Piece>, Code> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|_| INVALID_VALUE)?;
        Ok(Arc::new(Piece {
            file: file.into(),
            bytes,
            _room: None,
        }))
    }

    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Maps the piece, at an address that was reserved or anywhere.
    pub fn map(&self, at: Option<u64>) -> Result<u64, Code> {
        let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
        // SAFETY: a fresh mapping, or one over addresses reserved for it.
        let found = unsafe {
            libc::mmap(
                at.unwrap_or(0) as *mut _,
                self.bytes.max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | fixed,
                self.file.as_raw_fd(),
                0,
            )
        };
        match found == libc::MAP_FAILED {
            true => Err(OUT_OF_MEMORY),
            false => Ok(found as u64),
        }
    }

    pub fn soil(&self, at: u64) {
        // SAFETY: mapped there just now, and at least so long.
        unsafe { std::ptr::write_bytes(at as *mut u8, DIRT, self.bytes.min(DIRTY)) };
    }
}

/// Reserves addresses with nothing behind them, anywhere or where something was.
pub fn reserve(at: Option<u64>, bytes: usize) -> Result<u64, Code> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a fresh mapping, or one over a mapping of ours that its owner gave up.
    let found = unsafe { libc::mmap(at.unwrap_or(0) as *mut _, bytes, libc::PROT_NONE, how, -1, 0) };
    match found == libc::MAP_FAILED {
        true => Err(OUT_OF_MEMORY),
        false => Ok(found as u64),
    }
}

pub fn unmap(at: u64, bytes: usize) {
    // SAFETY: mapped by us, and given up by its owner.
    unsafe { libc::munmap(at as *mut _, bytes.max(1)) };
}
