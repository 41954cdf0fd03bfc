//! A worker that dies: its own program gets an error and ends, and nobody else notices.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::bench::{Bench, Vendor, spec, turn};
use crate::call;
use crate::cl::{Cl, Handle, SPIN};
use crate::part::{Part, own, say, setting};

/// Works until a call fails, in one of three ways of waiting; says the code.
pub fn spin() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let kernel = cl.kernel(context, SPIN, "spin");
    let buffer = cl.buffer(context, 0, 4096).unwrap();
    cl.set_arg(kernel, 0, &buffer);
    let mut host = vec![0u8; 4096];
    for round in 0u32.. {
        if round == 3 {
            say("going", "");
        }
        cl.set_arg(kernel, 1, &200_000u32);
        let mut event: Handle = null_mut();
        let code = match setting("WAY") {
            0 => cl.launch(queue, kernel, 16, 1, null_mut()).min(cl.finish(queue)),
            1 => {
                let code = cl.launch(queue, kernel, 16, 1, &mut event);
                if code != 0 {
                    code
                } else {
                    call!(cl, "clWaitForEvents", i32, 1 => u32, &event => *const Handle)
                }
            }
            _ => {
                let code = cl.launch(queue, kernel, 16, 1, null_mut());
                code.min(
                    call!(cl, "clEnqueueReadBuffer", i32, queue => Handle, buffer => Handle, 1 => u32, 0 => usize,
                        host.len() => usize, host.as_mut_ptr().cast() => *mut std::ffi::c_void, 0 => u32,
                        std::ptr::null() => *const Handle, null_mut() => *mut Handle),
                )
            }
        };
        if code != 0 {
            say("error", code);
            // What is left of the program can still be put away.
            cl.release(buffer);
            assert_eq!(call!(cl, "clReleaseKernel", i32, kernel => Handle), 0);
            assert_eq!(call!(cl, "clReleaseCommandQueue", i32, queue => Handle), 0);
            assert!(cl.buffer(context, 0, 64).is_err());
            assert_eq!(call!(cl, "clReleaseContext", i32, context => Handle), 0);
            say("ended", "");
            return;
        }
    }
}

/// Computes for a while; says a digest of all results.
pub fn work() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let kernel = cl.kernel(context, SPIN, "spin");
    let buffer = cl.buffer(context, 0, 4096).unwrap();
    cl.set_arg(kernel, 0, &buffer);
    let mut host = vec![0u8; 4096];
    let mut sum = 0u64;
    say("ready", "");
    for round in 0..setting("ROUNDS") {
        cl.set_arg(kernel, 1, &(round as u32 * 1000 + 7));
        assert_eq!(cl.launch(queue, kernel, 1024, 16, null_mut()), 0);
        cl.read(queue, buffer, &mut host);
        sum = host
            .iter()
            .fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
    }
    say("digest", sum);
}

#[test]
fn a_worker_killed_ends_its_own_program_only() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 100), spec(2, 100)]);
    let neighbour = bench.serve(2);
    let rounds = [("ROUNDS", "60".to_owned())];
    let expected = Part::start(bench.bare(own()), "work", &rounds)
        .line("digest")
        .unwrap();
    let mut steady = Part::start(bench.command(&neighbour, own()), "work", &rounds);
    steady.line("ready").unwrap();
    for way in 0..3 {
        let mut served = bench.serve(1);
        let mut part = Part::start(bench.command(&served, own()), "spin", &[("WAY", way.to_string())]);
        part.line("going").unwrap();
        let begun = Instant::now();
        served.kill();
        let code: i32 = part.line("error").unwrap().parse().unwrap();
        let took = begun.elapsed();
        assert_eq!(code, -5, "CL_OUT_OF_RESOURCES");
        part.line("ended").unwrap();
        let (code, said) = part.end();
        assert_eq!(code, Some(0), "{said}");
        println!("way {way}: told after {took:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        bench.device.reap();
        assert_eq!(bench.reading(1).used_bytes, 0);
    }
    assert_eq!(steady.line("digest").unwrap(), expected);
}

#[test]
fn without_a_worker_there_is_no_platform() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 100)]);
    let mut served = bench.serve(1);
    served.kill();
    let output = bench.command(&served, "clinfo").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("Number of platforms                               0"),
        "{text}"
    );
}
