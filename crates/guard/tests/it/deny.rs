//! Ways past the guard are closed, and waiting on oneself does not hang.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, spec};
use crate::call;
use crate::cl::{Cl, Handle, SPIN};
use crate::worker::{Worker, own, say};

/// Tries what no slice allows, and says what came of it.
pub fn try_everything() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let mut code = 0;
    let address = |name: &str| {
        let name = CString::new(name).unwrap();
        let found = call!(cl, "clGetExtensionFunctionAddressForPlatform", *mut c_void, cl.platform => Handle,
            name.as_ptr() => *const std::ffi::c_char);
        let plain =
            call!(cl, "clGetExtensionFunctionAddress", *mut c_void, name.as_ptr() => *const std::ffi::c_char);
        u32::from(!found.is_null()) + u32::from(!plain.is_null())
    };
    say("command-buffer", address("clCreateCommandBufferKHR"));
    say("unified-memory", address("clDeviceMemAllocINTEL"));
    say("core", address("clCreateBuffer"));
    extern "C" fn native(_: *mut c_void) {
        println!("native code ran on the device's queue");
    }
    let native: extern "C" fn(*mut c_void) = native;
    say(
        "native",
        call!(cl, "clEnqueueNativeKernel", i32, queue => Handle, native => extern "C" fn(*mut c_void),
        null_mut() => *mut c_void, 0 => usize, 0 => u32, null() => *const Handle, null() => *const *const c_void,
        0 => u32, null() => *const Handle, null_mut() => *mut Handle),
    );
    let gl = call!(cl, "clCreateFromGLBuffer", Handle, context => Handle, 0 => u64, 1 => u32, &mut code => *mut i32);
    say("gl", if gl.is_null() { code } else { 0 });
    let mut parts = 9u32;
    let counts = [0x1086isize, 1, 0];
    say(
        "sub-devices",
        call!(cl, "clCreateSubDevices", i32, cl.device => Handle, counts.as_ptr() => *const isize,
        0 => u32, null_mut() => *mut Handle, &mut parts => *mut u32),
    );
    let properties = [0x1093u64, 1 | 4, 0];
    let on_device = call!(cl, "clCreateCommandQueueWithProperties", Handle, context => Handle, cl.device => Handle,
        properties.as_ptr() => *const u64, &mut code => *mut i32);
    say("device-queue", if on_device.is_null() { code } else { 0 });
    let sharing = [0x2008isize, 1, 0];
    let shared = call!(cl, "clCreateContext", Handle, sharing.as_ptr() => *const isize, 1 => u32,
        &cl.device => *const Handle, null_mut() => Handle, null_mut() => Handle, &mut code => *mut i32);
    say("gl-context", if shared.is_null() { code } else { 0 });
    let by_type = call!(cl, "clCreateContextFromType", Handle, null() => *const isize, 0xFFFF_FFFF => u64,
        null_mut() => Handle, null_mut() => Handle, &mut code => *mut i32);
    let mut devices = [null_mut::<c_void>(); 8];
    let mut size = 0usize;
    call!(cl, "clGetContextInfo", i32, by_type => Handle, 0x1081 => u32, size_of_val(&devices) => usize,
        devices.as_mut_ptr().cast() => *mut c_void, &mut size => *mut usize);
    say("by-type", size / 8);
}

#[test]
fn ways_past_the_guard_are_closed() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500)]);
    let mut command = bench.command(1, own());
    // A second device without a page: it must not come in by a context over all devices.
    command.env("POCL_DEVICES", "pthread pthread");
    let mut worker = Worker::start(command, "deny", &[]);
    for (word, expected) in [
        ("command-buffer", "0"),
        ("unified-memory", "0"),
        ("core", "2"),
        ("native", "-59"),
        ("gl", "-59"),
        ("sub-devices", "-18"),
        ("device-queue", "-35"),
        ("gl-context", "-64"),
        ("by-type", "1"),
    ] {
        assert_eq!(worker.line(word).as_deref(), Some(expected), "{word}");
    }
    assert_eq!(worker.end().0, Some(0));
    assert!(bench.counter(1, Counter::Denials) >= 4);
}

/// Enqueues kernels behind a user event, more behind them, and only then lets the event happen.
pub fn wait_on_a_user_event() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let kernel = cl.kernel(context, SPIN, "spin");
    let buffer = cl.buffer(context, 0, 1024).unwrap();
    cl.set_arg(kernel, 0, &buffer);
    cl.set_arg(kernel, 1, &1000u32);
    let mut code = 0;
    let gate = call!(cl, "clCreateUserEvent", Handle, context => Handle, &mut code => *mut i32);
    assert_eq!(code, 0);
    let begun = Instant::now();
    for _ in 0..5 {
        let items = 256usize;
        let code = call!(cl, "clEnqueueNDRangeKernel", i32, queue => Handle, kernel => Handle, 1 => u32,
            null() => *const usize, &items => *const usize, null() => *const usize, 1 => u32,
            &gate => *const Handle, null_mut() => *mut Handle);
        assert_eq!(code, 0);
    }
    say("enqueued", begun.elapsed().as_millis());
    assert_eq!(
        call!(cl, "clSetUserEventStatus", i32, gate => Handle, 0 => i32),
        0
    );
    assert_eq!(cl.finish(queue), 0);
    say("finished", begun.elapsed().as_millis());
}

#[test]
fn a_program_that_waits_on_itself_goes_on_and_keeps_nobody() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500), spec(2, 100 * MIB, 500)]);
    let mut worker = Worker::start(bench.command(1, own()), "user-event", &[]);
    let millis: u64 = worker.line("enqueued").unwrap().parse().unwrap();
    assert!(millis < 3_000, "{millis} ms to enqueue behind a user event");
    worker.line("finished").unwrap();
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn an_ended_slice_gets_no_more_work_and_a_paused_one_waits() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500)]);
    let work = crate::share::Program {
        slice: 1,
        micros: 1_000,
        depth: 1,
    };
    let mut worker = crate::share::start(&bench, work, 20_000);
    worker.line("ready").unwrap();
    worker.tell("go");
    let launched = || bench.counter(1, Counter::Launches);
    std::thread::sleep(Duration::from_millis(100));
    bench.device.pause(1, true).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let (before, at) = (launched(), Instant::now());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(launched(), before, "launched while paused for {:?}", at.elapsed());
    bench.device.pause(1, false).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(launched() > before);
    bench.device.end(1).unwrap();
    let (code, said) = worker.end();
    assert_ne!(code, Some(0));
    assert!(
        said.contains("left: -5"),
        "CL_OUT_OF_RESOURCES reaches the program: {said}"
    );
}
