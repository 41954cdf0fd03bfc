//! What is known of one kernel: whether it ran before, and how long it takes by the size of its launch.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::KernelMark;

/// Sizes of launches told apart: powers of two of work items.
const SIZES: usize = 48;

pub struct Kernel {
    launched: AtomicBool,
    /// What the audit knows of it.
    pub mark: KernelMark,
    /// Which generation of estimates these are.
    surprises: AtomicU32,
    /// Zero: not known.
    estimates_ns: [AtomicU64; SIZES],
}

impl Default for Kernel {
    /// One whose program is not known.
    fn default() -> Kernel {
        Kernel::of_hash(0)
    }
}

impl Kernel {
    pub fn of_hash(hash: u64) -> Kernel {
        Kernel {
            launched: AtomicBool::new(false),
            mark: KernelMark::new(hash),
            surprises: AtomicU32::new(0),
            estimates_ns: [const { AtomicU64::new(0) }; SIZES],
        }
    }

    /// Which size a launch of so many items has.
    pub fn size_of(items: u64) -> usize {
        ((u64::BITS - items.leading_zeros()) as usize).min(SIZES - 1)
    }

    /// Whether this is the first launch; true once.
    pub fn first(&self) -> bool {
        !self.launched.swap(true, Relaxed)
    }

    pub fn estimate_ns(&self, size: usize, surprises: u32) -> Option<u64> {
        if self.surprises.swap(surprises, Relaxed) != surprises {
            self.estimates_ns
                .iter()
                .for_each(|estimate| estimate.store(0, Relaxed));
        }
        Some(self.estimates_ns[size].load(Relaxed)).filter(|estimate| *estimate != 0)
    }

    /// Takes a measurement into the estimate.
    pub fn learn(&self, size: usize, ns: u64, surprises: u32) {
        let old = self.estimate_ns(size, surprises).unwrap_or(ns);
        self.estimates_ns[size].store(((3 * old + ns) / 4).max(1), Relaxed);
    }
}
