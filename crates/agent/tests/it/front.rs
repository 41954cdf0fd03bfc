//! The guard in the place of NVIDIA's libraries inside a real job, a double of the driver standing for the host's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bench::{AGENT, Bench};
use crate::slice::{DONE, opencl_dir, order, ran};

/// The double, built by the guard's package.
pub fn double() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo says to a test of its package makes some packages build themselves anew.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG") || name.starts_with("CARGO_MANIFEST") {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--quiet", "--offline", "--package", "tenure-guard"])
        .args(["--example", "cuda_double"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(built.success(), "the double was not built");
    Path::new(AGENT).with_file_name("examples/libcuda_double.so")
}

/// A directory with NVIDIA's libraries, as a host has them.
pub fn driver_dir() -> tempfile::TempDir {
    // Not below /tmp, which every job has of its own.
    let driver = tempfile::Builder::new()
        .prefix("driver-")
        .tempdir_in("/srv")
        .unwrap();
    std::fs::set_permissions(driver.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(double(), driver.path().join("libcuda.so.1.0")).unwrap();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let file = name.replace(".so.1", ".so.1.0");
        if !driver.path().join(&file).exists() {
            std::fs::copy(double(), driver.path().join(&file)).unwrap();
        }
        std::os::unix::fs::symlink(file, driver.path().join(name)).unwrap();
    }
    driver
}

const LOOK: &str = "
import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
assert cuda.cuInit(0) == 0
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print('cuda', total.value >> 20, free.value >> 20)
block, held = ctypes.c_uint64(), 0
while (code := cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(50 << 20))) == 0: held += 1
print('full after', held, 'with', code)
nvml = ctypes.CDLL('libnvidia-ml.so.1')
assert nvml.nvmlInit_v2() == 0
device, memory = ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
print('nvml', memory[0] >> 20, memory[2] >> 20)
";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_finds_the_guard_in_the_drivers_place() {
    let python = opencl_dir().join("venv/bin/python");
    let prefix = Command::new(&python)
        .args(["-c", "import sys; print(sys.base_prefix)"])
        .output()
        .unwrap();
    let prefix = String::from_utf8(prefix.stdout).unwrap();
    let driver = driver_dir();
    let venv = opencl_dir().join("venv").display().to_string();
    let dir = driver.path().display().to_string();
    // Writable for jobs: what is there must be covered, never written to.
    let shown = format!("{dir}:rw");
    let [shown, dir_shown, venv] = [&shown, &dir, &venv].map(String::as_str);
    let mut arguments = vec!["--host-dir", shown, "--driver-dir", dir_shown, "--host-dir", venv];
    if !prefix.starts_with("/usr") {
        arguments.extend(["--host-dir", prefix.trim()]);
    }
    let bench = Bench::with(Duration::from_secs(60), &arguments).await;
    let script = format!("LD_LIBRARY_PATH={dir} exec {} -c \"$0\"", python.display());
    let (state, text) = ran(&bench, order(&bench, 512, &["sh", "-c", &script, LOOK])).await;
    assert_eq!(state, DONE, "{text}");
    // 256 MiB are the context's.
    for expected in ["cuda 512 256", "full after 5 with 2", "nvml 512 506"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (state, text) = ran(
        &bench,
        order(&bench, 64, &["sh", "-c", "env; cat $VK_ADD_LAYER_PATH/*.json"]),
    )
    .await;
    assert_eq!(state, DONE, "{text}");
    assert!(
        text.contains("VK_INSTANCE_LAYERS=VK_LAYER_TENURE_guard"),
        "{text}"
    );
    assert!(text.contains("/run/tenure/libtenure_guard.so"), "{text}");
    // The host's own files are what they were.
    let whole = std::fs::metadata(double()).unwrap().len();
    assert_eq!(
        std::fs::metadata(driver.path().join("libcuda.so.1"))
            .unwrap()
            .len(),
        whole
    );
}
