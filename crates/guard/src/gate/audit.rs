//! What the audit counts of a front's commands: kernels by their hashes, and bytes moved over the device's boundary.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tenure_limits::{Counter, KernelIndex};

use super::Gate;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
    Both,
    /// From the device to the device.
    Within,
}

/// A kernel as the audit knows it: its hash, and its place in the table of the slice it was last launched on.
pub struct KernelMark {
    hash: u64,
    /// The gate's address and the place, together, so that neither is ever read without the other; zero for none.
    place: AtomicU64,
}

impl KernelMark {
    pub const fn new(hash: u64) -> KernelMark {
        KernelMark {
            hash,
            place: AtomicU64::new(0),
        }
    }
}

impl Gate {
    /// Counts one launch of a kernel.
    pub fn count_kernel(&self, mark: &KernelMark) {
        let Some(process) = self.process() else {
            return;
        };
        // Addresses have 47 bits, places few.
        let gate = (std::ptr::from_ref(self) as u64) << 8;
        let known = mark.place.load(Relaxed);
        let index = if known & !0xff == gate {
            KernelIndex::from_byte((known & 0xff) as u8)
        } else {
            let found = process.kernel(mark.hash);
            mark.place.store(gate | u64::from(found.to_byte()), Relaxed);
            found
        };
        process.count_kernel(index);
    }

    /// Counts bytes over the boundary.
    pub fn count_bytes(&self, way: Way, bytes: u64) {
        let Some(process) = self.process().filter(|_| bytes > 0) else {
            return;
        };
        if matches!(way, Way::In | Way::Both) {
            process.count(Counter::BytesIn, bytes);
        }
        if matches!(way, Way::Out | Way::Both) {
            process.count(Counter::BytesOut, bytes);
        }
    }
}
