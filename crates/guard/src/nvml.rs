//! The NVML front: a `libnvidia-ml.so.1` that stands before the driver's, with the same stubs as the CUDA front. Only
//! what tells of memory is hooked: it tells of the slice. Loaded by programs that look at devices, `nvidia-smi` too.
//!
//! It takes no part in a slice: it reads the page. Deliberately absent: changing anything, which the driver allows to
//! root alone, and other people's processes, which stay as the driver shows them.

use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering::Release;
use std::sync::{Once, OnceLock};

use tenure_limits::Reader;

use crate::config::{self, Mapping, Selector};
use crate::driver::Driver;
use crate::guarded;
use crate::jump::{Entry, Hook};

mod stubs {
    include!(concat!(env!("OUT_DIR"), "/nvml_stubs.rs"));
}
pub use stubs::NAMES;
use stubs::TABLE;

type Code = i32;
type Handle = *mut c_void;

const SUCCESS: Code = 0;
const INVALID_ARGUMENT: Code = 2;
const NO_PERMISSION: Code = 4;
const LIBRARY_NOT_FOUND: Code = 12;
const FUNCTION_NOT_FOUND: Code = 13;
const UNKNOWN: Code = 999;

const HOOKS: &[Hook] = &[
    Hook("nvmlDeviceGetMemoryInfo", memory as Entry),
    Hook("nvmlDeviceGetMemoryInfo_v2", memory_2 as Entry),
];

static REAL: OnceLock<[usize; NAMES.len()]> = OnceLock::new();
static MAPPINGS: OnceLock<Vec<Mapping>> = OnceLock::new();

/// The driver's function of a name.
macro_rules! real {
    ($name:literal) => {
        // SAFETY: the type at the call site is the one the NVML header gives this name.
        unsafe { real_at(const { crate::jump::place(&NAMES, $name) }) }
    };
}

/// # Safety
/// `F` is the function pointer type of that name.
unsafe fn real_at<F: Copy>(place: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<Entry>()) };
    let entry = match REAL.get().map_or(0, |real| real[place]) {
        0 => missing as Entry,
        found => found as Entry,
    };
    // SAFETY: a function pointer of the size of a pointer; the caller names its type.
    unsafe { std::mem::transmute_copy(&entry) }
}

extern "C" fn missing() -> Code {
    FUNCTION_NOT_FOUND
}

extern "C" fn no_library() -> Code {
    LIBRARY_NOT_FOUND
}

/// Finds the driver's library and fills the table; done at the first call of anything.
fn fill() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let found = std::panic::catch_unwind(find).unwrap_or_else(|_| Err("the guard failed".into()));
        if let Err(why) = &found {
            crate::say(&format!("NVML is not given: {why}"));
        }
        for (place, slot) in TABLE.iter().enumerate() {
            let hook = HOOKS.iter().find(|hook| hook.0 == NAMES[place]);
            let entry = match (&found, hook) {
                (Err(_), _) => no_library as Entry,
                (Ok(real), _) if real[place] == 0 => missing as Entry,
                (Ok(_), Some(hook)) => hook.1,
                (Ok(real), None) => real[place] as Entry,
            };
            slot.store(entry.cast_mut(), Release);
        }
    });
}

fn find() -> Result<&'static [usize; NAMES.len()], String> {
    let mappings = config::from_environment()?;
    let path = config::path("TENURE_GUARD_NVML_DRIVER")?;
    let driver = Driver::load(&path, c"libnvidia-ml.so.1")
        .map_err(|why| format!("the library {}: {why}", path.display()))?;
    let real = std::array::from_fn(|place| driver.symbol(NAMES[place]).map_or(0, |entry| entry as usize));
    MAPPINGS.get_or_init(|| mappings);
    Ok(REAL.get_or_init(|| real))
}

/// `nvmlMemory_t`.
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The slice's size and what is used of it.
fn slice(device: Handle) -> Result<(u64, u64), Code> {
    let mappings = MAPPINGS.get().map_or(&[][..], Vec::as_slice);
    let mapping = mappings
        .iter()
        .find(|mapping| is(device, &mapping.device))
        .ok_or(NO_PERMISSION)?;
    let snapshot = Reader::open(&mapping.page)
        .and_then(|reader| reader.snapshot())
        .map_err(|_| UNKNOWN)?;
    let slice = snapshot.slice(mapping.slice).ok_or(NO_PERMISSION)?;
    Ok((slice.limit_bytes, slice.used_bytes.min(slice.limit_bytes)))
}

fn is(device: Handle, selector: &Selector) -> bool {
    match selector {
        Selector::Uuid(uuid) => {
            let ask: unsafe extern "C" fn(Handle, *mut c_char, u32) -> Code = real!("nvmlDeviceGetUUID");
            let mut text = [0u8; 96];
            // SAFETY: the caller's own device, room as said; the last byte stays zero.
            let code = unsafe { ask(device, text.as_mut_ptr().cast(), 95) };
            let digits = text
                .iter()
                .take_while(|byte| **byte != 0)
                .map(|byte| char::from(*byte));
            let found: String = digits.collect();
            let plain = found
                .trim_start_matches("GPU-")
                .trim_start_matches("MIG-")
                .replace('-', "");
            code == SUCCESS && plain.eq_ignore_ascii_case(uuid)
        }
        Selector::Place { device: at, .. } | Selector::Named { device: at, .. } => {
            let ask: unsafe extern "C" fn(Handle, *mut u32) -> Code = real!("nvmlDeviceGetIndex");
            let mut index = u32::MAX;
            // SAFETY: the caller's own device, room for the answer.
            (unsafe { ask(device, &mut index) }) == SUCCESS && index as usize == *at
        }
    }
}

unsafe extern "C" fn memory(device: Handle, memory: *mut Memory) -> Code {
    let next: unsafe extern "C" fn(Handle, *mut Memory) -> Code = real!("nvmlDeviceGetMemoryInfo");
    guarded!(UNKNOWN, {
        if memory.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(device, memory) };
        match slice(device) {
            _ if code != SUCCESS => code,
            Ok((total, used)) => {
                let free = total - used;
                // SAFETY: not null, and the caller's own.
                unsafe { *memory = Memory { total, free, used } };
                SUCCESS
            }
            Err(code) => code,
        }
    })
}

unsafe extern "C" fn memory_2(device: Handle, memory: *mut Memory2) -> Code {
    let next: unsafe extern "C" fn(Handle, *mut Memory2) -> Code = real!("nvmlDeviceGetMemoryInfo_v2");
    guarded!(UNKNOWN, {
        if memory.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(device, memory) };
        match slice(device) {
            _ if code != SUCCESS => code,
            Ok((total, used)) => {
                // SAFETY: not null, and the caller's own.
                unsafe {
                    (*memory).total = total;
                    (*memory).reserved = 0;
                    (*memory).free = total - used;
                    (*memory).used = used;
                }
                SUCCESS
            }
            Err(code) => code,
        }
    })
}
