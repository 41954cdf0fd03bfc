//! The OpenCL interface: handles, codes, and the dispatch table by name. Numbers are those of the Khronos headers
//! (`cl.h`, `cl_icd.h`).

use std::ffi::c_void;

/// Any OpenCL object; never looked into.
pub type Handle = *mut c_void;

pub const ENTRIES: usize = 149;

/// The dispatch table's entries in their order.
#[rustfmt::skip]
pub const NAMES: [&str; ENTRIES] = [
    "clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext",
    "clCreateContextFromType", "clRetainContext", "clReleaseContext", "clGetContextInfo",
    "clCreateCommandQueue", "clRetainCommandQueue", "clReleaseCommandQueue", "clGetCommandQueueInfo",
    "clSetCommandQueueProperty", "clCreateBuffer", "clCreateImage2D", "clCreateImage3D",
    "clRetainMemObject", "clReleaseMemObject", "clGetSupportedImageFormats", "clGetMemObjectInfo",
    "clGetImageInfo", "clCreateSampler", "clRetainSampler", "clReleaseSampler", "clGetSamplerInfo",
    "clCreateProgramWithSource", "clCreateProgramWithBinary", "clRetainProgram", "clReleaseProgram",
    "clBuildProgram", "clUnloadCompiler", "clGetProgramInfo", "clGetProgramBuildInfo", "clCreateKernel",
    "clCreateKernelsInProgram", "clRetainKernel", "clReleaseKernel", "clSetKernelArg", "clGetKernelInfo",
    "clGetKernelWorkGroupInfo", "clWaitForEvents", "clGetEventInfo", "clRetainEvent", "clReleaseEvent",
    "clGetEventProfilingInfo", "clFlush", "clFinish", "clEnqueueReadBuffer", "clEnqueueWriteBuffer",
    "clEnqueueCopyBuffer", "clEnqueueReadImage", "clEnqueueWriteImage", "clEnqueueCopyImage",
    "clEnqueueCopyImageToBuffer", "clEnqueueCopyBufferToImage", "clEnqueueMapBuffer", "clEnqueueMapImage",
    "clEnqueueUnmapMemObject", "clEnqueueNDRangeKernel", "clEnqueueTask", "clEnqueueNativeKernel",
    "clEnqueueMarker", "clEnqueueWaitForEvents", "clEnqueueBarrier", "clGetExtensionFunctionAddress",
    "clCreateFromGLBuffer", "clCreateFromGLTexture2D", "clCreateFromGLTexture3D",
    "clCreateFromGLRenderbuffer", "clGetGLObjectInfo", "clGetGLTextureInfo", "clEnqueueAcquireGLObjects",
    "clEnqueueReleaseGLObjects", "clGetGLContextInfoKHR", "clGetDeviceIDsFromD3D10KHR",
    "clCreateFromD3D10BufferKHR", "clCreateFromD3D10Texture2DKHR", "clCreateFromD3D10Texture3DKHR",
    "clEnqueueAcquireD3D10ObjectsKHR", "clEnqueueReleaseD3D10ObjectsKHR", "clSetEventCallback",
    "clCreateSubBuffer", "clSetMemObjectDestructorCallback", "clCreateUserEvent", "clSetUserEventStatus",
    "clEnqueueReadBufferRect", "clEnqueueWriteBufferRect", "clEnqueueCopyBufferRect",
    "clCreateSubDevicesEXT", "clRetainDeviceEXT", "clReleaseDeviceEXT", "clCreateEventFromGLsyncKHR",
    "clCreateSubDevices", "clRetainDevice", "clReleaseDevice", "clCreateImage",
    "clCreateProgramWithBuiltInKernels", "clCompileProgram", "clLinkProgram", "clUnloadPlatformCompiler",
    "clGetKernelArgInfo", "clEnqueueFillBuffer", "clEnqueueFillImage", "clEnqueueMigrateMemObjects",
    "clEnqueueMarkerWithWaitList", "clEnqueueBarrierWithWaitList",
    "clGetExtensionFunctionAddressForPlatform", "clCreateFromGLTexture", "clGetDeviceIDsFromD3D11KHR",
    "clCreateFromD3D11BufferKHR", "clCreateFromD3D11Texture2DKHR", "clCreateFromD3D11Texture3DKHR",
    "clCreateFromDX9MediaSurfaceKHR", "clEnqueueAcquireD3D11ObjectsKHR", "clEnqueueReleaseD3D11ObjectsKHR",
    "clGetDeviceIDsFromDX9MediaAdapterKHR", "clEnqueueAcquireDX9MediaSurfacesKHR",
    "clEnqueueReleaseDX9MediaSurfacesKHR", "clCreateFromEGLImageKHR", "clEnqueueAcquireEGLObjectsKHR",
    "clEnqueueReleaseEGLObjectsKHR", "clCreateEventFromEGLSyncKHR", "clCreateCommandQueueWithProperties",
    "clCreatePipe", "clGetPipeInfo", "clSVMAlloc", "clSVMFree", "clEnqueueSVMFree", "clEnqueueSVMMemcpy",
    "clEnqueueSVMMemFill", "clEnqueueSVMMap", "clEnqueueSVMUnmap", "clCreateSamplerWithProperties",
    "clSetKernelArgSVMPointer", "clSetKernelExecInfo", "clGetKernelSubGroupInfoKHR", "clCloneKernel",
    "clCreateProgramWithIL", "clEnqueueSVMMigrateMem", "clGetDeviceAndHostTimer", "clGetHostTimer",
    "clGetKernelSubGroupInfo", "clSetDefaultDeviceCommandQueue", "clSetProgramReleaseCallback",
    "clSetProgramSpecializationConstant", "clCreateBufferWithProperties", "clCreateImageWithProperties",
    "clSetContextDestructorCallback",
];

pub const SUCCESS: i32 = 0;
pub const DEVICE_NOT_FOUND: i32 = -1;
pub const OUT_OF_RESOURCES: i32 = -5;
pub const OUT_OF_HOST_MEMORY: i32 = -6;
pub const PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
pub const MISALIGNED_SUB_BUFFER_OFFSET: i32 = -13;
pub const EXEC_STATUS_ERROR_IN_WAIT_LIST: i32 = -14;
pub const DEVICE_PARTITION_FAILED: i32 = -18;
pub const INVALID_VALUE: i32 = -30;
pub const INVALID_PLATFORM: i32 = -32;
pub const INVALID_DEVICE: i32 = -33;
pub const INVALID_CONTEXT: i32 = -34;
pub const INVALID_QUEUE_PROPERTIES: i32 = -35;
pub const INVALID_COMMAND_QUEUE: i32 = -36;
pub const INVALID_HOST_PTR: i32 = -37;
pub const INVALID_MEM_OBJECT: i32 = -38;
pub const INVALID_IMAGE_FORMAT_DESCRIPTOR: i32 = -39;
pub const INVALID_SAMPLER: i32 = -41;
pub const INVALID_BINARY: i32 = -42;
pub const INVALID_PROGRAM: i32 = -44;
pub const INVALID_KERNEL: i32 = -48;
pub const INVALID_ARG_INDEX: i32 = -49;
pub const INVALID_ARG_VALUE: i32 = -50;
pub const INVALID_ARG_SIZE: i32 = -51;
pub const INVALID_WORK_DIMENSION: i32 = -53;
pub const INVALID_EVENT_WAIT_LIST: i32 = -57;
pub const INVALID_EVENT: i32 = -58;
pub const INVALID_OPERATION: i32 = -59;
pub const INVALID_BUFFER_SIZE: i32 = -61;
pub const INVALID_GLOBAL_WORK_SIZE: i32 = -63;
pub const INVALID_PROPERTY: i32 = -64;
pub const INVALID_IMAGE_DESCRIPTOR: i32 = -65;
pub const PLATFORM_NOT_FOUND: i32 = -1001;

pub const QUEUE_OUT_OF_ORDER: u64 = 1;
pub const QUEUE_PROFILING: u64 = 2;
pub const QUEUE_PROPERTIES: u64 = 0x1093;

pub const MEM_READ_WRITE: u64 = 1;
pub const MEM_WRITE_ONLY: u64 = 1 << 1;
pub const MEM_READ_ONLY: u64 = 1 << 2;
pub const MEM_USE_HOST_PTR: u64 = 1 << 3;
pub const MEM_ALLOC_HOST_PTR: u64 = 1 << 4;
pub const MEM_COPY_HOST_PTR: u64 = 1 << 5;

pub const MAP_READ: u64 = 1;
pub const MAP_WRITE: u64 = 1 << 1;
pub const MAP_INVALIDATE: u64 = 1 << 2;

pub const COMPLETE: i32 = 0;
pub const SUBMITTED: i32 = 2;
