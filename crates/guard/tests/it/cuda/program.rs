//! Programs nobody here wrote, unchanged: cuda-bindings and numba-cuda from PyPI.

use std::process::Command;

use super::desk::Desk;
use crate::bench::{MIB, devices_dir, spec};

fn python(desk: &Desk, source: &str) -> String {
    let mut python: Command = desk.command(1, devices_dir().join("venv/bin/python"));
    python
        .env("NUMBA_CUDA_DRIVER", desk.libraries.join("libcuda.so.1"))
        .env("HOME", desk.bench.dir.path())
        .args(["-c", source]);
    let output = python
        .output()
        .unwrap_or_else(|error| panic!("{python:?}: {error}; scripts/setup-devices installs it"));
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn expect(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn cuda_bindings_sees_the_slice_and_gets_its_own_error() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 512 * MIB, 500)]);
    let text = python(
        &desk,
        "
import ctypes, numpy
from cuda.bindings import driver
def ok(answer):
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
print('devices', ok(driver.cuDeviceGetCount()), 'total', ok(driver.cuDeviceTotalMem(device)))
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
print('info', ok(driver.cuMemGetInfo()))
host = numpy.arange(1000, dtype=numpy.float32)
a, b = ok(driver.cuMemAlloc(host.nbytes)), ok(driver.cuMemAlloc(host.nbytes))
ok(driver.cuMemcpyHtoD(a, host.ctypes.data, host.nbytes))
function = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(b'double')), b'add'))
parameters = ((int(a), int(a), int(b), 1000), (ctypes.c_uint64,) * 3 + (ctypes.c_uint32,))
ok(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0))
ok(driver.cuCtxSynchronize())
ok(driver.cuMemcpyDtoH(host.ctypes.data, b, host.nbytes))
print('sum', host.sum())
ok(driver.cuMemFree(a)); ok(driver.cuMemFree(b))
held = []
while True:
    answer = driver.cuMemAlloc(50 << 20)
    if answer[0] != driver.CUresult.CUDA_SUCCESS: break
    held.append(answer[1])
print('full after', len(held), answer[0].name)
print('left', ok(driver.cuMemGetInfo())[0] >> 20)
for block in held: ok(driver.cuMemFree(block))
print('back', ok(driver.cuMemGetInfo())[0] >> 20)
",
    );
    expect(
        &text,
        &[
            "devices 1 total 536870912",
            "info (536870912, 536870912)",
            "sum 999000.0",
            "full after 10 CUDA_ERROR_OUT_OF_MEMORY",
            "left 12",
            "back 512",
        ],
    );
}

#[test]
fn numba_cuda_sees_the_slice_and_raises_its_own_error() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 512 * MIB, 500)]);
    let text = python(
        &desk,
        "
import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError
context = cuda.current_context()
print('info', tuple(context.get_memory_info()))
host = numpy.arange(1000, dtype=numpy.float32)
there = cuda.to_device(host)
print('sum', there.copy_to_host().sum())
print('zeros', cuda.device_array(1000, dtype=numpy.float32).copy_to_host().sum())
held = []
try:
    while True: held.append(cuda.device_array(50 << 20, dtype=numpy.uint8))
except CudaAPIError as error:
    print('full after', len(held), error)
",
    );
    expect(
        &text,
        &[
            "info (536870912, 536870912)",
            "sum 499500.0",
            "zeros 0.0",
            "full after 10",
            "CUDA_ERROR_OUT_OF_MEMORY",
        ],
    );
}
