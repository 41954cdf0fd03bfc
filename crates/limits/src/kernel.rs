//! Which kernels a slice launches: a short table of hashes, each with a count. Contents never come here.
//!
//! First come, first listed: what finds no place is counted with the others. Called by fronts through `Process`.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::layout::{Counter, KERNELS, Slice};
use crate::process::Process;

/// Where a kernel is in its slice's table; none where the table was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelIndex(Option<u32>);

impl KernelIndex {
    /// As one byte, for whoever keeps many of them.
    pub fn to_byte(self) -> u8 {
        self.0.map_or(u8::MAX, |index| index as u8)
    }

    pub fn from_byte(byte: u8) -> KernelIndex {
        KernelIndex((usize::from(byte) < KERNELS).then_some(byte.into()))
    }
}

impl Process {
    /// The place of a kernel, taken if it has none.
    pub fn kernel(&self, hash: u64) -> KernelIndex {
        // A handle of a slice that is no more writes nothing into its successor.
        if !self.stands() {
            return KernelIndex(None);
        }
        // Zero means a free place.
        let hash = hash.max(1);
        for (index, place) in self.slice().kernels.iter().enumerate() {
            let there = place.hash.load(Acquire);
            let mine = there == hash
                || there == 0
                    && match place.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                        Ok(_) => true,
                        Err(taken) => taken == hash,
                    };
            if mine {
                return KernelIndex(Some(index as u32));
            }
        }
        KernelIndex(None)
    }

    /// Counts one launch of a kernel.
    pub fn count_kernel(&self, KernelIndex(index): KernelIndex) {
        if !self.mine() {
            return;
        }
        match index {
            Some(index) => {
                let place = &self.slice().kernels[index as usize % KERNELS];
                place.launches.fetch_add(1, Relaxed);
            }
            None => self.count(Counter::OtherKernels, 1),
        }
    }
}

/// Empties the table, before the slice has its id.
pub(crate) fn clear(slice: &Slice) {
    for place in &slice.kernels {
        place.hash.store(0, Relaxed);
        place.launches.store(0, Relaxed);
    }
}
