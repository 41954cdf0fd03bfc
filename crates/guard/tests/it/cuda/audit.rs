//! What the CUDA front counts for the audit: kernels by the hash of their module and name, and bytes both ways.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use tenure_limits::{Counter, SliceReading};

use super::cu::{Cu, Handle};
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::cu;

const BYTES: usize = 1 << 16;
const ONE: &CStr = c".version 7.0 // one";
const OTHER: &CStr = c".version 7.0 // other";

/// `spin` of a module made of this text, found as a module's function or as a library's kernel.
fn spin_of(cu: &Cu, image: &CStr, as_library: bool) -> Handle {
    let (mut module, mut function): (Handle, Handle) = (null_mut(), null_mut());
    let (image, name) = (image.as_ptr().cast::<c_void>(), c"spin".as_ptr());
    if as_library {
        let none = null_mut();
        let code = cu!(cu, "cuLibraryLoadData", &mut module => *mut Handle, image => *const c_void, none => Handle,
            none => Handle, 0 => u32, none => Handle, none => Handle, 0 => u32);
        assert_eq!(code, 0);
        let code = cu!(cu, "cuLibraryGetKernel", &mut function => *mut Handle, module => Handle,
            name => *const c_char);
        assert_eq!(code, 0);
        return function;
    }
    let code = cu!(cu, "cuModuleLoadData", &mut module => *mut Handle, image => *const c_void);
    assert_eq!(code, 0);
    let code =
        cu!(cu, "cuModuleGetFunction", &mut function => *mut Handle, module => Handle, name => *const c_char);
    assert_eq!(code, 0);
    function
}

/// Part: launches kernels of two modules, one of them loaded twice, and moves bytes in and out.
pub fn work() {
    let cu = Cu::open();
    let stream = cu.stream();
    // All of them have one handle on the double: what it stands for changes with each.
    for (image, as_library, times) in [(ONE, false, 3), (OTHER, false, 2), (ONE, true, 4)] {
        let function = spin_of(&cu, image, as_library);
        for _ in 0..times {
            cu.spin(function, stream, 10);
        }
    }
    cu.wait(stream);
    let at = cu.alloc(BYTES).unwrap();
    let mut host = vec![7u8; BYTES];
    for _ in 0..3 {
        cu.write(at, &host);
    }
    cu.read(at, BYTES / 2);
    let there = host.as_mut_ptr();
    let code =
        cu!(cu, "cuMemcpyHtoDAsync_v2", at => u64, there => *mut u8, BYTES / 4 => usize, stream => Handle);
    assert_eq!(code, 0);
    // The driver is asked which is whose.
    let code = cu!(cu, "cuMemcpy", there as u64 => u64, at => u64, BYTES / 8 => usize);
    assert_eq!(code, 0);
    let within = cu!(cu, "cuMemcpyDtoD_v2", at => u64, at + 4096 => u64, 4096 => usize);
    assert_eq!(within, 0);
    // What is refused moved nothing.
    assert_ne!(
        cu!(cu, "cuMemcpy2D_v2", null_mut() => *mut c_void),
        0,
        "there is nothing to copy"
    );
    cu.wait(stream);
}

#[test]
fn kernels_and_bytes_are_counted() {
    let _turn = crate::bench::turn();
    let run = || -> SliceReading {
        let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
        desk.run("cuda-audit");
        desk.bench.reading(1)
    };
    let first = run();
    let launches: Vec<u64> = first.kernels.iter().map(|(_, launches)| *launches).collect();
    assert_eq!(launches, [7, 2], "a module loaded twice is one, two are two");
    assert!(first.kernels.iter().all(|(hash, _)| *hash != 0), "{first:?}");
    assert_eq!(first.counter(Counter::BytesIn), (3 * BYTES + BYTES / 4) as u64);
    assert_eq!(first.counter(Counter::BytesOut), (BYTES / 2 + BYTES / 8) as u64);
    assert_eq!(
        run().kernels,
        first.kernels,
        "the same program is the same anywhere"
    );
}
