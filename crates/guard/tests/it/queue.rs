//! Queues that a program lets go while the guard still has something open on them.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::Duration;

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, Vendor, spec};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::worker::{Worker, eventually, heard, own, say};

const REFERENCE_COUNT: u32 = 0x1092;
const BYTES: usize = 4096;
const ROUNDS: usize = 20;

/// A command so short that the guard counts it in a group, which stays open.
fn fill(cl: &Cl, queue: Handle, buffer: Handle, event: *mut Handle) {
    let zero = 0u32;
    let code = call!(cl, "clEnqueueFillBuffer", i32, queue => Handle, buffer => Handle,
        (&raw const zero).cast() => *const c_void, 4 => usize, 0 => usize, BYTES => usize, 0 => u32,
        null() => *const Handle, event => *mut Handle);
    assert_eq!(code, 0, "clEnqueueFillBuffer");
}

fn retain(cl: &Cl, queue: Handle) {
    assert_eq!(call!(cl, "clRetainCommandQueue", i32, queue => Handle), 0);
}

fn release(cl: &Cl, queue: Handle) {
    assert_eq!(call!(cl, "clReleaseCommandQueue", i32, queue => Handle), 0);
}

fn references(cl: &Cl, queue: Handle) -> u32 {
    let mut count = 0u32;
    let code = call!(cl, "clGetCommandQueueInfo", i32, queue => Handle, REFERENCE_COUNT => u32, 4 => usize,
        (&raw mut count).cast() => *mut c_void, null_mut() => *mut usize);
    assert_eq!(code, 0, "clGetCommandQueueInfo");
    count
}

/// Lets queues go before the events of what is on them, which some drivers count among a queue's references.
pub fn before_its_events() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let buffer = cl.buffer(context, 0, BYTES).unwrap();
    for _ in 0..ROUNDS {
        let queue = cl.queue(context, 0);
        let mut event = null_mut();
        fill(&cl, queue, buffer, &mut event);
        release(&cl, queue);
        cl.wait(event);
        cl.release_event(event);
        // The keeper looks for what has been open for two milliseconds.
        std::thread::sleep(Duration::from_millis(8));
    }
    say("gone", ROUNDS);
    heard("end");
}

/// What the program sees of its own references, and that the queue lives as long as one is left.
pub fn counted() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let buffer = cl.buffer(context, 0, BYTES).unwrap();
    let queue = cl.queue(context, 0);
    let first = references(&cl, queue);
    retain(&cl, queue);
    let second = references(&cl, queue);
    release(&cl, queue);
    fill(&cl, queue, buffer, null_mut());
    assert_eq!(cl.finish(queue), 0);
    say(
        "references",
        format!("{first} {second} {}", references(&cl, queue)),
    );
    release(&cl, queue);
}

const VENDORS: [Vendor; 3] = [Vendor::Pocl, Vendor::Intel, Vendor::Rusticl];

fn benches() -> impl Iterator<Item = Bench> {
    let installed = |vendor: &Vendor| vendor.prepare(&mut std::process::Command::new("true"));
    let on = |vendor| Bench::on(vendor, &[spec(1, 100 * MIB, 500)]);
    VENDORS.into_iter().filter(installed).map(on)
}

#[test]
fn a_queue_that_went_before_its_events_is_asked_nothing_more() {
    let _turn = crate::bench::turn();
    for bench in benches() {
        let mut worker = Worker::start(bench.command(1, own()), "queue-before-its-events", &[]);
        let gone = worker.line("gone");
        if gone.is_none() {
            panic!("{:?}: {:?}", bench.vendor, worker.end());
        }
        // Nor is the device kept by what was open on it.
        eventually("nothing is on the device", Duration::from_secs(5), || {
            bench.reading(1).inflight == 0
        });
        assert!(bench.counter(1, Counter::Launches) >= ROUNDS as u64);
        worker.tell("end");
        assert_eq!(worker.end().0, Some(0), "{:?}", bench.vendor);
    }
}

#[test]
fn a_program_sees_its_own_references_to_a_queue() {
    let _turn = crate::bench::turn();
    for bench in benches() {
        let mut worker = Worker::start(bench.command(1, own()), "queue-counted", &[]);
        assert_eq!(
            worker.line("references").as_deref(),
            Some("1 2 1"),
            "{:?}",
            bench.vendor
        );
        assert_eq!(worker.end().0, Some(0), "{:?}", bench.vendor);
    }
}
