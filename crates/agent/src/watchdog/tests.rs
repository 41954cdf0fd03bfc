//! A laid-out `/proc`, a page with one slice, and what is said of it.

use std::fs;

use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::Hardware;
use tenure_limits::{Device as Page, SliceSpec};

use super::*;

const NONE: [u64; 0] = [];
const SLOT: &str = "0000:10:00.0";

struct Bench {
    root: tempfile::TempDir,
    page: Page,
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
        let page = Page::create(&root.path().join("page")).unwrap();
        for id in [7, 8] {
            page.add(SliceSpec {
                id,
                limit_bytes: 100 * MIB,
                weight_per_mille: 300,
                cap_per_mille: None,
                kernel_limit_ns: None,
                process_limit_ns: None,
            })
            .unwrap();
        }
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
        Bench { root, page, found }
    }

    fn holds(&self, pid: i32, mib: u64) {
        let dir = self.root.path().join(format!("proc/{pid}/fdinfo"));
        fs::create_dir_all(&dir).unwrap();
        let text = format!("drm-pdev: {SLOT}\ndrm-client-id: {pid}\ndrm-resident-vram: {mib} MiB\n");
        fs::write(dir.join("5"), text).unwrap();
    }

    fn look(&self, dog: &Watchdog, nvidia: Option<&(Instant, ByProcess)>) -> Vec<u64> {
        let pages = [SharedReading {
            uuid: "GPU-1".into(),
            snapshot: self.page.snapshot().unwrap(),
        }];
        let over = dog.look(&self.found, &pages, nvidia, self);
        over.into_iter().map(|(id, _)| id.0).collect()
    }

    fn dog(&self) -> Watchdog {
        Watchdog::new(self.root.path().to_owned(), 10 * MIB, None)
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
