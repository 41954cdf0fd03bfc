//! Fail closed: without a driver, without a page, or beside the driver itself there is no device, and a sentence why.

use std::process::Command;

use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::worker::{Worker, own};

/// What the driver answers to being started, and what was said.
fn start(change: impl FnOnce(&mut Command)) -> String {
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    let mut command = desk.command(1, own());
    change(&mut command);
    let (code, said) = Worker::start(command, "cuda-no-device", &[]).end();
    assert_eq!(code, Some(0), "{said}");
    said
}

/// Part: no device is given, and nothing breaks for asking.
pub fn none() {
    use super::cu::Cu;
    let cu = Cu::load();
    assert_eq!(crate::cu!(cu, "cuInit", 0 => u32), 100);
    let mut count = 7;
    let code = crate::cu!(cu, "cuDeviceGetCount", &mut count => *mut i32);
    assert!(code == 100 || (code, count) == (0, 0), "{code} {count}");
    let mut at = 0u64;
    assert_ne!(
        crate::cu!(cu, "cuMemAlloc_v2", &mut at => *mut u64, 4096 => usize),
        0
    );
}

#[test]
fn without_a_driver_or_a_page_there_is_no_device() {
    let _turn = crate::bench::turn();
    let said = start(|command| {
        command.env("TENURE_GUARD_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    });
    assert!(
        said.contains("no CUDA device is given: the driver /nowhere/libcuda.so.1"),
        "{said}"
    );
    let said = start(|command| {
        command.env_remove("TENURE_GUARD_CUDA_DRIVER");
    });
    assert!(said.contains("TENURE_GUARD_CUDA_DRIVER is not set"), "{said}");
    let said = start(|command| {
        command.env("TENURE_GUARD_CUDA_DRIVER", "libc.so.6");
    });
    assert!(said.contains("libc.so.6 has no cuInit"), "{said}");
    let said = start(|command| {
        command.env("TENURE_GUARD_CUDA_DRIVER", crate::bench::layer());
    });
    assert!(said.contains("is the guard itself"), "{said}");
    let said = start(|command| {
        command.env("TENURE_GUARD_PAGE", "/nowhere/page");
    });
    assert!(said.contains("no CUDA device is given: /nowhere/page"), "{said}");
    let said = start(|command| {
        command.env("TENURE_GUARD_DEVICE", "0:5");
    });
    assert!(said.contains("the driver has no device"), "{said}");
    let said = start(|command| {
        command.env("TENURE_GUARD_CUDA_CONTEXT_MIB", "much");
    });
    assert!(
        said.contains("TENURE_GUARD_CUDA_CONTEXT_MIB: \"much\" is not a number"),
        "{said}"
    );
}

#[test]
fn where_the_drivers_name_means_another_library_there_is_no_device() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    std::fs::remove_file(desk.libraries.join("libcuda.so.1")).unwrap();
    std::os::unix::fs::symlink(super::desk::double(), desk.libraries.join("libcuda.so.1")).unwrap();
    let mut command = desk.command(1, own());
    command.env("FRONT", crate::bench::layer());
    let (code, said) = Worker::start(command, "cuda-by-path-refused", &[]).end();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("libcuda.so.1 is another library than the guard"),
        "{said}"
    );
}

/// Part: the front by its path, where the name leads elsewhere.
pub fn by_path() {
    // SAFETY: the guard's constructors do nothing.
    let front = unsafe { libloading::os::unix::Library::new(std::env::var_os("FRONT").unwrap()) }.unwrap();
    // SAFETY: the type the headers give.
    let init = unsafe { front.get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit") }.unwrap();
    // SAFETY: its one argument.
    assert_eq!(unsafe { init(0) }, 100);
}
