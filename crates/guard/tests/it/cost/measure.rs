//! What calls cost, in a program that knows nothing of a guard.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Instant;

use crate::call;
use crate::cl::{Cl, Handle};

/// The least time per call over many rounds: what the call costs when nothing disturbs it.
fn least(rounds: usize, calls: usize, mut round: impl FnMut(usize), mut between: impl FnMut()) -> u64 {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let begun = Instant::now();
        round(calls);
        best = best.min(begun.elapsed().as_nanos() as f64 / calls as f64);
        between();
    }
    best as u64
}

/// Says what each call costs.
pub fn measure(cl: &Cl, say: impl Fn(&str, u64)) {
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let kernel = cl.kernel(context, "__kernel void none(__global uint *o) {}", "none");
    let (one, two) = (
        cl.buffer(context, 0, 4096).unwrap(),
        cl.buffer(context, 0, 4096).unwrap(),
    );
    cl.set_arg(kernel, 0, &one);
    type Launch = unsafe extern "C" fn(
        Handle,
        Handle,
        u32,
        *const usize,
        *const usize,
        *const usize,
        u32,
        *const Handle,
        *mut Handle,
    ) -> i32;
    let launch: Launch = cl.function("clEnqueueNDRangeKernel");
    let enqueue = |calls: usize| {
        for _ in 0..calls {
            let items = 1usize;
            // SAFETY: live objects of this test.
            let code = unsafe { launch(queue, kernel, 1, null(), &items, null(), 0, null(), null_mut()) };
            assert_eq!(code, 0);
        }
    };
    for _ in 0..5 {
        enqueue(1);
        cl.finish(queue);
    }
    let finish = || {
        cl.finish(queue);
    };
    say("enqueue", least(400, 50, enqueue, finish));

    let copy = |calls: usize| {
        for _ in 0..calls {
            let code = call!(cl, "clEnqueueCopyBuffer", i32, queue => Handle, one => Handle, two => Handle,
                0 => usize, 0 => usize, 64 => usize, 0 => u32, null() => *const Handle, null_mut() => *mut Handle);
            assert_eq!(code, 0);
        }
    };
    say("copy", least(400, 50, copy, finish));

    let mut host = vec![0u8; 8192];
    let host = host
        .as_mut_ptr()
        .wrapping_add(4096 - host.as_ptr() as usize % 4096);
    type Create = unsafe extern "C" fn(Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
    let create: Create = cl.function("clCreateBuffer");
    let free: unsafe extern "C" fn(Handle) -> i32 = cl.function("clReleaseMemObject");
    let allocate = |flags: u64, size: usize, host: *mut u8, calls: usize| {
        for _ in 0..calls {
            let mut code = 0;
            // SAFETY: a live context; the host memory outlives the buffer.
            unsafe {
                let buffer = create(context, flags, size, host.cast(), &mut code);
                assert_eq!(code, 0);
                free(buffer);
            }
        }
    };
    // Host memory is not zeroed by the guard, so this is the accounting alone.
    say(
        "allocate",
        least(2000, 50, |calls| allocate(1 << 3, 4096, host, calls), || {}),
    );
    say(
        "allocate-4k",
        least(400, 50, |calls| allocate(0, 4096, null_mut(), calls), || {}),
    );
    say(
        "allocate-1m",
        least(40, 10, |calls| allocate(0, 1 << 20, null_mut(), calls), || {}),
    );
    say(
        "allocate-64m",
        least(5, 1, |calls| allocate(0, 64 << 20, null_mut(), calls), || {}),
    );
    let fresh = |size: usize| {
        move |calls: usize| {
            for _ in 0..calls {
                std::hint::black_box(vec![1u8; size]);
            }
        }
    };
    say("memset-4k", least(400, 50, fresh(4096), || {}));
    say("memset-1m", least(40, 10, fresh(1 << 20), || {}));
    say("memset-64m", least(5, 1, fresh(64 << 20), || {}));
}
