//! Contexts, queues, buffers, parts of buffers, samplers. How each is made anew stands beside how it is made first.

use std::sync::atomic::AtomicI32;
use std::sync::{Arc, Mutex};

use tenure_wire::{Id, Span};

use super::{DONE, Done, Here};
use crate::abi::{
    Handle, INVALID_BUFFER_SIZE, INVALID_DEVICE, INVALID_HOST_PTR, INVALID_MEM_OBJECT, INVALID_VALUE,
    MEM_ALLOC_HOST_PTR, MEM_COPY_HOST_PTR, MEM_USE_HOST_PTR, OUT_OF_RESOURCES, QUEUE_OUT_OF_ORDER,
    QUEUE_PROFILING, QUEUE_PROPERTIES, SUCCESS,
};
use crate::driver::{cl, driver};
use crate::fault::Fault;
use crate::object::{Context, Live, Memory, Object, Queue, Sampler, Shape};

/// The object a creating function made, or why there is none.
pub fn made(call: impl FnOnce(*mut i32) -> Handle) -> Result<Handle, Fault> {
    let mut code = SUCCESS;
    let handle = call(&mut code);
    match (handle.is_null(), code) {
        (false, _) => Ok(handle),
        (true, SUCCESS) => Err(Fault::Code(OUT_OF_RESOURCES)),
        (true, code) => Err(Fault::Code(code)),
    }
}

/// The driver's handles of devices by number.
pub fn device_handles(numbers: &[u32]) -> Result<Vec<Handle>, Fault> {
    numbers.iter().map(|number| device_handle(*number)).collect()
}

pub fn device_handle(number: u32) -> Result<Handle, Fault> {
    let device = driver().devices.get(number as usize);
    device
        .map(|device| device.handle)
        .ok_or(Fault::Code(INVALID_DEVICE))
}

/// The driver's handles of devices that are a context's.
pub fn own_device_handles(context: &Context, numbers: &[u32]) -> Result<Vec<Handle>, Fault> {
    numbers
        .iter()
        .map(|number| own_device_handle(context, *number))
        .collect()
}

pub fn own_device_handle(context: &Context, number: u32) -> Result<Handle, Fault> {
    match context.devices.contains(&number) {
        true => device_handle(number),
        false => Err(Fault::Code(INVALID_DEVICE)),
    }
}

pub fn context(here: Here<'_>, id: Id, devices: Vec<u32>) -> Done {
    here.table.free(id)?;
    let live = Live::new(make_context(&devices)?, cl().release_context);
    here.table
        .put(id, Object::Context(Arc::new(Context { live, devices })))?;
    Ok(DONE)
}

pub fn make_context(devices: &[u32]) -> Result<Handle, Fault> {
    if devices.is_empty() || devices.len() > 64 {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let handles = device_handles(devices)?;
    let platform_of = |device: u32| driver().devices[device as usize].platform;
    let platform = platform_of(devices[0]);
    if devices.iter().any(|device| platform_of(*device) != platform) {
        return Err(Fault::Code(INVALID_DEVICE));
    }
    let properties = [0x1084, driver().platforms[platform as usize] as isize, 0];
    // SAFETY: lists of the lengths said, alive for the call.
    made(|code| unsafe {
        (cl().create_context)(
            properties.as_ptr(),
            handles.len() as u32,
            handles.as_ptr(),
            std::ptr::null(),
            std::ptr::null_mut(),
            code,
        )
    })
}

pub fn queue(here: Here<'_>, id: Id, context: Id, device: u32, properties: u64, extra: Vec<u64>) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    let queue = Queue {
        live: Live::new(
            make_queue(&context, device, properties, &extra)?,
            cl().release_queue,
        ),
        context,
        device,
        properties,
        extra,
        failed: AtomicI32::new(0),
    };
    here.table.put(id, Object::Queue(Arc::new(queue)))?;
    Ok(DONE)
}

pub fn make_queue(context: &Context, device: u32, properties: u64, extra: &[u64]) -> Result<Handle, Fault> {
    if properties & !(QUEUE_OUT_OF_ORDER | QUEUE_PROFILING) != 0 || !extra.is_empty() {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let handle = own_device_handle(context, device)?;
    let of = context.live.get();
    let version = driver().versions[driver().devices[device as usize].platform as usize];
    if version < (2, 0) {
        // SAFETY: live handles.
        return made(|code| unsafe { (cl().create_queue)(of, handle, properties, code) });
    }
    let list = [QUEUE_PROPERTIES, properties, 0];
    // SAFETY: live handles; a list ended by zero.
    made(|code| unsafe { (cl().create_queue_with_properties)(of, handle, list.as_ptr(), code) })
}

/// Flags about host memory say nothing here: the tenant's is not ours, and ours is not shown.
pub const HOST_FLAGS: u64 = MEM_USE_HOST_PTR | MEM_ALLOC_HOST_PTR | MEM_COPY_HOST_PTR;

pub fn buffer(here: Here<'_>, id: Id, context: Id, flags: u64, bytes: u64, from: Option<Span>) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    let first = match from {
        Some(span) if span.bytes != bytes => return Err(Fault::Code(INVALID_HOST_PTR)),
        Some(span) => here.address(span)?,
        None => std::ptr::null_mut(),
    };
    let memory = Memory {
        live: Live::new(make_buffer(&context, flags, bytes, first)?, cl().release_memory),
        context,
        flags: flags & !HOST_FLAGS,
        bytes,
        shape: Shape::Buffer,
        store: Mutex::default(),
    };
    here.table.put(id, Object::Memory(Arc::new(memory)))?;
    Ok(DONE)
}

/// `first`: where as many bytes lie as the buffer has, or null.
pub fn make_buffer(context: &Context, flags: u64, bytes: u64, first: *mut u8) -> Result<Handle, Fault> {
    let size = usize::try_from(bytes).map_err(|_| Fault::Code(INVALID_BUFFER_SIZE))?;
    if size == 0 {
        return Err(Fault::Code(INVALID_BUFFER_SIZE));
    }
    let mut flags = flags & !HOST_FLAGS;
    if !first.is_null() {
        flags |= MEM_COPY_HOST_PTR;
    }
    // SAFETY: a live context; `first` has `size` bytes or is null, and is copied before the call returns.
    made(|code| unsafe { (cl().create_buffer)(context.live.get(), flags, size, first.cast(), code) })
}

pub fn part(here: Here<'_>, id: Id, buffer: Id, flags: u64, at: u64, bytes: u64) -> Done {
    here.table.free(id)?;
    let of = here.table.memory(buffer)?;
    if !matches!(of.shape, Shape::Buffer) {
        return Err(Fault::Code(INVALID_MEM_OBJECT));
    }
    let memory = Memory {
        live: Live::new(make_part(&of, flags, at, bytes)?, cl().release_memory),
        context: of.context.clone(),
        flags: flags & !HOST_FLAGS,
        bytes,
        shape: Shape::Part { of, at },
        store: Mutex::default(),
    };
    here.table.put(id, Object::Memory(Arc::new(memory)))?;
    Ok(DONE)
}

pub fn make_part(of: &Memory, flags: u64, at: u64, bytes: u64) -> Result<Handle, Fault> {
    if bytes == 0 {
        return Err(Fault::Code(INVALID_BUFFER_SIZE));
    }
    if at.checked_add(bytes).is_none_or(|end| end > of.bytes) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    const REGION: u32 = 0x1220;
    let region = [at as usize, bytes as usize];
    // SAFETY: a live buffer; the region lies within and lives for the call.
    made(|code| unsafe {
        (cl().create_sub_buffer)(
            of.live.get(),
            flags & !HOST_FLAGS,
            REGION,
            region.as_ptr().cast(),
            code,
        )
    })
}

pub fn sampler(here: Here<'_>, id: Id, context: Id, kind: [u32; 3]) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    let sampler = Sampler {
        live: Live::new(make_sampler(&context, kind)?, cl().release_sampler),
        context,
        kind,
    };
    here.table.put(id, Object::Sampler(Arc::new(sampler)))?;
    Ok(DONE)
}

pub fn make_sampler(context: &Context, [normalized, addressing, filter]: [u32; 3]) -> Result<Handle, Fault> {
    if normalized > 1 || !(0x1130..=0x1134).contains(&addressing) || !(0x1140..=0x1141).contains(&filter) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    // SAFETY: a live context.
    made(|code| unsafe { (cl().create_sampler)(context.live.get(), normalized, addressing, filter, code) })
}

/// Whether a range lies within a buffer.
pub fn range(memory: &Memory, at: u64, bytes: u64) -> Result<(), Fault> {
    if memory.image().is_some() {
        return Err(Fault::Code(INVALID_MEM_OBJECT));
    }
    match at.checked_add(bytes) {
        Some(end) if bytes > 0 && end <= memory.bytes => Ok(()),
        _ => Err(Fault::Code(INVALID_VALUE)),
    }
}
