//! OpenCL devices, by the loader if the machine has one. Runs in a process of its own.

use std::collections::BTreeMap;
use std::ffi::c_void;

use libloading::{Library, Symbol};
use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::Hardware;

use super::ask::Answer;
use super::pci::PciAddress;
use super::setting::Setting;
use super::{Device, OpenClName, class, printable};

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
const DEVICE_PCI_BUS_ID_NV: u32 = 0x4008;
const DEVICE_PCI_SLOT_ID_NV: u32 = 0x4009;
const DEVICE_PCI_DOMAIN_ID_NV: u32 = 0x400a;
const DEVICE_TOPOLOGY_AMD: u32 = 0x4037;
const DEVICE_PCI_BUS_INFO_KHR: u32 = 0x410f;
const DEVICE_TYPE_ALL: u64 = 0xffff_ffff;
const TYPE_CPU: u64 = 1 << 1;
const TYPE_GPU: u64 = 1 << 2;
const MAX_HANDLES: u32 = 256;

/// What every driver the loader knows gives.
pub fn devices(setting: &Setting, host_id: &str) -> Result<Answer, String> {
    let path = &setting.opencl_library;
    // SAFETY: the loader and its drivers run their own start-up code, which is why this is a process apart.
    let library =
        unsafe { Library::new(path) }.map_err(|_| format!("{} cannot be loaded", path.display()))?;
    let api = Api::of(&library).map_err(|e| e.to_string())?;
    let mut answer = Answer::default();
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for platform in api.platforms() {
        let platform_name = api.text(*api.platform_info, platform, PLATFORM_NAME);
        for (place, device) in api.devices(platform).into_iter().enumerate() {
            let mut facts = api.facts(device, &platform_name);
            let index = counted
                .entry(facts.class.to_string())
                .and_modify(|count| *count += 1)
                .or_insert(0);
            if facts.uuid.is_empty() {
                facts.uuid = format!("opencl-{host_id}-{}-{index}", facts.class);
            }
            answer.devices.push(Device {
                facts,
                opencl: Some(OpenClName {
                    platform: platform_name.clone(),
                    index: place,
                }),
                files: Vec::new(),
                memory_wall: None,
                flaw: None,
            });
        }
    }
    answer.devices.retain(|device| device.facts.vram_mib > 0);
    if answer.devices.is_empty() {
        answer
            .notes
            .push("OpenCL: none (no driver that its loader knows gives a device)".to_owned());
    }
    Ok(answer)
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
        printable(&self.bytes(get, of, what))
    }

    fn number(&self, device: Handle, what: u32) -> u64 {
        self.bytes(*self.device_info, device, what)
            .try_into()
            .map_or(0, u64::from_ne_bytes)
    }

    fn small_number(&self, device: Handle, what: u32) -> Option<u32> {
        let bytes = self.bytes(*self.device_info, device, what);
        bytes.try_into().ok().map(u32::from_ne_bytes)
    }

    /// Where it sits: by Khronos' extension, or by what NVIDIA and AMD had before it.
    fn pci(&self, device: Handle) -> Option<PciAddress> {
        by_khronos(&self.bytes(*self.device_info, device, DEVICE_PCI_BUS_INFO_KHR))
            .or_else(|| {
                let slot = self.small_number(device, DEVICE_PCI_SLOT_ID_NV)?;
                Some(PciAddress {
                    domain: self.small_number(device, DEVICE_PCI_DOMAIN_ID_NV).unwrap_or(0),
                    bus: u8::try_from(self.small_number(device, DEVICE_PCI_BUS_ID_NV)?).ok()?,
                    device: u8::try_from(slot >> 3).ok()?,
                    function: (slot & 7) as u8,
                })
            })
            .or_else(|| by_amd(&self.bytes(*self.device_info, device, DEVICE_TOPOLOGY_AMD)))
    }

    /// Without a uuid where the driver tells none that no other device has.
    fn facts(&self, device: Handle, platform: &str) -> GpuFacts {
        let kind = self.number(device, DEVICE_TYPE);
        let model = self.text(*self.device_info, device, DEVICE_NAME);
        let vendor = self.text(*self.device_info, device, DEVICE_VENDOR);
        let vram_mib = self.number(device, DEVICE_GLOBAL_MEM_SIZE) >> 20;
        let is_gpu = kind & TYPE_GPU != 0;
        let pci = self.pci(device).filter(|_| is_gpu);
        let uuid = if is_gpu && vendor.contains("NVIDIA") {
            nvidia_uuid(&self.bytes(*self.device_info, device, DEVICE_UUID_KHR))
        } else {
            // Others make it of model and slot: the same on every machine built alike.
            None
        };
        GpuFacts {
            uuid: uuid.unwrap_or_default(),
            class: class(platform, &vendor, &model, kind, vram_mib).into(),
            vendor,
            model,
            vram_mib,
            isolation: BTreeMap::new(),
            hardware: pci.map(|pci| {
                Box::new(Hardware {
                    pci: Some(pci.to_string()),
                    ..Hardware::default()
                })
            }),
        }
    }
}

/// `cl_device_pci_bus_info_khr`: domain, bus, device and function.
fn by_khronos(bytes: &[u8]) -> Option<PciAddress> {
    let number = |at: usize| {
        let bytes = bytes.get(at * 4..at * 4 + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    if bytes.len() != 16 {
        return None;
    }
    Some(PciAddress {
        domain: number(0)?,
        bus: u8::try_from(number(1)?).ok()?,
        device: u8::try_from(number(2)?).ok()?,
        function: u8::try_from(number(3)?).ok()?,
    })
}

/// `cl_device_topology_amd`: a kind, and in its last three bytes bus, device and function. It knows no domain.
fn by_amd(bytes: &[u8]) -> Option<PciAddress> {
    const PCIE: [u8; 4] = 1u32.to_ne_bytes();
    (bytes.len() == 24 && bytes[..4] == PCIE).then(|| PciAddress {
        domain: 0,
        bus: bytes[21],
        device: bytes[22],
        function: bytes[23],
    })
}

/// As NVML writes it.
fn nvidia_uuid(bytes: &[u8]) -> Option<String> {
    if bytes.len() != 16 || bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let parts = [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)];
    Some(format!("GPU-{}", parts.join("-")))
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

/// A short token for quotas and prices, the same as the vendor's own way would give.
fn class(platform: &str, vendor: &str, name: &str, kind: u64, vram_mib: u64) -> String {
    let is_gpu = kind & TYPE_GPU != 0;
    match platform {
        "Portable Computing Language" if kind & TYPE_CPU != 0 => "pocl-cpu".to_owned(),
        "Portable Computing Language" => "pocl-gpu".to_owned(),
        _ if is_gpu && vendor.contains("NVIDIA") => class::nvidia(name, vram_mib),
        _ if is_gpu && vendor.contains("Intel") => class::intel(name),
        _ => class::other(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_names() {
        let pocl = "Portable Computing Language";
        for (platform, vendor, name, kind, expected) in [
            (pocl, "AuthenticAMD", "cpu-haswell-AMD EPYC", TYPE_CPU, "pocl-cpu"),
            (pocl, "NVIDIA", "NVIDIA H100 80GB HBM3", TYPE_GPU, "pocl-gpu"),
            (
                "NVIDIA CUDA",
                "NVIDIA Corporation",
                "NVIDIA H100 80GB HBM3",
                TYPE_GPU,
                "H100-80GB",
            ),
            (
                "Intel(R) OpenCL",
                "Intel(R) Corporation",
                "Intel(R) Arc(TM) A770 Graphics",
                TYPE_GPU,
                "Arc-A770",
            ),
            (
                "Intel(R) OpenCL",
                "Intel(R) Corporation",
                "Intel(R) Xeon(R) Processor",
                TYPE_CPU,
                "Intel-Xeon-Processor",
            ),
            ("x", "y", "\u{202e}../…", TYPE_GPU, "opencl"),
        ] {
            let class = class(platform, vendor, name, kind, 81_559);
            assert_eq!(class, expected);
            assert!(tenure_domain::name::check(&class, "/class").is_ok());
        }
    }

    #[test]
    fn slots_and_identities_read_as_drivers_write_them() {
        let numbers = |numbers: [u32; 4]| numbers.map(u32::to_ne_bytes).concat();
        let at = by_khronos(&numbers([1, 0xc1, 0, 0])).unwrap();
        assert_eq!(at.to_string(), "0001:c1:00.0");
        assert_eq!(by_khronos(&numbers([0, 256, 0, 0])), None);
        assert_eq!(by_khronos(&[0; 12]), None);
        let mut topology = [0; 24];
        topology[..4].copy_from_slice(&1u32.to_ne_bytes());
        topology[21..].copy_from_slice(&[0xc1, 2, 1]);
        assert_eq!(by_amd(&topology).unwrap().to_string(), "0000:c1:02.1");
        topology[0] = 7;
        assert_eq!(by_amd(&topology), None);
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(
            nvidia_uuid(&bytes).as_deref(),
            Some("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
        );
        assert_eq!(nvidia_uuid(&[0; 16]), None);
    }
}
