//! The real library behind a front: loaded from the path the job was given, never by the name the front itself bears.
//!
//! Called by `cuda` and `nvml` at their first call.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::jump::Entry;

pub struct Driver(*mut c_void);

impl Driver {
    /// Loads the library at `path`. `name` is what programs call it by: from now on that name must mean the front.
    pub fn load(path: &Path, name: &CStr) -> Result<Driver, String> {
        bear(name)?;
        let file =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| "its path has a zero in it".to_owned())?;
        // Bound to its own names first: in a program that is linked with the front, it would else find the front's.
        let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        // SAFETY: the library's start-up code is its own business.
        let handle = unsafe { libc::dlopen(file.as_ptr(), how) };
        if handle.is_null() {
            return Err(last_error());
        }
        if holds(handle, ours()) {
            return Err(format!("{} is the guard itself", path.display()));
        }
        Ok(Driver(handle))
    }

    /// The library's function of a name.
    pub fn symbol(&self, name: &str) -> Option<Entry> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live library and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    }
}

/// The dynamic loader gives a library out by its own name to whoever asks for that name later. So before the driver
/// is loaded the front must bear it: it asks for itself by the name, and refuses if somebody else answers.
fn bear(name: &CStr) -> Result<(), String> {
    // SAFETY: a C string; what it finds is the front, loaded already, or is refused.
    let found = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    let shown = name.to_string_lossy();
    if found.is_null() {
        return Err(format!(
            "the guard is not where {shown} is looked for: {}",
            last_error()
        ));
    }
    match holds(found, ours()) {
        true => Ok(()),
        false => Err(format!("{shown} is another library than the guard")),
    }
}

/// An address in this library.
fn ours() -> Entry {
    bear as fn(&CStr) -> Result<(), String> as Entry
}

/// Whether an address lies in the library of a handle.
fn holds(handle: *mut c_void, address: Entry) -> bool {
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: room for both answers; a live handle; the loader's own structures.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) == 0
            && libc::dladdr(address, &mut info) != 0
            && !map.is_null()
            && (*map).base == info.dli_fbase as usize
    }
}

/// The public head of the dynamic loader's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
}

fn last_error() -> String {
    // SAFETY: the loader's own text, copied before the next call.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "the dynamic loader does not say why".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}
