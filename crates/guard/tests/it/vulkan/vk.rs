//! A small Vulkan caller over `libvulkan.so.1`, loaded at run time. Unwraps everything: it is a test's.
//!
//! Structures are written as arrays of words of eight bytes, laid out as the headers lay them out.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use libloading::os::unix::{Library, Symbol};

pub type Handle = *mut c_void;

pub const OUT_OF_DEVICE_MEMORY: i32 = -2;
pub const INVALID_EXTERNAL_HANDLE: i32 = -1000072003;

/// Calls a function of Vulkan's with the arguments given, all as the types written.
#[macro_export]
macro_rules! vk {
    ($vk:expr, $name:literal, $ret:ty $(, $arg:expr => $kind:ty)* $(,)?) => {{
        type Function = unsafe extern "system" fn($($kind),*) -> $ret;
        let function = $vk.function::<Function>($name);
        // SAFETY: the types are those of the Vulkan headers, the values made by this test.
        unsafe { function($($arg),*) }
    }};
}

pub struct Vk {
    library: Library,
    pub instance: Handle,
    pub physical: Handle,
    pub device: Handle,
    pub queue: Handle,
}

impl Vk {
    /// A device and its queue on the first physical device, or why there is none.
    pub fn open() -> Result<Vk, String> {
        // SAFETY: the loader's constructors are its own business.
        let library = unsafe { Library::new("libvulkan.so.1") }.unwrap();
        let mut vk = Vk {
            library,
            instance: null_mut(),
            physical: null_mut(),
            device: null_mut(),
            queue: null_mut(),
        };
        // Vulkan 1.1, as an application says it.
        let application = [0u64, 0, 0, 0, 0, 1 << 22 | 1 << 12];
        let info = [1u64, 0, 0, application.as_ptr() as u64, 0, 0, 0, 0];
        let code = vk!(vk, "vkCreateInstance", i32, info.as_ptr() => *const u64, null() => *const c_void,
            &mut vk.instance => *mut Handle);
        assert_eq!(code, 0, "vkCreateInstance");
        let mut count = 1;
        let code = vk!(vk, "vkEnumeratePhysicalDevices", i32, vk.instance => Handle, &mut count => *mut u32,
            &mut vk.physical => *mut Handle);
        if code != 0 || count == 0 {
            return Err(format!("{code}, {count} devices"));
        }
        vk.make_device(&[])?;
        Ok(vk)
    }

    pub fn make_device(&mut self, extensions: &[*const c_char]) -> Result<(), String> {
        let priority = 1.0f32;
        let queue = [2u64, 0, 0, 1, (&raw const priority) as u64];
        let info = [
            3u64,
            0,
            1 << 32,
            queue.as_ptr() as u64,
            0,
            0,
            extensions.len() as u64,
            extensions.as_ptr() as u64,
            0,
        ];
        let code = vk!(self, "vkCreateDevice", i32, self.physical => Handle, info.as_ptr() => *const u64,
            null() => *const c_void, &mut self.device => *mut Handle);
        if code != 0 {
            return Err(format!("vkCreateDevice: {code}"));
        }
        vk!(self, "vkGetDeviceQueue", (), self.device => Handle, 0 => u32, 0 => u32, &mut self.queue => *mut Handle);
        Ok(())
    }

    pub fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller names the type the headers give.
        let symbol: Symbol<F> = unsafe { self.library.get(name.as_bytes()) }.unwrap();
        *symbol
    }

    /// Memory of the first type, which on lavapipe is the only one.
    pub fn alloc(&self, bytes: u64, chain: *const u64) -> Result<u64, i32> {
        let info = [5u64, chain as u64, bytes, 0];
        let mut memory = 0;
        let code = vk!(self, "vkAllocateMemory", i32, self.device => Handle, info.as_ptr() => *const u64,
            null() => *const c_void, &mut memory => *mut u64);
        if code == 0 { Ok(memory) } else { Err(code) }
    }

    pub fn free(&self, memory: u64) {
        vk!(self, "vkFreeMemory", (), self.device => Handle, memory => u64, null() => *const c_void);
    }

    pub fn mapped<T>(&self, memory: u64, bytes: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut at = null_mut();
        let code = vk!(self, "vkMapMemory", i32, self.device => Handle, memory => u64, 0 => u64, u64::MAX => u64,
            0 => u32, &mut at => *mut *mut c_void);
        assert_eq!(code, 0, "vkMapMemory");
        // SAFETY: mapped just now, at least so long.
        let answer = work(unsafe { std::slice::from_raw_parts_mut(at.cast(), bytes) });
        vk!(self, "vkUnmapMemory", (), self.device => Handle, memory => u64);
        answer
    }

    /// A buffer bound to new memory of its own, and the memory.
    pub fn buffer(&self, bytes: u64) -> (u64, u64) {
        let info = [12u64, 0, 0, bytes, 3, 0, 0];
        let mut buffer = 0;
        let code = vk!(self, "vkCreateBuffer", i32, self.device => Handle, info.as_ptr() => *const u64,
            null() => *const c_void, &mut buffer => *mut u64);
        assert_eq!(code, 0, "vkCreateBuffer");
        let memory = self.alloc(bytes, null()).unwrap();
        let code = vk!(self, "vkBindBufferMemory", i32, self.device => Handle, buffer => u64, memory => u64,
            0 => u64);
        assert_eq!(code, 0, "vkBindBufferMemory");
        (buffer, memory)
    }

    /// Commands that fill a buffer `times` over.
    pub fn fills(&self, buffer: u64, bytes: u64, times: u32) -> Handle {
        let info = [39u64, 0, 0];
        let mut pool = 0u64;
        let code = vk!(self, "vkCreateCommandPool", i32, self.device => Handle, info.as_ptr() => *const u64,
            null() => *const c_void, &mut pool => *mut u64);
        assert_eq!(code, 0, "vkCreateCommandPool");
        let info = [40u64, 0, pool, 1 << 32];
        let mut commands = null_mut();
        let code = vk!(self, "vkAllocateCommandBuffers", i32, self.device => Handle, info.as_ptr() => *const u64,
            &mut commands => *mut Handle);
        assert_eq!(code, 0, "vkAllocateCommandBuffers");
        let begin = [42u64, 0, 0, 0];
        let code = vk!(self, "vkBeginCommandBuffer", i32, commands => Handle, begin.as_ptr() => *const u64);
        assert_eq!(code, 0, "vkBeginCommandBuffer");
        for value in 0..times {
            vk!(self, "vkCmdFillBuffer", (), commands => Handle, buffer => u64, 0 => u64, bytes => u64,
                value => u32);
        }
        assert_eq!(vk!(self, "vkEndCommandBuffer", i32, commands => Handle), 0);
        commands
    }

    pub fn submit(&self, commands: Handle) -> i32 {
        let info = [4u64, 0, 0, 0, 0, 1, (&raw const commands) as u64, 0, 0];
        vk!(self, "vkQueueSubmit", i32, self.queue => Handle, 1 => u32, info.as_ptr() => *const u64, 0 => u64)
    }

    pub fn wait(&self) {
        assert_eq!(vk!(self, "vkQueueWaitIdle", i32, self.queue => Handle), 0);
    }
}

impl Drop for Vk {
    fn drop(&mut self) {
        if !self.device.is_null() {
            vk!(self, "vkDestroyDevice", (), self.device => Handle, null() => *const c_void);
        }
        vk!(self, "vkDestroyInstance", (), self.instance => Handle, null() => *const c_void);
    }
}
