//! Numbers of the Khronos headers (`cl.h`) that the worker looks at.

use std::ffi::c_void;

/// Any OpenCL object of the driver; never looked into, never sent.
pub type Handle = *mut c_void;

pub const SUCCESS: i32 = 0;
pub const OUT_OF_RESOURCES: i32 = -5;
pub const PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
pub const IMAGE_FORMAT_MISMATCH: i32 = -9;
pub const BUILD_PROGRAM_FAILURE: i32 = -11;
pub const EXEC_STATUS_ERROR_IN_WAIT_LIST: i32 = -14;
pub const COMPILE_PROGRAM_FAILURE: i32 = -15;
pub const INVALID_VALUE: i32 = -30;
pub const INVALID_DEVICE: i32 = -33;
pub const INVALID_CONTEXT: i32 = -34;
pub const INVALID_COMMAND_QUEUE: i32 = -36;
pub const INVALID_HOST_PTR: i32 = -37;
pub const INVALID_MEM_OBJECT: i32 = -38;
pub const INVALID_IMAGE_FORMAT_DESCRIPTOR: i32 = -39;
pub const INVALID_SAMPLER: i32 = -41;
pub const INVALID_PROGRAM: i32 = -44;
pub const INVALID_KERNEL: i32 = -48;
pub const INVALID_ARG_INDEX: i32 = -49;
pub const INVALID_ARG_VALUE: i32 = -50;
pub const INVALID_ARG_SIZE: i32 = -51;
pub const INVALID_KERNEL_ARGS: i32 = -52;
pub const INVALID_WORK_DIMENSION: i32 = -53;
pub const INVALID_EVENT_WAIT_LIST: i32 = -57;
pub const INVALID_EVENT: i32 = -58;
pub const INVALID_OPERATION: i32 = -59;
pub const INVALID_BUFFER_SIZE: i32 = -61;
pub const INVALID_IMAGE_DESCRIPTOR: i32 = -65;

pub const PLATFORM_VERSION: u32 = 0x0901;

pub const QUEUE_OUT_OF_ORDER: u64 = 1;
pub const QUEUE_PROFILING: u64 = 2;
pub const QUEUE_PROPERTIES: u64 = 0x1093;

pub const MEM_USE_HOST_PTR: u64 = 1 << 3;
pub const MEM_ALLOC_HOST_PTR: u64 = 1 << 4;
pub const MEM_COPY_HOST_PTR: u64 = 1 << 5;

pub const MEM_OBJECT_IMAGE2D: u64 = 0x10F1;
pub const MEM_OBJECT_IMAGE3D: u64 = 0x10F2;
pub const MEM_OBJECT_IMAGE2D_ARRAY: u64 = 0x10F3;
pub const MEM_OBJECT_IMAGE1D: u64 = 0x10F4;
pub const MEM_OBJECT_IMAGE1D_ARRAY: u64 = 0x10F5;
pub const MEM_OBJECT_IMAGE1D_BUFFER: u64 = 0x10F6;

pub const PROGRAM_BINARY_SIZES: u32 = 0x1165;
pub const PROGRAM_BINARIES: u32 = 0x1166;

pub const KERNEL_FUNCTION_NAME: u32 = 0x1190;
pub const KERNEL_NUM_ARGS: u32 = 0x1191;
pub const KERNEL_ARG_ADDRESS_QUALIFIER: u32 = 0x1196;
pub const KERNEL_ARG_TYPE_NAME: u32 = 0x1198;
pub const ADDRESS_GLOBAL: u32 = 0x119B;
pub const ADDRESS_LOCAL: u32 = 0x119C;
pub const ADDRESS_CONSTANT: u32 = 0x119D;
pub const ADDRESS_PRIVATE: u32 = 0x119E;

pub const EVENT_EXECUTION_STATUS: u32 = 0x11D3;
pub const COMPLETE: i32 = 0;
