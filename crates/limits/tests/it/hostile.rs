//! Any content of the page: the agent's side answers, never crashes, never hangs.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use tenure_limits::{Device, Error, Process, Reader, SLOTS};

use crate::worker::{self, Dice, count, spec};

#[test]
fn the_agent_survives_any_content() {
    let _turn = worker::turn();
    let rounds = count("TENURE_PAGE_FUZZ", 150);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, 1 << 30, 500)).unwrap();
    let process = Process::join(&path, 1).unwrap();
    process.charge(1000).unwrap();
    let good = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for round in 0..rounds {
        let dice = Dice::new(round);
        let mut bytes = good.clone();
        // All kinds: a few words, a whole region, everything but the header.
        let (first, words) = match round % 4 {
            0 => (16, 20),
            1 => (64, 400),
            2 => (4096, 4000),
            _ => (16, good.len() / 8),
        };
        for _ in 0..words {
            let at = first + 8 * dice.below(((bytes.len() - first) / 8) as u64) as usize;
            let value = match dice.below(4) {
                0 => u64::MAX,
                1 => dice.below(300),
                2 => 1 << dice.below(64),
                _ => dice.below(u64::MAX),
            };
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        file.write_all_at(&bytes, 0).unwrap();
        let begun = Instant::now();
        let snapshot = Reader::open(&path).unwrap().snapshot().unwrap();
        assert!(snapshot.slices.len() <= tenure_limits::SLICES);
        let _ = device.resize(1, 5);
        let _ = device.end(1);
        let _ = device.audit_bytes(1);
        let _ = device.remove(1);
        let _ = device.add(spec(900 + round, 1, 1));
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "round {round} took {took:?}");
        if round % 8 == 0 {
            device.reap();
            let _ = process.charge(1);
            let _ = process.acquire(Duration::from_millis(5));
            let _ = process.credit(1);
        }
    }
    let took = |begun: Instant| assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let begun = Instant::now();
    device.reap();
    took(begun);
}

#[test]
fn a_page_cut_short_is_an_error() {
    let _turn = worker::turn();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, 1 << 30, 500)).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(100)
        .unwrap();
    assert!(device.snapshot().is_err());
    assert!(device.resize(1, 5).is_err());
    assert!(device.add(spec(2, 1, 1)).is_err());
    assert_eq!(device.reap(), 0);
    // Dropping the agent's handle touches no mapped byte.
    drop(device);
}

/// Cut short between the look at its length and the touch, the page would end whoever touches it.
#[test]
fn a_page_cut_short_ends_nobody_who_asked_to_outlive_it() {
    let _turn = worker::turn();
    tenure_limits::outlive_cut_pages();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, 1 << 30, 500)).unwrap();
    let process = Process::join(&path, 1).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(0).unwrap();
    // No length is looked at on this way.
    assert!(process.charge(5).is_err());
    drop(process);
    assert!(!device.has_its_length());
    device.mend();
    assert!(device.has_its_length());
    // It starts anew with nothing on it, for whoever opens it now.
    let again = Device::open(&path).unwrap();
    again.add(spec(1, 1 << 20, 500)).unwrap();
    assert_eq!(again.snapshot().unwrap().slice(1).unwrap().limit_bytes, 1 << 20);
    file.set_len(1 << 20).unwrap();
    assert!(!again.has_its_length());
    again.mend();
    assert!(again.has_its_length() && again.resize(1, 7).unwrap().fits());
}

/// Whoever has a page open can lock all places of it at once.
#[test]
fn nobody_keeps_the_agent_off_its_page() {
    let _turn = worker::turn();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    device.add(spec(1, 1 << 30, 500)).unwrap();
    drop(device);
    let held = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    // SAFETY: an all-zero flock is valid, and the pointer is to a live one.
    let locked = unsafe {
        let mut all: libc::flock = std::mem::zeroed();
        all.l_type = libc::F_WRLCK as i16;
        all.l_start = 1 << 40;
        all.l_len = SLOTS as i64;
        libc::fcntl(held.as_raw_fd(), libc::F_OFD_SETLK, &all)
    };
    assert_eq!(locked, 0);
    assert!(matches!(Process::join(&path, 1), Err(Error::Full(_))));
    let device = Device::open(&path).unwrap();
    assert!(device.resize(1, 5).unwrap().fits());
    drop(held);
    device.reap();
    assert!(Process::join(&path, 1).is_ok());
}
