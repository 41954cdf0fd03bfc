//! A small OpenCL caller over `libOpenCL.so.1`, loaded at run time. Unwraps everything: it is a test's.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

use libloading::os::unix::{Library, Symbol};

pub type Handle = *mut c_void;

pub struct Cl {
    library: Library,
    pub platform: Handle,
    pub device: Handle,
}

/// Calls `$cl`'s function `$name` with the arguments given, all as the types written.
#[macro_export]
macro_rules! call {
    ($cl:expr, $name:expr, $ret:ty, $($arg:expr => $kind:ty),*) => {{
        type Function = unsafe extern "C" fn($($kind),*) -> $ret;
        let function = $cl.function::<Function>($name);
        // SAFETY: the types are those of the OpenCL headers, the values made by this test.
        unsafe { function($($arg),*) }
    }};
}

impl Cl {
    /// The first device of the first platform, or the code with which there is none.
    pub fn open() -> Result<Cl, i32> {
        // SAFETY: the loader's constructors are its own business.
        let library = unsafe { Library::new("libOpenCL.so.1") }.unwrap();
        let mut cl = Cl {
            library,
            platform: null_mut(),
            device: null_mut(),
        };
        let code = call!(cl, "clGetPlatformIDs", i32, 1 => u32, &mut cl.platform => *mut Handle, null_mut() => *mut u32);
        if code != 0 {
            return Err(code);
        }
        let code = call!(cl, "clGetDeviceIDs", i32, cl.platform => Handle, 0xFFFF_FFFF => u64, 1 => u32,
            &mut cl.device => *mut Handle, null_mut() => *mut u32);
        if code == 0 { Ok(cl) } else { Err(code) }
    }

    pub fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller names the type the headers give.
        let symbol: Symbol<F> = unsafe { self.library.get(name.as_bytes()) }.unwrap();
        *symbol
    }

    pub fn context(&self) -> Handle {
        let mut code = 0;
        let context = call!(self, "clCreateContext", Handle, null() => *const isize, 1 => u32,
            &self.device => *const Handle, null_mut() => Handle, null_mut() => Handle, &mut code => *mut i32);
        assert_eq!(code, 0, "clCreateContext");
        context
    }

    pub fn queue(&self, context: Handle, properties: u64) -> Handle {
        let mut code = 0;
        let queue = call!(self, "clCreateCommandQueue", Handle, context => Handle, self.device => Handle,
            properties => u64, &mut code => *mut i32);
        assert_eq!(code, 0, "clCreateCommandQueue");
        queue
    }

    pub fn kernel(&self, context: Handle, source: &str, name: &str) -> Handle {
        let source = CString::new(source).unwrap();
        let name = CString::new(name).unwrap();
        let mut code = 0;
        let program = call!(self, "clCreateProgramWithSource", Handle, context => Handle, 1 => u32,
            &source.as_ptr() => *const *const c_char, null() => *const usize, &mut code => *mut i32);
        assert_eq!(code, 0, "clCreateProgramWithSource");
        let code = call!(self, "clBuildProgram", i32, program => Handle, 0 => u32, null() => *const Handle,
            null() => *const c_char, null_mut() => Handle, null_mut() => Handle);
        assert_eq!(code, 0, "clBuildProgram");
        let mut code = 0;
        let kernel = call!(self, "clCreateKernel", Handle, program => Handle, name.as_ptr() => *const c_char,
            &mut code => *mut i32);
        assert_eq!(code, 0, "clCreateKernel");
        kernel
    }

    pub fn buffer(&self, context: Handle, flags: u64, size: usize) -> Result<Handle, i32> {
        let mut code = 0;
        let buffer = call!(self, "clCreateBuffer", Handle, context => Handle, flags => u64, size => usize,
            null_mut() => *mut c_void, &mut code => *mut i32);
        if code == 0 && !buffer.is_null() {
            Ok(buffer)
        } else {
            Err(code)
        }
    }

    pub fn release(&self, object: Handle) {
        assert_eq!(call!(self, "clReleaseMemObject", i32, object => Handle), 0);
    }

    pub fn set_arg<T>(&self, kernel: Handle, place: u32, value: &T) {
        let code = call!(self, "clSetKernelArg", i32, kernel => Handle, place => u32, size_of::<T>() => usize,
            (value as *const T).cast() => *const c_void);
        assert_eq!(code, 0, "clSetKernelArg");
    }

    pub fn launch(
        &self,
        queue: Handle,
        kernel: Handle,
        items: usize,
        local: usize,
        event: *mut Handle,
    ) -> i32 {
        let local = [local];
        call!(self, "clEnqueueNDRangeKernel", i32, queue => Handle, kernel => Handle, 1 => u32,
            null() => *const usize, &items => *const usize, local.as_ptr() => *const usize, 0 => u32,
            null() => *const Handle, event => *mut Handle)
    }

    pub fn finish(&self, queue: Handle) -> i32 {
        call!(self, "clFinish", i32, queue => Handle)
    }

    pub fn wait(&self, event: Handle) {
        assert_eq!(
            call!(self, "clWaitForEvents", i32, 1 => u32, &event => *const Handle),
            0
        );
    }

    pub fn release_event(&self, event: Handle) {
        assert_eq!(call!(self, "clReleaseEvent", i32, event => Handle), 0);
    }

    pub fn profile(&self, event: Handle, param: u32) -> Result<u64, i32> {
        let mut value = 0u64;
        let code = call!(self, "clGetEventProfilingInfo", i32, event => Handle, param => u32, 8 => usize,
            (&raw mut value).cast() => *mut c_void, null_mut() => *mut usize);
        if code == 0 { Ok(value) } else { Err(code) }
    }

    pub fn read(&self, queue: Handle, buffer: Handle, into: &mut [u8]) {
        let code = call!(self, "clEnqueueReadBuffer", i32, queue => Handle, buffer => Handle, 1 => u32, 0 => usize,
            into.len() => usize, into.as_mut_ptr().cast() => *mut c_void, 0 => u32, null() => *const Handle,
            null_mut() => *mut Handle);
        assert_eq!(code, 0, "clEnqueueReadBuffer");
    }

    pub fn write(&self, queue: Handle, buffer: Handle, from: &[u8]) {
        let code = call!(self, "clEnqueueWriteBuffer", i32, queue => Handle, buffer => Handle, 1 => u32, 0 => usize,
            from.len() => usize, from.as_ptr().cast() => *const c_void, 0 => u32, null() => *const Handle,
            null_mut() => *mut Handle);
        assert_eq!(code, 0, "clEnqueueWriteBuffer");
    }
}

/// Keeps a processor busy for a number of rounds, and leaves a result that depends on every one of them.
pub const SPIN: &str = "
__kernel void spin(__global uint *out, uint rounds) {
    uint x = (uint)get_global_id(0);
    for (uint i = 0; i < rounds; i++) x = x * 1664525u + 1013904223u + (x >> 7);
    out[get_global_id(0)] = x;
}
__kernel void forever(__global volatile uint *out, uint rounds) {
    while (out[0] != rounds) { }
}
__kernel void fault(__global uint *out, uint rounds) {
    __global volatile uint *nowhere = (__global volatile uint *)(ulong)rounds;
    nowhere[0] = 1;
}
";
