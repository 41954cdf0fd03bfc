//! The VRAM ledger while processes are killed anywhere: never a byte over the limit, nothing left behind.

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_limits::{Counter, Device, Error, Process, Refused};

use crate::worker::{self, Dice, SIGKILL, count, eventually, signal, spec};

const LIMIT: u64 = 1 << 30;

/// Allocates and frees at random until it is killed.
pub fn allocate(page: &Path, slice: u64, seed: u64) {
    let process = Process::join(page, slice).unwrap();
    let dice = Dice::new(seed);
    let mut held: Vec<u64> = Vec::new();
    loop {
        if dice.below(3) > 0 || held.is_empty() {
            let bytes = 1 + dice.below(LIMIT / 6);
            match process.charge(bytes) {
                Ok(()) => held.push(bytes),
                Err(Refused::OverLimit { limit, used, asked }) => {
                    assert!(limit == LIMIT && used <= limit && used + asked > limit);
                    if let Some(bytes) = held.pop() {
                        process.credit(bytes).unwrap();
                    }
                }
                Err(Refused::Unable(error)) => panic!("{error}"),
            }
        } else {
            let bytes = held.swap_remove(dice.below(held.len() as u64) as usize);
            process.credit(bytes).unwrap();
        }
    }
}

#[test]
fn never_over_the_limit_and_nothing_leaked() {
    let _turn = worker::turn();
    let kills = count("TENURE_LEDGER_KILLS", 300);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, LIMIT, 500)).unwrap();
    device.add(spec(2, 1000, 500)).unwrap();
    let bystander = Process::join(&path, 2).unwrap();
    bystander.charge(777).unwrap();

    let seeds = Dice::new(kills);
    let mut workers: Vec<_> = (0..8)
        .map(|seed| worker::start("allocate", &path, 1, seed))
        .collect();
    let (mut looks, mut full, mut counted) = (0u64, 0u64, 0);
    for kill in 0..kills {
        let until = Instant::now() + Duration::from_millis(2 + seeds.below(25));
        while Instant::now() < until {
            // Who holds the ledger may not be running just now, on a machine with much to do.
            let sum = match device.audit_bytes(1) {
                Err(Error::Busy) => continue,
                sum => sum.unwrap(),
            };
            assert!(sum <= LIMIT, "{sum} bytes in use, {LIMIT} allowed");
            looks += 1;
            full += u64::from(sum > LIMIT / 2);
        }
        let reading = device.snapshot().unwrap();
        let slice = reading.slice(1).unwrap();
        assert!(slice.peak_bytes <= LIMIT);
        if reading.settled {
            let now = slice.counter(Counter::Allocations);
            assert!(
                now >= counted,
                "the count of allocations went back from {counted} to {now}"
            );
            counted = now;
        }
        let victim = seeds.below(8) as usize;
        let fresh = worker::start("allocate", &path, 1, 100 + kill);
        worker::end(std::mem::replace(&mut workers[victim], fresh));
    }
    workers.into_iter().for_each(worker::end);
    device.reap();
    assert_eq!(device.audit_bytes(1).unwrap(), 0, "bytes were leaked");
    let reading = device.snapshot().unwrap();
    let slice = reading.slice(1).unwrap();
    assert_eq!((slice.used_bytes, slice.processes), (0, 0));
    assert!(slice.counter(Counter::Allocations) >= counted && counted > 10 * kills);
    assert!(
        looks > kills && full > 0,
        "the observer saw nothing: {looks} looks, {full} with the slice in use"
    );
    assert_eq!(reading.slice(2).unwrap().used_bytes, 777);
    println!(
        "{kills} kills, {} allocations, {looks} looks",
        slice.counter(Counter::Allocations)
    );
}

/// Charges and credits with nothing in between, so that a kill lands inside the ledger's lock often.
pub fn charge_without_end(page: &Path, slice: u64) {
    let process = Process::join(page, slice).unwrap();
    loop {
        process.charge(3).unwrap();
        process.credit(3).unwrap();
    }
}

/// Behind the header's five lines, where slices are aligned; and the lock's own line in a slice.
const SLICES_AT: u64 = 384;
const LOCK_AT: u64 = 64;

/// Where the lock word of the first slice stands: an observer outside the crate knows the layout.
fn lock_word(path: &Path) -> u32 {
    use std::os::unix::fs::FileExt;
    let mut word = [0; 4];
    std::fs::File::open(path)
        .unwrap()
        .read_exact_at(&mut word, SLICES_AT + LOCK_AT)
        .unwrap();
    u32::from_le_bytes(word)
}

#[test]
fn a_death_inside_the_ledger_is_repaired() {
    let _turn = worker::turn();
    let rounds = count("TENURE_LEDGER_KILLS", 300) / 3;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, LIMIT, 500)).unwrap();
    // It has its place already: claiming the dead one's would repair the lock by another rule.
    let survivor = Process::join(&path, 1).unwrap();
    let mut inside = 0;
    let mut round = 0;
    // On a loaded machine few kills land there: until one has, it goes on for a while.
    while round < rounds || inside == 0 && round < 20 * rounds {
        round += 1;
        let charged = || {
            let reading = device.snapshot().unwrap();
            reading.slice(1).unwrap().counter(Counter::Allocations)
        };
        let before = charged();
        let mut child = worker::start("hold-ledger", &path, 1, 0);
        eventually("the worker charges", Duration::from_secs(20), || {
            charged() > before + 1000
        });
        signal(&child, SIGKILL);
        child.wait().unwrap();
        inside += u64::from(lock_word(&path) != 0);
        let begun = Instant::now();
        survivor.charge(LIMIT).unwrap();
        assert!(
            begun.elapsed() < Duration::from_millis(500),
            "recovery took {:?}",
            begun.elapsed()
        );
        survivor.credit(LIMIT).unwrap();
        assert_eq!(device.audit_bytes(1).unwrap(), 0);
    }
    assert!(inside > 0, "no kill of {round} landed inside the lock");
    println!("{inside} of {round} deaths were inside the lock");
}

/// Charges, forks a child that stays, and stays itself until killed.
pub fn fork_and_stay(page: &Path, slice: u64) {
    let process = Process::join(page, slice).unwrap();
    process.charge(100).unwrap();
    unsafe extern "C" {
        fn fork() -> i32;
    }
    // SAFETY: the child only sleeps and uses the handle it must not be able to use.
    let child = unsafe { fork() };
    if child == 0 {
        let refused = process.charge(1).is_err() && process.credit(1).is_err() && !process.holds();
        std::thread::sleep(Duration::from_secs(if refused { 3 } else { 0 }));
        std::process::exit(0);
    }
    println!("child {child}");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_forked_child_does_not_keep_its_parents_bytes() {
    let _turn = worker::turn();
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, 100, 500)).unwrap();
    let mut parent = worker::start("fork", &path, 1, 0);
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let line = lines
        .map_while(Result::ok)
        .find(|line| line.contains("child "))
        .unwrap();
    let child: i32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    worker::end(parent);
    let process = Process::join(&path, 1).unwrap();
    process.charge(100).unwrap();
    let alive = std::path::Path::new(&format!("/proc/{child}")).exists();
    assert!(
        alive,
        "the child must outlive the parent for this to show anything"
    );
}
