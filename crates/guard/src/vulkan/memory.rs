//! What a slice has, and bytes taken of it.

use std::sync::atomic::Ordering::Relaxed;

use tenure_limits::Process;

use super::bind::Binding;

/// The slice's size; nothing where there is none.
pub fn limit(binding: Option<&Binding>) -> u64 {
    let process = binding.and_then(|binding| binding.gate.process());
    process.map_or(0, Process::limit_bytes)
}

/// What this process has by Vulkan, and what the slice has left.
pub fn own_and_left(binding: Option<&Binding>) -> (u64, u64) {
    let Some((binding, process)) = binding.and_then(|binding| Some((binding, binding.gate.process()?)))
    else {
        return (0, 0);
    };
    let left = process.limit_bytes().saturating_sub(process.used_bytes());
    (binding.own_bytes.load(Relaxed), left)
}

/// Bytes of a slice, given back when dropped.
pub struct Charge {
    binding: &'static Binding,
    process: *const Process,
    bytes: u64,
}

// SAFETY: the process pointer is compared, never followed.
unsafe impl Send for Charge {}

impl Charge {
    pub fn take(binding: &'static Binding, bytes: u64) -> Option<Charge> {
        let process = binding.gate.charge(bytes).ok()?;
        binding.own_bytes.fetch_add(bytes, Relaxed);
        Some(Charge {
            binding,
            process,
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.binding.own_bytes.fetch_sub(self.bytes, Relaxed);
        self.binding.gate.credit(self.bytes, self.process);
    }
}
