//! Programs nobody here wrote, unchanged, through the broker: the same results as on the bare driver, the slice's size
//! seen, and their own words when it is full.

use std::path::PathBuf;
use std::process::Command;

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, Vendor, opencl_dir, spec, turn};

struct Ran {
    code: Option<i32>,
    text: String,
}

fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; scripts/setup-devices installs it");
    });
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ran {
        code: output.status.code(),
        text,
    }
}

fn clinfo(vendor: Vendor) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 512)]);
    let served = bench.serve(1);
    let bare = run(bench.bare("clinfo").arg("--raw"));
    let ran = run(bench.command(&served, "clinfo").arg("--raw"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(
        value(&ran.text, "CL_DEVICE_GLOBAL_MEM_SIZE"),
        (512 * MIB).to_string()
    );
    assert_eq!(value(&ran.text, "#DEVICES"), "1");
    for same in [
        "CL_DEVICE_NAME",
        "CL_DRIVER_VERSION",
        "CL_PLATFORM_NAME",
        "CL_DEVICE_MAX_COMPUTE_UNITS",
    ] {
        assert_eq!(value(&ran.text, same), value(&bare.text, same), "{same}");
    }
    assert!(!ran.text.contains("cl_khr_command_buffer"));
}

#[test]
fn clinfo_shows_the_slice() {
    clinfo(Vendor::Pocl);
}

#[test]
fn clinfo_shows_the_slice_on_intel() {
    clinfo(Vendor::Intel);
}

#[test]
fn clinfo_shows_the_slice_on_rusticl() {
    clinfo(Vendor::Rusticl);
}

fn clpeak(vendor: Vendor) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 64)]);
    let served = bench.serve(1);
    for test in ["--global-bandwidth", "--kernel-latency", "--transfer-bandwidth"] {
        let ran = run(bench.command(&served, "clpeak").arg(test));
        assert_eq!(ran.code, Some(0), "{}", ran.text);
        assert!(
            !ran.text.contains("clpeak: ") && !ran.text.contains("Tests skipped"),
            "{}",
            ran.text
        );
        println!("{}", ran.text);
    }
    let peak = bench.reading(1).peak_bytes;
    assert!(peak > 16 * MIB && peak <= 64 * MIB, "{peak}");
    assert!(bench.counter(1, Counter::Launches) > 10);
}

#[test]
fn clpeak_measures_within_the_slice() {
    clpeak(Vendor::Pocl);
}

#[test]
fn clpeak_measures_within_the_slice_on_intel() {
    clpeak(Vendor::Intel);
}

fn hashcat(vendor: Vendor) {
    let _turn = turn();
    let hash = "b52340b4de4566b804c9880aa0b4af5f";
    let attack = |limit_mib: u64| {
        let bench = Bench::on(vendor, &[spec(1, limit_mib)]);
        let served = bench.serve(1);
        let home = bench.dir.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let mut hashcat = bench.command(&served, "hashcat");
        hashcat
            .env("HOME", home)
            .args(["-m", "0", "-a", "3", "--potfile-disable", "--force", "-w", "1"])
            .args([hash, "?d?d?d?d"]);
        run(&mut hashcat)
    };
    let ran = attack(2048);
    assert!(
        ran.text.contains("/2048 MB") && ran.text.contains(&format!("{hash}:4711")),
        "{}",
        ran.text
    );
    let ran = attack(512);
    assert!(
        ran.text.contains("/512 MB") && ran.text.contains("Not enough allocatable device memory"),
        "{}",
        ran.text
    );
}

#[test]
fn hashcat_passes_its_self_test_cracks_and_fails_in_a_small_slice() {
    hashcat(Vendor::Pocl);
}

#[test]
fn hashcat_cracks_on_intel() {
    hashcat(Vendor::Intel);
}

/// ffmpeg over OpenCL filters, with the frames it writes.
fn filter(mut ffmpeg: Command, size: &str, into: PathBuf) -> (Ran, Vec<u8>) {
    ffmpeg
        .args(["-hide_banner", "-loglevel", "error", "-y"])
        .args(["-init_hw_device", "opencl=gpu:0.0"])
        .args(["-filter_hw_device", "gpu", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size={size}:rate=25:duration=1"))
        .arg("-vf")
        .arg("format=yuv420p,hwupload,avgblur_opencl=sizeX=5,unsharp_opencl,hwdownload,format=yuv420p")
        .args(["-f", "rawvideo"])
        .arg(&into);
    let ran = run(&mut ffmpeg);
    (ran, std::fs::read(into).unwrap_or_default())
}

fn ffmpeg(vendor: Vendor) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 256)]);
    let served = bench.serve(1);
    let at = |name: &str| bench.dir.path().join(name);
    let (ran, expected) = filter(bench.bare("ffmpeg"), "320x240", at("bare.yuv"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let (ran, found) = filter(bench.command(&served, "ffmpeg"), "320x240", at("brokered.yuv"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert_eq!(expected.len(), 25 * 320 * 240 * 3 / 2);
    assert!(expected == found, "the frames differ");
    assert!(bench.counter(1, Counter::Launches) > 50);
    bench.device.resize(1, 4 * MIB).unwrap();
    let (ran, _) = filter(bench.command(&served, "ffmpeg"), "1920x1080", at("none.yuv"));
    assert_ne!(ran.code, Some(0));
    assert!(ran.text.contains("Cannot allocate memory"), "{}", ran.text);
}

#[test]
fn ffmpeg_filters_byte_for_byte_and_fails_in_a_small_slice() {
    ffmpeg(Vendor::Pocl);
}

#[test]
fn ffmpeg_filters_byte_for_byte_on_intel() {
    ffmpeg(Vendor::Intel);
}

#[test]
fn ffmpeg_filters_byte_for_byte_on_rusticl() {
    ffmpeg(Vendor::Rusticl);
}

fn python(vendor: Vendor, source: &str, expected: &[&str]) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 512)]);
    let served = bench.serve(1);
    let mut python = bench.command(&served, opencl_dir().join("venv/bin/python"));
    python
        .env("PYOPENCL_NO_CACHE", "1")
        .env("DEV", "CL")
        .env("HOME", bench.dir.path())
        .args(["-c", source]);
    let ran = run(&mut python);
    for expected in expected {
        assert!(ran.text.contains(expected), "{expected}: {}", ran.text);
    }
}

const PYOPENCL: &str = "
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
print('sees', context.devices[0].global_mem_size)
program = cl.Program(context, '__kernel void f(__global float *a) { a[get_global_id(0)] += 1; }').build()
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=4096)
program.f(queue, (1024,), None, buffer)
result = numpy.empty(1024, numpy.float32)
cl.enqueue_copy(queue, result, buffer)
print('sum', result.sum())
large = numpy.random.default_rng(7).integers(0, 1 << 30, 6 << 20, dtype=numpy.uint32)
there = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=large)
back = numpy.empty_like(large)
cl.enqueue_copy(queue, back, there)
print('large', (back == large).all())
there.release()
held = []
try:
    while True: held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size=50 << 20))
except cl.MemoryError as error:
    print('full after', len(held), error)
";

#[test]
fn pyopencl_sees_the_slice_and_raises_its_own_error() {
    let expected = [
        "sees 536870912",
        "sum 1024.0",
        "large True",
        "full after 10",
        "MEM_OBJECT_ALLOCATION_FAILURE",
    ];
    python(Vendor::Pocl, PYOPENCL, &expected);
    python(Vendor::Intel, PYOPENCL, &expected);
    python(Vendor::Rusticl, PYOPENCL, &expected);
}

const TINYGRAD: &str = "
import numpy
from tinygrad import Tensor, Device
print('on', Device.DEFAULT)
a = Tensor(numpy.arange(1000, dtype=numpy.float32))
print('sum', (a * 2).sum().numpy())
held = []
try:
    while True: held.append(Tensor(numpy.ones(50 << 20, dtype=numpy.uint8)).realize())
except MemoryError as error:
    print('full after', len(held), error)
";

#[test]
fn tinygrad_computes_within_the_slice_and_raises_its_own_error() {
    let expected = [
        "on CL",
        "sum 999000.0",
        "full after 10",
        "Allocation of 50.00 MB failed",
    ];
    python(Vendor::Pocl, TINYGRAD, &expected);
    python(Vendor::Intel, TINYGRAD, &expected);
}
