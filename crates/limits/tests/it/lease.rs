//! The lease between processes that pretend to work: shares, caps, the dead, the stopped and the idle.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use tenure_limits::{Counter, Device, Lease, Process, SliceSpec, Turn, now_ns};

use crate::worker::{self, SIGCONT, SIGSTOP, eventually, signal, spec};

/// Pretends to run kernels of `micros` under the lease, until killed. Sleeping is the pretended device's work: it does
/// not depend on how many processors the machine has.
pub fn work(page: &Path, slice: u64, micros: u64) {
    let process = Process::join(page, slice).unwrap();
    loop {
        let now = now_ns();
        if process.holds() && process.turn_over(now) {
            process.pass(now, true);
        }
        match process.acquire(Duration::from_secs(1)) {
            Lease::Held => {}
            Lease::TimedOut => continue,
            Lease::Ended => return,
        }
        let begun = now_ns();
        let mut left = micros;
        while left > 0 {
            // The guard's keeper renews while a kernel runs.
            let step = left.min(10_000);
            std::thread::sleep(Duration::from_micros(step));
            process.renew(now_ns());
            left -= step;
        }
        let ended = now_ns();
        process.spend(ended - begun.max(process.settled_until()), ended);
        process.count(Counter::Launches, 1);
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    path: std::path::PathBuf,
    device: Device,
    workers: Vec<Child>,
}

impl Bench {
    fn new(slices: &[SliceSpec]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device.limits");
        let device = Device::create(&path).unwrap();
        slices.iter().for_each(|slice| device.add(*slice).unwrap());
        Bench {
            _dir: dir,
            path,
            device,
            workers: Vec::new(),
        }
    }

    fn work(&mut self, slice: u64, micros: u64) {
        self.workers
            .push(worker::start("work", &self.path, slice, micros));
        eventually("the worker launches", Duration::from_secs(20), || {
            self.device.reap();
            self.counter(slice, Counter::Launches) > 0
        });
    }

    fn counter(&self, slice: u64, counter: Counter) -> u64 {
        self.device
            .snapshot()
            .unwrap()
            .slice(slice)
            .unwrap()
            .counter(counter)
    }

    /// Device time each slice used over `time`, in per mille of all that was used, and of the wall.
    fn shares(&self, slices: &[u64], time: Duration) -> (Vec<f64>, f64) {
        let busy = || {
            slices
                .iter()
                .map(|id| self.counter(*id, Counter::BusyNs))
                .collect::<Vec<_>>()
        };
        let (begun, before) = (Instant::now(), busy());
        std::thread::sleep(time);
        let used: Vec<f64> = busy()
            .iter()
            .zip(&before)
            .map(|(now, then)| (now - then) as f64)
            .collect();
        let wall = begun.elapsed().as_nanos() as f64;
        let all: f64 = used.iter().sum();
        (
            used.iter().map(|used| used * 1000.0 / all).collect(),
            all * 1000.0 / wall,
        )
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.workers.drain(..).for_each(worker::end);
    }
}

/// Looks up to three times: the machine may be doing other things, but a broken lease misses every time.
fn close(what: &str, expected: f64, tolerance: f64, mut look: impl FnMut() -> f64) {
    let mut found = Vec::new();
    while found.len() < 3 {
        found.push(look());
        if found
            .last()
            .is_some_and(|last| (last - expected).abs() <= tolerance)
        {
            return;
        }
    }
    panic!("{what}: {found:.1?} ‰, expected {expected} ± {tolerance}");
}

#[test]
fn shares_follow_weights_short_against_long() {
    let _turn = worker::turn();
    let mut bench = Bench::new(&[spec(1, 0, 300), spec(2, 0, 700)]);
    bench.work(1, 500);
    bench.work(2, 15_000);
    close("the slice of 30 %", 300.0, 20.0, || {
        let (shares, busy) = bench.shares(&[1, 2], Duration::from_secs(4));
        println!("30/70, 0.5 ms against 15 ms: {shares:.1?}, busy {busy:.0} ‰");
        if busy > 900.0 { shares[0] } else { 0.0 }
    });
}

#[test]
fn two_processes_of_one_slice_share_its_part() {
    let _turn = worker::turn();
    let mut bench = Bench::new(&[spec(1, 0, 500), spec(2, 0, 500)]);
    bench.work(1, 1_000);
    bench.work(1, 1_000);
    bench.work(2, 1_000);
    close("the slice of two", 500.0, 20.0, || {
        let (shares, _) = bench.shares(&[1, 2], Duration::from_secs(3));
        println!("two processes against one: {shares:.1?}");
        shares[0]
    });
}

#[test]
fn a_cap_holds_alone_and_the_rest_goes_to_others() {
    let _turn = worker::turn();
    let capped = SliceSpec {
        cap_per_mille: Some(250),
        ..spec(1, 0, 900)
    };
    let mut bench = Bench::new(&[capped, spec(2, 0, 100)]);
    bench.work(1, 3_000);
    close("the cap alone", 250.0, 15.0, || {
        let (_, busy) = bench.shares(&[1], Duration::from_secs(3));
        println!("cap 25 % alone: busy {busy:.1} ‰");
        busy
    });
    bench.work(2, 3_000);
    close("the cap beside an eager one", 250.0, 20.0, || {
        let (shares, busy) = bench.shares(&[1, 2], Duration::from_secs(3));
        println!("cap 25 % against an eager one: {shares:.1?}, busy {busy:.0} ‰");
        if busy > 900.0 { shares[0] } else { 0.0 }
    });
    assert!(bench.counter(1, Counter::ThrottledNs) > 1_000_000_000);
}

#[test]
fn a_stopped_holder_starves_nobody() {
    let _turn = worker::turn();
    let mut bench = Bench::new(&[spec(1, 0, 500), spec(2, 0, 500)]);
    bench.work(1, 2_000);
    bench.work(2, 2_000);
    let mut worst = Duration::ZERO;
    let mut busy_beside = Vec::new();
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(15 + round));
        eventually("slice 1 holds", Duration::from_secs(5), || {
            bench.device.snapshot().unwrap().lease_holder == Some(1)
        });
        signal(&bench.workers[0], SIGSTOP);
        let launched = bench.counter(2, Counter::Launches);
        let begun = Instant::now();
        eventually("the other goes on", Duration::from_secs(5), || {
            bench.counter(2, Counter::Launches) > launched
        });
        worst = worst.max(begun.elapsed());
        // And it keeps the device: the stopped one is not asked again and again.
        busy_beside.push(bench.shares(&[2], Duration::from_millis(200)).1);
        signal(&bench.workers[0], SIGCONT);
    }
    println!("takeover from a stopped holder: at worst {worst:?}");
    // Whatever else runs on the machine disturbs some rounds; asking again and again disturbs them all.
    busy_beside.sort_by(f64::total_cmp);
    let median = busy_beside[busy_beside.len() / 2];
    assert!(
        median > 700.0,
        "beside a stopped process the other gets {median:.0} ‰"
    );
    assert!(worst < Duration::from_secs(1), "{worst:?}");
    close("after it goes on, its share", 500.0, 40.0, || {
        bench.shares(&[1, 2], Duration::from_secs(2)).0[0]
    });
}

#[test]
fn a_killed_holder_starves_nobody_and_its_use_is_charged() {
    let _turn = worker::turn();
    let mut bench = Bench::new(&[spec(1, 0, 500), spec(2, 0, 500)]);
    bench.work(2, 2_000);
    for _ in 0..10 {
        bench.work(1, 5_000);
        eventually("slice 1 holds", Duration::from_secs(5), || {
            bench.device.snapshot().unwrap().lease_holder == Some(1)
        });
        let victim = bench.workers.pop().unwrap();
        signal(&victim, worker::SIGKILL);
        let launched = bench.counter(2, Counter::Launches);
        let begun = Instant::now();
        eventually("the other goes on", Duration::from_secs(5), || {
            bench.counter(2, Counter::Launches) > launched
        });
        assert!(
            begun.elapsed() < Duration::from_millis(100),
            "{:?}",
            begun.elapsed()
        );
        worker::end(victim);
    }
}

#[test]
fn idleness_buys_nothing() {
    let _turn = worker::turn();
    let mut bench = Bench::new(&[spec(1, 0, 500), spec(2, 0, 500)]);
    bench.work(1, 2_000);
    std::thread::sleep(Duration::from_secs(2));
    bench.work(2, 2_000);
    let begun = bench.shares(&[1, 2], Duration::from_secs(2)).0[1];
    println!("after 2 s alone: {begun:.1} ‰");
    // Only this first look counts: saved-up idleness is spent at once.
    assert!((begun - 500.0).abs() <= 60.0, "the newcomer: {begun:.1} ‰");
}

#[test]
fn a_turn_passes_and_stays() {
    let _turn = worker::turn();
    let bench = Bench::new(&[spec(1, 0, 500), spec(2, 0, 500)]);
    let one = Process::join(&bench.path, 1).unwrap();
    let two = Process::join(&bench.path, 2).unwrap();
    assert_eq!(one.acquire(Duration::ZERO), Lease::Held);
    assert_eq!(one.pass(now_ns(), true), Turn::Kept, "nobody else wants it");
    assert_eq!(two.acquire(Duration::ZERO), Lease::TimedOut);
    one.spend(20_000_000, now_ns());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| two.acquire(Duration::from_secs(1)));
        eventually("the other waits", Duration::from_secs(1), || one.others_wait());
        assert_eq!(one.pass(now_ns(), false), Turn::Passed);
        assert_eq!(waiter.join().unwrap(), Lease::Held);
    });
    assert!(!one.holds() && two.holds());
    assert!(!one.renew(now_ns()) && two.renew(now_ns()));
    drop(two);
    assert_eq!(
        one.acquire(Duration::ZERO),
        Lease::Held,
        "a leaver frees the device"
    );
}
