//! Heaps, budget, allocations: what is shown, charged, zeroed, refused and given back.

use std::ptr::null;
use std::time::Duration;

use tenure_limits::{Counter, Process};

use super::desk::Desk;
use super::vk::{Handle, INVALID_EXTERNAL_HANDLE, OUT_OF_DEVICE_MEMORY, Vk};
use crate::bench::{MIB, spec};
use crate::vk;
use crate::worker::{Worker, eventually, heard, own, say, setting};

/// Part: every way to memory, against the ledger.
pub fn paths() {
    let page = std::env::var_os("TENURE_GUARD_PAGE").unwrap();
    let ledger = Process::join(page.as_ref(), setting("TENURE_GUARD_SLICE")).unwrap();
    let mut vk = Vk::open().unwrap();
    assert_eq!(ledger.used_bytes(), 0);
    let memory = vk.alloc(1000, null()).unwrap();
    assert_eq!(ledger.used_bytes(), 1024, "whole grains");
    let clean = |vk: &Vk, memory, bytes| vk.mapped(memory, bytes, |all| all.iter().all(|byte| *byte == 0));
    assert!(clean(&vk, memory, 1000));
    vk.mapped(memory, 1000, |all| all.fill(0xA5));
    vk.free(memory);
    assert_eq!(ledger.used_bytes(), 0, "freed");
    // What an allocation of the same size was left with is not seen again, however often it comes back.
    for round in 0..20 {
        let memory = vk.alloc(65536, null()).unwrap();
        assert!(clean(&vk, memory, 65536), "dirty in round {round}");
        vk.mapped(memory, 65536, |all| all.fill(0xA5));
        vk.free(memory);
    }
    heaps_and_budget(&vk, &ledger);
    let limit = ledger.limit_bytes();
    assert_eq!(vk.alloc(limit + 1, null()), Err(OUT_OF_DEVICE_MEMORY));
    let half = vk.alloc(limit / 2, null()).unwrap();
    assert_eq!(vk.alloc(limit / 2 + 1, null()), Err(OUT_OF_DEVICE_MEMORY));
    vk.free(half);
    elsewhere(&vk, &ledger);
    dedicated(&vk, &ledger);
    waited_for(&vk);
    assert_eq!(ledger.used_bytes(), 0);
    // A program may ask for budgets by their extension, which the driver need not have.
    vk!(vk, "vkDestroyDevice", (), vk.device => Handle, null() => *const std::ffi::c_void);
    vk.make_device(&[c"VK_EXT_memory_budget".as_ptr()]).unwrap();
    assert_eq!(ledger.used_bytes(), 0);
}

fn heaps_and_budget(vk: &Vk, ledger: &Process) {
    let held = vk.alloc(10 * MIB, null()).unwrap();
    // `VkPhysicalDeviceMemoryProperties`: 32 types of 8 bytes behind a count, 16 heaps of 16 behind another.
    let mut plain = [0u32; 130];
    vk!(vk, "vkGetPhysicalDeviceMemoryProperties", (), vk.physical => Handle, plain.as_mut_ptr() => *mut u32);
    let heap = |words: &[u32]| u64::from(words[66]) | u64::from(words[67]) << 32;
    assert_eq!((plain[65], heap(&plain)), (1, ledger.limit_bytes()));
    let mut budget = [0u64; 34];
    budget[0] = 1000237000;
    let mut chained = [0u64; 67];
    (chained[0], chained[1]) = (1000059006, budget.as_mut_ptr() as u64);
    vk!(vk, "vkGetPhysicalDeviceMemoryProperties2", (), vk.physical => Handle, chained.as_mut_ptr() => *mut u64);
    assert_eq!(chained[35], ledger.limit_bytes());
    assert_eq!(
        budget[2],
        ledger.limit_bytes(),
        "alone in it, the whole slice is its budget"
    );
    assert_eq!(budget[18], 10 * MIB, "of which it uses so much");
    vk.free(held);
}

/// Memory of the program's own, brought in: charged, and left as it is. Memory to be shown outside: refused.
fn elsewhere(vk: &Vk, ledger: &Process) {
    let export = [1000072002u64, 0, 1];
    assert_eq!(vk.alloc(65536, export.as_ptr()), Err(INVALID_EXTERNAL_HANDLE));
    assert_eq!(ledger.used_bytes(), 0);
    let layout = std::alloc::Layout::from_size_align(65536, 65536).unwrap();
    // SAFETY: a layout that is not empty.
    let own = unsafe { std::alloc::alloc(layout) };
    // SAFETY: as long as it was allocated.
    unsafe { std::ptr::write_bytes(own, 7, 65536) };
    // `VkImportMemoryHostPointerInfoEXT`, of a plain allocation.
    let import = [1000178000u64, 0, 0x80, own as u64];
    let memory = vk.alloc(65536, import.as_ptr()).unwrap();
    assert_eq!(ledger.used_bytes(), 65536);
    // SAFETY: as long as it was allocated.
    let still = unsafe { std::slice::from_raw_parts(own, 65536) };
    assert!(still.iter().all(|byte| *byte == 7));
    vk.free(memory);
    assert_eq!(ledger.used_bytes(), 0);
}

/// Memory for one buffer alone, asked for behind another structure: given, zeroed, charged.
fn dedicated(vk: &Vk, ledger: &Process) {
    let info = [12u64, 0, 0, 4096, 3, 0, 0];
    let mut buffer = 0u64;
    let code = vk!(vk, "vkCreateBuffer", i32, vk.device => Handle, info.as_ptr() => *const u64,
        null() => *const std::ffi::c_void, &mut buffer => *mut u64);
    assert_eq!(code, 0);
    let dedicated = [1000127001u64, 0, 0, buffer];
    let flags = [1000060000u64, dedicated.as_ptr() as u64, 0];
    let memory = vk.alloc(4096, flags.as_ptr()).unwrap();
    assert_eq!(ledger.used_bytes(), 4096);
    let code =
        vk!(vk, "vkBindBufferMemory", i32, vk.device => Handle, buffer => u64, memory => u64, 0 => u64);
    assert_eq!(code, 0);
    assert!(vk.mapped(memory, 4096, |all| all.iter().all(|byte| *byte == 0)));
    vk!(vk, "vkDestroyBuffer", (), vk.device => Handle, buffer => u64, null() => *const std::ffi::c_void);
    vk.free(memory);
    assert_eq!(ledger.used_bytes(), 0);
}

/// What was submitted is done when the queue has been waited for, and not before.
fn waited_for(vk: &Vk) {
    let bytes = 16 * MIB;
    let (buffer, memory) = vk.buffer(bytes);
    for round in 1..=3 {
        let last = 40 * round;
        assert_eq!(vk.submit(vk.fills(buffer, bytes, last + 1)), 0);
        vk.wait();
        let end = vk.mapped(memory, bytes as usize, |all| all[all.len() - 4..].to_vec());
        assert_eq!(end, last.to_ne_bytes(), "round {round}");
    }
    vk!(vk, "vkDestroyBuffer", (), vk.device => Handle, buffer => u64, null() => *const std::ffi::c_void);
    vk.free(memory);
}

#[test]
fn every_way_to_memory_is_charged_zeroed_and_given_back() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    for command in [desk.command(1, own()), desk.by_name(1, own())] {
        let (code, said) = Worker::start(command, "vulkan-paths", &[]).end();
        assert_eq!(code, Some(0), "{said}");
    }
    assert_eq!(desk.bench.device.audit_bytes(1).unwrap(), 0);
    assert!(desk.bench.counter(1, Counter::Refusals) >= 4);
}

/// Part: takes blocks until there are no more, says how many, and stays.
pub fn allocate() {
    let vk = Vk::open().unwrap();
    let mut blocks = 0;
    let refused = loop {
        match vk.alloc(setting("BLOCK"), null()) {
            Ok(_) => blocks += 1,
            Err(code) => break code,
        }
    };
    assert_eq!(refused, OUT_OF_DEVICE_MEMORY);
    say("got", blocks);
    heard("end");
}

#[test]
fn a_killed_process_gives_back() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 128 * MIB, 500)]);
    let start = || {
        Worker::start(
            desk.command(1, own()),
            "vulkan-allocate",
            &[("BLOCK", (50 * MIB).to_string())],
        )
    };
    let mut first = start();
    assert_eq!(first.line("got").unwrap(), "2");
    let mut second = start();
    assert_eq!(second.line("got").unwrap(), "0");
    first.signal("-KILL");
    eventually("the dead one's bytes return", Duration::from_secs(5), || {
        desk.bench.device.reap();
        desk.bench.reading(1).used_bytes == 0
    });
    let mut third = start();
    assert_eq!(third.line("got").unwrap(), "2");
}

/// Part: what is shown of devices.
pub fn look() {
    match Vk::open() {
        Ok(_) => say("sees", "a device"),
        Err(why) => say("sees", why),
    }
}

#[test]
fn without_a_page_there_is_no_device() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 128 * MIB, 500)]);
    let look = |command| {
        let mut worker = Worker::start(command, "vulkan-look", &[]);
        let sees = worker.line("sees").unwrap();
        (sees, worker.end().1)
    };
    assert_eq!(look(desk.command(1, own())).0, "a device");
    let mut wrong = desk.command(1, own());
    wrong.env("TENURE_GUARD_PAGE", "/nowhere/page");
    let (sees, said) = look(wrong);
    assert!(sees.ends_with("0 devices"), "{sees}");
    assert!(
        said.contains("no Vulkan device is given: /nowhere/page"),
        "{said}"
    );
    let mut uuid = desk.command(1, own());
    uuid.env("TENURE_GUARD_DEVICE", "uuid:00000000-0000-0000-0000-000000000001");
    let (sees, said) = look(uuid);
    assert!(sees.ends_with("0 devices"), "{sees}");
    assert!(said.contains("Vulkan has no device"), "{said}");
}
