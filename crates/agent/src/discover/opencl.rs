//! OpenCL devices, by the loader if the machine has one. Runs in a process of its own.

use std::collections::BTreeMap;
use std::ffi::c_void;

use libloading::{Library, Symbol};
use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::workload::spec::Isolation;

use super::{Device, OpenClName};

type Handle = *mut c_void;
type GetPlatformIds = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
type GetDeviceIds = unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;

const PLATFORM_NAME: u32 = 0x0902;
const DEVICE_TYPE: u32 = 0x1000;
const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101f;
const DEVICE_NAME: u32 = 0x102b;
const DEVICE_VENDOR: u32 = 0x102c;
const DEVICE_UUID_KHR: u32 = 0x106a;
const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
const TYPE_CPU: u64 = 1 << 1;
const TYPE_GPU: u64 = 1 << 2;
const MAX_HANDLES: u32 = 256;

/// What `discover-opencl` does: prints the devices as JSON, or why there are none.
pub fn main(host_id: &str) -> i32 {
    match devices(host_id) {
        Ok(devices) => {
            println!("{}", serde_json::to_string(&devices).unwrap_or_default());
            0
        }
        Err(error) => {
            println!("{error}");
            1
        }
    }
}

fn devices(host_id: &str) -> Result<Vec<Device>, String> {
    // SAFETY: the loader and its drivers run their own start-up code, which is why this is a process apart.
    let library = unsafe { Library::new("libOpenCL.so.1") }.map_err(|_| "no libOpenCL.so.1".to_owned())?;
    let api = Api::of(&library).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for platform in api.platforms() {
        let platform_name = api.text(*api.platform_info, platform, PLATFORM_NAME);
        for (place, device) in api.devices(platform).into_iter().enumerate() {
            let class = class(
                &platform_name,
                &api.text(*api.device_info, device, DEVICE_NAME),
                api.number(device, DEVICE_TYPE),
            );
            let index = counted
                .entry(class.clone())
                .and_modify(|count| *count += 1)
                .or_insert(0);
            found.push(Device {
                facts: api.facts(device, class, host_id, *index),
                opencl: Some(OpenClName {
                    platform: platform_name.clone(),
                    index: place,
                }),
                files: Vec::new(),
            });
        }
    }
    found.retain(|device: &Device| device.facts.vram_mib > 0);
    Ok(found)
}

struct Api<'a> {
    platform_ids: Symbol<'a, GetPlatformIds>,
    platform_info: Symbol<'a, GetInfo>,
    device_ids: Symbol<'a, GetDeviceIds>,
    device_info: Symbol<'a, GetInfo>,
}

impl<'a> Api<'a> {
    fn of(library: &'a Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of the OpenCL 1.0 headers, kept ever since.
        unsafe {
            Ok(Api {
                platform_ids: library.get(b"clGetPlatformIDs")?,
                platform_info: library.get(b"clGetPlatformInfo")?,
                device_ids: library.get(b"clGetDeviceIDs")?,
                device_info: library.get(b"clGetDeviceInfo")?,
            })
        }
    }

    fn platforms(&self) -> Vec<Handle> {
        // SAFETY: the list has as many places as is said.
        handles(|room, list, count| unsafe { (self.platform_ids)(room, list, count) })
    }

    fn devices(&self, platform: Handle) -> Vec<Handle> {
        // SAFETY: the platform is one the loader gave; the list has as many places as is said.
        handles(|room, list, count| unsafe {
            (self.device_ids)(platform, DEVICE_TYPE_ALL, room, list, count)
        })
    }

    fn bytes(&self, get: GetInfo, of: Handle, what: u32) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut length = 0;
        // SAFETY: the handle is one the loader gave; the buffer is as long as is said.
        let status = unsafe { get(of, what, bytes.len(), bytes.as_mut_ptr().cast(), &mut length) };
        bytes.truncate(if status == 0 { length } else { 0 });
        bytes
    }

    fn text(&self, get: GetInfo, of: Handle, what: u32) -> String {
        let bytes = self.bytes(get, of, what);
        let text = String::from_utf8_lossy(&bytes);
        text.chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect::<String>()
            .trim()
            .to_owned()
    }

    fn number(&self, device: Handle, what: u32) -> u64 {
        self.bytes(*self.device_info, device, what)
            .try_into()
            .map_or(0, u64::from_ne_bytes)
    }

    fn facts(&self, device: Handle, class: String, host_id: &str, index: usize) -> GpuFacts {
        let kind = self.number(device, DEVICE_TYPE);
        let own = self.bytes(*self.device_info, device, DEVICE_UUID_KHR);
        // A processor's identity is often a constant of its driver, the same on every machine.
        let uuid = if own.len() == 16 && kind & TYPE_GPU != 0 && own.iter().any(|&byte| byte != 0) {
            own.iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            format!("opencl-{host_id}-{class}-{index}")
        };
        GpuFacts {
            uuid,
            vendor: self.text(*self.device_info, device, DEVICE_VENDOR),
            model: self.text(*self.device_info, device, DEVICE_NAME),
            class: class.into(),
            vram_mib: self.number(device, DEVICE_GLOBAL_MEM_SIZE) >> 20,
            isolation: isolation(),
        }
    }
}

fn handles(get: impl Fn(u32, *mut Handle, *mut u32) -> i32) -> Vec<Handle> {
    let mut list = vec![std::ptr::null_mut(); MAX_HANDLES as usize];
    let mut count = 0;
    let status = get(MAX_HANDLES, list.as_mut_ptr(), &mut count);
    list.truncate(if status == 0 {
        count.min(MAX_HANDLES) as usize
    } else {
        0
    });
    list
}

fn isolation() -> BTreeMap<Isolation, String> {
    BTreeMap::from([
        (Isolation::Exclusive, "given whole: no other slice is given on it".to_owned()),
        (Isolation::Guarded, "slices are kept apart inside the job's process only: nothing outside it limits device memory or compute".to_owned()),
    ])
}

/// A short token for quotas and prices.
fn class(platform: &str, name: &str, kind: u64) -> String {
    if platform == "Portable Computing Language" {
        return if kind & TYPE_CPU != 0 {
            "pocl-cpu".to_owned()
        } else {
            "pocl-gpu".to_owned()
        };
    }
    let mut token = String::new();
    for letter in name.chars() {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => token.push(letter),
            _ if !token.is_empty() && !token.ends_with('-') => token.push('-'),
            _ => {}
        }
    }
    token.truncate(48);
    let token = token.trim_matches(['-', '.', '_']);
    if token.is_empty() {
        "opencl".to_owned()
    } else {
        token.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_names() {
        let cases = [
            (
                "Portable Computing Language",
                "cpu-haswell-AMD EPYC",
                TYPE_CPU,
                "pocl-cpu",
            ),
            (
                "NVIDIA CUDA",
                "NVIDIA H100 80GB HBM3",
                TYPE_GPU,
                "NVIDIA-H100-80GB-HBM3",
            ),
            (
                "Intel(R) OpenCL",
                "Intel(R) Arc(TM) A770",
                TYPE_GPU,
                "Intel-R-Arc-TM-A770",
            ),
            ("x", "\u{202e}../…", TYPE_GPU, "opencl"),
        ];
        for (platform, name, kind, expected) in cases {
            let class = class(platform, name, kind);
            assert_eq!(class, expected);
            assert!(tenure_domain::name::check(&class, "/class").is_ok());
        }
    }
}
