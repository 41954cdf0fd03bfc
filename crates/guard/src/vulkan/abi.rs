//! The few types and numbers of Vulkan, and of its loader's interface to layers, that the layer needs.

use std::ffi::{c_char, c_void};

use crate::jump::Entry;

/// An instance, physical device, device, queue or command buffer: its first word leads to the loader's table.
pub type Handle = *mut c_void;
/// Memory, a buffer, an image, a fence, a pool.
pub type Object = u64;
pub type Code = i32;

pub const SUCCESS: Code = 0;
pub const TIMEOUT: Code = 2;
pub const INCOMPLETE: Code = 5;
pub const ERROR_OUT_OF_DEVICE_MEMORY: Code = -2;
pub const ERROR_INITIALIZATION_FAILED: Code = -3;
pub const ERROR_DEVICE_LOST: Code = -4;
pub const ERROR_INVALID_EXTERNAL_HANDLE: Code = -1000072003;

pub const LOADER_INSTANCE_CREATE_INFO: u32 = 47;
pub const LOADER_DEVICE_CREATE_INFO: u32 = 48;
pub const LINK: u32 = 0;
pub const LOADER_DATA: u32 = 1;

pub const HEAP_DEVICE_LOCAL: u32 = 1;
pub const TYPE_HOST_VISIBLE: u32 = 2;
pub const TYPE_HOST_COHERENT: u32 = 4;

pub const MEMORY_BUDGET: u32 = 1000237000;
pub const ID_PROPERTIES: u32 = 1000071004;
pub const PROPERTIES_2: u32 = 1000059001;
pub const EXPORT_MEMORY: u32 = 1000072002;
pub const DEDICATED: u32 = 1000127001;
pub const DEDICATED_REQUIREMENTS: u32 = 1000127000;
pub const BUFFER_REQUIREMENTS_INFO: u32 = 1000146000;
pub const IMAGE_REQUIREMENTS_INFO: u32 = 1000146001;
pub const REQUIREMENTS_2: u32 = 1000146003;
/// Memory that comes from elsewhere: by file, by host pointer, by Android, Fuchsia, Metal, Windows or NvSci.
pub const IMPORTS: &[u32] = &[
    1000074000, 1000178000, 1000129003, 1000364000, 1000602000, 1000073000, 1000373000, 1000057000,
    1000374004,
];
/// Links of an allocation's chain that are 24 bytes long: flags, priority, a captured address.
pub const SHORT_LINKS: &[u32] = &[1000060000, 1000238001, 1000257003];

#[repr(C)]
pub struct NegotiateInterface {
    pub kind: u32,
    pub next: *mut c_void,
    pub version: u32,
    pub instance_proc_addr: Entry,
    pub device_proc_addr: Entry,
    pub physical_device_proc_addr: Entry,
}

/// How every structure of a chain begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Link {
    pub kind: u32,
    pub next: *mut Link,
}

/// `VkLayerInstanceCreateInfo` and `VkLayerDeviceCreateInfo`.
#[repr(C)]
pub struct LoaderInfo {
    pub kind: u32,
    pub next: *mut Link,
    pub function: u32,
    pub value: *mut c_void,
}

/// `VkLayerInstanceLink` and `VkLayerDeviceLink`; the last member differs.
#[repr(C)]
pub struct LayerLink {
    pub next: *mut c_void,
    pub instance_proc_addr: ProcAddr,
    pub device_proc_addr: Option<ProcAddr>,
}

pub type ProcAddr = unsafe extern "system" fn(Handle, *const c_char) -> Entry;
pub type SetLoaderData = unsafe extern "system" fn(Handle, Handle) -> Code;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceCreateInfo {
    pub head: Link,
    pub flags: u32,
    pub queue_count: u32,
    pub queues: *const QueueCreateInfo,
    pub layer_count: u32,
    pub layers: *const *const c_char,
    pub extension_count: u32,
    pub extensions: *const *const c_char,
    pub features: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QueueCreateInfo {
    pub head: Link,
    pub flags: u32,
    pub family: u32,
    pub count: u32,
    pub priorities: *const f32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MemoryType {
    pub flags: u32,
    pub heap: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MemoryHeap {
    pub size: u64,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MemoryProperties {
    pub type_count: u32,
    pub types: [MemoryType; 32],
    pub heap_count: u32,
    pub heaps: [MemoryHeap; 16],
}

#[repr(C)]
pub struct MemoryProperties2 {
    pub head: Link,
    pub properties: MemoryProperties,
}

#[repr(C)]
pub struct MemoryBudget {
    pub head: Link,
    pub budget: [u64; 16],
    pub usage: [u64; 16],
}

/// `VkPhysicalDeviceIDProperties`.
#[repr(C)]
pub struct IdProperties {
    pub head: Link,
    pub device: [u8; 16],
    pub driver: [u8; 16],
    pub luid: [u8; 8],
    pub node_mask: u32,
    pub luid_valid: u32,
}

/// `VkPhysicalDeviceGroupProperties`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Group {
    pub head: Link,
    pub count: u32,
    pub devices: [Handle; 32],
    pub subset: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocateInfo {
    pub head: Link,
    pub size: u64,
    pub memory_type: u32,
}

#[repr(C)]
pub struct ExportMemory {
    pub head: Link,
    pub handle_types: u32,
}

#[repr(C)]
pub struct Dedicated {
    pub head: Link,
    pub image: Object,
    pub buffer: Object,
}

#[repr(C)]
pub struct RequirementsInfo {
    pub head: Link,
    pub object: Object,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Requirements {
    pub size: u64,
    pub alignment: u64,
    pub type_bits: u32,
}

#[repr(C)]
pub struct Requirements2 {
    pub head: Link,
    pub requirements: Requirements,
}

#[repr(C)]
pub struct DedicatedRequirements {
    pub head: Link,
    pub prefers: u32,
    pub requires: u32,
}

#[repr(C)]
pub struct SubmitInfo {
    pub head: Link,
    pub wait_count: u32,
    pub waits: *const Object,
    pub wait_stages: *const u32,
    pub command_count: u32,
    pub commands: *const Handle,
    pub signal_count: u32,
    pub signals: *const Object,
}

#[repr(C)]
pub struct SubmitInfo2 {
    pub head: Link,
    pub flags: u32,
    pub wait_count: u32,
    pub waits: *const c_void,
    pub command_count: u32,
    pub commands: *const c_void,
    pub signal_count: u32,
    pub signals: *const c_void,
}

#[repr(C)]
pub struct BufferCreateInfo {
    pub head: Link,
    pub flags: u32,
    pub size: u64,
    pub usage: u32,
    pub sharing: u32,
    pub family_count: u32,
    pub families: *const u32,
}

/// `VkCommandPoolCreateInfo`, and `VkFenceCreateInfo` without the family.
#[repr(C)]
pub struct PoolCreateInfo {
    pub head: Link,
    pub flags: u32,
    pub family: u32,
}

#[repr(C)]
pub struct CommandAllocateInfo {
    pub head: Link,
    pub pool: Object,
    pub level: u32,
    pub count: u32,
}

#[repr(C)]
pub struct CommandBeginInfo {
    pub head: Link,
    pub flags: u32,
    pub inheritance: *const c_void,
}

#[repr(C)]
pub struct MappedRange {
    pub head: Link,
    pub memory: Object,
    pub offset: u64,
    pub size: u64,
}

/// The beginning of a structure of a kind, with nothing behind it.
pub const fn head(kind: u32) -> Link {
    Link {
        kind,
        next: std::ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<MemoryProperties>(), 520);
        assert_eq!(size_of::<SubmitInfo>(), 72);
        assert_eq!(size_of::<SubmitInfo2>(), 64);
        assert_eq!(size_of::<AllocateInfo>(), 32);
        assert_eq!(size_of::<DeviceCreateInfo>(), 72);
        assert_eq!(size_of::<BufferCreateInfo>(), 56);
        assert_eq!(size_of::<Group>(), 288);
        assert_eq!(size_of::<IdProperties>(), 64);
    }
}
