//! The CUDA front: a `libcuda.so.1` that stands before the driver's. Every name of the driver API is a jump stub
//! (`jump`); the names that give memory, show it or give the device work lead to hooks first.
//!
//! Every name is hooked, denied or passed on. What `cuGetProcAddress` gives out is told by its address, so versions
//! and per-thread variants cannot lead past a hook; a function of a driver newer than this list is not given out.
//! The driver's own tables (`cuGetExportTable`) are passed on as they are: what they check of the driver is answered
//! by the driver. Loaded by programs in the place of `libcuda.so.1`.

mod abi;
mod address;
mod array;
mod bind;
mod charge;
mod context;
mod copy;
mod denied;
mod external;
mod flight;
mod info;
mod launch;
mod linear;
mod module;
mod ordered;
mod pool;
mod vmm;
mod watch;
mod zero;

use std::sync::atomic::Ordering::Release;
use std::sync::{Once, OnceLock};

use crate::driver::Driver;
use crate::jump::{Entry, Hook};

mod stubs {
    include!(concat!(env!("OUT_DIR"), "/cuda_stubs.rs"));
}
pub use stubs::NAMES;
use stubs::TABLE;

/// The driver's functions by their place in `NAMES`; zero where it has none.
static REAL: OnceLock<[usize; NAMES.len()]> = OnceLock::new();

/// The driver's function of a name, as a value of the type expected. One the driver lacks answers that it does.
macro_rules! real {
    ($name:literal) => {
        // SAFETY: the type at the call site is the one the CUDA headers give this name.
        unsafe { crate::cuda::real_at(const { crate::jump::place(&crate::cuda::NAMES, $name) }) }
    };
}
pub(crate) use real;

/// # Safety
/// `F` is the function pointer type of that name.
pub(crate) unsafe fn real_at<F: Copy>(place: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<Entry>()) };
    let entry = match REAL.get().map_or(0, |real| real[place]) {
        0 => denied::missing as Entry,
        found => found as Entry,
    };
    // SAFETY: a function pointer of the size of a pointer; the caller names its type.
    unsafe { std::mem::transmute_copy(&entry) }
}

fn hooked() -> impl Iterator<Item = &'static Hook> {
    [
        address::HOOKS,
        array::HOOKS,
        bind::HOOKS,
        context::HOOKS,
        copy::HOOKS,
        external::HOOKS,
        info::HOOKS,
        launch::HOOKS,
        linear::HOOKS,
        module::HOOKS,
        ordered::HOOKS,
        pool::HOOKS,
        vmm::HOOKS,
        denied::HOOKS,
    ]
    .into_iter()
    .flatten()
}

/// Where a name leads: to our hook, to the driver, or to word that the driver has no such function.
fn leads_to(name: &str, real: usize) -> Entry {
    match hooked().find(|hook| hook.0 == name) {
        _ if real == 0 => denied::missing as Entry,
        Some(Hook(_, function)) => *function,
        None => real as Entry,
    }
}

/// Finds the driver and fills the table; done at the first call of anything.
fn fill() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = std::panic::catch_unwind(find).unwrap_or_else(|_| Err("the guard failed".into()));
        if let Err(why) = &found {
            crate::say(&format!("no CUDA device is given: {why}"));
        }
        for (place, slot) in TABLE.iter().enumerate() {
            let entry = match &found {
                Ok(real) => leads_to(NAMES[place], real[place]),
                Err(_) => denied::no_device as Entry,
            };
            slot.store(entry.cast_mut(), Release);
        }
    });
}

fn find() -> Result<&'static [usize; NAMES.len()], String> {
    let path = crate::config::path("TENURE_GUARD_CUDA_DRIVER")?;
    let driver = Driver::load(&path, c"libcuda.so.1")
        .map_err(|why| format!("the driver {}: {why}", path.display()))?;
    let real = std::array::from_fn(|place| driver.symbol(NAMES[place]).map_or(0, |entry| entry as usize));
    if real[const { crate::jump::place(&NAMES, "cuInit") }] == 0 {
        return Err(format!("{} has no cuInit", path.display()));
    }
    Ok(REAL.get_or_init(|| real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_a_name_and_no_name_two() {
        let mut seen = std::collections::HashSet::new();
        for Hook(name, _) in hooked() {
            assert!(NAMES.contains(name), "{name} is not in the list");
            assert!(seen.insert(*name), "{name} is hooked twice");
        }
    }

    /// Names that give device memory or work, by how they begin: each must be hooked, denied, or stand here with why.
    #[test]
    fn nothing_that_allocates_or_launches_is_passed_on_unseen() {
        let harmless = [
            "cuMemAllocHost",    // host memory
            "cuMemAllocHost_v2", // host memory
            "cuLaunchHostFunc",  // a function of the program's, on the host
            "cuLaunchHostFunc_ptsz",
            "cuLaunchHostFunc_v2",
            "cuLaunchHostFunc_v2_ptsz",
            "cuMemFreeHost",
        ];
        let begins = [
            "cuMemAlloc",
            "cuMemFree",
            "cuMemCreate",
            "cuMemRelease",
            "cuMemImport",
            "cuMemExport",
            "cuMemPoolImport",
            "cuMemPoolExport",
            "cuLaunch",
            "cuGraphLaunch",
            "cuGraphAddMemAlloc",
            "cuCtxCreate",
            "cuDevicePrimaryCtxRetain",
            "cuArrayCreate",
            "cuArray3DCreate",
            "cuMipmappedArrayCreate",
            "cuIpcOpenMem",
            "cuImportExternalMemory",
            "cuGetProcAddress",
            "cuMemGetInfo",
            "cuDeviceTotalMem",
        ];
        for name in NAMES {
            let telling = begins.iter().any(|begin| name.starts_with(begin));
            let seen = hooked().any(|hook| hook.0 == name) || harmless.contains(&name);
            assert!(!telling || seen, "{name} is passed on");
        }
    }
}
