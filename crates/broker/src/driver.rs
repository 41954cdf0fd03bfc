//! The driver's functions, through the OpenCL loader with the guard in front of it, as in a job. Loaded once, up
//! front, so that nothing need be opened later.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use crate::abi::{Handle, PLATFORM_VERSION, SUCCESS};

pub type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
type Plain = unsafe extern "C" fn(Handle) -> i32;
type Sides = *const usize;
type Waits = *const Handle;

macro_rules! functions {
    ($($name:ident $symbol:literal: $kind:ty;)*) => {
        pub struct Functions { $(pub $name: $kind,)* }

        impl Functions {
            fn load(library: &libloading::Library) -> Result<Functions, String> {
                Ok(Functions { $(
                    // SAFETY: the type is the one the OpenCL headers give this name.
                    $name: *unsafe { library.get::<$kind>($symbol) }
                        .map_err(|_| format!("the OpenCL loader has no {}", $symbol))?,
                )* })
            }
        }
    };
}

functions! {
    get_platform_ids "clGetPlatformIDs": unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
    get_platform_info "clGetPlatformInfo": GetInfo;
    get_device_ids "clGetDeviceIDs": unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
    get_device_info "clGetDeviceInfo": GetInfo;
    create_context "clCreateContext": unsafe extern "C" fn(*const isize, u32, *const Handle, *const c_void, *mut c_void, *mut i32) -> Handle;
    release_context "clReleaseContext": Plain;
    create_queue "clCreateCommandQueue": unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
    create_queue_with_properties "clCreateCommandQueueWithProperties": unsafe extern "C" fn(Handle, Handle, *const u64, *mut i32) -> Handle;
    retain_queue "clRetainCommandQueue": Plain;
    release_queue "clReleaseCommandQueue": Plain;
    create_buffer "clCreateBuffer": unsafe extern "C" fn(Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
    create_sub_buffer "clCreateSubBuffer": unsafe extern "C" fn(Handle, u64, u32, *const c_void, *mut i32) -> Handle;
    create_image "clCreateImage": unsafe extern "C" fn(Handle, u64, *const c_void, *const c_void, *mut c_void, *mut i32) -> Handle;
    release_memory "clReleaseMemObject": Plain;
    get_image_info "clGetImageInfo": GetInfo;
    get_image_formats "clGetSupportedImageFormats": unsafe extern "C" fn(Handle, u64, u32, u32, *mut c_void, *mut u32) -> i32;
    create_sampler "clCreateSampler": unsafe extern "C" fn(Handle, u32, u32, u32, *mut i32) -> Handle;
    release_sampler "clReleaseSampler": Plain;
    create_program_with_source "clCreateProgramWithSource": unsafe extern "C" fn(Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle;
    create_program_with_binary "clCreateProgramWithBinary": unsafe extern "C" fn(Handle, u32, *const Handle, *const usize, *const *const u8, *mut i32, *mut i32) -> Handle;
    create_program_with_il "clCreateProgramWithIL": unsafe extern "C" fn(Handle, *const c_void, usize, *mut i32) -> Handle;
    create_program_with_built_in_kernels "clCreateProgramWithBuiltInKernels": unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, *mut i32) -> Handle;
    build_program "clBuildProgram": unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, *const c_void, *mut c_void) -> i32;
    compile_program "clCompileProgram": unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, u32, *const Handle, *const *const c_char, *const c_void, *mut c_void) -> i32;
    link_program "clLinkProgram": unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, u32, *const Handle, *const c_void, *mut c_void, *mut i32) -> Handle;
    set_specialization "clSetProgramSpecializationConstant": unsafe extern "C" fn(Handle, u32, usize, *const c_void) -> i32;
    release_program "clReleaseProgram": Plain;
    get_program_info "clGetProgramInfo": GetInfo;
    get_build_info "clGetProgramBuildInfo": unsafe extern "C" fn(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    create_kernel "clCreateKernel": unsafe extern "C" fn(Handle, *const c_char, *mut i32) -> Handle;
    create_kernels "clCreateKernelsInProgram": unsafe extern "C" fn(Handle, u32, *mut Handle, *mut u32) -> i32;
    clone_kernel "clCloneKernel": unsafe extern "C" fn(Handle, *mut i32) -> Handle;
    set_kernel_arg "clSetKernelArg": unsafe extern "C" fn(Handle, u32, usize, *const c_void) -> i32;
    release_kernel "clReleaseKernel": Plain;
    get_kernel_info "clGetKernelInfo": GetInfo;
    get_kernel_arg_info "clGetKernelArgInfo": unsafe extern "C" fn(Handle, u32, u32, usize, *mut c_void, *mut usize) -> i32;
    get_kernel_work_group_info "clGetKernelWorkGroupInfo": unsafe extern "C" fn(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    get_kernel_sub_group_info "clGetKernelSubGroupInfo": unsafe extern "C" fn(Handle, Handle, u32, usize, *const c_void, usize, *mut c_void, *mut usize) -> i32;
    create_user_event "clCreateUserEvent": unsafe extern "C" fn(Handle, *mut i32) -> Handle;
    set_user_event_status "clSetUserEventStatus": unsafe extern "C" fn(Handle, i32) -> i32;
    set_event_callback "clSetEventCallback": unsafe extern "C" fn(Handle, i32, unsafe extern "C" fn(Handle, i32, *mut c_void), *mut c_void) -> i32;
    wait_for_events "clWaitForEvents": unsafe extern "C" fn(u32, *const Handle) -> i32;
    retain_event "clRetainEvent": Plain;
    release_event "clReleaseEvent": Plain;
    get_event_info "clGetEventInfo": GetInfo;
    get_event_profiling_info "clGetEventProfilingInfo": GetInfo;
    flush "clFlush": Plain;
    finish "clFinish": Plain;
    launch "clEnqueueNDRangeKernel": unsafe extern "C" fn(Handle, Handle, u32, Sides, Sides, Sides, u32, Waits, *mut Handle) -> i32;
    read_buffer "clEnqueueReadBuffer": unsafe extern "C" fn(Handle, Handle, u32, usize, usize, *mut c_void, u32, Waits, *mut Handle) -> i32;
    write_buffer "clEnqueueWriteBuffer": unsafe extern "C" fn(Handle, Handle, u32, usize, usize, *const c_void, u32, Waits, *mut Handle) -> i32;
    read_rect "clEnqueueReadBufferRect": unsafe extern "C" fn(Handle, Handle, u32, Sides, Sides, Sides, usize, usize, usize, usize, *mut c_void, u32, Waits, *mut Handle) -> i32;
    write_rect "clEnqueueWriteBufferRect": unsafe extern "C" fn(Handle, Handle, u32, Sides, Sides, Sides, usize, usize, usize, usize, *const c_void, u32, Waits, *mut Handle) -> i32;
    copy_buffer "clEnqueueCopyBuffer": unsafe extern "C" fn(Handle, Handle, Handle, usize, usize, usize, u32, Waits, *mut Handle) -> i32;
    copy_rect "clEnqueueCopyBufferRect": unsafe extern "C" fn(Handle, Handle, Handle, Sides, Sides, Sides, usize, usize, usize, usize, u32, Waits, *mut Handle) -> i32;
    fill_buffer "clEnqueueFillBuffer": unsafe extern "C" fn(Handle, Handle, *const c_void, usize, usize, usize, u32, Waits, *mut Handle) -> i32;
    read_image "clEnqueueReadImage": unsafe extern "C" fn(Handle, Handle, u32, Sides, Sides, usize, usize, *mut c_void, u32, Waits, *mut Handle) -> i32;
    write_image "clEnqueueWriteImage": unsafe extern "C" fn(Handle, Handle, u32, Sides, Sides, usize, usize, *const c_void, u32, Waits, *mut Handle) -> i32;
    copy_image "clEnqueueCopyImage": unsafe extern "C" fn(Handle, Handle, Handle, Sides, Sides, Sides, u32, Waits, *mut Handle) -> i32;
    image_to_buffer "clEnqueueCopyImageToBuffer": unsafe extern "C" fn(Handle, Handle, Handle, Sides, Sides, usize, u32, Waits, *mut Handle) -> i32;
    buffer_to_image "clEnqueueCopyBufferToImage": unsafe extern "C" fn(Handle, Handle, Handle, usize, Sides, Sides, u32, Waits, *mut Handle) -> i32;
    fill_image "clEnqueueFillImage": unsafe extern "C" fn(Handle, Handle, *const c_void, Sides, Sides, u32, Waits, *mut Handle) -> i32;
    migrate "clEnqueueMigrateMemObjects": unsafe extern "C" fn(Handle, u32, *const Handle, u64, u32, Waits, *mut Handle) -> i32;
    marker "clEnqueueMarkerWithWaitList": unsafe extern "C" fn(Handle, u32, Waits, *mut Handle) -> i32;
    barrier "clEnqueueBarrierWithWaitList": unsafe extern "C" fn(Handle, u32, Waits, *mut Handle) -> i32;
    get_timers "clGetDeviceAndHostTimer": unsafe extern "C" fn(Handle, *mut u64, *mut u64) -> i32;
}

/// One device of the slice.
pub struct Device {
    pub handle: Handle,
    /// The number of its platform.
    pub platform: u32,
}

pub struct Driver {
    pub functions: Functions,
    pub platforms: Vec<Handle>,
    /// Major and minor version of each platform.
    pub versions: Vec<(u32, u32)>,
    pub devices: Vec<Device>,
    /// Held for the functions' sake.
    _library: Option<libloading::Library>,
}

// SAFETY: handles are names for the driver, which is thread-safe.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The driver.
///
/// # Panics
/// When it was not opened: nothing of the worker runs before.
pub fn driver() -> &'static Driver {
    DRIVER.get().expect("the driver is opened first")
}

/// Shorthand for its functions.
pub fn cl() -> &'static Functions {
    &driver().functions
}

/// Opens the driver, if it is not open.
pub fn open_once() -> Result<(), String> {
    match DRIVER.get() {
        Some(_) => Ok(()),
        None => open(),
    }
}

/// Opens the driver and looks for the slice's devices.
pub fn open() -> Result<(), String> {
    // SAFETY: the loader's start-up code is its own business.
    let library = unsafe { libloading::Library::new("libOpenCL.so.1") }.map_err(|error| error.to_string())?;
    let functions = Functions::load(&library)?;
    let platforms = handles(|count, into, there| {
        // SAFETY: room for `count` handles.
        unsafe { (functions.get_platform_ids)(count, into, there) }
    });
    let mut devices = Vec::new();
    let mut versions = Vec::new();
    for (number, platform) in platforms.iter().enumerate() {
        versions.push(version(&functions, *platform));
        let here = handles(|count, into, there| {
            // SAFETY: room for `count` handles.
            unsafe { (functions.get_device_ids)(*platform, 0xFFFF_FFFF, count, into, there) }
        });
        devices.extend(here.into_iter().map(|handle| Device {
            handle,
            platform: number as u32,
        }));
    }
    if devices.is_empty() {
        return Err("the driver shows no device of the slice".into());
    }
    let opened = Driver {
        functions,
        platforms,
        versions,
        devices,
        _library: Some(library),
    };
    DRIVER
        .set(opened)
        .map_err(|_| "the driver is open already".to_owned())
}

/// Puts a double in the driver's place, if nothing is there.
#[cfg(any(test, feature = "trial"))]
pub fn install(
    functions: Functions,
    platforms: Vec<Handle>,
    versions: Vec<(u32, u32)>,
    devices: Vec<Device>,
) {
    DRIVER.get_or_init(|| Driver {
        functions,
        platforms,
        versions,
        devices,
        _library: None,
    });
}

fn handles(ask: impl Fn(u32, *mut Handle, *mut u32) -> i32) -> Vec<Handle> {
    let mut found = [std::ptr::null_mut(); 64];
    let mut count = 0;
    if ask(found.len() as u32, found.as_mut_ptr(), &mut count) != SUCCESS {
        return Vec::new();
    }
    found[..(count as usize).min(found.len())].to_vec()
}

fn version(functions: &Functions, platform: Handle) -> (u32, u32) {
    let text = ask(|size, value, there| {
        // SAFETY: room for `size` bytes.
        unsafe { (functions.get_platform_info)(platform, PLATFORM_VERSION, size, value, there) }
    })
    .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let number = text.split_whitespace().nth(1).unwrap_or("1.0");
    let (major, minor) = number.split_once('.').unwrap_or(("1", "0"));
    (
        major.parse().unwrap_or(1),
        minor.trim_end_matches('\0').parse().unwrap_or(0),
    )
}

/// The longest answer the driver may give.
const ANSWER_MOST: usize = 256 << 20;

/// What the driver answers to one of its `clGet…Info` questions.
pub fn ask(question: impl Fn(usize, *mut c_void, *mut usize) -> i32) -> Result<Vec<u8>, i32> {
    let mut size = 0;
    match question(0, std::ptr::null_mut(), &mut size) {
        SUCCESS if size <= ANSWER_MOST => {}
        SUCCESS => return Err(crate::abi::OUT_OF_RESOURCES),
        code => return Err(code),
    }
    let mut answer = vec![0; size];
    if size > 0 {
        match question(size, answer.as_mut_ptr().cast(), std::ptr::null_mut()) {
            SUCCESS => {}
            code => return Err(code),
        }
    }
    Ok(answer)
}

/// The same for one number.
pub fn ask_number<T: Copy + Default>(
    question: impl Fn(usize, *mut c_void, *mut usize) -> i32,
) -> Result<T, i32> {
    let mut number = T::default();
    match question(size_of::<T>(), (&raw mut number).cast(), std::ptr::null_mut()) {
        SUCCESS => Ok(number),
        code => Err(code),
    }
}
