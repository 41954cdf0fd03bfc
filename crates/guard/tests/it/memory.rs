//! Memory by every path: charged, refused at the limit, zeroed, given back.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, count, spec};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::worker::{Worker, eventually, heard, own, say, setting};

const FAILURE: i32 = -4;

/// Allocates blocks until refused, says how many it got, and stays until told to go on.
pub fn allocate() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let block = setting("BLOCK") as usize;
    let mut blocks = Vec::new();
    let code = loop {
        match cl.buffer(context, 0, block) {
            Ok(buffer) => blocks.push(buffer),
            Err(code) => break code,
        }
    };
    say("got", blocks.len());
    say("code", code);
    heard("free");
    blocks.into_iter().for_each(|buffer| cl.release(buffer));
    say("freed", "");
    heard("end");
}

#[test]
fn a_slice_is_full_at_its_limit_and_another_is_not() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500), spec(2, 50 * MIB, 500)]);
    let block = ("BLOCK", (10 * MIB).to_string());
    let start = |slice| {
        Worker::start(
            bench.command(slice, own()),
            "allocate",
            std::slice::from_ref(&block),
        )
    };
    let mut one = start(1);
    assert_eq!(one.line("got").unwrap(), "10");
    assert_eq!(one.line("code").unwrap(), FAILURE.to_string());
    let mut same = start(1);
    assert_eq!(
        same.line("got").unwrap(),
        "0",
        "a second process shares the slice"
    );
    let mut other = start(2);
    assert_eq!(other.line("got").unwrap(), "5");
    one.tell("free");
    one.line("freed").unwrap();
    eventually("the bytes come back", Duration::from_secs(5), || {
        bench.reading(1).used_bytes == 0
    });
    assert_eq!(bench.reading(1).peak_bytes, 100 * MIB);
    drop(one);
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    bench.device.reap();
    assert_eq!(bench.reading(2).used_bytes, 0, "a kill gives all back");
    assert_eq!(bench.counter(2, Counter::Refusals), 1);
}

/// Takes one allocation by each path and says how many bytes the slice was charged for it.
pub fn paths() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let page = std::path::PathBuf::from(std::env::var_os("TENURE_GUARD_PAGE").unwrap());
    let reader = tenure_limits::Reader::open(&page).unwrap();
    let used = || reader.snapshot().unwrap().slice(1).unwrap().used_bytes;
    let mut host = vec![7u8; MIB as usize + 4096];
    let mut code = 0;
    // Aligned, as some drivers want it for host pointers.
    let host = host
        .as_mut_ptr()
        .wrapping_add(4096 - host.as_ptr() as usize % 4096);

    for (word, flags, pointer) in [
        ("plain", 0, null_mut()),
        ("use", 1 << 3, host),
        ("alloc", 1 << 4, null_mut()),
        ("copy", 1 << 5, host),
    ] {
        let before = used();
        let buffer = call!(cl, "clCreateBuffer", Handle, context => Handle, flags => u64, MIB as usize => usize,
            pointer.cast() => *mut c_void, &mut code => *mut i32);
        assert_eq!(code, 0, "{word}");
        say(word, used() - before);
        cl.release(buffer);
        eventually("the buffer goes", Duration::from_secs(5), || used() == before);
    }
    let before = used();
    let parent = call!(cl, "clCreateBufferWithProperties", Handle, context => Handle, null() => *const u64, 0 => u64,
        MIB as usize => usize, null_mut() => *mut c_void, &mut code => *mut i32);
    say("properties", if code == 0 { used() - before } else { MIB });
    let parent = if parent.is_null() {
        cl.buffer(context, 0, MIB as usize).unwrap()
    } else {
        parent
    };

    let before = used();
    let region = [0usize, 65536];
    let part = call!(cl, "clCreateSubBuffer", Handle, parent => Handle, 0 => u64, 0x1220 => u32,
        region.as_ptr().cast() => *const c_void, &mut code => *mut i32);
    assert_eq!(code, 0);
    say("part", used() - before);
    cl.release(parent);
    say("kept", used() - before);
    cl.release(part);
    eventually("the parent goes with its part", Duration::from_secs(5), || {
        used() == before - MIB
    });
    say("part-gone", before - used());

    images(&cl, context, &used);
    svm(&cl, context, queue, &used);

    let before = used();
    let pipe = call!(cl, "clCreatePipe", Handle, context => Handle, 0 => u64, 64 => u32, 1024 => u32,
        null() => *const isize, &mut code => *mut i32);
    say("pipe", if pipe.is_null() { 65536 } else { used() - before });
    if !pipe.is_null() {
        cl.release(pipe);
    }
    eventually("all is given back", Duration::from_secs(5), || used() == 0);
    say("left", used());
}

fn images(cl: &Cl, context: Handle, used: &dyn Fn() -> u64) {
    let mut code = 0;
    let rgba8 = [0x10B5u32, 0x10DA];
    let before = used();
    let image = call!(cl, "clCreateImage2D", Handle, context => Handle, 0 => u64, rgba8.as_ptr() => *const u32,
        256 => usize, 256 => usize, 0 => usize, null_mut() => *mut c_void, &mut code => *mut i32);
    assert_eq!(code, 0);
    say("image2d", used() - before);
    cl.release(image);
    eventually("the image goes", Duration::from_secs(5), || used() == before);
    let before = used();
    let image = call!(cl, "clCreateImage3D", Handle, context => Handle, 0 => u64, rgba8.as_ptr() => *const u32,
        64 => usize, 64 => usize, 16 => usize, 0 => usize, 0 => usize, null_mut() => *mut c_void,
        &mut code => *mut i32);
    assert_eq!(code, 0);
    say("image3d", used() - before);
    cl.release(image);
    eventually("the image goes", Duration::from_secs(5), || used() == before);

    // kind, width, height, depth, array size, row pitch, slice pitch, levels | samples, source
    let mut description = [0x10F1usize, 256, 256, 0, 0, 0, 0, 0, 0];
    let mut create = |description: &[usize; 9]| {
        let before = used();
        let image = call!(cl, "clCreateImage", Handle, context => Handle, 0 => u64, rgba8.as_ptr() => *const u32,
            description.as_ptr() => *const usize, null_mut() => *mut c_void, &mut code => *mut i32);
        assert!(!image.is_null(), "image of kind {:#x}: {code}", description[0]);
        (image, used() - before)
    };
    let (image, bytes) = create(&description);
    say("image", bytes);
    cl.release(image);
    std::thread::sleep(Duration::from_millis(50));
    let buffer = cl.buffer(context, 0, 256 * 256 * 4).unwrap();
    description = [0x10F6, 65536 / 4, 0, 0, 0, 0, 0, 0, buffer as usize];
    let (image, bytes) = create(&description);
    say("image-of-buffer", bytes);
    cl.release(image);
    cl.release(buffer);
}

fn svm(cl: &Cl, context: Handle, queue: Handle, used: &dyn Fn() -> u64) {
    let alloc =
        || call!(cl, "clSVMAlloc", *mut c_void, context => Handle, 1 => u64, MIB as usize => usize, 0 => u32);
    let before = used();
    let pointer = alloc();
    if pointer.is_null() {
        // No shared virtual memory on this device.
        for word in ["svm", "svm-freed", "svm-enqueued"] {
            say(word, if word == "svm" { MIB } else { 0 });
        }
        return;
    }
    say("svm", used() - before);
    call!(cl, "clSVMFree", (), context => Handle, pointer => *mut c_void);
    say("svm-freed", used() - before);
    let pointer = alloc();
    let code = call!(cl, "clEnqueueSVMFree", i32, queue => Handle, 1 => u32, &pointer => *const *mut c_void,
        null_mut() => *mut c_void, null_mut() => *mut c_void, 0 => u32, null() => *const Handle,
        null_mut() => *mut Handle);
    assert_eq!(code, 0);
    cl.finish(queue);
    eventually("freed by a command", Duration::from_secs(5), || used() == before);
    say("svm-enqueued", used() - before);
}

pub fn check_paths(bench: &Bench) {
    let mut worker = Worker::start(bench.command(1, own()), "paths", &[]);
    let expected = [
        ("plain", MIB),
        ("use", MIB),
        ("alloc", MIB),
        ("copy", MIB),
        ("properties", MIB),
        ("part", 0),
        ("kept", 0),
        ("part-gone", MIB),
        ("image2d", 256 * 256 * 4),
        ("image3d", 64 * 64 * 16 * 4),
        ("image", 256 * 256 * 4),
        ("image-of-buffer", 0),
        ("svm", MIB),
        ("svm-freed", 0),
        ("svm-enqueued", 0),
        ("pipe", 65536),
        ("left", 0),
    ];
    for (word, bytes) in expected {
        let Some(found) = worker.line(word) else {
            panic!("no {word}: {}", worker.end().1);
        };
        let found: u64 = found.parse().unwrap();
        let image = word.starts_with("image") && bytes > 0;
        assert!(
            found == bytes || (image && found >= bytes && found <= 2 * bytes),
            "{word}: {found}, expected {bytes}"
        );
    }
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn every_path_is_charged_and_given_back() {
    let _turn = crate::bench::turn();
    check_paths(&Bench::new(&[spec(1, 100 * MIB, 500)]));
}

/// Writes a pattern, frees, allocates again, and counts how often the pattern is still there.
pub fn zero() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let mut leaks = 0;
    for round in 0..60usize {
        let size = 4096 << (round % 9);
        let (flags, size) = (if round % 2 == 0 { 0 } else { 1 << 4 }, size + round % 5);
        let buffer = cl.buffer(context, flags, size).unwrap();
        let mut bytes = vec![0u8; size];
        cl.read(queue, buffer, &mut bytes);
        leaks += usize::from(bytes.iter().any(|byte| *byte != 0));
        cl.write(queue, buffer, &vec![0xA5; size]);
        cl.release(buffer);
    }
    say("leaks", leaks);
}

#[test]
fn memory_is_zero_when_given() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500)]);
    let mut worker = Worker::start(bench.command(1, own()), "zero", &[]);
    assert_eq!(worker.line("leaks").unwrap(), "0");
    // And without the layer the same program does see what it left: the test can fail.
    let mut bare = std::process::Command::new(own());
    bench.vendor.prepare(&mut bare);
    let leaks: u32 = Worker::start(bare, "zero", &[])
        .line("leaks")
        .unwrap()
        .parse()
        .unwrap();
    assert!(leaks > 0, "this implementation shows no leftovers");
}

/// Allocates and frees at random until it is killed.
pub fn random() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let mut seed = setting("SEED") * 2 + 1;
    let mut held = Vec::new();
    say("begun", "");
    loop {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let dice = seed >> 33;
        if !dice.is_multiple_of(3) || held.is_empty() {
            match cl.buffer(context, 0, 1 + (dice % MIB) as usize) {
                Ok(buffer) => held.push(buffer),
                Err(code) => {
                    assert_eq!(code, FAILURE);
                    held.drain(..held.len() / 2).for_each(|buffer| cl.release(buffer));
                }
            }
        } else {
            cl.release(held.swap_remove(dice as usize % held.len()));
        }
    }
}

#[test]
fn eight_programs_killed_at_random_never_exceed_the_slice() {
    let _turn = crate::bench::turn();
    let kills = count("TENURE_GUARD_KILLS", 40);
    let limit = 10 * MIB;
    let bench = Bench::new(&[spec(1, limit, 500)]);
    let start = |seed: u64| {
        let mut worker = Worker::start(bench.command(1, own()), "random", &[("SEED", seed.to_string())]);
        worker.line("begun").unwrap();
        worker
    };
    let mut workers: Vec<_> = (0..8).map(start).collect();
    for kill in 0..kills {
        let until = Instant::now() + Duration::from_millis(3 + kill * 7 % 20);
        while Instant::now() < until {
            let sum = bench.device.audit_bytes(1).unwrap();
            assert!(sum <= limit, "{sum} bytes of {limit}");
        }
        let fresh = start(100 + kill);
        drop(std::mem::replace(&mut workers[(kill * 5 % 8) as usize], fresh));
    }
    drop(workers);
    bench.device.reap();
    let reading = bench.reading(1);
    assert_eq!((reading.used_bytes, reading.processes), (0, 0));
    assert!(reading.peak_bytes <= limit && reading.peak_bytes > limit / 2);
    println!(
        "{kills} kills, {} allocations",
        reading.counter(Counter::Allocations)
    );
}

/// A program that forks: parent and child each allocate on their own account.
pub fn fork_and_allocate() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let held = cl.buffer(context, 0, 10 << 20).unwrap();
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(code: i32) -> !;
    }
    // SAFETY: the child uses the guard's own entry points and ends without running handlers.
    let child = unsafe { fork() };
    if child == 0 {
        let seen = cl.device_number(0x101F) == 100 << 20;
        cl.release(held);
        // SAFETY: as above.
        unsafe { _exit(if seen { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { waitpid(child, &mut status, 0) };
    say("child", (status >> 8) & 255);
    heard("end");
    cl.release(held);
}

#[test]
fn a_fork_neither_keeps_nor_frees_its_parents_bytes() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 100 * MIB, 500)]);
    let mut worker = Worker::start(bench.command(1, own()), "fork", &[]);
    assert_eq!(worker.line("child").unwrap(), "7");
    bench.device.reap();
    assert_eq!(bench.device.audit_bytes(1).unwrap(), 10 * MIB);
    worker.tell("end");
    assert_eq!(worker.end().0, Some(0));
    bench.device.reap();
    assert_eq!(bench.device.audit_bytes(1).unwrap(), 0);
}
