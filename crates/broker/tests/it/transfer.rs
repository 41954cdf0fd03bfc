//! Long transfers, which go in pieces: every way to ask for one brings the same bytes, many threads at once do not hold
//! each other up, and a worker that dies in the middle of one is an error.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Vendor, spec, turn};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::part::{Part, own, say, setting};

/// Longer than the caches of most machines, and whole at neither end.
const LONG: usize = (33 << 20) + 4321;
/// Just long enough to go in pieces.
const SHORT: usize = (4 << 20) + 77;
const AT: usize = 13;

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let word = |n: u64| (n ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    let words = bytes.div_ceil(8) as u64;
    let mut all: Vec<u8> = (0..words).flat_map(word).collect();
    all.truncate(bytes);
    all
}

/// A queue, and how its transfers are asked for.
struct Way<'a> {
    cl: &'a Cl,
    queue: Handle,
    blocking: bool,
    with_event: bool,
}

impl Way<'_> {
    /// Waits for a transfer as its way is; one that `is_there` has been by now.
    fn settle(&self, event: Handle, is_there: bool) {
        if !self.with_event {
            if !self.blocking {
                assert_eq!(self.cl.finish(self.queue), 0);
            }
            return;
        }
        if !is_there {
            self.cl.wait(event);
        }
        let mut status = 9i32;
        let code = call!(self.cl, "clGetEventInfo", i32, event => Handle, 0x11D3 => u32, 4 => usize,
            (&raw mut status).cast() => *mut c_void, null_mut() => *mut usize);
        assert_eq!((code, status), (0, 0));
        self.cl.release_event(event);
    }

    fn write(&self, buffer: Handle, from: &[u8]) {
        let mut event: Handle = null_mut();
        let place = if self.with_event {
            &raw mut event
        } else {
            null_mut()
        };
        let code = call!(self.cl, "clEnqueueWriteBuffer", i32, self.queue => Handle, buffer => Handle,
            u32::from(self.blocking) => u32, AT => usize, from.len() => usize, from.as_ptr().cast() => *const c_void,
            0 => u32, null() => *const Handle, place => *mut Handle);
        assert_eq!(code, 0);
        // Blocking, it has done with our memory; more is not said.
        self.settle(event, false);
    }

    fn read(&self, buffer: Handle, to: &mut [u8]) {
        let mut event: Handle = null_mut();
        let place = if self.with_event {
            &raw mut event
        } else {
            null_mut()
        };
        let code = call!(self.cl, "clEnqueueReadBuffer", i32, self.queue => Handle, buffer => Handle,
            u32::from(self.blocking) => u32, AT => usize, to.len() => usize, to.as_mut_ptr().cast() => *mut c_void,
            0 => u32, null() => *const Handle, place => *mut Handle);
        assert_eq!(code, 0);
        self.settle(event, self.blocking);
    }
}

/// Writes and reads in every way; what one queue was told has been, another must see.
pub fn every_way() {
    const OUT_OF_ORDER: u64 = 1;
    const TIMED: u64 = 2;
    let cl = &Cl::open().unwrap();
    let context = cl.context();
    let buffer = cl.buffer(context, 1, LONG + 64).unwrap();
    let other = cl.queue(context, 0);
    let mut seed = 0;
    for properties in [0, OUT_OF_ORDER, TIMED] {
        let queue = cl.queue(context, properties);
        for (blocking, with_event) in [(true, false), (true, true), (false, false), (false, true)] {
            for bytes in [SHORT, LONG] {
                seed += 1;
                let way = Way {
                    cl,
                    queue,
                    blocking,
                    with_event,
                };
                let sent = pattern(bytes, seed);
                way.write(buffer, &sent);
                let mut seen = vec![0; bytes];
                let plain = Way {
                    queue: other,
                    blocking: true,
                    with_event: false,
                    ..way
                };
                plain.read(buffer, &mut seen);
                assert!(
                    seen == sent,
                    "written: {properties} {blocking} {with_event} {bytes}"
                );
                let mut back = vec![0; bytes + 2];
                way.read(buffer, &mut back[1..=bytes]);
                assert!(
                    back[1..=bytes] == sent,
                    "read: {properties} {blocking} {with_event} {bytes}"
                );
                assert_eq!((back[0], back[bytes + 1]), (0, 0));
            }
        }
    }
    last_of_all(cl, context, buffer, other);
    cl.release(buffer);
    say("done", seed);
}

/// An event is that of the last piece: whoever waited for it finds the last bytes there, on another queue too.
fn last_of_all(cl: &Cl, context: Handle, buffer: Handle, other: Handle) {
    let queue = cl.queue(context, 0);
    for round in 0..8 {
        let sent = pattern(LONG, 1000 + round);
        let gate = call!(cl, "clCreateUserEvent", Handle, context => Handle, null_mut() => *mut i32);
        let mut event: Handle = null_mut();
        let code = call!(cl, "clEnqueueWriteBuffer", i32, queue => Handle, buffer => Handle, 0 => u32, AT => usize,
            LONG => usize, sent.as_ptr().cast() => *const c_void, 1 => u32, &gate => *const Handle,
            &mut event => *mut Handle);
        assert_eq!(code, 0);
        assert_eq!(
            call!(cl, "clSetUserEventStatus", i32, gate => Handle, 0 => i32),
            0
        );
        cl.wait(event);
        let mut tail = [0u8; 64];
        let code = call!(cl, "clEnqueueReadBuffer", i32, other => Handle, buffer => Handle, 1 => u32,
            AT + LONG - tail.len() => usize, tail.len() => usize, tail.as_mut_ptr().cast() => *mut c_void, 0 => u32,
            null() => *const Handle, null_mut() => *mut Handle);
        assert_eq!(code, 0);
        assert!(tail == sent[LONG - tail.len()..], "the last bytes: {round}");
        cl.release_event(event);
        cl.release_event(gate);
    }
}

/// More threads than there are places for answers, each with several pieces under way.
pub fn crowd() {
    struct Shared(Cl, Handle);
    // SAFETY: OpenCL's functions may be called from any thread.
    unsafe impl Sync for Shared {}
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let shared = &Shared(cl, context);
    let work = move |seed: u64| {
        let Shared(cl, context) = shared;
        let way = Way {
            cl,
            queue: cl.queue(*context, 0),
            blocking: true,
            with_event: false,
        };
        let buffer = cl.buffer(*context, 1, SHORT + 64).unwrap();
        for round in 0..4 {
            let sent = pattern(SHORT, seed * 10 + round);
            way.write(buffer, &sent);
            let mut back = vec![0; SHORT];
            way.read(buffer, &mut back);
            assert!(back == sent, "{seed} {round}");
        }
        cl.release(buffer);
    };
    std::thread::scope(|scope| {
        for seed in 0..70 {
            scope.spawn(move || work(seed));
        }
    });
    say("done", "");
}

/// Long transfers until one fails; says the code.
pub fn until_lost() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let buffer = cl.buffer(context, 1, LONG).unwrap();
    let mut host = vec![1u8; LONG];
    for round in 0u32.. {
        if round == 3 {
            say("going", "");
        }
        let code = match setting("WAY") {
            0 => {
                call!(cl, "clEnqueueWriteBuffer", i32, queue => Handle, buffer => Handle, 1 => u32, 0 => usize,
                LONG => usize, host.as_ptr().cast() => *const c_void, 0 => u32, null() => *const Handle,
                null_mut() => *mut Handle)
            }
            _ => {
                call!(cl, "clEnqueueReadBuffer", i32, queue => Handle, buffer => Handle, 1 => u32, 0 => usize,
                LONG => usize, host.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle,
                null_mut() => *mut Handle)
            }
        };
        if code != 0 {
            say("error", code);
            return;
        }
    }
}

/// Runs a part that must end in `most` at the latest, and says `done`.
fn ends(part: &str, vendor: Vendor, most: Duration) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 1024)]);
    let served = bench.serve(1);
    let mut part = Part::start(bench.command(&served, own()), part, &[]);
    let begun = Instant::now();
    let ended = loop {
        match part.child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => assert!(begun.elapsed() < most, "it hangs"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = part.line("done");
    assert!(ended.success() && said.is_some(), "{}", part.end().1);
}

#[test]
fn long_transfers_bring_the_same_bytes_however_they_are_asked_for() {
    ends("every way", Vendor::Pocl, Duration::from_secs(300));
}

#[test]
fn long_transfers_bring_the_same_bytes_on_intel() {
    ends("every way", Vendor::Intel, Duration::from_secs(300));
}

#[test]
fn a_crowd_of_threads_with_long_transfers_does_not_hold_itself_up() {
    ends("crowd", Vendor::Pocl, Duration::from_secs(300));
}

#[test]
fn a_worker_that_dies_in_a_long_transfer_is_an_error() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    for way in [0, 1] {
        let mut served = bench.serve(1);
        let settings = [("WAY", way.to_string())];
        let mut part = Part::start(bench.command(&served, own()), "until lost", &settings);
        assert!(part.line("going").is_some());
        served.kill();
        assert_eq!(part.line("error").as_deref(), Some("-5"));
        assert_eq!(part.end().0, Some(0));
    }
}
