//! What a program sees of its device: the slice; and nothing at all when anything is in doubt.

use std::process::Command;

use crate::bench::{Bench, MIB, Vendor, layer, spec};
use crate::call;
use crate::cl::{Cl, Handle};
use crate::worker::{Worker, own, say};

const GLOBAL: u32 = 0x101F;
const MAX_ALLOC: u32 = 0x1010;

pub fn look() {
    let cl = match Cl::open() {
        Ok(cl) => cl,
        Err(code) => return say("none", code),
    };
    let text = |param| String::from_utf8(cl.device_info(param)).unwrap();
    say("global", cl.device_number(GLOBAL));
    say("alloc", cl.device_number(MAX_ALLOC));
    say("constant", cl.device_number(0x1020));
    say("cache", cl.device_number(0x101E));
    say("execution", cl.device_number(0x1029));
    say("extensions", text(0x1030));
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let mut properties = 9u64;
    call!(cl, "clGetCommandQueueInfo", i32, queue => Handle, 0x1093 => u32, 8 => usize,
        (&raw mut properties).cast() => *mut std::ffi::c_void, std::ptr::null_mut() => *mut usize);
    say("properties", properties);
    let kernel = cl.kernel(context, crate::cl::SPIN, "spin");
    let buffer = cl.buffer(context, 1, 4096).unwrap();
    let mut flags = 0u64;
    call!(cl, "clGetMemObjectInfo", i32, buffer => Handle, 0x1101 => u32, 8 => usize,
        (&raw mut flags).cast() => *mut std::ffi::c_void, std::ptr::null_mut() => *mut usize);
    say("flags", flags);
    cl.set_arg(kernel, 0, &buffer);
    cl.set_arg(kernel, 1, &10u32);
    for (word, queue) in [("unasked", queue), ("asked", cl.queue(context, 2))] {
        let mut event = std::ptr::null_mut();
        assert_eq!(cl.launch(queue, kernel, 64, 64, &mut event), 0);
        cl.wait(event);
        say(
            word,
            cl.profile(event, 0x1283)
                .map_or_else(i64::from, |ns| i64::from(ns > 0)),
        );
        cl.release_event(event);
    }
}

fn looked(bench: &Bench) -> Worker {
    Worker::start(bench.command(1, own()), "info", &[])
}

#[test]
fn a_program_sees_its_slice() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 300 * MIB, 500)]);
    let mut worker = looked(&bench);
    let number = |worker: &mut Worker, word: &str| worker.line(word).unwrap().parse::<u64>().unwrap();
    assert_eq!(number(&mut worker, "global"), 300 * MIB);
    assert_eq!(number(&mut worker, "alloc"), 300 * MIB);
    assert!(number(&mut worker, "constant") <= 300 * MIB);
    assert!(number(&mut worker, "cache") <= 300 * MIB);
    assert_eq!(
        number(&mut worker, "execution") & 2,
        0,
        "native kernels are not offered"
    );
    let extensions = worker.line("extensions").unwrap();
    assert!(
        extensions.contains("cl_khr_fp64") && !extensions.contains("command_buffer"),
        "{extensions}"
    );
    assert_eq!(
        number(&mut worker, "properties"),
        0,
        "profiling added for metering is not shown"
    );
    assert_eq!(number(&mut worker, "flags"), 1, "how it was zeroed is not shown");
    assert_eq!(worker.line("unasked").unwrap(), "-7");
    assert_eq!(worker.line("asked").unwrap(), "1");
    assert_eq!(worker.end().0, Some(0));
}

#[test]
fn a_resize_is_seen() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 300 * MIB, 500)]);
    bench.device.resize(1, 100 * MIB).unwrap();
    let mut worker = looked(&bench);
    assert_eq!(worker.line("global").unwrap(), (100 * MIB).to_string());
}

#[test]
fn on_any_doubt_there_is_no_device() {
    let _turn = crate::bench::turn();
    let bench = Bench::new(&[spec(1, 300 * MIB, 500)]);
    let not_a_page = bench.dir.path().join("junk");
    std::fs::write(&not_a_page, vec![7u8; 1 << 20]).unwrap();
    let newer = bench.dir.path().join("newer");
    let mut bytes = std::fs::read(&bench.page).unwrap();
    bytes[8] = 99;
    std::fs::write(&newer, bytes).unwrap();
    let cases: [(&str, &str, &str); 6] = [
        ("TENURE_GUARD_PAGE", "/nonexistent/page", "No such file"),
        ("TENURE_GUARD_PAGE", not_a_page.to_str().unwrap(), "wrong magic"),
        ("TENURE_GUARD_PAGE", newer.to_str().unwrap(), "version 99"),
        ("TENURE_GUARD_SLICE", "17", "no slice 17"),
        ("TENURE_GUARD_DEVICE", "0:5", "no device"),
        ("TENURE_GUARD_SLICE", "", "TENURE_GUARD_SLICE is not set"),
    ];
    for (variable, value, why) in cases {
        let mut command = bench.command(1, own());
        command.env(variable, value);
        let mut worker = Worker::start(command, "info", &[]);
        assert_eq!(worker.line("none").unwrap(), "-1001", "{variable}={value}");
        let (_, said) = worker.end();
        let sentences = said
            .lines()
            .filter(|line| line.starts_with("tenure-guard: "))
            .count();
        assert!(said.contains(why) && sentences == 1, "{variable}={value}: {said}");
    }
    // Not configured at all: the layer gives nothing.
    let mut command = Command::new(own());
    Vendor::Pocl.prepare(&mut command);
    command.env("OPENCL_LAYERS", layer());
    assert_eq!(Worker::start(command, "info", &[]).line("none").unwrap(), "-1001");
}

pub fn look_at_several() {
    let cl = Cl::open().unwrap();
    let mut devices = [std::ptr::null_mut(); 8];
    let mut found = 0;
    call!(cl, "clGetDeviceIDs", i32, cl.platform => Handle, 0xFFFF_FFFF => u64, 8 => u32,
        devices.as_mut_ptr() => *mut Handle, &mut found => *mut u32);
    say("found", found);
    for device in &devices[..found as usize] {
        let mut one = Cl::open().unwrap();
        one.device = *device;
        say("global", one.device_number(GLOBAL));
        let context = one.context();
        let fits = one.buffer(context, 0, 150 << 20).is_ok();
        say("fits", fits);
    }
}

#[test]
fn a_job_may_hold_slices_of_several_devices() {
    let _turn = crate::bench::turn();
    let one = Bench::new(&[spec(1, 100 * MIB, 500)]);
    let two = Bench::new(&[spec(2, 200 * MIB, 500)]);
    let mut command = one.command(1, own());
    command
        .env("POCL_DEVICES", "pthread pthread pthread")
        .env(
            "TENURE_GUARD_PAGE",
            format!("{};{}", one.page.display(), two.page.display()),
        )
        .env("TENURE_GUARD_SLICE", "1;2")
        .env("TENURE_GUARD_DEVICE", "0:0;Portable Computing Language:2");
    let mut worker = Worker::start(command, "several", &[]);
    assert_eq!(worker.line("found").unwrap(), "2", "the third device has no page");
    assert_eq!(worker.line("global").unwrap(), (100 * MIB).to_string());
    assert_eq!(worker.line("fits").unwrap(), "false");
    assert_eq!(worker.line("global").unwrap(), (200 * MIB).to_string());
    assert_eq!(worker.line("fits").unwrap(), "true");
    assert_eq!(worker.end().0, Some(0));
    assert_eq!(two.reading(2).counter(tenure_limits::Counter::Allocations), 1);
}
