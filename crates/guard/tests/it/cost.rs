//! What the guard adds to a call: the same program bare and guarded, in one run.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Instant;

use crate::bench::{Bench, MIB, Vendor, spec};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::worker::{Worker, own, say};

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

pub fn measure() {
    let cl = Cl::open().unwrap();
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

const WORDS: [&str; 9] = [
    "enqueue",
    "copy",
    "allocate",
    "allocate-4k",
    "allocate-1m",
    "allocate-64m",
    "memset-4k",
    "memset-1m",
    "memset-64m",
];

#[test]
fn the_guard_costs_little() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 400 * MIB, 500)]);
    let numbers = |mut worker: Worker| WORDS.map(|word| worker.line(word).unwrap().parse::<u64>().unwrap());
    let mut bare = std::process::Command::new(own());
    Vendor::Pocl.prepare(&mut bare);
    let bare = numbers(Worker::start(bare, "cost", &[]));
    let guarded = numbers(Worker::start(bench.command(1, own()), "cost", &[]));
    println!(
        "{:14} {:>10} {:>10} {:>10}   (ns, least of many)",
        "call", "bare", "guarded", "added"
    );
    for (word, (bare, guarded)) in WORDS.iter().zip(bare.iter().zip(&guarded)) {
        println!(
            "{word:14} {bare:>10} {guarded:>10} {:>10}",
            *guarded as i64 - *bare as i64
        );
    }
    // The goals are 500 and 200 ns in an optimised build on a quiet machine; this catches what is broken, not slow.
    assert!(guarded[0] < bare[0] + 5_000, "an enqueue costs too much");
    assert!(guarded[2] < bare[2] + 2_000, "an allocation costs too much");
}
