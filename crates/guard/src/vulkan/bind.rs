//! The gates of the job's devices. One for each page in a process, however many instances look at the device.

use std::sync::{Mutex, OnceLock, PoisonError};

use super::flight::Flights;
use crate::config::{self, Mapping};
use crate::gate::Gate;

/// One device of the job.
pub struct Binding {
    pub mapping: Mapping,
    pub gate: Gate,
    /// What of the slice this process has by Vulkan, for its budget.
    pub own_bytes: std::sync::atomic::AtomicU64,
    pub flights: &'static Flights,
}

static BOUND: Mutex<Vec<&'static Binding>> = Mutex::new(Vec::new());

/// What the environment says, read once; a mistake in it is said once.
pub fn mappings() -> &'static [Mapping] {
    static MAPPINGS: OnceLock<Vec<Mapping>> = OnceLock::new();
    MAPPINGS.get_or_init(|| {
        config::from_environment().unwrap_or_else(|why| {
            crate::say(&format!("no Vulkan device is given: {why}"));
            Vec::new()
        })
    })
}

/// The binding of a mapping, joined at its first use.
pub fn binding(mapping: &'static Mapping) -> Option<&'static Binding> {
    let mut bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(binding) = bound.iter().find(|binding| binding.mapping == *mapping) {
        return Some(binding);
    }
    let flights: &'static Flights = Box::leak(Box::default());
    match Gate::join(mapping.page.clone(), mapping.slice, Box::new(flights)) {
        Ok(gate) => {
            let binding: &'static Binding = Box::leak(Box::new(Binding {
                mapping: mapping.clone(),
                gate,
                own_bytes: Default::default(),
                flights,
            }));
            if bound.is_empty() {
                // SAFETY: a plain function, alive as long as the process: the layer keeps itself loaded.
                unsafe { libc::atexit(at_exit) };
            }
            bound.push(binding);
            Some(binding)
        }
        Err(error) => {
            crate::say(&format!(
                "no Vulkan device is given: {}: {error}",
                mapping.page.display()
            ));
            None
        }
    }
}

extern "C" fn at_exit() {
    let bound = BOUND.lock().unwrap_or_else(PoisonError::into_inner);
    bound.iter().for_each(|binding| binding.gate.at_exit());
}
