//! Readings of pages with processes on them, and of laid-out device directories.

use std::fs;
use std::path::Path;

use tenure_api::channel::reading::{SliceUse, Throttle};
use tenure_domain::schedule::fleet::GpuFacts;
use tenure_limits::{Device as Page, Process, SliceSpec};

use super::*;
use crate::discover::Device;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A page with a slice, and a process on it.
struct Bench {
    _dir: tempfile::TempDir,
    page: Page,
    process: Process,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page");
        let page = Page::create(&path).unwrap();
        page.add(SliceSpec {
            id: 7,
            limit_bytes: 64 * MIB,
            weight_per_mille: 300,
            cap_per_mille: None,
            kernel_limit_ns: None,
            process_limit_ns: None,
        })
        .unwrap();
        let process = Process::join(&path, 7).unwrap();
        Bench {
            _dir: dir,
            page,
            process,
        }
    }

    fn pages(&self) -> Vec<SharedReading> {
        vec![SharedReading {
            uuid: "GPU-1".into(),
            snapshot: self.page.snapshot().unwrap(),
        }]
    }
}

fn only_slice(telemetry: &Telemetry) -> SliceUse {
    telemetry.readings()[0].slices[0].use_now.clone()
}

#[test]
fn shares_are_of_the_time_between_looks() {
    let bench = Bench::new();
    let telemetry = Telemetry::default();
    let found = Found::default();
    let at = 100 * SECOND;
    bench.process.count(Counter::BusyNs, 900 * SECOND);
    telemetry.measure(&found, &bench.pages(), at);
    let first = only_slice(&telemetry);
    assert_eq!(
        (first.busy_permille, first.launches_per_s),
        (None, None),
        "what was counted before anybody looked happened at no known time"
    );
    assert_eq!(telemetry.usage(AllocationId(7)).unwrap().busy_ms, 900_000);
    bench.process.count(Counter::BusyNs, SECOND / 2);
    bench.process.count(Counter::ThrottledNs, SECOND / 10);
    bench.process.count(Counter::Launches, 40);
    telemetry.measure(&found, &bench.pages(), at + SECOND);
    let second = only_slice(&telemetry);
    assert_eq!(second.busy_permille, Some(500));
    assert_eq!(second.throttled_permille, Some(100));
    assert_eq!(second.waited_permille, Some(0));
    assert_eq!(second.launches_per_s, Some(40));
    // Two seconds are looked at together, then the oldest falls out.
    telemetry.measure(&found, &bench.pages(), at + 2 * SECOND);
    assert_eq!(only_slice(&telemetry).busy_permille, Some(250));
    telemetry.measure(&found, &bench.pages(), at + 3 * SECOND);
    assert_eq!(only_slice(&telemetry).busy_permille, Some(0));
    // A long kernel is counted when it ends, and is not more than all of the time.
    bench.process.count(Counter::BusyNs, 20 * SECOND);
    telemetry.measure(&found, &bench.pages(), at + 4 * SECOND);
    assert_eq!(only_slice(&telemetry).busy_permille, Some(1000));
    assert_eq!(telemetry.readings()[0].gauges.busy_permille, Some(1000));
}

#[test]
fn an_agent_started_anew_sees_no_spike() {
    let bench = Bench::new();
    let found = Found::default();
    bench.process.count(Counter::BusyNs, 3600 * SECOND);
    let anew = Telemetry::default();
    anew.measure(&found, &bench.pages(), SECOND);
    assert_eq!(only_slice(&anew).busy_permille, None);
    bench.process.count(Counter::BusyNs, SECOND / 4);
    anew.measure(&found, &bench.pages(), 2 * SECOND);
    assert_eq!(only_slice(&anew).busy_permille, Some(250));
    assert_eq!(
        anew.usage(AllocationId(7)).unwrap().busy_ms,
        3_600_250,
        "nothing counted before is lost"
    );
}

#[test]
fn a_count_that_went_back_gives_no_share() {
    let (old, new) = (Bench::new(), Bench::new());
    let telemetry = Telemetry::default();
    old.process.count(Counter::BusyNs, 5 * SECOND);
    telemetry.measure(&Found::default(), &old.pages(), SECOND);
    // Another slice of the same number.
    telemetry.measure(&Found::default(), &new.pages(), 2 * SECOND);
    assert_eq!(only_slice(&telemetry).busy_permille, None);
}

#[test]
fn memory_is_rounded_up() {
    let bench = Bench::new();
    let telemetry = Telemetry::default();
    bench.process.charge(3 * MIB + 1).unwrap();
    bench.process.credit(3 * MIB).unwrap();
    telemetry.measure(&Found::default(), &bench.pages(), 1);
    let reading = only_slice(&telemetry);
    assert_eq!(
        (
            reading.used_vram_mib,
            reading.peak_vram_mib,
            reading.limit_vram_mib
        ),
        (1, 4, 64)
    );
    assert_eq!(telemetry.readings()[0].gauges.used_vram_mib, Some(1));
    assert_eq!(telemetry.usage(AllocationId(7)).unwrap().peak_vram_mib, 4);
    assert_eq!(telemetry.usage(AllocationId(8)), None);
}

fn lay(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn an_amd_device_is_read() {
    let dir = tempfile::tempdir().unwrap();
    lay(
        dir.path(),
        &[
            ("gpu_busy_percent", "37\n"),
            ("mem_info_vram_used", "1073741825\n"),
            ("hwmon/hwmon3/temp1_input", "61250\n"),
            ("hwmon/hwmon3/power1_average", "215000000\n"),
            ("hwmon/hwmon3/temp3_input", "58000\n"),
            ("hwmon/hwmon3/freq1_input", "1420000000\n"),
            ("hwmon/hwmon3/freq2_input", "900000000\n"),
            ("mem_busy_percent", "12\n"),
            ("pcie_replay_count", "4\n"),
            ("ras/umc_err_count", "ue: 1\nce: 20\n"),
            ("ras/gfx_err_count", "ue: 2\nce: 3\n"),
            ("ras/features", "feature mask: 0x1\n"),
        ],
    );
    let gauges = sysfs::read(dir.path());
    assert_eq!(
        gauges,
        Gauges {
            busy_permille: Some(370),
            used_vram_mib: Some(1025),
            temperature_c: Some(61),
            power_mw: Some(215_000),
            ecc_corrected: Some(23),
            ecc_uncorrected: Some(3),
            sm_clock_mhz: Some(1420),
            memory_clock_mhz: Some(900),
            memory_temperature_c: Some(58),
            memory_busy_permille: Some(120),
            pcie_replays: Some(4),
            ..Gauges::default()
        }
    );
}

#[test]
fn an_intel_device_is_read() {
    let dir = tempfile::tempdir().unwrap();
    lay(
        dir.path(),
        &[
            ("hwmon/hwmon0/energy1_input", "5000000000\n"),
            ("hwmon/hwmon0/temp2_input", "-3000\n"),
            ("drm/card0/gt/gt0/throttle_reason_status", "1\n"),
            ("drm/card0/gt/gt0/throttle_reason_pl1", "1\n"),
            ("drm/card0/gt/gt0/throttle_reason_thermal", "0\n"),
        ],
    );
    let gauges = sysfs::read(dir.path());
    assert_eq!(
        (gauges.energy_mj, gauges.temperature_c),
        (Some(5_000_000), Some(-3))
    );
    assert_eq!(gauges.throttled_by, Some([Throttle::Power].into()));
    lay(dir.path(), &[("drm/card0/gt/gt0/throttle_reason_pl1", "0\n")]);
    assert_eq!(sysfs::read(dir.path()).throttled_by, Some([].into()));
}

#[test]
fn what_is_missing_or_nonsense_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(sysfs::read(dir.path()), Gauges::default());
    lay(
        dir.path(),
        &[
            ("gpu_busy_percent", "101\n"),
            ("mem_info_vram_used", "lots\n"),
            ("hwmon/hwmon0/temp1_input", ""),
            ("hwmon/hwmon0/power1_average", "-5\n"),
            ("ras/umc_err_count", "ue: many\n"),
        ],
    );
    fs::create_dir(dir.path().join("hwmon/hwmon0/energy1_input")).unwrap();
    assert_eq!(sysfs::read(dir.path()), Gauges::default());
}

fn found(files: &[&str]) -> Found {
    let facts = GpuFacts {
        uuid: "GPU-1".into(),
        vendor: String::new(),
        model: String::new(),
        class: "MI300".into(),
        vram_mib: 1,
        isolation: BTreeMap::new(),
        hardware: None,
    };
    Found {
        devices: vec![Device {
            facts,
            opencl: None,
            files: files.iter().map(Into::into).collect(),
            memory_wall: None,
            flaw: None,
        }],
        ..Found::default()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 20, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_driver_is_read_beside_and_one_that_hangs_goes_silent() {
    let root = tempfile::tempdir().unwrap();
    let busy = root
        .path()
        .join("sys/class/drm/renderD128/device/gpu_busy_percent");
    lay(busy.parent().unwrap(), &[("gpu_busy_percent", "50")]);
    let mut setting = crate::discover::setting::Setting::default();
    setting.root = root.path().into();
    let outside = Outside::with(setting);
    let here = found(&["/dev/kfd", "/dev/dri/renderD128"]);
    eventually("the driver answers", || {
        outside
            .read(&here)
            .get("GPU-1")
            .and_then(|(gauges, _)| gauges.busy_permille)
            == Some(500)
    });
    // Opening a pipe that nobody writes waits for ever, as a driver can.
    fs::remove_file(&busy).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &busy,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    eventually("what it said last is dropped", || {
        let begun = std::time::Instant::now();
        let told = outside.read(&here);
        assert!(begun.elapsed().as_millis() < 1000, "nobody waits for a driver");
        told.is_empty()
    });
    assert!(outside.read(&found(&[])).is_empty());
}
