//! NVML tells of the slice.

use std::ptr::null_mut;

use super::cu::Handle;
use super::desk::Desk;
use crate::bench::{MIB, spec};
use crate::worker::{Worker, own, say};

/// Part: what NVML says of the first device.
pub fn look() {
    // SAFETY: the driver's constructors are its own business.
    let nvml = unsafe { libloading::os::unix::Library::new("libnvidia-ml.so.1") }.unwrap();
    type Init = unsafe extern "C" fn() -> i32;
    type Get = unsafe extern "C" fn(u32, *mut Handle) -> i32;
    type Info = unsafe extern "C" fn(Handle, *mut u64) -> i32;
    // SAFETY: the types of the NVML header, and room for the answers.
    unsafe {
        assert_eq!(nvml.get::<Init>(b"nvmlInit_v2").unwrap()(), 0);
        let mut device = null_mut();
        assert_eq!(
            nvml.get::<Get>(b"nvmlDeviceGetHandleByIndex_v2").unwrap()(0, &mut device),
            0
        );
        let mut one = [0u64; 3];
        assert_eq!(
            nvml.get::<Info>(b"nvmlDeviceGetMemoryInfo").unwrap()(device, one.as_mut_ptr()),
            0
        );
        let mut two = [0x0200_0028, 0, 0, 0, 0];
        assert_eq!(
            nvml.get::<Info>(b"nvmlDeviceGetMemoryInfo_v2").unwrap()(device, two.as_mut_ptr()),
            0
        );
        assert_eq!([two[1], two[3], two[4]], one, "both forms say the same");
        let mut other = null_mut();
        assert_eq!(
            nvml.get::<Get>(b"nvmlDeviceGetHandleByIndex_v2").unwrap()(1, &mut other),
            0
        );
        let code = nvml.get::<Info>(b"nvmlDeviceGetMemoryInfo").unwrap()(other, one.clone().as_mut_ptr());
        assert_eq!(code, 4, "a device that is not the job's tells nothing");
        say("nvml", format!("{} {} {}", one[0], one[1], one[2]));
    }
}

#[test]
fn nvml_shows_the_slice() {
    let _turn = crate::bench::turn();
    let desk = Desk::new(&[spec(1, 256 * MIB, 500)]);
    let mut holder = Worker::start(
        desk.command(1, own()),
        "cuda-allocate",
        &[("BLOCK", (100 * MIB).to_string())],
    );
    assert_eq!(holder.line("got").unwrap(), "2");
    for device in ["0:0", "uuid:10111213-1415-1617-1819-1a1b1c1d1e1f"] {
        let mut command = desk.command(1, own());
        command
            .env("TENURE_GUARD_DEVICE", device)
            .env("TENURE_CUDA_DOUBLE_DEVICES", "2");
        let mut worker = Worker::start(command, "nvml", &[]);
        let expected = format!("{} {} {}", 256 * MIB, 56 * MIB, 200 * MIB);
        match worker.line("nvml") {
            Some(found) => assert_eq!(found, expected),
            None => panic!("{}", worker.end().1),
        }
    }
}
