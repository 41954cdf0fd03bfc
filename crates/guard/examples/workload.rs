//! A plain OpenCL program for `tenure-bench`: it knows nothing of Tenure, and runs bare or behind the guard.
//!
//! `workload spin MICROS` launches kernels of that length one after another until it is ended; `workload cost` says
//! what each call costs, in nanoseconds.

// `call!` exists to call C functions on values made here.
#![allow(clippy::macro_metavars_in_unsafe, dead_code)]

#[path = "../tests/it/cl.rs"]
mod cl;
#[path = "../tests/it/cost/measure.rs"]
mod measure;

use std::ptr::null_mut;
use std::time::Instant;

use cl::{Cl, SPIN};

const ITEMS: usize = 256;
const LOCAL: usize = 128;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let cl = Cl::open().unwrap_or_else(|code| {
        eprintln!("no OpenCL device: {code}");
        std::process::exit(1);
    });
    match arguments[..] {
        ["spin", micros] => spin(&cl, micros.parse().expect("a number of microseconds")),
        ["cost"] => measure::measure(&cl, |word, value| println!("{word} {value}")),
        _ => {
            eprintln!("workload spin MICROS | workload cost");
            std::process::exit(2);
        }
    }
}

fn spin(cl: &Cl, micros: f64) {
    let context = cl.context();
    let queue = cl.queue(context, 2);
    let kernel = cl.kernel(context, SPIN, "spin");
    let buffer = cl.buffer(context, 0, ITEMS * 4).expect("a buffer");
    cl.set_arg(kernel, 0, &buffer);
    let once = |rounds: u32| {
        cl.set_arg(kernel, 1, &rounds);
        let begun = Instant::now();
        assert_eq!(cl.launch(queue, kernel, ITEMS, LOCAL, null_mut()), 0);
        cl.finish(queue);
        begun.elapsed().as_secs_f64() * 1e6
    };
    // The shortest of a few is the kernel without what else the machine does.
    let trial = 400_000;
    let took = (0..6).map(|_| once(trial)).fold(f64::MAX, f64::min);
    let rounds = (f64::from(trial) * micros / took).max(1.0) as u32;
    println!("ready");
    loop {
        once(rounds);
    }
}
