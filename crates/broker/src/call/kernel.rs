//! Kernels: made, given arguments, launched. What an argument must be is asked of the driver once, and a number is
//! never passed where it would take an address.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use tenure_wire::{Argument, ArgumentKind, Field, Frame, Id, Order};

use super::command::{Answered, command};
use super::create::made;
use super::program::newer_than;
use super::{Answer, DONE, Done, Here};
use crate::abi::{
    ADDRESS_CONSTANT, ADDRESS_GLOBAL, ADDRESS_LOCAL, ADDRESS_PRIVATE, Handle, INVALID_ARG_INDEX,
    INVALID_ARG_SIZE, INVALID_ARG_VALUE, INVALID_KERNEL_ARGS, INVALID_MEM_OBJECT, INVALID_OPERATION,
    INVALID_SAMPLER, INVALID_VALUE, INVALID_WORK_DIMENSION, KERNEL_ARG_ADDRESS_QUALIFIER,
    KERNEL_ARG_TYPE_NAME, KERNEL_FUNCTION_NAME, KERNEL_NUM_ARGS, SUCCESS,
};
use crate::driver::{ask, ask_number, cl};
use crate::fault::{Fault, checked};
use crate::object::{Context, Kept, Kernel, Live, Object, Program, lock};

/// The most arguments of a kernel, and the most bytes of one.
const ARGUMENTS_MOST: u32 = 1024;
const VALUE_MOST: usize = 16 << 10;
const POINTER: usize = size_of::<Handle>();

/// What a kernel takes, as far as the driver says.
fn kinds(kernel: Handle) -> Result<Vec<ArgumentKind>, Fault> {
    let count: u32 = ask_number(|size, value, there| {
        // SAFETY: a live kernel; room for `size` bytes.
        unsafe { (cl().get_kernel_info)(kernel, KERNEL_NUM_ARGS, size, value, there) }
    })
    .map_err(Fault::Code)?;
    Ok((0..count.min(ARGUMENTS_MOST))
        .map(|place| kind(kernel, place))
        .collect())
}

fn kind(kernel: Handle, place: u32) -> ArgumentKind {
    let question = |param: u32| {
        move |size, value, there| {
            // SAFETY: a live kernel; room for `size` bytes.
            unsafe { (cl().get_kernel_arg_info)(kernel, place, param, size, value, there) }
        }
    };
    let Ok(qualifier) = ask_number::<u32>(question(KERNEL_ARG_ADDRESS_QUALIFIER)) else {
        return kind_by_trial(kernel, place);
    };
    let name = ask(question(KERNEL_ARG_TYPE_NAME)).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    match qualifier {
        _ if name.starts_with("image") && name.ends_with("_t") => ArgumentKind::Image,
        _ if name == "sampler_t" => ArgumentKind::Sampler,
        ADDRESS_GLOBAL | ADDRESS_CONSTANT => ArgumentKind::Buffer,
        ADDRESS_LOCAL => ArgumentKind::Local,
        ADDRESS_PRIVATE if !name.is_empty() && !name.contains('*') => ArgumentKind::Value,
        _ => ArgumentKind::Unknown,
    }
}

/// Binaries may not say what their kernels take, but a driver refuses what cannot be meant: no value at all for
/// anything but memory, eight zeros for local memory and for numbers of another size. What is left unknown takes a
/// number, an image or a sampler.
fn kind_by_trial(kernel: Handle, place: u32) -> ArgumentKind {
    let zeros = 0u64;
    let attempt = |value: *const u64| {
        // SAFETY: a live kernel that nobody else knows yet; what it accepts is set again before a launch.
        unsafe { (cl().set_kernel_arg)(kernel, place, POINTER, value.cast()) }
    };
    match (attempt(std::ptr::null()), attempt(&zeros)) {
        (SUCCESS, SUCCESS) => ArgumentKind::Buffer,
        (SUCCESS, _) => ArgumentKind::Local,
        (_, INVALID_ARG_SIZE) => ArgumentKind::Value,
        (_, INVALID_MEM_OBJECT) => ArgumentKind::Image,
        (_, INVALID_SAMPLER) => ArgumentKind::Sampler,
        _ => ArgumentKind::Unknown,
    }
}

/// Whether a number could be the address of anything in a process: the driver might take it for an object's.
fn could_be_address(bytes: &[u8]) -> bool {
    let number = bytes.try_into().map_or(0, u64::from_ne_bytes);
    (1 << 32..1 << 48).contains(&number)
}

fn keep(here: Here<'_>, id: Id, program: Arc<Program>, live: Live) -> Result<Vec<ArgumentKind>, Fault> {
    let kinds = kinds(live.get())?;
    let name = ask(|size, value, there| {
        // SAFETY: a live kernel; room for `size` bytes.
        unsafe { (cl().get_kernel_info)(live.get(), KERNEL_FUNCTION_NAME, size, value, there) }
    })
    .map_err(Fault::Code)?;
    let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
    let kernel = Kernel {
        live,
        program,
        name: CString::new(name).unwrap_or_default(),
        arguments: Mutex::new(vec![None; kinds.len()]),
        kinds: kinds.clone(),
    };
    here.table.put(id, Object::Kernel(Arc::new(kernel)))?;
    Ok(kinds)
}

fn owned(handle: Handle) -> Live {
    Live::new(handle, cl().release_kernel)
}

pub fn create(here: Here<'_>, id: Id, program: Id, name: CString) -> Done {
    here.table.free(id)?;
    let program = here.table.program(program)?;
    let live = owned(make(&program, &name)?);
    let kinds = keep(here, id, program, live)?;
    let mut reply = Vec::new();
    kinds.put(&mut reply);
    Ok(Answer::Now(reply))
}

pub fn make(program: &Program, name: &CString) -> Result<Handle, Fault> {
    // SAFETY: a live program and a C string.
    made(|code| unsafe { (cl().create_kernel)(program.live.get(), name.as_ptr(), code) })
}

/// One kernel of each name in the program; the reply tells what each takes.
pub fn create_all(here: Here<'_>, program: Id, ids: &[Id]) -> Done {
    let program = here.table.program(program)?;
    if ids.is_empty() || ids.len() > 4096 {
        return Err(Fault::Code(INVALID_VALUE));
    }
    for id in ids {
        here.table.free(*id)?;
    }
    let mut handles = vec![std::ptr::null_mut(); ids.len()];
    let mut count = 0;
    // SAFETY: a live program; room for as many kernels as said.
    checked(unsafe {
        (cl().create_kernels)(
            program.live.get(),
            ids.len() as u32,
            handles.as_mut_ptr(),
            &mut count,
        )
    })?;
    // All are ours from here on, also those behind one that cannot be kept.
    let kernels: Vec<Live> = handles.into_iter().take(count as usize).map(owned).collect();
    let mut reply = Vec::new();
    (kernels.len() as u32).put(&mut reply);
    for (live, id) in kernels.into_iter().zip(ids) {
        keep(here, *id, program.clone(), live)?.put(&mut reply);
    }
    Ok(Answer::Now(reply))
}

pub fn clone(here: Here<'_>, id: Id, kernel: Id) -> Done {
    here.table.free(id)?;
    let kernel = here.table.kernel(kernel)?;
    if !newer_than(&kernel.program.context, (2, 1)) {
        return Err(Fault::Code(INVALID_OPERATION));
    }
    // SAFETY: a live kernel.
    let live = owned(made(|code| unsafe {
        (cl().clone_kernel)(kernel.live.get(), code)
    })?);
    // What the one takes the other takes; to try it again would set the arguments that were just copied.
    let copy = Kernel {
        live,
        program: kernel.program.clone(),
        name: kernel.name.clone(),
        kinds: kernel.kinds.clone(),
        arguments: Mutex::new(lock(&kernel.arguments).clone()),
    };
    here.table.put(id, Object::Kernel(Arc::new(copy)))?;
    Ok(DONE)
}

pub fn argue(here: Here<'_>, kernel: Id, place: u32, value: Argument) -> Done {
    let kernel = here.table.kernel(kernel)?;
    let kind = *kernel
        .kinds
        .get(place as usize)
        .ok_or(Fault::Code(INVALID_ARG_INDEX))?;
    let kept = check(here, &kernel.program.context, kind, value)?;
    set(&kernel, place, &kept)?;
    lock(&kernel.arguments)[place as usize] = Some(kept);
    Ok(DONE)
}

/// Whether a value may stand where a kernel takes something of a kind.
fn check(here: Here<'_>, context: &Context, kind: ArgumentKind, value: Argument) -> Result<Kept, Fault> {
    use ArgumentKind as K;
    match (kind, value) {
        (_, Argument::Bytes(bytes)) if bytes.is_empty() || bytes.len() > VALUE_MOST => {
            Err(Fault::Code(INVALID_ARG_SIZE))
        }
        (K::Value, Argument::Bytes(bytes)) => Ok(Kept::Bytes(bytes)),
        (K::Unknown, Argument::Bytes(bytes)) if !could_be_address(&bytes) => Ok(Kept::Bytes(bytes)),
        (K::Local, Argument::Local(bytes)) if (1..1 << 32).contains(&bytes) => Ok(Kept::Local(bytes)),
        (K::Local, Argument::Local(_)) => Err(Fault::Code(INVALID_ARG_SIZE)),
        (K::Buffer, Argument::Memory(id)) if id.is_none() => Ok(Kept::Memory(None)),
        (K::Buffer | K::Image | K::Unknown, Argument::Memory(id)) => {
            let memory = here.table.memory(id)?;
            if !memory.context.is(context) {
                return Err(Fault::Code(INVALID_MEM_OBJECT));
            }
            let fits = match kind {
                K::Buffer => memory.image().is_none(),
                K::Image => memory.image().is_some(),
                _ => true,
            };
            match fits {
                true => Ok(Kept::Memory(Some(Arc::downgrade(&memory)))),
                false => Err(Fault::Code(INVALID_ARG_VALUE)),
            }
        }
        (K::Sampler | K::Unknown, Argument::Sampler(id)) => {
            let sampler = here.table.sampler(id)?;
            match sampler.context.is(context) {
                true => Ok(Kept::Sampler(Arc::downgrade(&sampler))),
                false => Err(Fault::Code(INVALID_SAMPLER)),
            }
        }
        _ => Err(Fault::Code(INVALID_ARG_VALUE)),
    }
}

/// Sets an argument as it is kept.
pub fn set(kernel: &Kernel, place: u32, kept: &Kept) -> Result<(), Fault> {
    let gone = Fault::Code(INVALID_ARG_VALUE);
    let object: Handle = match kept {
        Kept::Bytes(_) | Kept::Local(_) | Kept::Memory(None) => std::ptr::null_mut(),
        Kept::Memory(Some(memory)) => memory.upgrade().ok_or(gone)?.live.get(),
        Kept::Sampler(sampler) => sampler.upgrade().ok_or(gone)?.live.get(),
    };
    let (size, value) = match kept {
        Kept::Bytes(bytes) => (bytes.len(), bytes.as_ptr().cast()),
        Kept::Local(bytes) => (*bytes as usize, std::ptr::null()),
        Kept::Memory(_) | Kept::Sampler(_) => (POINTER, (&raw const object).cast()),
    };
    // SAFETY: a live kernel; a value of the size said; a handle only where the driver takes one.
    checked(unsafe { (cl().set_kernel_arg)(kernel.live.get(), place, size, value) })
}

pub fn launch(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    kernel: Id,
    sides: u32,
    offset: Option<[u64; 3]>,
    global: [u64; 3],
    local: Option<[u64; 3]>,
) -> Done {
    let kernel = here.table.kernel(kernel)?;
    if !(1..=3).contains(&sides) {
        return Err(Fault::Code(INVALID_WORK_DIMENSION));
    }
    // Held until the driver has taken the launch: whoever else looked at an object may let it go meanwhile.
    let held: Option<Vec<_>> = lock(&kernel.arguments)
        .iter()
        .map(|kept| kept.as_ref()?.hold())
        .collect();
    let Some(_held) = held else {
        return Err(Fault::Code(INVALID_KERNEL_ARGS));
    };
    let sizes = |sides: [u64; 3]| sides.map(|side| side as usize);
    let (offset, global, local) = (offset.map(sizes), sizes(global), local.map(sizes));
    let start = |list: &Option<[usize; 3]>| list.as_ref().map_or(std::ptr::null(), |list| list.as_ptr());
    let of = [&*kernel.program.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; lists of three, of which the driver reads as many as there are sides.
        unsafe {
            (cl().launch)(
                queue,
                kernel.live.get(),
                sides,
                start(&offset),
                global.as_ptr(),
                start(&local),
                count,
                waits,
                event,
            )
        }
    })
}
