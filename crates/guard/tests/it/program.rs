//! Programs nobody here wrote, unchanged: each sees its slice, works in it, and says in its own words when it is full.

use std::path::PathBuf;
use std::process::Command;

use tenure_limits::Counter;

use crate::bench::{Bench, MIB, Vendor, opencl_dir, spec};
use crate::worker::{Worker, own};

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

fn bench(limit_mib: u64) -> Bench {
    Bench::new(&[spec(1, limit_mib * MIB, 500)])
}

/// A process that holds all of the slice but `left_mib`.
fn fill(bench: &Bench, left_mib: u64) -> Worker {
    let block = bench.reading(1).limit_bytes - left_mib * MIB;
    let mut holder = Worker::start(
        bench.command(1, own()),
        "allocate",
        &[("BLOCK", block.to_string())],
    );
    assert_eq!(holder.line("got").unwrap(), "1");
    holder
}

#[test]
fn clinfo_shows_the_slice() {
    let _turn = crate::bench::turn();
    let bench = bench(512);
    let ran = run(bench.command(1, "clinfo").arg("--raw"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let value = |name: &str| {
        let line = ran.text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(value("CL_DEVICE_GLOBAL_MEM_SIZE"), (512 * MIB).to_string());
    assert_eq!(value("CL_DEVICE_MAX_MEM_ALLOC_SIZE"), (512 * MIB).to_string());
    assert_eq!(value("#DEVICES"), "1");
    assert!(!ran.text.contains("cl_khr_command_buffer"));
}

#[test]
fn clpeak_measures_within_the_slice_and_fails_in_a_full_one() {
    let _turn = crate::bench::turn();
    let bench = bench(64);
    let ran = run(bench.command(1, "clpeak").arg("--global-bandwidth"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(ran.text.contains("float16"), "{}", ran.text);
    let peak = bench.reading(1).peak_bytes;
    assert!(peak > 16 * MIB && peak <= 64 * MIB, "{peak}");
    assert!(bench.counter(1, Counter::Launches) > 10);
    let _holder = fill(&bench, 1);
    let ran = run(bench.command(1, "clpeak").arg("--global-bandwidth"));
    assert!(ran.text.contains("-4"), "{}", ran.text);
}

#[test]
fn hashcat_cracks_within_the_slice_and_fails_in_a_small_one() {
    let _turn = crate::bench::turn();
    let hash = "b52340b4de4566b804c9880aa0b4af5f";
    let attack = |bench: &Bench| {
        let home = bench.dir.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        let mut hashcat = bench.command(1, "hashcat");
        hashcat
            .env("HOME", home)
            .args([
                "-m",
                "0",
                "-a",
                "3",
                "--potfile-disable",
                "--force",
                "--self-test-disable",
            ])
            .args(["-w", "1", hash, "?d?d?d?d"]);
        run(&mut hashcat)
    };
    let ran = attack(&bench(2048));
    assert!(
        ran.text.contains("/2048 MB") && ran.text.contains(&format!("{hash}:4711")),
        "{}",
        ran.text
    );
    let ran = attack(&bench(512));
    assert!(ran.text.contains("/512 MB"), "{}", ran.text);
    assert!(
        ran.text.contains("Not enough allocatable device memory"),
        "{}",
        ran.text
    );
}

/// ffmpeg over OpenCL filters, with the frames it writes.
fn filter(mut ffmpeg: Command, size: &str, into: PathBuf) -> (Ran, Vec<u8>) {
    ffmpeg
        .args([
            "-hide_banner",
            "-loglevel",
            "error",
            "-y",
            "-init_hw_device",
            "opencl=gpu:0.0",
        ])
        .args(["-filter_hw_device", "gpu", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size={size}:rate=25:duration=1"))
        .arg("-vf")
        .arg("format=yuv420p,hwupload,avgblur_opencl=sizeX=5,unsharp_opencl,hwdownload,format=yuv420p")
        .args(["-f", "rawvideo"])
        .arg(&into);
    let ran = run(&mut ffmpeg);
    (ran, std::fs::read(into).unwrap_or_default())
}

#[test]
fn ffmpeg_filters_byte_for_byte_and_fails_in_a_small_slice() {
    let _turn = crate::bench::turn();
    let bench = bench(256);
    let mut bare = Command::new("ffmpeg");
    assert!(Vendor::Pocl.prepare(&mut bare));
    let (ran, expected) = filter(bare, "320x240", bench.dir.path().join("bare.yuv"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let (ran, found) = filter(
        bench.command(1, "ffmpeg"),
        "320x240",
        bench.dir.path().join("guarded.yuv"),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert_eq!(expected.len(), 25 * 320 * 240 * 3 / 2);
    assert!(expected == found, "the frames differ");
    assert!(bench.counter(1, Counter::Launches) > 50);
    bench.device.resize(1, 4 * MIB).unwrap();
    let (ran, _) = filter(
        bench.command(1, "ffmpeg"),
        "1920x1080",
        bench.dir.path().join("none.yuv"),
    );
    assert_ne!(ran.code, Some(0));
    assert!(ran.text.contains("Cannot allocate memory"), "{}", ran.text);
}

fn python(bench: &Bench, source: &str) -> Ran {
    let mut python = bench.command(1, opencl_dir().join("venv/bin/python"));
    python
        .env("PYOPENCL_NO_CACHE", "1")
        .env("DEV", "CL")
        .env("HOME", bench.dir.path())
        .args(["-c", source]);
    run(&mut python)
}

#[test]
fn pyopencl_sees_the_slice_and_raises_its_own_error() {
    let _turn = crate::bench::turn();
    let bench = bench(512);
    let ran = python(
        &bench,
        "
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
held = []
try:
    while True: held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size=50 << 20))
except cl.MemoryError as error:
    print('full after', len(held), error)
",
    );
    for expected in [
        "sees 536870912",
        "sum 1024.0",
        "full after 10",
        "MEM_OBJECT_ALLOCATION_FAILURE",
    ] {
        assert!(ran.text.contains(expected), "{expected}: {}", ran.text);
    }
}

#[test]
fn tinygrad_computes_within_the_slice_and_raises_its_own_error() {
    let _turn = crate::bench::turn();
    let bench = bench(512);
    let ran = python(
        &bench,
        "
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
",
    );
    for expected in [
        "on CL",
        "sum 999000.0",
        "full after 10",
        "Allocation of 50.00 MB failed",
    ] {
        assert!(ran.text.contains(expected), "{expected}: {}", ran.text);
    }
}
