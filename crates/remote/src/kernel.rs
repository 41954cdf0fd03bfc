//! Kernels: arguments and launches. The first time an argument is set to a kind of value, and the first launch of a
//! shape, wait for the driver's answer; the same again is known to be right and is sent without waiting.

use std::collections::HashSet;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use tenure_wire::{Argument, ArgumentKind, Field, Id, Reader, Request, Subject};

use crate::abi::{
    Handle, INVALID_ARG_INDEX, INVALID_ARG_SIZE, INVALID_ARG_VALUE, INVALID_DEVICE, INVALID_GLOBAL_WORK_SIZE,
    INVALID_KERNEL, INVALID_MEM_OBJECT, INVALID_SAMPLER, INVALID_VALUE, INVALID_WORK_DIMENSION,
    OUT_OF_RESOURCES,
};
use crate::command::Command;
use crate::device::{Device, ask};
use crate::export::{answer, bytes_of, done, list, made, put, text};
use crate::link::{Remote, lock, parts};
use crate::memory::Memory;
use crate::object::{self, Kind, Object, get, hold};
use crate::program::Program;
use crate::sampler::Sampler;

/// Handles of memory objects and samplers the program holds: where a driver does not say what a kernel takes, a value
/// that is one of these is meant as one.
pub struct Living(Mutex<Option<HashSet<usize>>>);

pub static LIVING: Living = Living(Mutex::new(None));

impl Living {
    pub fn add(&self, handle: Handle) {
        lock(&self.0)
            .get_or_insert_with(HashSet::new)
            .insert(handle as usize);
    }

    pub fn remove(&self, handle: Handle) {
        if let Some(living) = &mut *lock(&self.0) {
            living.remove(&(handle as usize));
        }
    }

    fn has(&self, handle: Handle) -> bool {
        lock(&self.0)
            .as_ref()
            .is_some_and(|living| living.contains(&(handle as usize)))
    }
}

/// A shape of launch: sides, and the size of a group.
type Shape = (u32, Option<[u64; 3]>);

pub struct Kernel {
    remote: Remote,
    program: Arc<Object<Program>>,
    kinds: Vec<ArgumentKind>,
    /// What was set last.
    arguments: Mutex<Vec<Option<Argument>>>,
    launched: Mutex<Vec<Shape>>,
}

impl Kind for Kernel {
    const MARK: u32 = 0x4b45_524e;
    const INVALID: i32 = INVALID_KERNEL;
}

fn give(remote: Remote, program: Arc<Object<Program>>, kinds: Vec<ArgumentKind>) -> Handle {
    Object::give(Object::new(Kernel {
        remote,
        program,
        arguments: Mutex::new(vec![None; kinds.len()]),
        kinds,
        launched: Mutex::default(),
    }))
}

pub unsafe extern "C" fn create(program: Handle, name: *const c_char, code: *mut i32) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let program = hold::<Program>(program)?;
            if name.is_null() {
                return Err(INVALID_VALUE);
            }
            let (remote, reply) = Remote::make(program.remote.link, |id| Request::Kernel {
                id,
                program: program.remote.id,
                name: text(name),
            })?;
            Ok(give(remote, program, parts(&reply)?))
        })
    }
}

pub unsafe extern "C" fn create_all(
    program: Handle,
    entries: u32,
    kernels: *mut Handle,
    count: *mut u32,
) -> i32 {
    const NUM_KERNELS: u32 = 0x1167;
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let program = unsafe { hold::<Program>(program)? };
        let link = program.remote.link;
        let there = ask(
            link,
            Subject::Program,
            program.remote.id,
            0,
            0,
            NUM_KERNELS,
            Vec::new(),
        )?;
        let there = there
            .try_into()
            .map(usize::from_ne_bytes)
            .map_err(|_| OUT_OF_RESOURCES)?;
        // SAFETY: as above.
        unsafe { put(count, there as u32) };
        if kernels.is_null() {
            return Ok(());
        }
        if (entries as usize) < there || there == 0 {
            return Err(INVALID_VALUE);
        }
        let ids: Vec<Id> = (0..there).map(|_| link.new_id()).collect();
        let reply = link
            .call(&Request::Kernels {
                program: program.remote.id,
                ids: ids.clone(),
            })
            .inspect_err(|_| ids.iter().for_each(|id| link.free_id(*id)))?;
        let mut from = Reader::new(&reply);
        let made = u32::take(&mut from).map_err(|_| OUT_OF_RESOURCES)? as usize;
        for (place, id) in ids.into_iter().enumerate().take(made) {
            let kinds = from.take().map_err(|_| OUT_OF_RESOURCES)?;
            let kernel = give(Remote { link, id }, program.clone(), kinds);
            // SAFETY: room for as many as the program has.
            unsafe { *kernels.add(place) = kernel };
        }
        Ok(())
    })
}

pub unsafe extern "C" fn clone(kernel: Handle, code: *mut i32) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let kernel = get::<Kernel>(kernel)?;
            let (remote, _) = Remote::make(kernel.remote.link, |id| Request::CloneKernel {
                id,
                kernel: kernel.remote.id,
            })?;
            let copy = give(remote, kernel.program.clone(), kernel.kinds.clone());
            *lock(&get::<Kernel>(copy)?.arguments) = lock(&kernel.arguments).clone();
            Ok(copy)
        })
    }
}

pub unsafe extern "C" fn retain(kernel: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Kernel>(kernel) })
}

pub unsafe extern "C" fn release(kernel: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::release::<Kernel>(kernel) }.map(|_| ()))
}

/// What a caller means by a value for an argument of a kind.
///
/// # Safety
/// `value` is null or has `size` bytes.
unsafe fn argument(kind: ArgumentKind, size: usize, value: *const c_void) -> Result<Argument, i32> {
    use ArgumentKind as K;
    // SAFETY: as promised; read only where it has a handle's size.
    let handle = || unsafe {
        match size == size_of::<Handle>() {
            true => Ok(value.cast::<Handle>().read_unaligned()),
            false => Err(INVALID_ARG_SIZE),
        }
    };
    let memory = |handle: Handle| {
        // SAFETY: a handle the program gave for a memory object.
        let memory = unsafe { get::<Memory>(handle) }.map_err(|_| INVALID_MEM_OBJECT)?;
        match (kind, memory.picture.is_some()) {
            (K::Buffer, true) | (K::Image, false) => Err(INVALID_ARG_VALUE),
            _ => Ok(Argument::Memory(memory.remote.id)),
        }
    };
    let sampler = |handle: Handle| {
        // SAFETY: a handle the program gave for a sampler.
        let sampler = unsafe { get::<Sampler>(handle) }.map_err(|_| INVALID_SAMPLER)?;
        Ok(Argument::Sampler(sampler.remote.id))
    };
    match kind {
        K::Local if !value.is_null() => Err(INVALID_ARG_VALUE),
        K::Local if size == 0 => Err(INVALID_ARG_SIZE),
        K::Local => Ok(Argument::Local(size as u64)),
        K::Buffer if value.is_null() => Ok(Argument::Memory(Id::NONE)),
        _ if value.is_null() => Err(INVALID_ARG_VALUE),
        K::Buffer if handle()?.is_null() => Ok(Argument::Memory(Id::NONE)),
        K::Buffer | K::Image => memory(handle()?),
        K::Sampler => sampler(handle()?),
        K::Unknown if size == size_of::<Handle>() && LIVING.has(handle()?) => {
            memory(handle()?).or_else(|_| sampler(handle()?))
        }
        // SAFETY: as promised.
        K::Value | K::Unknown => Ok(Argument::Bytes(
            unsafe { list(value.cast::<u8>(), size) }.to_vec(),
        )),
    }
}

/// Whether one value stands for another as far as being refused goes.
fn alike(one: &Argument, other: &Argument) -> bool {
    match (one, other) {
        (Argument::Bytes(one), Argument::Bytes(other)) => one.len() == other.len(),
        (Argument::Memory(one), Argument::Memory(other)) => one.is_none() == other.is_none(),
        (Argument::Sampler(_), Argument::Sampler(_)) => true,
        (one, other) => one == other,
    }
}

pub unsafe extern "C" fn set_arg(kernel: Handle, place: u32, size: usize, value: *const c_void) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (kernel, value) = unsafe {
            let kernel = get::<Kernel>(kernel)?;
            let kind = *kernel.kinds.get(place as usize).ok_or(INVALID_ARG_INDEX)?;
            (kernel, argument(kind, size, value)?)
        };
        let mut arguments = lock(&kernel.arguments);
        let last = &mut arguments[place as usize];
        if last.as_ref() == Some(&value) {
            return Ok(());
        }
        let known = last.as_ref().is_some_and(|last| alike(last, &value));
        let link = kernel.remote.link;
        let request = Request::Argue {
            kernel: kernel.remote.id,
            place,
            value: value.clone(),
        };
        match known {
            true => link.post(&request)?,
            false => link.call(&request).map(|_| ())?,
        }
        *last = Some(value);
        Ok(())
    })
}

/// # Safety
/// The arguments are those of `clEnqueueNDRangeKernel`.
unsafe fn run(
    command: &Command,
    kernel: &Object<Kernel>,
    sides: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
) -> Result<(), i32> {
    if !(1..=3).contains(&sides) {
        return Err(INVALID_WORK_DIMENSION);
    }
    let read = |start: *const usize| {
        // SAFETY: as many numbers as sides, as promised.
        let given = unsafe { list(start, sides as usize) };
        let mut all = [1u64; 3];
        given
            .iter()
            .zip(&mut all)
            .for_each(|(from, to)| *to = *from as u64);
        (!given.is_empty()).then_some(all)
    };
    let global = read(global).ok_or(INVALID_GLOBAL_WORK_SIZE)?;
    let local = read(local);
    let offset = read(offset).map(|mut offset| {
        offset[sides as usize..].fill(0);
        offset
    });
    let even = local
        .is_none_or(|local| (0..3).all(|axis| local[axis] > 0 && global[axis].is_multiple_of(local[axis])));
    let shape = (sides, local);
    let known = even && !global.contains(&0) && lock(&kernel.launched).contains(&shape);
    let request = |order| Request::Launch {
        order,
        kernel: kernel.remote.id,
        sides,
        offset,
        global,
        local,
    };
    if known {
        return command.post(request);
    }
    command.call(request)?;
    let mut launched = lock(&kernel.launched);
    if even && launched.len() < 64 && !launched.contains(&shape) {
        launched.push(shape);
    }
    Ok(())
}

pub unsafe extern "C" fn launch(
    queue: Handle,
    kernel: Handle,
    sides: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe {
        let command = Command::new(queue, count, waits, event, 0x11F0)?;
        run(&command, get::<Kernel>(kernel)?, sides, offset, global, local)
    })
}

pub unsafe extern "C" fn task(
    queue: Handle,
    kernel: Handle,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe {
        let command = Command::new(queue, count, waits, event, 0x11F1)?;
        run(&command, get::<Kernel>(kernel)?, 1, std::ptr::null(), &1, &1)
    })
}

pub unsafe extern "C" fn get_info(
    kernel: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let kernel = unsafe { get::<Kernel>(kernel)? };
        let bytes = match param {
            0x1191 => bytes_of(&[kernel.kinds.len() as u32]),
            0x1192 => bytes_of(&[kernel.references()]),
            0x1193 => bytes_of(&[kernel.program.context.handle()]),
            0x1194 => bytes_of(&[kernel.program.handle()]),
            _ => {
                let remote = &kernel.remote;
                ask(remote.link, Subject::Kernel, remote.id, 0, 0, param, Vec::new())?
            }
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn get_arg_info(
    kernel: Handle,
    place: u32,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let kernel = unsafe { get::<Kernel>(kernel)? };
        if place as usize >= kernel.kinds.len() {
            return Err(INVALID_ARG_INDEX);
        }
        let remote = &kernel.remote;
        let bytes = ask(
            remote.link,
            Subject::KernelArgument,
            remote.id,
            0,
            place,
            param,
            Vec::new(),
        )?;
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

/// The device asked about: the program's only one where none is named.
///
/// # Safety
/// The handle is null or a live OpenCL object.
unsafe fn device_of(kernel: &Kernel, device: Handle) -> Result<u32, i32> {
    match (device.is_null(), kernel.program.devices.as_slice()) {
        (true, [only]) => Ok(*only),
        (true, _) => Err(INVALID_DEVICE),
        // SAFETY: as promised.
        (false, all) => match unsafe { get::<Device>(device)? }.number {
            number if all.contains(&number) => Ok(number),
            _ => Err(INVALID_DEVICE),
        },
    }
}

pub unsafe extern "C" fn get_work_group_info(
    kernel: Handle,
    device: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (kernel, device) = unsafe {
            let kernel = get::<Kernel>(kernel)?;
            (kernel, device_of(kernel, device)?)
        };
        let remote = &kernel.remote;
        let bytes = ask(
            remote.link,
            Subject::KernelOnDevice,
            remote.id,
            device,
            0,
            param,
            Vec::new(),
        )?;
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn get_sub_group_info(
    kernel: Handle,
    device: Handle,
    param: u32,
    input_size: usize,
    input: *const c_void,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (kernel, device, input) = unsafe {
            let kernel = get::<Kernel>(kernel)?;
            (
                kernel,
                device_of(kernel, device)?,
                list(input.cast::<u8>(), input_size),
            )
        };
        if input.len() > 64 {
            return Err(INVALID_VALUE);
        }
        let remote = &kernel.remote;
        let bytes = ask(
            remote.link,
            Subject::SubGroup,
            remote.id,
            device,
            0,
            param,
            input.to_vec(),
        )?;
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}
