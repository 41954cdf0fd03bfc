//! `cuGetProcAddress` gives out the guard's functions, whatever they are asked for by.

use std::ffi::{CString, c_char, c_void};
use std::process::Command;
use std::ptr::null_mut;

use super::cu::{Cu, Handle};
use super::desk::{Desk, double};
use crate::bench::{MIB, layer, spec};
use crate::cu;
use crate::worker::{Worker, own};

/// What is asked for, by which version and flags, and whether the guard answers.
const ASKED: &[(&str, i32, u64, bool)] = &[
    ("cuMemAlloc", 3020, 0, true),
    ("cuMemAlloc", 13000, 0, true),
    ("cuMemAlloc", 13000, 2, true),
    ("cuMemAllocPitch", 12000, 0, true),
    ("cuMemAllocManaged", 12000, 0, true),
    ("cuMemAllocAsync", 11020, 0, true),
    ("cuMemAllocAsync", 11020, 2, true),
    ("cuMemAllocFromPoolAsync", 12000, 0, true),
    ("cuMemAllocFromPoolAsync", 12000, 2, true),
    ("cuMemFree", 12000, 0, true),
    ("cuMemFreeAsync", 12000, 2, true),
    ("cuMemPoolCreate", 12000, 0, true),
    ("cuMemPoolDestroy", 12000, 0, true),
    ("cuMemPoolSetAttribute", 12000, 0, true),
    ("cuMemPoolTrimTo", 12000, 0, true),
    ("cuMemCreate", 12000, 0, true),
    ("cuMemRelease", 12000, 0, true),
    ("cuMemMap", 12000, 0, true),
    ("cuArrayCreate", 12000, 0, true),
    ("cuArray3DCreate", 12000, 0, true),
    ("cuArrayDestroy", 12000, 0, true),
    ("cuMipmappedArrayCreate", 12000, 0, true),
    ("cuIpcOpenMemHandle", 12000, 0, true),
    ("cuMemImportFromShareableHandle", 12000, 0, true),
    ("cuMemGetInfo", 12000, 0, true),
    ("cuDeviceTotalMem", 12000, 0, true),
    ("cuDeviceGetCount", 12000, 0, true),
    ("cuCtxCreate", 11000, 0, true),
    ("cuCtxCreate", 11040, 0, true),
    ("cuCtxCreate", 12050, 0, true),
    ("cuDevicePrimaryCtxRetain", 12000, 0, true),
    ("cuLaunchKernel", 12000, 0, true),
    ("cuLaunchKernel", 12000, 2, true),
    ("cuLaunchKernelEx", 12000, 2, true),
    ("cuLaunchCooperativeKernel", 12000, 0, true),
    ("cuGraphLaunch", 12000, 0, true),
    ("cuGraphLaunch", 12000, 2, true),
    ("cuGetProcAddress", 11030, 0, true),
    ("cuGetProcAddress", 12000, 0, true),
    ("cuMemcpyHtoD", 12000, 0, true),
    ("cuStreamCreate", 12000, 0, false),
    ("cuGetExportTable", 12000, 0, false),
    ("cuModuleLoadData", 12000, 0, true),
];

/// The file an address lies in.
fn file_of(address: *const c_void) -> std::path::PathBuf {
    // SAFETY: room for the answer; the name is copied.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(address, &mut info), 0);
        let name = std::ffi::CStr::from_ptr(info.dli_fname).to_str().unwrap();
        std::fs::canonicalize(name).unwrap()
    }
}

/// Part: every name of the table, by both forms of the question.
pub fn ask() {
    let cu = Cu::open();
    let guard = layer();
    for (name, version, flags, ours) in ASKED {
        let symbol = CString::new(*name).unwrap();
        let (mut one, mut two): (Handle, Handle) = (null_mut(), null_mut());
        let code = cu!(cu, "cuGetProcAddress", symbol.as_ptr() => *const c_char, &mut one => *mut Handle,
            *version => i32, *flags => u64);
        assert_eq!(code, 0, "{name}");
        let mut status = 9;
        let code = cu!(cu, "cuGetProcAddress_v2", symbol.as_ptr() => *const c_char, &mut two => *mut Handle,
            *version => i32, *flags => u64, &mut status => *mut u32);
        assert_eq!((code, status), (0, 0), "{name}");
        assert_eq!(one, two, "{name}");
        assert_eq!(file_of(one) == guard, *ours, "{name} {version} {flags}");
    }
    // Asked for by the function that was given out, it is the guard's again.
    type Get = unsafe extern "C" fn(*const c_char, *mut Handle, i32, u64, *mut u32) -> i32;
    let (mut get, mut found, mut status): (Handle, Handle, u32) = (null_mut(), null_mut(), 0);
    let code = cu!(cu, "cuGetProcAddress_v2", c"cuGetProcAddress".as_ptr() => *const c_char, &mut get => *mut Handle,
        13000 => i32, 0 => u64, &mut status => *mut u32);
    assert_eq!(code, 0);
    // SAFETY: the function has this type; room for the answers.
    unsafe {
        let get: Get = std::mem::transmute(get);
        assert_eq!(get(c"cuMemAlloc".as_ptr(), &mut found, 13000, 0, &mut status), 0);
    }
    assert_eq!(file_of(found), guard);
    // A function the list does not know is not given out.
    let code = cu!(cu, "cuGetProcAddress_v2", c"cuDoubleUnlisted".as_ptr() => *const c_char, &mut found => *mut Handle,
        13000 => i32, 0 => u64, &mut status => *mut u32);
    assert_eq!((code, status, found), (0, 1, null_mut()));
    let code = cu!(cu, "cuGetProcAddress", c"cuDoubleUnlisted".as_ptr() => *const c_char, &mut found => *mut Handle,
        13000 => i32, 0 => u64);
    assert_eq!((code, found), (500, null_mut()));
    // Whoever asks the loader for the driver by its name gets the front, also after the driver was loaded.
    assert_eq!(file_of(cu.function::<*const c_void>("cuInit")), guard);
    let again = Cu::load();
    assert_eq!(file_of(again.function::<*const c_void>("cuMemAlloc_v2")), guard);
}

#[test]
fn what_is_given_out_by_name_is_the_guards() {
    let _turn = crate::bench::turn();
    Desk::new(&[spec(1, 256 * MIB, 500)]).run("cuda-address");
}

/// A driver says in its file what it is called, and the loader gives it to whoever asks for that name later. The
/// double says nothing, so a file that does stands before it.
#[test]
fn loaded_by_its_path_it_still_bears_the_drivers_name() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    let named = desk.bench.dir.path().join("libcuda.so.560");
    let linked = Command::new("gcc")
        .args([
            "-shared",
            "-x",
            "c",
            "/dev/null",
            "-x",
            "none",
            "-Wl,-soname,libcuda.so.1",
        ])
        .arg("-Wl,--no-as-needed")
        .arg(double())
        .arg("-o")
        .arg(&named)
        .status()
        .unwrap();
    assert!(linked.success());
    let mut command = desk.command(1, own());
    command.env("TENURE_GUARD_CUDA_DRIVER", named);
    let (code, said) = Worker::start(command, "cuda-by-path", &[]).end();
    assert_eq!(code, Some(0), "{said}");
}

/// Part: loads the front by its path, and later the driver by its name.
pub fn by_path() {
    // SAFETY: the guard's constructors do nothing.
    let front = unsafe { libloading::os::unix::Library::new(layer()) }.unwrap();
    // SAFETY: the type the headers give.
    let init = unsafe { front.get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit") }.unwrap();
    // SAFETY: its one argument.
    assert_eq!(unsafe { init(0) }, 0);
    let by_name = Cu::load();
    assert_eq!(
        file_of(by_name.function::<*const c_void>("cuMemAlloc_v2")),
        layer()
    );
}
