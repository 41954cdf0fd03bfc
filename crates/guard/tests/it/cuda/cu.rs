//! A small caller of the driver API over `libcuda.so.1`, loaded at run time. Unwraps everything: it is a test's.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use libloading::os::unix::{Library, Symbol};

pub type Handle = *mut c_void;

pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_SUPPORTED: i32 = 801;

/// Calls a function of the driver with the arguments given, all as the types written; answers its code.
#[macro_export]
macro_rules! cu {
    ($cu:expr, $name:literal $(, $arg:expr => $kind:ty)* $(,)?) => {{
        type Function = unsafe extern "C" fn($($kind),*) -> i32;
        let function = $cu.function::<Function>($name);
        // SAFETY: the types are those of the CUDA headers, the values made by this test.
        unsafe { function($($arg),*) }
    }};
}

pub struct Cu(Library);

impl Cu {
    /// The driver started, and a context on its first device.
    pub fn open() -> Cu {
        let cu = Cu::load();
        assert_eq!(cu!(cu, "cuInit", 0 => u32), 0);
        let mut context: Handle = null_mut();
        assert_eq!(
            cu!(cu, "cuDevicePrimaryCtxRetain", &mut context => *mut Handle, 0 => i32),
            0
        );
        assert_eq!(cu!(cu, "cuCtxSetCurrent", context => Handle), 0);
        cu
    }

    pub fn load() -> Cu {
        // SAFETY: the driver's constructors are its own business.
        Cu(unsafe { Library::new("libcuda.so.1") }.unwrap())
    }

    pub fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller names the type the headers give.
        let symbol: Symbol<F> = unsafe { self.0.get(name.as_bytes()) }.unwrap();
        *symbol
    }

    pub fn alloc(&self, bytes: usize) -> Result<u64, i32> {
        let mut at = 0;
        match cu!(self, "cuMemAlloc_v2", &mut at => *mut u64, bytes => usize) {
            0 => Ok(at),
            code => Err(code),
        }
    }

    pub fn free(&self, at: u64) {
        assert_eq!(cu!(self, "cuMemFree_v2", at => u64), 0);
    }

    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let mut found = vec![0xEEu8; bytes];
        let code =
            cu!(self, "cuMemcpyDtoH_v2", found.as_mut_ptr().cast() => *mut c_void, at => u64, bytes => usize);
        assert_eq!(code, 0);
        found
    }

    pub fn write(&self, at: u64, from: &[u8]) {
        let code = cu!(self, "cuMemcpyHtoD_v2", at => u64, from.as_ptr().cast() => *const c_void,
            from.len() => usize);
        assert_eq!(code, 0);
    }

    /// Free and total.
    pub fn info(&self) -> (usize, usize) {
        let (mut free, mut total) = (0, 0);
        assert_eq!(
            cu!(self, "cuMemGetInfo_v2", &mut free => *mut usize, &mut total => *mut usize),
            0
        );
        (free, total)
    }

    pub fn stream(&self) -> Handle {
        let mut stream: Handle = null_mut();
        assert_eq!(
            cu!(self, "cuStreamCreate", &mut stream => *mut Handle, 1 => u32),
            0
        );
        stream
    }

    pub fn wait(&self, stream: Handle) {
        assert_eq!(cu!(self, "cuStreamSynchronize", stream => Handle), 0);
    }

    pub fn kernel(&self, name: &std::ffi::CStr) -> Handle {
        let (mut module, mut function): (Handle, Handle) = (null_mut(), null_mut());
        let image = c"".as_ptr();
        assert_eq!(
            cu!(self, "cuModuleLoadData", &mut module => *mut Handle, image.cast() => *const c_void),
            0
        );
        let code = cu!(self, "cuModuleGetFunction", &mut function => *mut Handle, module => Handle,
            name.as_ptr() => *const c_char);
        assert_eq!(code, 0);
        function
    }

    pub fn launch(&self, function: Handle, stream: Handle, parameters: &[*const c_void]) -> i32 {
        cu!(self, "cuLaunchKernel", function => Handle, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32,
            0 => u32, stream => Handle, parameters.as_ptr() => *const *const c_void, null_mut() => Handle)
    }

    /// Launches `spin` for so many microseconds.
    pub fn spin(&self, function: Handle, stream: Handle, micros: u32) {
        let parameters = [(&raw const micros).cast()];
        assert_eq!(self.launch(function, stream, &parameters), 0);
    }
}
