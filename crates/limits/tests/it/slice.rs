//! Slices come, grow, shrink, pause, end and go; a page says what it is.

use std::time::Duration;

use tenure_limits::{Counter, Device, Error, KERNELS, Lease, Process, Refused, SliceSpec};

use crate::worker::spec;

fn device() -> (tempfile::TempDir, std::path::PathBuf, Device) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device.limits");
    let device = Device::create(&path).unwrap();
    (dir, path, device)
}

#[test]
fn a_slice_is_charged_and_credited() {
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    let one = Process::join(&path, 7).unwrap();
    let two = Process::join(&path, 7).unwrap();
    one.charge(600).unwrap();
    match two.charge(500) {
        Err(Refused::OverLimit {
            limit: 1000,
            used: 600,
            asked: 500,
        }) => {}
        other => panic!("{other:?}"),
    }
    two.charge(400).unwrap();
    assert!(matches!(one.charge(u64::MAX), Err(Refused::OverLimit { .. })));
    assert!(matches!(one.credit(601), Err(Error::Overdrawn)));
    one.credit(600).unwrap();
    drop(two);
    let snapshot = device.snapshot().unwrap();
    let slice = snapshot.slice(7).unwrap();
    assert_eq!(
        (slice.used_bytes, slice.peak_bytes, slice.processes),
        (0, 1000, 1)
    );
    assert_eq!(
        slice.counter(Counter::Allocations),
        2,
        "the leaver's counters stay"
    );
    assert_eq!(slice.counter(Counter::Refusals), 2);
}

#[test]
fn resizing_down_keeps_what_is_used_and_gives_no_more() {
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    let process = Process::join(&path, 7).unwrap();
    process.charge(800).unwrap();
    let fit = device.resize(7, 500).unwrap();
    assert!(!fit.fits());
    assert_eq!(fit.used_bytes, 800);
    assert!(process.charge(1).is_err());
    process.credit(400).unwrap();
    process.charge(100).unwrap();
    assert!(process.charge(1).is_err());
    assert!(device.resize(7, 2000).unwrap().fits());
    process.charge(1500).unwrap();
}

#[test]
fn an_ended_slice_gives_nothing_and_its_place_is_not_inherited() {
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    assert!(matches!(device.add(spec(7, 1, 1)), Err(Error::Exists(7))));
    let process = Process::join(&path, 7).unwrap();
    process.charge(10).unwrap();
    assert!(matches!(device.remove(7), Err(Error::InUse { live: 1 })));
    device.end(7).unwrap();
    assert!(matches!(process.charge(10), Err(Refused::Unable(Error::Ended))));
    assert_eq!(process.acquire(Duration::ZERO), Lease::Ended);
    assert!(matches!(Process::join(&path, 7), Err(Error::Ended)));
    drop(process);
    device.remove(7).unwrap();
    assert!(matches!(Process::join(&path, 7), Err(Error::NoSlice(7))));
    device.add(spec(8, 1000, 500)).unwrap();
    assert_eq!(
        device
            .snapshot()
            .unwrap()
            .slice(8)
            .unwrap()
            .counter(Counter::Allocations),
        0
    );
}

#[test]
fn a_paused_slice_waits() {
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    let process = Process::join(&path, 7).unwrap();
    assert_eq!(process.acquire(Duration::ZERO), Lease::Held);
    device.pause(7, true).unwrap();
    assert!(!process.holds());
    assert_eq!(process.acquire(Duration::from_millis(20)), Lease::TimedOut);
    device.pause(7, false).unwrap();
    assert_eq!(process.acquire(Duration::from_millis(200)), Lease::Held);
    let snapshot = device.snapshot().unwrap();
    assert!(snapshot.slice(7).unwrap().counter(Counter::ThrottledNs) > 10_000_000);
    assert_eq!(snapshot.lease_holder, Some(7));
}

#[test]
fn tables_fill_and_say_so() {
    let (_dir, path, device) = device();
    for id in 1..=tenure_limits::SLICES as u64 {
        device.add(spec(id, 1, 1)).unwrap();
    }
    assert!(matches!(device.add(spec(999, 1, 1)), Err(Error::Full("slice"))));
    assert!(matches!(
        device.add(SliceSpec {
            id: 0,
            ..spec(1, 1, 1)
        }),
        Err(Error::NoSlice(0))
    ));
    assert!(matches!(Process::join(&path, 999), Err(Error::NoSlice(999))));
}

#[test]
fn a_page_is_checked_when_opened() {
    let (dir, path, device) = device();
    assert!(matches!(
        Device::create(&path),
        Err(Error::Io("name the limits page", _))
    ));
    device.add(spec(7, 1000, 500)).unwrap();
    drop(device);
    let again = Device::open(&path).unwrap();
    assert_eq!(again.snapshot().unwrap().slice(7).unwrap().limit_bytes, 1000);
    let whole = std::fs::read(&path).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        let other = dir.path().join("other");
        std::fs::write(&other, bytes).unwrap();
        Process::join(&other, 7).err().unwrap().to_string()
    };
    assert!(refused(&|bytes| bytes[0] ^= 1).contains("wrong magic"));
    assert!(refused(&|bytes| bytes[8] = 9).contains("version 9"));
    assert!(refused(&|bytes| bytes[12] ^= 1).contains("another layout"));
    assert!(refused(&|bytes| bytes.truncate(5000)).contains("too short"));
    assert!(
        Process::join(&dir.path().join("none"), 7)
            .err()
            .unwrap()
            .to_string()
            .contains("No such file")
    );
}

#[test]
fn an_inherited_descriptor_names_a_page() {
    use std::os::fd::AsRawFd;
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let name = format!("fd:{}", file.as_raw_fd());
    let process = Process::join(std::path::Path::new(&name), 7).unwrap();
    process.charge(5).unwrap();
    assert_eq!(device.audit_bytes(7).unwrap(), 5);
}

#[test]
fn kernels_are_counted_by_hash_up_to_the_tables_end() {
    let (_dir, path, device) = device();
    device.add(spec(7, 1000, 500)).unwrap();
    let one = Process::join(&path, 7).unwrap();
    let two = Process::join(&path, 7).unwrap();
    assert_eq!(one.kernel(77), two.kernel(77), "one kernel, one place");
    for _ in 0..3 {
        one.count_kernel(one.kernel(77));
        two.count_kernel(two.kernel(0));
    }
    for hash in 1000..1000 + KERNELS as u64 {
        one.count_kernel(one.kernel(hash));
    }
    drop((one, two));
    let reading = device.snapshot().unwrap().slice(7).unwrap().clone();
    assert_eq!(reading.kernels.len(), KERNELS);
    assert_eq!(reading.kernels[..2], [(77, 3), (1, 3)]);
    assert_eq!(
        reading.counter(Counter::OtherKernels),
        2,
        "the leaver's counts stay"
    );
    assert_eq!(reading.counter(Counter::Opens), 2);
    device.end(7).unwrap();
    device.remove(7).unwrap();
    device.add(spec(8, 1000, 500)).unwrap();
    assert_eq!(
        device.snapshot().unwrap().slice(8).unwrap().kernels,
        vec![],
        "nothing of the one before"
    );
}
