//! Containment: whatever a program does to itself, its neighbour's results are byte-identical and its share intact.

use std::time::{Duration, Instant};

use tenure_limits::{Counter, SliceSpec};

use crate::bench::{Bench, MIB, spec};
use crate::cl::{Cl, SPIN};
use crate::share::{self, Program};
use crate::worker::{Worker, eventually, own, say, setting};

/// Half of the device is its own; on a machine with other work it cannot have much more of the time.
const ITS_SHARE: u64 = 500;
const FAULT: u64 = 0;
const FOREVER: u64 = 1;
/// A kernel that is short until the guard has stopped watching it closely.
const FOREVER_LATER: u64 = 2;

/// Launches a kernel that faults, or one that never ends.
pub fn misbehave() {
    let cl = Cl::open().unwrap();
    let context = cl.context();
    let queue = cl.queue(context, 0);
    let name = if setting("KIND") == FAULT {
        "fault"
    } else {
        "forever"
    };
    let kernel = cl.kernel(context, SPIN, name);
    let buffer = cl.buffer(context, 0, 4096).unwrap();
    cl.set_arg(kernel, 0, &buffer);
    if setting("KIND") == FOREVER_LATER {
        cl.set_arg(kernel, 1, &0u32);
        for _ in 0..200 {
            assert_eq!(cl.launch(queue, kernel, 1, 1, std::ptr::null_mut()), 0);
        }
        cl.finish(queue);
    }
    cl.set_arg(kernel, 1, &8u32);
    say("begun", "");
    assert_eq!(cl.launch(queue, kernel, 1, 1, std::ptr::null_mut()), 0);
    cl.finish(queue);
    say("ended", "");
}

const WORK: Program = Program {
    slice: 1,
    micros: 2_000,
    depth: 2,
};

/// What the steady program computes when it has the device to itself, without the layer.
fn undisturbed(bench: &Bench) -> String {
    let mut bare = std::process::Command::new(own());
    bench.vendor.prepare(&mut bare);
    let rounds = share::rounds_per_ms(bench.vendor) * WORK.micros / 1000;
    let settings = [
        ("ROUNDS", rounds.to_string()),
        ("DEPTH", "1".into()),
        ("MILLIS", "50".into()),
    ];
    let mut worker = Worker::start(bare, "share", &settings);
    worker.line("ready").unwrap();
    worker.tell("go");
    worker.line("digest").unwrap()
}

/// Runs the steady program for four seconds while `disturb` happens beside it; its digest, and its kernel time per
/// mille of the wall after the disturbance.
fn beside(bench: &Bench, disturb: impl FnOnce()) -> (String, u64) {
    let mut steady = share::start(bench, WORK, 4_000);
    steady.line("ready").unwrap();
    steady.tell("go");
    std::thread::sleep(Duration::from_millis(200));
    disturb();
    // The best of three windows: the machine may be doing other things, a neighbour that was harmed has none.
    let share = (0..3).map(|_| {
        let (begun, before) = (Instant::now(), bench.counter(1, Counter::BusyNs));
        std::thread::sleep(Duration::from_millis(400));
        let used = bench.counter(1, Counter::BusyNs) - before;
        used * 1000 / begun.elapsed().as_nanos() as u64
    });
    let share = share.max().unwrap_or(0);
    (steady.line("digest").unwrap(), share)
}

fn bench(kernel_limit: Option<Duration>) -> Bench {
    let limited = SliceSpec {
        kernel_limit_ns: kernel_limit.map(|limit| limit.as_nanos() as u64),
        ..spec(2, 100 * MIB, 500)
    };
    Bench::new(&[spec(1, 100 * MIB, 500), limited])
}

#[test]
fn a_kernel_that_faults_ends_its_own_process_only() {
    let _turn = crate::bench::turn();
    let bench = bench(None);
    let (digest, share) = beside(&bench, || {
        let mut bad = Worker::start(
            bench.command(2, own()),
            "misbehave",
            &[("KIND", FAULT.to_string())],
        );
        bad.line("begun").unwrap();
        assert_eq!(bad.line("ended"), None);
        assert_eq!(bad.end().0, None, "ended by a signal");
    });
    assert_eq!(digest, undisturbed(&bench));
    assert!(share > ITS_SHARE, "the neighbour has {share} ‰ afterwards");
    bench.device.reap();
    assert_eq!(bench.reading(2).used_bytes, 0);
}

#[test]
fn a_kernel_that_never_ends_is_ended_with_its_process() {
    let _turn = crate::bench::turn();
    for kind in [FOREVER, FOREVER_LATER] {
        let bench = bench(Some(Duration::from_millis(400)));
        let (digest, share) = beside(&bench, || {
            let mut bad = Worker::start(
                bench.command(2, own()),
                "misbehave",
                &[("KIND", kind.to_string())],
            );
            bad.line("begun").unwrap();
            let begun = Instant::now();
            let (code, said) = bad.end();
            let took = begun.elapsed();
            assert_eq!(code, Some(tenure_guard::EXIT_OVER_TIME), "{said}");
            assert!(
                said.contains("over the limit of 400 ms; the process is ended"),
                "{said}"
            );
            assert!(took < Duration::from_secs(5), "{took:?}");
        });
        assert_eq!(digest, undisturbed(&bench));
        assert!(share > ITS_SHARE, "the neighbour has {share} ‰ afterwards");
    }
}

#[test]
fn a_process_over_its_device_time_is_ended() {
    let _turn = crate::bench::turn();
    let limited = SliceSpec {
        process_limit_ns: Some(300_000_000),
        ..spec(1, 100 * MIB, 500)
    };
    let bench = Bench::new(&[limited]);
    let mut worker = share::start(&bench, WORK, 5_000);
    worker.line("ready").unwrap();
    worker.tell("go");
    let (code, said) = worker.end();
    assert_eq!(code, Some(tenure_guard::EXIT_OVER_TIME), "{said}");
}

#[test]
fn a_holder_killed_or_stopped_starves_nobody() {
    let _turn = crate::bench::turn();
    let bench = bench(None);
    let digest = undisturbed(&bench);
    for signal in ["-KILL", "-STOP"] {
        let mut worst = Duration::ZERO;
        // Stopped or dead, it stays so while the neighbour is watched.
        let mut stays = None;
        let (found, share) = beside(&bench, || {
            let mut other = share::start(&bench, Program { slice: 2, ..WORK }, 60_000);
            other.line("ready").unwrap();
            other.tell("go");
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(60));
                eventually("the other holds the lease", Duration::from_secs(5), || {
                    bench.device.snapshot().unwrap().lease_holder == Some(2)
                });
                other.signal("-STOP");
                let launched = bench.counter(1, Counter::Launches);
                let begun = Instant::now();
                eventually("the neighbour goes on", Duration::from_secs(5), || {
                    bench.counter(1, Counter::Launches) > launched
                });
                worst = worst.max(begun.elapsed());
                other.signal("-CONT");
            }
            other.signal(signal);
            stays = Some(other);
        });
        drop(stays);
        println!("{signal}: the neighbour waits at worst {worst:?}, then has {share} ‰");
        assert!(worst < Duration::from_secs(1), "{worst:?}");
        assert_eq!(found, digest);
        assert!(share > ITS_SHARE, "the neighbour has {share} ‰ afterwards");
    }
}
