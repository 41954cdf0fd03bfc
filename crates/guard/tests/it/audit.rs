//! What the guard counts for the audit: kernels by the hash of their program and name, and bytes both ways.

use std::ptr::null_mut;

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, spec};
use crate::cl::Cl;
use crate::worker::{Worker, heard, own, say};

const SOURCE: &str = "kernel void one(global int *a) { a[get_global_id(0)] += 1; }
                      kernel void two(global int *a) { a[get_global_id(0)] += 2; }";
const BYTES: usize = 1 << 16;

/// Launches two kernels of one program, one of them from two objects, and moves bytes in and out.
pub fn work() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let buffer = cl.buffer(context, 0, BYTES).unwrap();
    let mut host = vec![7u8; BYTES];
    for (name, times) in [("one", 3), ("two", 2), ("one", 4)] {
        let kernel = cl.kernel(context, SOURCE, name);
        cl.set_arg(kernel, 0, &buffer);
        for _ in 0..times {
            assert_eq!(cl.launch(queue, kernel, 64, 64, null_mut()), 0);
        }
    }
    for _ in 0..3 {
        cl.write(queue, buffer, &host);
    }
    cl.read(queue, buffer, &mut host[..BYTES / 2]);
    say("done", "");
    heard("end");
}

#[test]
fn kernels_and_bytes_are_counted() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500), spec(2, 100 * MIB, 500)]);
    let run = |slice| {
        let mut worker = Worker::start(bench.command(slice, own()), "audit", &[]);
        worker.line("done").expect("it works");
        worker.tell("end");
        assert_eq!(worker.end().0, Some(0));
        bench.reading(slice)
    };
    let first = run(1);
    let launches: Vec<u64> = first.kernels.iter().map(|(_, launches)| *launches).collect();
    assert_eq!(
        launches,
        [7, 2],
        "a kernel made twice is one, two of a program are two"
    );
    assert_eq!(first.counter(Counter::BytesIn), 3 * BYTES as u64);
    assert_eq!(first.counter(Counter::BytesOut), BYTES as u64 / 2);
    assert_eq!(first.counter(Counter::Opens), 1);
    let hashes = |reading: &tenure_limits::SliceReading| -> Vec<u64> {
        reading.kernels.iter().map(|(hash, _)| *hash).collect()
    };
    assert_eq!(
        hashes(&run(2)),
        hashes(&first),
        "the same program is the same anywhere"
    );
}
