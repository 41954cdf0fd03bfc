//! How much a slice gives: to two processes, after a death, beside contexts.

use std::time::Duration;

use super::cu::{Cu, OUT_OF_MEMORY};
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::worker::{Worker, eventually, heard, own, say, setting};

/// Part: takes blocks until there are no more, says how many, and stays.
pub fn allocate() {
    let cu = Cu::open();
    let mut blocks = 0;
    let refused = loop {
        match cu.alloc(setting("BLOCK") as usize) {
            Ok(_) => blocks += 1,
            Err(code) => break code,
        }
    };
    assert_eq!(refused, OUT_OF_MEMORY);
    say("got", blocks);
    heard("end");
}

#[test]
fn two_processes_share_a_slice_and_a_killed_one_gives_back() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500), spec(2, 64 * MIB, 500)]);
    let start = |slice: u64, mib: u64| {
        let block = ("BLOCK", (mib * MIB).to_string());
        Worker::start(desk.command(slice, own()), "cuda-allocate", &[block])
    };
    let mut first = start(1, 100);
    assert_eq!(first.line("got").unwrap(), "2");
    let mut second = start(1, 10);
    assert_eq!(second.line("got").unwrap(), "5", "what the first left");
    let mut other = start(2, 10);
    assert_eq!(other.line("got").unwrap(), "6", "another slice has its own");
    first.signal("-KILL");
    eventually("the dead one's bytes return", Duration::from_secs(5), || {
        desk.bench.device.reap();
        desk.used(1) == 50 * MIB
    });
    let mut third = start(1, 100);
    assert_eq!(third.line("got").unwrap(), "2");
}

#[test]
fn a_context_is_charged_what_it_was_said_to_take() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 100 * MIB, 500)]);
    let mut command = desk.command(1, own());
    command.env("TENURE_GUARD_CUDA_CONTEXT_MIB", "33");
    let mut worker = Worker::start(command, "cuda-allocate", &[("BLOCK", (10 * MIB).to_string())]);
    assert_eq!(worker.line("got").unwrap(), "6");
    assert_eq!(desk.used(1), 93 * MIB);
    let mut command = desk.command(1, own());
    command.env("TENURE_GUARD_CUDA_CONTEXT_MIB", "33");
    let (code, said) = Worker::start(command, "cuda-allocate", &[("BLOCK", "1".to_owned())]).end();
    assert_ne!(code, Some(0), "no room for a second context");
    assert!(said.contains("left: 2"), "{said}");
}
