//! What a device is: its identity by its driver, how much memory it has, how fast it is.
//!
//! Memory counts as far as it was taken, all at once, written and read back as a scrub does it; of a processor, whose memory
//! is the machine's, only a part is tried, and the kernel's word bounds the rest. Speed is that of a kernel whose result is
//! known and asked for. Deliberately absent: what a device claims to be, and what becomes of one that is not that (the
//! control plane); whether anybody is disturbed by it (the agent, which starts this as a process of its own, ends it when
//! the device is wanted, and puts no guard in front of the driver).

mod speed;

use crate::abi::Handle;
use crate::driver;
use crate::scrub::device::{self, Context};
use crate::scrub::kernel::Kernels;
use crate::scrub::{seed, take, write_and_read};

/// Which device, and how much of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The platform's name, and the device's place in it.
    pub platform: String,
    pub index: usize,
    /// As much memory as it claims; the device may give less.
    pub bytes: u64,
    /// Of a processor no more than this is tried.
    pub processor_bytes: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Where its driver tells one.
    pub identity: Option<[u8; 16]>,
    /// What it has.
    pub bytes: u64,
    /// What of that was written and read back.
    pub tried_bytes: u64,
    /// Million steps a second, a step being a shift, an exclusive or, a multiplication and an addition of 32 bits.
    pub speed: u64,
}

/// Checks a device. An error says what was not right.
pub fn check(wanted: &Wanted) -> Result<Checked, String> {
    driver::open_once()?;
    check_device(device::find(&wanted.platform, wanted.index)?, wanted)
}

fn check_device(device: Handle, wanted: &Wanted) -> Result<Checked, String> {
    let is_processor = device::is_processor(device);
    let context = Context::new(device)?;
    // First: what takes long to write would be missing to whoever came meanwhile.
    let speed = speed::measure(&context)?;
    let bytes = if is_processor {
        wanted.bytes.min(wanted.processor_bytes)
    } else {
        wanted.bytes
    };
    let kernels = Kernels::new(&context)?;
    let pieces = take(&context, bytes);
    let tried_bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    write_and_read(&context, &kernels, &pieces, seed()?)?;
    let has = if is_processor && tried_bytes >= bytes & !3 {
        device::memory_bytes(device).min(machine_bytes()?)
    } else {
        tried_bytes
    };
    Ok(Checked {
        identity: device::identity(device),
        bytes: has,
        tried_bytes,
        speed,
    })
}

/// The memory of this machine, by the kernel.
fn machine_bytes() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| "the kernel does not say how much memory there is".to_owned())
}
