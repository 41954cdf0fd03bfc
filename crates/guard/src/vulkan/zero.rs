//! Zero on allocation: a buffer of ours is bound to the new memory and filled on a queue of the device's, or, where no
//! buffer can be bound and the host sees the memory, the host writes the zeros. Memory that neither reaches is not
//! given out: see SPECIFICATION.md.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_limits::now_ns;

use super::abi::{
    AllocateInfo, BufferCreateInfo, Code, CommandAllocateInfo, CommandBeginInfo, Handle, MappedRange, Object,
    PoolCreateInfo, ProcAddr, Requirements, SUCCESS, SetLoaderData, SubmitInfo, TIMEOUT, TYPE_HOST_COHERENT,
    TYPE_HOST_VISIBLE, head,
};
use super::device::Device;
use super::instance::behind;
use super::queue::Place;

/// The most that one buffer of ours covers.
const PART: u64 = 1 << 30;
const TRANSFER_TO: u32 = 2;
const WHOLE: u64 = u64::MAX;
/// How long zeroing waits behind the program's own work on a queue they share.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What became of new memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    Done,
    /// It could not be done, and the memory must not be given out.
    Not,
    /// It is still under way: the memory must neither be given out nor freed.
    Pending,
}

impl Zeroed {
    fn of(done: bool) -> Zeroed {
        if done { Zeroed::Done } else { Zeroed::Not }
    }
}

type Create<T> = unsafe extern "system" fn(Handle, *const T, *const c_void, *mut Object) -> Code;
type Destroy = unsafe extern "system" fn(Handle, Object, *const c_void);
type Fences = unsafe extern "system" fn(Handle, u32, *const Object, u32, u64) -> Code;

/// What zeroing asks of a device.
pub struct Scrub {
    queue: usize,
    family: u32,
    /// Held by whoever uses the queue, where the program has it too.
    shared: Option<Mutex<()>>,
    loader_data: Option<SetLoaderData>,
    create_buffer: Create<BufferCreateInfo>,
    destroy_buffer: Destroy,
    requirements: unsafe extern "system" fn(Handle, Object, *mut Requirements),
    bind: unsafe extern "system" fn(Handle, Object, Object, u64) -> Code,
    create_pool: Create<PoolCreateInfo>,
    destroy_pool: Destroy,
    reset_pool: unsafe extern "system" fn(Handle, Object, u32) -> Code,
    allocate: unsafe extern "system" fn(Handle, *const CommandAllocateInfo, *mut Handle) -> Code,
    begin: unsafe extern "system" fn(Handle, *const CommandBeginInfo) -> Code,
    end_commands: unsafe extern "system" fn(Handle) -> Code,
    fill: unsafe extern "system" fn(Handle, Object, u64, u64, u32),
    submit: unsafe extern "system" fn(Handle, u32, *const SubmitInfo, Object) -> Code,
    create_fence: Create<PoolCreateInfo>,
    destroy_fence: Destroy,
    wait: Fences,
    map: unsafe extern "system" fn(Handle, Object, u64, u64, u32, *mut *mut c_void) -> Code,
    unmap: unsafe extern "system" fn(Handle, Object),
    flush: unsafe extern "system" fn(Handle, u32, *const MappedRange) -> Code,
    /// Our pool of commands and the one command buffer of it, made at first need.
    commands: Mutex<Option<(Object, usize)>>,
}

impl Scrub {
    /// # Safety
    /// A live device with a queue at this place, and the function its chain goes on with.
    pub unsafe fn resolve(
        proc_addr: ProcAddr,
        device: Handle,
        place: Place,
        loader_data: Option<SetLoaderData>,
    ) -> Option<Scrub> {
        // SAFETY: each name with the type the Vulkan headers give it; the queue is there.
        unsafe {
            let get: unsafe extern "system" fn(Handle, u32, u32, *mut Handle) =
                behind(proc_addr, device, c"vkGetDeviceQueue")?;
            let mut queue: Handle = std::ptr::null_mut();
            get(device, place.family, place.index, &mut queue);
            if queue.is_null() {
                return None;
            }
            if let Some(set) = loader_data {
                set(device, queue);
            }
            Some(Scrub {
                queue: queue as usize,
                family: place.family,
                shared: place.shared.then(Mutex::default),
                loader_data,
                create_buffer: behind(proc_addr, device, c"vkCreateBuffer")?,
                destroy_buffer: behind(proc_addr, device, c"vkDestroyBuffer")?,
                requirements: behind(proc_addr, device, c"vkGetBufferMemoryRequirements")?,
                bind: behind(proc_addr, device, c"vkBindBufferMemory")?,
                create_pool: behind(proc_addr, device, c"vkCreateCommandPool")?,
                destroy_pool: behind(proc_addr, device, c"vkDestroyCommandPool")?,
                reset_pool: behind(proc_addr, device, c"vkResetCommandPool")?,
                allocate: behind(proc_addr, device, c"vkAllocateCommandBuffers")?,
                begin: behind(proc_addr, device, c"vkBeginCommandBuffer")?,
                end_commands: behind(proc_addr, device, c"vkEndCommandBuffer")?,
                fill: behind(proc_addr, device, c"vkCmdFillBuffer")?,
                submit: behind(proc_addr, device, c"vkQueueSubmit")?,
                create_fence: behind(proc_addr, device, c"vkCreateFence")?,
                destroy_fence: behind(proc_addr, device, c"vkDestroyFence")?,
                wait: behind(proc_addr, device, c"vkWaitForFences")?,
                map: behind(proc_addr, device, c"vkMapMemory")?,
                unmap: behind(proc_addr, device, c"vkUnmapMemory")?,
                flush: behind(proc_addr, device, c"vkFlushMappedMemoryRanges")?,
                commands: Mutex::new(None),
            })
        }
    }

    pub fn queue(&self) -> Handle {
        self.queue as Handle
    }

    /// Whether this is the queue of zeroing, and the program's too.
    pub fn shares(&self, queue: Handle) -> bool {
        self.shared.is_some() && self.queue == queue as usize
    }

    /// Runs `work` alone on the queue, if it is the one that is shared: of all others the program sees to that itself.
    pub fn alone<T>(&self, queue: Handle, work: impl FnOnce() -> T) -> T {
        let shared = self.shared.as_ref().filter(|_| self.shares(queue));
        let _one = shared.map(|one| one.lock().unwrap_or_else(PoisonError::into_inner));
        work()
    }

    /// The device is going.
    pub fn end(&self, device: Handle) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((pool, _)) = commands.take() {
            // SAFETY: our own pool; its work was waited for.
            unsafe { (self.destroy_pool)(device, pool, std::ptr::null()) };
        }
    }

    /// Our command buffer, ready to be written.
    fn fresh_commands(&self, device: Handle, commands: &mut Option<(Object, usize)>) -> Option<Handle> {
        // SAFETY: structures of our own; the pool's one buffer is not in use, since every use is waited for.
        unsafe {
            if commands.is_none() {
                let info = PoolCreateInfo {
                    head: head(39),
                    flags: 0,
                    family: self.family,
                };
                let mut pool = 0;
                if (self.create_pool)(device, &info, std::ptr::null(), &mut pool) != SUCCESS {
                    return None;
                }
                let info = CommandAllocateInfo {
                    head: head(40),
                    pool,
                    level: 0,
                    count: 1,
                };
                let mut buffer: Handle = std::ptr::null_mut();
                if (self.allocate)(device, &info, &mut buffer) != SUCCESS {
                    (self.destroy_pool)(device, pool, std::ptr::null());
                    return None;
                }
                if let Some(set) = self.loader_data {
                    set(device, buffer);
                }
                *commands = Some((pool, buffer as usize));
            }
            let (pool, buffer) = (*commands)?;
            let begin = CommandBeginInfo {
                head: head(42),
                flags: 1,
                inheritance: std::ptr::null(),
            };
            let ready = (self.reset_pool)(device, pool, 0) == SUCCESS
                && (self.begin)(buffer as Handle, &begin) == SUCCESS;
            ready.then_some(buffer as Handle)
        }
    }

    /// Fills memory through a buffer of ours; none: no buffer can be bound there.
    fn by_device(&self, device: Handle, memory: Object, info: &AllocateInfo) -> Option<Zeroed> {
        let parts = self.cover(device, memory, info)?;
        let Some(done) = self.fill_all(device, &parts) else {
            return Some(Zeroed::Pending);
        };
        // SAFETY: our own buffers, whose use was waited for.
        parts
            .iter()
            .for_each(|(buffer, _)| unsafe { (self.destroy_buffer)(device, *buffer, std::ptr::null()) });
        Some(Zeroed::of(done))
    }

    /// Buffers bound to all of the memory.
    fn cover(&self, device: Handle, memory: Object, info: &AllocateInfo) -> Option<Vec<(Object, u64)>> {
        let mut parts: Vec<(Object, u64)> = Vec::new();
        let mut at = 0;
        while at < info.size {
            let length = (info.size - at).min(PART);
            let wanted = BufferCreateInfo {
                head: head(12),
                flags: 0,
                size: length,
                usage: TRANSFER_TO,
                sharing: 0,
                family_count: 0,
                families: std::ptr::null(),
            };
            let mut buffer = 0;
            let mut needs = Requirements::default();
            // SAFETY: structures of our own; the memory is ours alone until it is given out.
            let bound = unsafe {
                (self.create_buffer)(device, &wanted, std::ptr::null(), &mut buffer) == SUCCESS && {
                    parts.push((buffer, length));
                    (self.requirements)(device, buffer, &mut needs);
                    let fits = needs.size <= info.size - at && at.is_multiple_of(needs.alignment.max(1));
                    fits && needs.type_bits & 1 << info.memory_type != 0
                        && (self.bind)(device, buffer, memory, at) == SUCCESS
                }
            };
            if !bound {
                // SAFETY: our own buffers, never used.
                parts
                    .iter()
                    .for_each(|(part, _)| unsafe { (self.destroy_buffer)(device, *part, std::ptr::null()) });
                return None;
            }
            at += length;
        }
        Some(parts)
    }

    /// None: it did not come to it in time, and nothing of it may be touched any more.
    fn fill_all(&self, device: Handle, parts: &[(Object, u64)]) -> Option<bool> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(buffer) = self.fresh_commands(device, &mut commands) else {
            return Some(false);
        };
        // SAFETY: commands, buffers and a fence of our own; the queue is held while it is given them.
        unsafe {
            parts
                .iter()
                .for_each(|(part, _)| (self.fill)(buffer, *part, 0, WHOLE, 0));
            if (self.end_commands)(buffer) != SUCCESS {
                return Some(false);
            }
            let mut fence = 0;
            let info = PoolCreateInfo {
                head: head(8),
                flags: 0,
                family: 0,
            };
            if (self.create_fence)(device, &info, std::ptr::null(), &mut fence) != SUCCESS {
                return Some(false);
            }
            let work = SubmitInfo {
                head: head(4),
                wait_count: 0,
                waits: std::ptr::null(),
                wait_stages: std::ptr::null(),
                command_count: 1,
                commands: &buffer,
                signal_count: 0,
                signals: std::ptr::null(),
            };
            let queue = self.queue as Handle;
            let sent = self.alone(queue, || (self.submit)(queue, 1, &work, fence)) == SUCCESS;
            let waited = sent.then(|| (self.wait)(device, 1, &fence, 1, PATIENCE_NS));
            if waited == Some(TIMEOUT) {
                // The program's own work before it waits for the program. What is under way is left to itself.
                *commands = None;
                return None;
            }
            (self.destroy_fence)(device, fence, std::ptr::null());
            Some(waited == Some(SUCCESS))
        }
    }

    fn by_host(&self, device: Handle, memory: Object, size: u64, flags: u32) -> bool {
        let mut at: *mut c_void = std::ptr::null_mut();
        // SAFETY: memory the host sees, ours alone until it is given out.
        unsafe {
            if (self.map)(device, memory, 0, WHOLE, 0, &mut at) != SUCCESS || at.is_null() {
                return false;
            }
            std::ptr::write_bytes(at.cast::<u8>(), 0, size as usize);
            let range = MappedRange {
                head: head(6),
                memory,
                offset: 0,
                size: WHOLE,
            };
            let flushed = flags & TYPE_HOST_COHERENT != 0 || (self.flush)(device, 1, &range) == SUCCESS;
            (self.unmap)(device, memory);
            flushed
        }
    }
}

/// Zeroes new memory. `alone`: it is one object's, and nothing of ours can be bound to it.
pub fn memory(device: &Arc<Device>, memory: Object, info: &AllocateInfo, flags: u32, alone: bool) -> Zeroed {
    let Some(scrub) = &device.scrub else {
        return Zeroed::Not;
    };
    let handle = device.handle as Handle;
    let begun = now_ns();
    let by_device = (!alone).then(|| scrub.by_device(handle, memory, info)).flatten();
    let done = by_device.unwrap_or_else(|| {
        Zeroed::of(flags & TYPE_HOST_VISIBLE != 0 && scrub.by_host(handle, memory, info.size, flags))
    });
    device.binding.gate.charge_time(now_ns() - begun);
    done
}
