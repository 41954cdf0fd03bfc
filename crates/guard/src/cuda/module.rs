//! Modules and libraries: known by a hash of what they were made of, so that the audit tells kernels apart without anything
//! of them being kept. The driver loads them as it would without us.
//!
//! A handle given anew replaces what was known of its predecessor, so nothing has to be heard of unloading. Deliberately
//! absent: kernels that a program lists without naming them where the driver cannot name them either; they count as one.

use std::ffi::{CStr, c_char, c_void};

use sha2::{Digest, Sha256};

use super::abi::{Code, Handle, SUCCESS, UNKNOWN};
use super::{flight, real};
use crate::guarded;
use crate::jump::{Entry, Hook};
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("cuModuleLoad", load as Entry),
    Hook("cuModuleLoadData", load_data as Entry),
    Hook("cuModuleLoadDataEx", load_data_ex as Entry),
    Hook("cuModuleLoadFatBinary", load_fat_binary as Entry),
    Hook("cuModuleGetFunction", get_function as Entry),
    Hook("cuModuleEnumerateFunctions", enumerate_functions as Entry),
    Hook("cuLibraryLoadData", library_load_data as Entry),
    Hook("cuLibraryLoadFromFile", library_load_from_file as Entry),
    Hook("cuLibraryGetKernel", library_get_kernel as Entry),
    Hook("cuLibraryGetModule", library_get_module as Entry),
    Hook("cuLibraryEnumerateKernels", library_enumerate_kernels as Entry),
    Hook("cuKernelGetFunction", kernel_get_function as Entry),
];

type Hash = [u8; 32];

static MODULES: Registry<Hash> = Registry::new();
static LIBRARIES: Registry<Hash> = Registry::new();
/// Functions and kernels: both are launched by their handle.
static FUNCTIONS: Registry<u64> = Registry::new();

/// The hash of a function, a kernel or a graph; of what is not known, none.
pub fn hash_of(function: usize) -> u64 {
    FUNCTIONS.get(function as Handle).map_or(0, |hash| *hash)
}

/// Of a program's code and the name of a kernel in it, as OpenCL's kernels are known.
fn named(code: Option<&Hash>, name: &[u8]) -> u64 {
    let mut hash = Sha256::new();
    hash.update(code.unwrap_or(&[0; 32]));
    hash.update(name);
    let hash: Hash = hash.finalize().into();
    hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

fn know(function: Handle, hash: u64) {
    if FUNCTIONS.get(function).is_none_or(|known| *known != hash) {
        FUNCTIONS.set(function, hash);
        flight::forget_kernel(function);
    }
}

const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_BINARY_WRAPPER: u32 = 0x4662_43b1;
const ELF: [u8; 4] = *b"\x7fELF";

/// The bytes of an image, whose length nobody says: an ELF file and a fat binary say their own, a text ends with zero.
///
/// # Safety
/// The driver took `image` for what it is.
unsafe fn bytes_of<'a>(image: *const c_void) -> &'a [u8] {
    if image.is_null() {
        return &[];
    }
    let image = image.cast::<u8>();
    // SAFETY: as promised: whatever of the three it is, it has what is read of it.
    unsafe {
        let mut first = [0u8; 4];
        for (at, byte) in first.iter_mut().enumerate() {
            *byte = *image.add(at);
            // A shorter text ends here, and nothing is read behind it.
            if *byte == 0 {
                return std::slice::from_raw_parts(image, at);
            }
        }
        let word = |at: usize| image.add(at).cast::<u64>().read_unaligned();
        let half = |at: usize| u64::from(image.add(at).cast::<u16>().read_unaligned());
        match (u32::from_le_bytes(first), first) {
            (FAT_BINARY_WRAPPER, _) => bytes_of(image.add(8).cast::<*const c_void>().read_unaligned()),
            (FAT_BINARY, _) => slice(image, half(6).saturating_add(word(8))),
            // Tables of segments and of sections lie at its end.
            (_, ELF) => {
                let end = |table: usize, size: usize| word(table).saturating_add(half(size) * half(size + 2));
                slice(image, end(32, 54).max(end(40, 58)))
            }
            _ => CStr::from_ptr(image.cast()).to_bytes(),
        }
    }
}

/// # Safety
/// So many bytes are there.
unsafe fn slice<'a>(image: *const u8, bytes: u64) -> &'a [u8] {
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts(image, usize::try_from(bytes).unwrap_or(0)) }
}

/// Notes what a handle, just written, was made of.
///
/// # Safety
/// With `code` of success, the driver wrote `*to` and took `image`.
unsafe fn remember(known: &Registry<Hash>, code: Code, to: *const Handle, image: *const c_void) -> Code {
    if code == SUCCESS && !to.is_null() {
        // SAFETY: as promised.
        let (handle, bytes) = unsafe { (*to, bytes_of(image)) };
        known.set(handle, Sha256::digest(bytes).into());
    }
    code
}

/// The same of a file.
///
/// # Safety
/// With `code` of success, the driver wrote `*to` and `path` is a C string.
unsafe fn remember_file(known: &Registry<Hash>, code: Code, to: *const Handle, path: *const c_char) -> Code {
    if code == SUCCESS && !to.is_null() && !path.is_null() {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: as promised.
        let (handle, path) = unsafe { (*to, CStr::from_ptr(path)) };
        let bytes = std::fs::read(std::ffi::OsStr::from_bytes(path.to_bytes())).unwrap_or_default();
        known.set(handle, Sha256::digest(bytes).into());
    }
    code
}

/// Notes which function a handle, just written, is.
///
/// # Safety
/// With `code` of success, the driver wrote `*to` and `name` is a C string.
unsafe fn remember_named(code: Code, to: *const Handle, of: Option<&Hash>, name: *const c_char) -> Code {
    if code == SUCCESS && !to.is_null() && !name.is_null() {
        // SAFETY: as promised.
        unsafe { know(*to, named(of, CStr::from_ptr(name).to_bytes())) };
    }
    code
}

/// The same of many, by the names the driver has for them.
///
/// # Safety
/// With `code` of success, the driver wrote `count` handles; `ask` names one.
unsafe fn remember_all(
    code: Code,
    handles: *const Handle,
    count: u32,
    of: Option<&Hash>,
    ask: unsafe extern "C" fn(*mut *const c_char, Handle) -> Code,
) -> Code {
    if code == SUCCESS && !handles.is_null() {
        // SAFETY: as promised; fewer than there was room for are followed by what was there before, mostly zero.
        for &handle in unsafe { std::slice::from_raw_parts(handles, count as usize) } {
            let mut name: *const c_char = std::ptr::null();
            // SAFETY: a handle of the driver's, room for the answer.
            if !handle.is_null() && unsafe { ask(&mut name, handle) } == SUCCESS {
                // SAFETY: the driver's own text.
                unsafe { remember_named(SUCCESS, &handle, of, name) };
            }
        }
    }
    code
}

unsafe extern "C" fn load(to: *mut Handle, path: *const c_char) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const c_char) -> Code = real!("cuModuleLoad");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        remember_file(&MODULES, next(to, path), to, path)
    })
}

unsafe extern "C" fn load_data(to: *mut Handle, image: *const c_void) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const c_void) -> Code = real!("cuModuleLoadData");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe { remember(&MODULES, next(to, image), to, image) })
}

unsafe extern "C" fn load_data_ex(
    to: *mut Handle,
    image: *const c_void,
    count: u32,
    options: Handle,
    values: Handle,
) -> Code {
    type Next = unsafe extern "C" fn(*mut Handle, *const c_void, u32, Handle, Handle) -> Code;
    let next: Next = real!("cuModuleLoadDataEx");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        remember(&MODULES, next(to, image, count, options, values), to, image)
    })
}

unsafe extern "C" fn load_fat_binary(to: *mut Handle, image: *const c_void) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const c_void) -> Code = real!("cuModuleLoadFatBinary");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe { remember(&MODULES, next(to, image), to, image) })
}

unsafe extern "C" fn get_function(to: *mut Handle, module: Handle, name: *const c_char) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code = real!("cuModuleGetFunction");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        remember_named(next(to, module, name), to, MODULES.get(module).as_deref(), name)
    })
}

unsafe extern "C" fn enumerate_functions(to: *mut Handle, count: u32, module: Handle) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, u32, Handle) -> Code = real!("cuModuleEnumerateFunctions");
    let ask: unsafe extern "C" fn(*mut *const c_char, Handle) -> Code = real!("cuFuncGetName");
    // SAFETY: the caller's own arguments; the names are those of functions.
    guarded!(UNKNOWN, unsafe {
        let of = MODULES.get(module);
        remember_all(next(to, count, module), to, count, of.as_deref(), ask)
    })
}

unsafe extern "C" fn library_load_data(
    to: *mut Handle,
    image: *const c_void,
    options: Handle,
    values: Handle,
    count: u32,
    library_options: Handle,
    library_values: Handle,
    library_count: u32,
) -> Code {
    type Next =
        unsafe extern "C" fn(*mut Handle, *const c_void, Handle, Handle, u32, Handle, Handle, u32) -> Code;
    let next: Next = real!("cuLibraryLoadData");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        let code = next(
            to,
            image,
            options,
            values,
            count,
            library_options,
            library_values,
            library_count,
        );
        remember(&LIBRARIES, code, to, image)
    })
}

unsafe extern "C" fn library_load_from_file(
    to: *mut Handle,
    path: *const c_char,
    options: Handle,
    values: Handle,
    count: u32,
    library_options: Handle,
    library_values: Handle,
    library_count: u32,
) -> Code {
    type Next =
        unsafe extern "C" fn(*mut Handle, *const c_char, Handle, Handle, u32, Handle, Handle, u32) -> Code;
    let next: Next = real!("cuLibraryLoadFromFile");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        let code = next(
            to,
            path,
            options,
            values,
            count,
            library_options,
            library_values,
            library_count,
        );
        remember_file(&LIBRARIES, code, to, path)
    })
}

unsafe extern "C" fn library_get_kernel(to: *mut Handle, library: Handle, name: *const c_char) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code = real!("cuLibraryGetKernel");
    // SAFETY: the caller's own arguments.
    guarded!(UNKNOWN, unsafe {
        remember_named(
            next(to, library, name),
            to,
            LIBRARIES.get(library).as_deref(),
            name,
        )
    })
}

unsafe extern "C" fn library_get_module(to: *mut Handle, library: Handle) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle) -> Code = real!("cuLibraryGetModule");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(to, library) };
        if let (SUCCESS, false, Some(known)) = (code, to.is_null(), LIBRARIES.get(library)) {
            // SAFETY: the driver wrote it.
            MODULES.set(unsafe { *to }, *known);
        }
        code
    })
}

unsafe extern "C" fn library_enumerate_kernels(to: *mut Handle, count: u32, library: Handle) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, u32, Handle) -> Code = real!("cuLibraryEnumerateKernels");
    let ask: unsafe extern "C" fn(*mut *const c_char, Handle) -> Code = real!("cuKernelGetName");
    // SAFETY: the caller's own arguments; the names are those of kernels.
    guarded!(UNKNOWN, unsafe {
        let of = LIBRARIES.get(library);
        remember_all(next(to, count, library), to, count, of.as_deref(), ask)
    })
}

unsafe extern "C" fn kernel_get_function(to: *mut Handle, kernel: Handle) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle) -> Code = real!("cuKernelGetFunction");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(to, kernel) };
        if let (SUCCESS, false, Some(known)) = (code, to.is_null(), FUNCTIONS.get(kernel)) {
            // SAFETY: the driver wrote it.
            know(unsafe { *to }, *known);
        }
        code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(image: &[u8]) -> usize {
        // SAFETY: images that say how long they are, or end with zero.
        unsafe { bytes_of(image.as_ptr().cast()) }.len()
    }

    #[test]
    fn an_image_says_how_long_it_is() {
        assert_eq!(length(b"\0"), 0);
        assert_eq!(length(b"ab\0"), 2);
        assert_eq!(length(b".version 7.0\0and more"), 12);
        let mut elf = [0u8; 400];
        elf[..4].copy_from_slice(b"\x7fELF");
        // Two segments of 56 bytes at 64; three sections of 64 bytes at 180.
        elf[32..40].copy_from_slice(&64u64.to_le_bytes());
        elf[40..48].copy_from_slice(&180u64.to_le_bytes());
        for (at, value) in [(54, 56u16), (56, 2), (58, 64), (60, 3)] {
            elf[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(length(&elf), 180 + 3 * 64);
        let mut fat = [7u8; 100];
        fat[..4].copy_from_slice(&FAT_BINARY.to_le_bytes());
        fat[6..8].copy_from_slice(&16u16.to_le_bytes());
        fat[8..16].copy_from_slice(&64u64.to_le_bytes());
        assert_eq!(length(&fat), 80);
        let mut wrapper = [0u8; 24];
        wrapper[..4].copy_from_slice(&FAT_BINARY_WRAPPER.to_le_bytes());
        wrapper[4] = 1;
        wrapper[8..16].copy_from_slice(&(fat.as_ptr() as u64).to_le_bytes());
        assert_eq!(length(&wrapper), 80);
    }
}
