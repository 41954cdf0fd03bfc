//! Several processes on one slice: children made by fork, and strangers to one another.

use std::ptr::null_mut;

use crate::bench::{Bench, MIB, Vendor, spec, turn};
use crate::call;
use crate::cl::{Cl, Handle, SPIN};
use crate::part::{Part, heard, own, say, setting};

fn compute(cl: &Cl, context: Handle, queue: Handle) -> u32 {
    let kernel = cl.kernel(context, SPIN, "spin");
    let buffer = cl.buffer(context, 0, 4096).unwrap();
    cl.set_arg(kernel, 0, &buffer);
    cl.set_arg(kernel, 1, &1000u32);
    assert_eq!(cl.launch(queue, kernel, 16, 1, null_mut()), 0);
    let mut host = [0u8; 64];
    cl.read(queue, buffer, &mut host);
    cl.release(buffer);
    host.iter().map(|byte| u32::from(*byte)).sum()
}

/// Computes, forks, and computes again while the child finds its parent's objects useless and makes its own.
pub fn fork_and_go_on() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let expected = compute(&cl, context, queue);
    // SAFETY: the child uses nothing that another thread could have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = cl.finish(queue) != 0
            && cl.buffer(context, 0, 4096).is_err()
            && call!(cl, "clReleaseCommandQueue", i32, queue => Handle) == 0;
        let own = cl.context();
        let own_queue = cl.queue(own, 0);
        let right = compute(&cl, own, own_queue) == expected;
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(if refused && right { 0 } else { 1 }) };
    }
    for _ in 0..50 {
        assert_eq!(compute(&cl, context, queue), expected);
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    say("child", status);
    assert_eq!(compute(&cl, context, queue), expected);
    say("parent", "goes on");
}

/// Allocates blocks until refused; keeps them until told.
pub fn allocate() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let mut held = Vec::new();
    let code = loop {
        match cl.buffer(context, 0, setting("BLOCK") as usize) {
            Ok(buffer) => held.push(buffer),
            Err(code) => break code,
        }
        if held.len() as u64 == setting("MOST") {
            break 0;
        }
    };
    say("got", format!("{} {code}", held.len()));
    heard("end");
}

#[test]
fn a_forked_child_speaks_for_itself_or_not_at_all() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 100)]);
    let served = bench.serve(1);
    let mut part = Part::start(bench.command(&served, own()), "fork", &[]);
    assert_eq!(part.line("child").unwrap(), "0");
    assert_eq!(part.line("parent").unwrap(), "goes on");
    let (code, said) = part.end();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn processes_of_a_job_share_its_slice() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 100), spec(2, 100)]);
    let (served, other) = (bench.serve(1), bench.serve(2));
    let blocks = |most: u64| [("BLOCK", (10 * MIB).to_string()), ("MOST", most.to_string())];
    let mut first = Part::start(bench.command(&served, own()), "allocate", &blocks(6));
    assert_eq!(first.line("got").unwrap(), "6 0");
    let mut second = Part::start(bench.command(&served, own()), "allocate", &blocks(99));
    assert_eq!(second.line("got").unwrap(), "4 -4");
    let mut stranger = Part::start(bench.command(&other, own()), "allocate", &blocks(99));
    assert_eq!(stranger.line("got").unwrap(), "10 -4");
    assert_eq!(bench.reading(1).used_bytes, 100 * MIB);
    // A process that dies gives back what it had.
    first.signal("-KILL");
    crate::bench::eventually("it is given back", std::time::Duration::from_secs(5), || {
        bench.reading(1).used_bytes == 40 * MIB
    });
    second.tell("end");
    stranger.tell("end");
}
