//! The few types and numbers of the CUDA driver API the front needs, as its headers define them.

use std::ffi::c_void;

pub type Code = i32;
pub type Handle = *mut c_void;
pub type DevicePtr = u64;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_INITIALIZED: Code = 3;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const NOT_PERMITTED: Code = 800;
pub const NOT_SUPPORTED: Code = 801;
pub const STREAM_CAPTURE_UNSUPPORTED: Code = 900;
pub const UNKNOWN: Code = 999;

/// The stream of the calling thread, as a handle that means it in every function.
pub const PER_THREAD_STREAM: usize = 2;
pub const STREAM_NON_BLOCKING: u32 = 1;
pub const EVENT_BLOCKING_SYNC: u32 = 1;
pub const CAPTURE_RELAXED: i32 = 2;

pub const LOCATION_DEVICE: u32 = 1;
pub const MEMPOOL_RESERVED_CURRENT: u32 = 5;
pub const ACCESS_READ_WRITE: u32 = 3;
pub const GRAPH_NODE_MEM_ALLOC: u32 = 10;

pub const ARRAY_SPARSE: u32 = 0x40;
pub const ARRAY_DEFERRED: u32 = 0x80;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: u32,
    pub id: i32,
}

/// The head of `CUmemAllocationProp`; what follows is not looked at.
#[repr(C)]
pub struct AllocationProp {
    pub kind: u32,
    pub handle_types: u32,
    pub location: Location,
}

/// `CUmemPoolProps` begins the same way.
pub type PoolProps = AllocationProp;

#[repr(C)]
pub struct AccessDesc {
    pub location: Location,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayDescriptor {
    pub width: usize,
    pub height: usize,
    pub format: u32,
    pub channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array3dDescriptor {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

pub const MEMORY_HOST: u32 = 1;
pub const MEMORY_ARRAY: u32 = 3;
pub const MEMORY_UNIFIED: u32 = 4;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Copy2d {
    pub from_x: usize,
    pub from_y: usize,
    pub from_kind: u32,
    pub from_host: *const c_void,
    pub from_device: DevicePtr,
    pub from_array: Handle,
    pub from_pitch: usize,
    pub to_x: usize,
    pub to_y: usize,
    pub to_kind: u32,
    pub to_host: *mut c_void,
    pub to_device: DevicePtr,
    pub to_array: Handle,
    pub to_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct Copy3d {
    pub from_x: usize,
    pub from_y: usize,
    pub from_z: usize,
    pub from_lod: usize,
    pub from_kind: u32,
    pub from_host: *const c_void,
    pub from_device: DevicePtr,
    pub from_array: Handle,
    pub reserved0: Handle,
    pub from_pitch: usize,
    pub from_height: usize,
    pub to_x: usize,
    pub to_y: usize,
    pub to_z: usize,
    pub to_lod: usize,
    pub to_kind: u32,
    pub to_host: *mut c_void,
    pub to_device: DevicePtr,
    pub to_array: Handle,
    pub reserved1: Handle,
    pub to_pitch: usize,
    pub to_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
    pub attributes: Handle,
    pub attribute_count: u32,
}

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcMemHandle(pub [u8; 64]);

/// The head of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
pub struct ExternalMemory {
    pub kind: u32,
    pub handle: [usize; 2],
    pub size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<Copy2d>(), 128);
        assert_eq!(offset_of!(Copy2d, to_device), 88);
        assert_eq!(size_of::<Copy3d>(), 200);
        assert_eq!(offset_of!(Copy3d, to_array), 144);
        assert_eq!(offset_of!(LaunchConfig, stream), 32);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(offset_of!(ExternalMemory, size), 24);
        assert_eq!(size_of::<AccessDesc>(), 12);
        assert_eq!(size_of::<Array3dDescriptor>(), 40);
    }
}
