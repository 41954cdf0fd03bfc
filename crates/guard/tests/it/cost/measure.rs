//! What calls cost, in a program that knows of no guard and no broker. The tests of both and `tenure-bench guard`
//! measure with this.

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

const LARGE: usize = 64 << 20;

/// Bytes to the device and back, and the same from memory to memory.
fn bulk(cl: &Cl, context: Handle, queue: Handle, say: &impl Fn(&str, u64)) {
    let little = cl.buffer(context, 0, 4096).unwrap();
    let mut small = vec![0u8; 4096];
    let read = |calls: usize| (0..calls).for_each(|_| cl.read(queue, little, &mut small));
    say("read-4k", least(200, 20, read, || {}));
    let large = cl.buffer(context, 0, LARGE).unwrap();
    let mut host = vec![1u8; LARGE];
    let mut other = vec![2u8; LARGE];
    let write = |calls: usize| {
        for _ in 0..calls {
            cl.write(queue, large, &host);
            cl.finish(queue);
        }
    };
    say("write-64m", least(12, 1, write, || {}));
    let read = |calls: usize| (0..calls).for_each(|_| cl.read(queue, large, &mut host));
    say("read-64m", least(12, 1, read, || {}));
    let memcpy = |calls: usize| {
        for _ in 0..calls {
            other.copy_from_slice(&host);
            std::hint::black_box(&other);
        }
    };
    say("memcpy-64m", least(12, 1, memcpy, || {}));
    cl.release(little);
    cl.release(large);
}

/// Says what each call costs.
pub fn measure(cl: &Cl, say: impl Fn(&str, u64)) {
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let kernel = cl.kernel(context, "__kernel void none(__global uint *o, uint n) {}", "none");
    let (one, two) = (
        cl.buffer(context, 0, 4096).unwrap(),
        cl.buffer(context, 0, 4096).unwrap(),
    );
    cl.set_arg(kernel, 0, &one);
    cl.set_arg(kernel, 1, &0u32);
    let ask: unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32 =
        cl.function("clGetDeviceInfo");
    let question = |calls: usize| {
        for _ in 0..calls {
            let mut units = 0u32;
            // SAFETY: a live device and room for the answer.
            let code = unsafe { ask(cl.device, 0x1002, 4, (&raw mut units).cast(), null_mut()) };
            assert_eq!(code, 0);
        }
    };
    say("ask", least(400, 50, question, || {}));
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
            let code = unsafe { launch(queue, kernel, 1, null(), &items, &items, 0, null(), null_mut()) };
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

    let mut n = 0u32;
    let argue = |calls: usize| {
        for _ in 0..calls {
            n += 1;
            cl.set_arg(kernel, 1, &n);
        }
    };
    say("argument", least(400, 50, argue, finish));
    let both = |calls: usize| {
        for _ in 0..calls {
            enqueue(1);
            cl.finish(queue);
        }
    };
    say("finish", least(200, 20, both, || {}));
    bulk(cl, context, queue, &say);

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
