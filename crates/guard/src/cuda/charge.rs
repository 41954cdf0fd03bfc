//! Bytes taken of a slice, given back when the value is dropped; and what is held, by what the driver calls it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_limits::Process;

use super::bind::Binding;
use super::pool;

/// Small allocations take at least so much of the device.
const GRAIN: u64 = 512;

/// What an allocation of `bytes` takes.
pub fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes)
}

pub struct Charge {
    binding: &'static Binding,
    process: *const Process,
    bytes: u64,
}

// SAFETY: the process pointer is compared, never followed.
unsafe impl Send for Charge {}
// SAFETY: as above.
unsafe impl Sync for Charge {}

impl Charge {
    /// Takes `bytes`, if need be after what this process's pools keep unused has gone back to the device.
    pub fn take(binding: &'static Binding, bytes: u64) -> Option<Charge> {
        let take = || binding.gate.charge(bytes).ok();
        let process = take().or_else(|| pool::trim(binding).then(take).flatten())?;
        Some(Charge {
            binding,
            process,
            bytes,
        })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes one charge of two on the same device.
    pub fn absorb(&mut self, other: Charge) {
        self.bytes += other.bytes;
        std::mem::forget(other);
    }

    /// Brings the charge to `bytes`. False: the slice has not that much, and nothing changed.
    pub fn correct(&mut self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(0) => true,
            Some(more) => {
                let taken = self.binding.gate.charge(more).is_ok();
                if taken {
                    self.bytes = bytes;
                }
                taken
            }
            None => {
                self.binding.gate.credit(self.bytes - bytes, self.process);
                self.bytes = bytes;
                true
            }
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.binding.gate.credit(self.bytes, self.process);
    }
}

/// What is held of one kind, by its handle, with the context it dies with.
pub struct Held<K>(Mutex<Option<HashMap<K, (usize, Charge)>>>);

impl<K: Eq + Hash> Held<K> {
    pub const fn new() -> Held<K> {
        Held(Mutex::new(None))
    }

    fn all(&self) -> MutexGuard<'_, Option<HashMap<K, (usize, Charge)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn put(&self, key: K, context: usize, charge: Charge) {
        self.all().get_or_insert_default().insert(key, (context, charge));
    }

    pub fn take(&self, key: &K) -> Option<(usize, Charge)> {
        self.all().as_mut().and_then(|all| all.remove(key))
    }

    /// The driver freed all that a context had.
    pub fn forget(&self, context: usize) {
        if let Some(all) = self.all().as_mut() {
            all.retain(|_, (of, _)| *of != context);
        }
    }
}
