//! Ways past the guard that begin at a vendor's own library: CUDA's, found under the name the guard finds it by or brought
//! along, and Vulkan's drivers with the layer left out. Each goes on with more than its slice where nobody looks.

use std::time::Duration;

use tenure_api::channel::{LogStream, RunState};
use tenure_domain::workload::spec::Isolation;

use super::{MOST, RUN, SLICE, TAKE, passes_without_walls, stayed, tried, was_ended};
use crate::bench::{Bench, has_ended};
use crate::front::{double, driver_dir};
use crate::slice::{bench, order};

/// Takes what a driver gives by Vulkan.
const VULKAN: &str = r#"
V = ctypes.CDLL('libvulkan.so.1')
def words(*all): return (ctypes.c_uint64 * len(all))(*all)
at = ctypes.addressof
instance, device, physical, memory, count = H(), H(), H(), ctypes.c_uint64(), ctypes.c_uint(1)
application = words(0, 0, 0, 0, 0, 1 << 22 | 1 << 12)
if V.vkCreateInstance(words(1, 0, 0, at(application), 0, 0, 0, 0), None, ctypes.byref(instance)):
    print('no platform'); sys.exit()
if V.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), ctypes.byref(physical)) < 0 or not count.value:
    print('no device'); sys.exit()
priority = ctypes.c_float(1)
queue = words(2, 0, 0, 1, at(priority))
made = words(3, 0, 1 << 32, at(queue), 0, 0, 0, 0, 0)
if V.vkCreateDevice(physical, made, None, ctypes.byref(device)):
    print('no device'); sys.exit()
got = 0
for _ in range(MOST):
    if V.vkAllocateMemory(device, words(5, 0, PIECE, 0), None, ctypes.byref(memory)): break
    got += 16
stay(got)
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_vulkan_layer_left_out() {
    passes_without_walls(VULKAN).await;
    let bench = bench().await;
    // With the layer it has its slice, on a host without any library of NVIDIA's.
    let (state, text) = tried(&bench, Isolation::Guarded, RUN, VULKAN).await;
    assert_eq!(stayed(&text), SLICE, "{state:?} {text}");
    for left_out in [
        "unset VK_INSTANCE_LAYERS VK_ADD_LAYER_PATH",
        "VK_LOADER_LAYERS_DISABLE='*' VK_INSTANCE_LAYERS=",
    ] {
        let script = format!("{left_out}; export VK_LOADER_LAYERS_DISABLE VK_INSTANCE_LAYERS; {RUN}");
        let (state, text) = tried(&bench, Isolation::Guarded, &script, VULKAN).await;
        assert!(was_ended(&state) && stayed(&text) == 0, "{state:?} {text}");
        // The loader maps the drivers of all vendors; which of them is named is all one.
        assert!(
            text.contains("used the driver libvulkan_") && text.contains("past the guard"),
            "{text}"
        );
    }
}

/// Of a CUDA device, of which a context alone takes 256 MiB.
const CUDA_SLICE: u64 = 512;

/// Takes what a driver of CUDA's gives. `PATH` says where it lies.
const CUDA: &str = r#"
cuda = ctypes.CDLL(PATH)
context, block, got = H(), ctypes.c_uint64(), 0
for code in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)):
    if code: print('no device', code); sys.exit()
while got < 800 and cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(100 << 20)) == 0: got += 100
stay(got)
"#;

/// Runs it inside a job whose host has NVIDIA's libraries.
async fn by_cuda(bench: &Bench, dir: &str, source: &str) -> (RunState, String) {
    let script = format!("export LD_LIBRARY_PATH={dir}; {RUN}");
    let mut order = order(bench, CUDA_SLICE, &["sh", "-c", &script]);
    order.env.push(("TAKE".into(), TAKE.into()));
    let source = format!("\nMOST = {MOST}\n{source}\n{CUDA}");
    order.env.push(("SOURCE".into(), source));
    let id = order.allocation;
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    bench.start(order).await;
    let state = watcher.state(id, has_ended).await;
    let text = bench.log(id, LogStream::Stdout).await + &bench.log(id, LogStream::Stderr).await;
    eprintln!("{state:?}: {text}");
    (state, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cuda_driver_by_its_path_and_as_a_copy() {
    // Where nobody looks it goes on with more than the slice.
    let bare = format!("PATH = '{}'\n{CUDA}", double().display());
    passes_without_walls(&bare).await;

    let driver = driver_dir();
    let dir = driver.path().display().to_string();
    let arguments = ["--host-dir", &dir, "--driver-dir", &dir];
    let bench = Bench::with(Duration::from_secs(60), &arguments).await;
    // The plain way: what the guard lets it have beside its context.
    let (state, text) = by_cuda(&bench, &dir, "PATH = 'libcuda.so.1'").await;
    assert_eq!(stayed(&text), 200, "{state:?} {text}");
    let behind = "/run/tenure/driver-libcuda.so.1";
    for (way, source) in [
        ("by its path", format!("PATH = '{behind}'")),
        (
            "by a descriptor",
            format!("PATH = '/proc/self/fd/%d' % os.open('{behind}', os.O_RDONLY)"),
        ),
        (
            "as a copy",
            format!("import shutil\nPATH = '/tmp/libcuda.so.1'\nshutil.copy('{behind}', PATH)"),
        ),
    ] {
        let (state, text) = by_cuda(&bench, &dir, &source).await;
        assert!(was_ended(&state) && stayed(&text) == 0, "{way}: {state:?} {text}");
        assert!(text.contains("libcuda.so.1 past the guard"), "{way}: {text}");
    }
}
