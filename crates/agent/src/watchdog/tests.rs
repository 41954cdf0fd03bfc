//! A laid-out `/proc`, a device with two slices, and what is said of it.

use std::fs;
use std::path::Path;

use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::Hardware;

use super::*;

const NONE: [u64; 0] = [];
const SLOT: &str = "0000:10:00.0";

fn given() -> [Given; 2] {
    [7, 8].map(|id| Given {
        uuid: "GPU-1".into(),
        allocation: AllocationId(id),
        limit_bytes: 100 * MIB,
        weight_per_mille: 300,
    })
}

struct Bench {
    root: tempfile::TempDir,
    found: Found,
}

impl Jobs for Bench {
    fn processes_with_drivers(&self, id: AllocationId) -> Vec<i32> {
        self.processes(id)
    }

    fn processes(&self, id: AllocationId) -> Vec<i32> {
        if id.0 == 7 { vec![11, 12] } else { vec![13] }
    }
}

impl Bench {
    /// Two slices of 100 MiB: 7 has processes 11 and 12, 8 has 13.
    fn new() -> Bench {
        let root = tempfile::tempdir().unwrap();
        let facts = GpuFacts {
            uuid: "GPU-1".into(),
            vendor: String::new(),
            model: String::new(),
            class: "MI300".into(),
            vram_mib: 1000,
            isolation: BTreeMap::new(),
            hardware: Some(Box::new(Hardware {
                pci: Some(SLOT.into()),
                ..Hardware::default()
            })),
        };
        let found = Found {
            devices: vec![Device {
                facts,
                opencl: None,
                files: vec![],
                memory_wall: None,
                flaw: None,
            }],
            ..Found::default()
        };
        Bench { root, found }
    }

    fn holds(&self, pid: i32, mib: u64) {
        let dir = self.root.path().join(format!("proc/{pid}/fdinfo"));
        fs::create_dir_all(&dir).unwrap();
        let text = format!("drm-pdev: {SLOT}\ndrm-client-id: {pid}\ndrm-resident-vram: {mib} MiB\n");
        fs::write(dir.join("5"), text).unwrap();
    }

    fn look(&self, dog: &Watchdog, nvidia: Option<&(Instant, ByProcess)>) -> Vec<u64> {
        let over = dog.look(&self.found, &given(), nvidia, self);
        over.into_iter().map(|(id, _)| id.0).collect()
    }

    fn dog(&self) -> Watchdog {
        Watchdog::new(self.root.path().to_owned(), 10 * MIB, None, Vec::new())
    }
}

#[test]
fn what_holds_more_than_its_slice_twice_in_a_row_is_named() {
    let bench = Bench::new();
    let dog = bench.dog();
    bench.holds(11, 60);
    bench.holds(12, 60);
    bench.holds(13, 110);
    // 100 MiB, and 10 for each process.
    assert_eq!(bench.look(&dog, None), NONE);
    assert_eq!(bench.look(&dog, None), NONE);
    bench.holds(12, 61);
    assert_eq!(bench.look(&dog, None), NONE, "once may be a moment");
    bench.holds(12, 60);
    assert_eq!(bench.look(&dog, None), NONE);
    bench.holds(12, 61);
    assert_eq!(bench.look(&dog, None), NONE, "not in a row");
    assert_eq!(bench.look(&dog, None), [7]);
}

#[test]
fn a_driver_that_says_the_same_again_is_one_reading() {
    let bench = Bench::new();
    let dog = bench.dog();
    let told = |at| {
        (
            at,
            ByProcess::from([("GPU-1".into(), vec![(13, 200 * MIB), (99, 900 * MIB)])]),
        )
    };
    let first = told(Instant::now());
    for _ in 0..5 {
        assert_eq!(bench.look(&dog, Some(&first)), NONE);
    }
    let second = told(Instant::now());
    assert_eq!(
        bench.look(&dog, Some(&second)),
        [8],
        "a stranger's memory is nobody's here"
    );
}

/// Many processes with as many mappings as a process may have, and the neighbour's one that is past the guard.
struct Crowd(Bench);

impl Jobs for Crowd {
    fn processes_with_drivers(&self, id: AllocationId) -> Vec<i32> {
        if id.0 == 7 {
            (1000..4000).collect()
        } else {
            vec![13]
        }
    }

    fn processes(&self, id: AllocationId) -> Vec<i32> {
        self.processes_with_drivers(id)
    }
}

#[test]
fn a_crowd_hides_nobody_and_does_not_last() {
    let crowd = Crowd(Bench::new());
    let root = crowd.0.root.path();
    let proc = root.join("proc");
    fs::create_dir_all(proc.join("1000")).unwrap();
    let areas: String = (0..60_000)
        .map(|at| format!("{at:x}000-{at:x}fff rw-p 00000000 00:00 0 \n"))
        .collect();
    fs::write(proc.join("1000/maps"), areas).unwrap();
    for pid in 1001..4000 {
        std::os::unix::fs::symlink("1000", proc.join(pid.to_string())).unwrap();
    }
    fs::create_dir_all(root.join("etc/OpenCL/vendors")).unwrap();
    fs::write(root.join("etc/OpenCL/vendors/one.icd"), "libone.so.1\n").unwrap();
    fs::create_dir_all(proc.join("13")).unwrap();
    fs::write(
        proc.join("13/maps"),
        "1000-2000 r-xp 00000000 fd:00 1 /usr/lib/libone.so.1\n",
    )
    .unwrap();
    let dog = Watchdog {
        look: Duration::from_millis(2),
        ..crowd.0.dog()
    };
    let ended = |dog: &Watchdog| -> Vec<u64> {
        let ended = dog.past_the_guard(&crowd.0.found, &given(), &crowd);
        ended.into_iter().map(|(id, _)| id.0).collect()
    };
    // In far fewer looks than it takes to see the crowd once.
    let begun = Instant::now();
    let mut looks = 0;
    let first = loop {
        looks += 1;
        let ended = ended(&dog);
        if !ended.is_empty() || begun.elapsed() > Duration::from_secs(60) {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(first, [8], "after {looks} looks");
    assert!(looks < UNSEEN, "{looks} looks");
    let all = (looks..=UNSEEN + 1).flat_map(|_| ended(&dog));
    assert!(
        all.collect::<Vec<_>>().contains(&7),
        "whoever cannot be watched is ended"
    );
}

/// A driver under any name, or none at all: what it cannot do without is its device's file.
#[test]
fn whoever_has_a_shared_devices_file_without_the_guard_is_past_it() {
    let mut bench = Bench::new();
    let root = bench.root.path().to_owned();
    let (gpu, other) = (root.join("dev/nvidia0"), root.join("dev/nvidia1"));
    fs::create_dir_all(root.join("dev")).unwrap();
    for (file, minor) in [(&gpu, 0), (&other, 1)] {
        let (kind, mode) = (rustix::fs::FileType::CharacterDevice, 0o600.into());
        rustix::fs::mknodat(rustix::fs::CWD, file, kind, mode, rustix::fs::makedev(195, minor)).unwrap();
    }
    bench.found.devices[0].files = vec![gpu.clone()];
    let facts = fs::metadata(&gpu).unwrap();
    use std::os::unix::fs::MetadataExt;
    let (major, minor) = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
    let mapped = format!(
        "1000-2000 rw-s 00000000 {major:02x}:{minor:02x} {} /dev/nvidia0\n",
        facts.ino()
    );
    let process = |pid: i32, maps: &str, open: &Path| {
        let dir = root.join(format!("proc/{pid}"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::write(dir.join("maps"), maps).unwrap();
        std::os::unix::fs::symlink(open, dir.join("fd/3")).unwrap();
    };
    let guard = "3000-4000 r-xp 00000000 fd:00 2 /run/tenure/libtenure_guard.so\n";
    let dog = Watchdog {
        guard: Mapping::read("fd:00 2"),
        ..bench.dog()
    };
    // What is past the guard by the clock is ended: so long nobody is to wait here.
    let note = |dog: &Watchdog| {
        dog.past_the_guard(&bench.found, &given(), &bench);
        let past = dog.past.lock().unwrap();
        past[&AllocationId(8)].notes()
    };
    process(11, "", Path::new("/dev/null"));
    process(12, "", Path::new("/dev/null"));
    process(13, "", &other);
    assert_eq!(note(&dog), [""; 0], "another device's file is no concern of it");
    process(13, "", &gpu);
    assert_eq!(
        note(&dog),
        [format!("used the device's file {} past the guard", gpu.display())]
    );
    process(13, &mapped, Path::new("/dev/null"));
    assert_eq!(note(&dog), ["used the device's file /dev/nvidia0 past the guard"]);
    process(13, &format!("{mapped}{guard}"), &gpu);
    assert_eq!(note(&dog), [""; 0], "the guard is there");
    // Walls of another kind stand between programs of one tenant.
    process(13, &mapped, &gpu);
    let hardware = bench.found.devices[0].facts.hardware.as_mut().unwrap();
    hardware.one_tenant = true;
    assert_eq!(dog.past_the_guard(&bench.found, &given(), &bench), []);
    assert!(dog.past.lock().unwrap().is_empty());
}
