//! A device page with slices, and programs started on them the way the agent starts them.

use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_limits::{Counter, Device, SliceReading, SliceSpec};

/// An OpenCL implementation to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Pocl,
    Intel,
    Rusticl,
}

impl Vendor {
    /// Sets a command up to see this implementation alone. False: it is not installed.
    pub fn prepare(self, command: &mut Command) -> bool {
        let name = match self {
            Vendor::Pocl => "pocl",
            Vendor::Intel => "intel",
            Vendor::Rusticl => "rusticl",
        };
        let vendors = opencl_dir().join("vendors").join(name);
        command
            .env("POCL_MEMORY_LIMIT", "4")
            .env("POCL_DEVICES", "pthread")
            .env(
                "POCL_CACHE_DIR",
                Path::new(env!("CARGO_TARGET_TMPDIR")).join("pocl"),
            )
            .env("RUSTICL_ENABLE", "llvmpipe");
        if self == Vendor::Intel {
            command.env("LD_LIBRARY_PATH", opencl_dir().join("venv/lib"));
        }
        if vendors.is_dir() {
            command.env("OCL_ICD_VENDORS", vendors);
            return true;
        }
        // Without the setup script the system's PoCL still is the first platform.
        self == Vendor::Pocl
    }
}

/// Where `scripts/setup-devices` puts what it installs.
pub fn opencl_dir() -> PathBuf {
    match std::env::var_os("TENURE_OPENCL_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/opencl"),
    }
}

/// Where it puts what the CUDA front and the Vulkan layer are tried with.
pub fn devices_dir() -> PathBuf {
    match std::env::var_os("TENURE_DEVICES_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/devices"),
    }
}

/// The layer under test, as cargo built it with this test.
pub fn layer() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let built = [
        deps.join("libtenure_guard.so"),
        deps.join("../libtenure_guard.so"),
    ];
    let newest = built
        .iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    newest
        .expect("libtenure_guard.so stands beside the test")
        .1
        .canonicalize()
        .unwrap()
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub page: PathBuf,
    pub device: Device,
    pub vendor: Vendor,
}

impl Bench {
    pub fn new(slices: &[SliceSpec]) -> Bench {
        Bench::on(Vendor::Pocl, slices)
    }

    pub fn on(vendor: Vendor, slices: &[SliceSpec]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("device.limits");
        let device = Device::create(&page).unwrap();
        slices.iter().for_each(|slice| device.add(*slice).unwrap());
        Bench {
            dir,
            page,
            device,
            vendor,
        }
    }

    /// A program on a slice.
    pub fn command(&self, slice: u64, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        assert!(
            self.vendor.prepare(&mut command),
            "{:?} is not installed",
            self.vendor
        );
        command
            .env("OPENCL_LAYERS", layer())
            .env("TENURE_GUARD_PAGE", &self.page)
            .env("TENURE_GUARD_SLICE", slice.to_string())
            .env("TENURE_GUARD_DEVICE", "0:0");
        command
    }

    pub fn reading(&self, slice: u64) -> SliceReading {
        self.device.snapshot().unwrap().slice(slice).unwrap().clone()
    }

    pub fn counter(&self, slice: u64, counter: Counter) -> u64 {
        self.reading(slice).counter(counter)
    }
}

/// One test at a time: each wants the device, and the machine, for itself.
pub fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub const MIB: u64 = 1 << 20;

pub fn spec(id: u64, limit_bytes: u64, weight_per_mille: u32) -> SliceSpec {
    SliceSpec {
        id,
        limit_bytes,
        weight_per_mille,
        cap_per_mille: None,
        kernel_limit_ns: None,
        process_limit_ns: None,
    }
}

/// How long or how often a test runs; the long run raises it.
pub fn count(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary)
}
