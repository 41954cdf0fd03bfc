//! What the Vulkan layer counts for the audit: shader modules by the hash of their code.

use std::ffi::c_void;
use std::ptr::null;

use super::desk::Desk;
use super::vk::{self, Vk};
use crate::bench::{MIB, spec};
use crate::vk;
use crate::worker::{Worker, heard, own, say};

/// The smallest shader there is: a kernel that returns, in SPIR-V. The number tells one from another, and stands where
/// whoever made it says who that is.
fn shader(made_by: u32) -> Vec<u32> {
    let [main, void, function, label] = [1, 2, 3, 4];
    let op = |code: u32, words: &[u32]| {
        let mut all = vec![(words.len() as u32 + 1) << 16 | code];
        all.extend(words);
        all
    };
    [
        vec![0x0723_0203, 0x0001_0000, made_by, 5, 0],
        op(17, &[1]),
        op(14, &[0, 1]),
        op(15, &[5, main, u32::from_le_bytes(*b"main"), 0]),
        op(16, &[main, 17, 1, 1, 1]),
        op(19, &[void]),
        op(33, &[function, void]),
        op(54, &[void, main, 0, function]),
        op(248, &[label]),
        op(253, &[]),
        op(56, &[]),
    ]
    .concat()
}

/// Part: makes three modules, two of them of the same code.
pub fn work() {
    let vk = Vk::open().unwrap();
    for made_by in [7, 8, 7] {
        let code = shader(made_by);
        let info = [16u64, 0, 0, code.len() as u64 * 4, code.as_ptr() as u64];
        let mut module = 0u64;
        let made = vk!(vk, "vkCreateShaderModule", i32, vk.device => vk::Handle, info.as_ptr() => *const u64,
            null() => *const c_void, &mut module => *mut u64);
        assert_eq!(made, 0);
    }
    say("made", "");
    heard("end");
}

#[test]
fn shaders_are_counted_by_their_code() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 64 * MIB, 500)]);
    let mut worker = Worker::start(desk.command(1, own()), "vulkan-audit", &[]);
    worker.line("made").expect("it works");
    let kernels = desk.bench.reading(1).kernels;
    worker.tell("end");
    assert_eq!(worker.end().0, Some(0));
    let counts: Vec<u64> = kernels.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [2, 1], "one code twice, another once");
    assert!(kernels[0].0 != kernels[1].0 && kernels[0].0 != 0, "{kernels:?}");
}
