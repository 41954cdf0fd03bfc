//! A device page with slices, a worker for each, and programs started beside them the way a job would be: with our
//! library as their only OpenCL implementation and a socket.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_limits::{Counter, Device, SliceReading, SliceSpec};

/// An OpenCL implementation to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Pocl,
    Intel,
    Rusticl,
}

impl Vendor {
    /// Sets a command up to see this implementation alone.
    pub fn prepare(self, command: &mut Command) {
        let name = match self {
            Vendor::Pocl => "pocl",
            Vendor::Intel => "intel",
            Vendor::Rusticl => "rusticl",
        };
        let vendors = opencl_dir().join("vendors").join(name);
        assert!(vendors.is_dir(), "{name}: scripts/setup-devices installs it");
        command
            .env("POCL_MEMORY_LIMIT", "4")
            .env("POCL_DEVICES", "pthread")
            .env(
                "POCL_CACHE_DIR",
                Path::new(env!("CARGO_TARGET_TMPDIR")).join("pocl"),
            )
            .env("OCL_ICD_VENDORS", vendors);
        match self {
            Vendor::Pocl => {}
            Vendor::Intel => {
                command.env("LD_LIBRARY_PATH", opencl_dir().join("venv/lib"));
            }
            Vendor::Rusticl => {
                command.env("RUSTICL_ENABLE", "llvmpipe");
            }
        }
    }
}

/// Where `scripts/setup-devices` puts what it installs.
pub fn opencl_dir() -> PathBuf {
    match std::env::var_os("TENURE_OPENCL_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/opencl"),
    }
}

/// A library as cargo built it with this test.
pub fn library(name: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let built = [deps.join(name), deps.join("..").join(name)];
    let newest = built
        .iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    let newest = newest.unwrap_or_else(|| panic!("{name} stands beside the test"));
    newest.1.canonicalize().unwrap()
}

/// The worker's program; another build of it where one is named, as `scripts/sanitize` does.
pub fn worker() -> PathBuf {
    match std::env::var_os("TENURE_TEST_WORKER") {
        Some(program) => program.into(),
        None => env!("CARGO_BIN_EXE_tenure-broker").into(),
    }
}

/// The descriptor a worker inherits its listening socket under.
const LISTENER: i32 = 30;

/// A worker that serves one slice; ended when dropped.
pub struct Served {
    pub child: Child,
    pub socket: PathBuf,
    control: PathBuf,
}

impl Served {
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Says a word to the worker as the agent would; its line.
    pub fn say(&self, word: &str) -> String {
        let socket = tenure_wire::Socket::connect(&self.control).unwrap();
        socket.send(word.as_bytes(), None).unwrap();
        String::from_utf8(socket.receive().unwrap().0).unwrap()
    }

    /// Threads and resident KiB of the worker.
    pub fn weight(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        (number("Threads:"), number("VmRSS:"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub page: PathBuf,
    pub device: Device,
    pub vendor: Vendor,
}

impl Bench {
    pub fn on(vendor: Vendor, slices: &[SliceSpec]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("device.limits");
        let device = Device::create(&page).unwrap();
        slices.iter().for_each(|slice| device.add(*slice).unwrap());
        let vendors = dir.path().join("vendors");
        std::fs::create_dir(&vendors).unwrap();
        std::fs::write(
            vendors.join("tenure.icd"),
            library("libtenure_remote.so").display().to_string(),
        )
        .unwrap();
        Bench {
            dir,
            page,
            device,
            vendor,
        }
    }

    /// Starts a slice's worker, the guard in front of its driver.
    pub fn serve(&self, slice: u64) -> Served {
        let socket = self.dir.path().join(format!("broker-{slice}.sock"));
        let control = self.dir.path().join(format!("control-{slice}.sock"));
        let _ = std::fs::remove_file(&socket);
        let _ = std::fs::remove_file(&control);
        let listener = tenure_wire::Listener::bind(&socket).unwrap();
        let inherited = listener.as_fd().as_raw_fd();
        let mut command = Command::new(worker());
        self.vendor.prepare(&mut command);
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // Put onto itself it would be closed with the rest.
                let put = match inherited {
                    LISTENER => libc::fcntl(LISTENER, libc::F_SETFD, 0),
                    _ => libc::dup2(inherited, LISTENER),
                };
                match put {
                    -1 => Err(std::io::Error::last_os_error()),
                    _ => Ok(()),
                }
            });
        }
        let child = command
            .arg("--listen-fd")
            .arg(LISTENER.to_string())
            .arg("--control")
            .arg(&control)
            .env("OPENCL_LAYERS", library("libtenure_guard.so"))
            .env("TENURE_GUARD_PAGE", &self.page)
            .env("TENURE_GUARD_SLICE", slice.to_string())
            .env("TENURE_GUARD_DEVICE", "0:0")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let served = Served {
            child,
            socket,
            control,
        };
        eventually("the worker listens", Duration::from_secs(20), || {
            served.socket.exists()
        });
        served
    }

    /// A program that sees the worker and no driver.
    pub fn command(&self, served: &Served, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("OCL_ICD_VENDORS", self.dir.path().join("vendors"))
            .env("TENURE_BROKER_SOCKET", &served.socket);
        command
    }

    /// The same program on the bare driver.
    pub fn bare(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        self.vendor.prepare(&mut command);
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

pub fn spec(id: u64, limit_mib: u64) -> SliceSpec {
    SliceSpec {
        id,
        limit_bytes: limit_mib * MIB,
        weight_per_mille: 500,
        cap_per_mille: None,
        kernel_limit_ns: None,
        process_limit_ns: None,
    }
}

pub fn eventually(what: &str, patience: Duration, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How long or how often a test runs; the long run raises it.
pub fn count(variable: &str, ordinary: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ordinary)
}
