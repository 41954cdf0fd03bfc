//! The device: a file with who has which part of its memory, the memory, and the local memory of each unit.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

pub const MEMORY_BYTES: usize = 1 << 20;
pub const COMPUTE_UNITS: usize = 4;
pub const LOCAL_BYTES: usize = 32 << 10;
/// Places for allocations: process, where from, how many bytes.
const PLACES: usize = 64;
const TABLE_BYTES: usize = PLACES * 3 * 8;
const TOTAL: usize = TABLE_BYTES + MEMORY_BYTES + COMPUTE_UNITS * LOCAL_BYTES;
const ALIGNED: usize = 256;

pub struct Memory {
    file: File,
    start: *mut u8,
}

// SAFETY: the map lives as long as the process; what is in it anybody may change at any time.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::open);

pub fn memory() -> &'static Memory {
    &MEMORY
}

pub fn fault() -> String {
    std::env::var("TENURE_LASTING_FAULT").unwrap_or_default()
}

impl Memory {
    fn open() -> Memory {
        let path = std::env::var("TENURE_LASTING_DEVICE").expect("TENURE_LASTING_DEVICE names a file");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .expect("the device's file opens");
        file.set_len(TOTAL as u64).expect("the device has its size");
        // SAFETY: a new shared map of a file that is as long.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                TOTAL,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "the device maps");
        Memory {
            file,
            start: start.cast(),
        }
    }

    /// What it says it has.
    pub fn promised() -> usize {
        MEMORY_BYTES
    }

    /// Where its memory starts.
    pub fn start(&self) -> *mut u8 {
        // SAFETY: inside the map.
        unsafe { self.start.add(TABLE_BYTES) }
    }

    /// The local memory of a unit.
    pub fn local(&self, unit: usize) -> *mut u32 {
        // SAFETY: inside the map.
        unsafe {
            self.start()
                .add(MEMORY_BYTES + unit % COMPUTE_UNITS * LOCAL_BYTES)
                .cast()
        }
    }

    fn locked<T>(&self, body: impl FnOnce(&mut [[u64; 3]; PLACES]) -> T) -> T {
        // SAFETY: a live descriptor.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX) };
        // SAFETY: the map begins with the table, and nobody else has it while the file is locked.
        let result = body(unsafe { &mut *self.start.cast() });
        // SAFETY: as above.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        result
    }

    /// The first free run; what it holds is what was left there.
    pub fn take(&self, bytes: usize) -> Option<usize> {
        let own = u64::from(std::process::id());
        let end = if fault() == "small" {
            MEMORY_BYTES / 4
        } else {
            MEMORY_BYTES
        };
        let bytes = bytes.next_multiple_of(ALIGNED);
        self.locked(|places| {
            for place in places.iter_mut().filter(|place| place[0] != 0) {
                if !std::path::Path::new(&format!("/proc/{}", place[0])).exists() {
                    *place = [0; 3];
                }
            }
            let mut taken: Vec<(usize, usize)> = places
                .iter()
                .filter(|place| place[0] != 0)
                .map(|place| (place[1] as usize, place[2] as usize))
                .collect();
            taken.sort_unstable();
            let mut at = 0;
            for (from, size) in taken {
                if from >= at + bytes {
                    break;
                }
                at = at.max(from + size);
            }
            let free = places.iter_mut().find(|place| place[0] == 0)?;
            (at + bytes <= end).then(|| {
                *free = [own, at as u64, bytes as u64];
                at
            })
        })
    }

    pub fn give_back(&self, at: usize) {
        let own = u64::from(std::process::id());
        self.locked(|places| {
            places
                .iter_mut()
                .filter(|place| place[0] == own && place[1] == at as u64)
                .for_each(|place| *place = [0; 3]);
        });
    }
}
