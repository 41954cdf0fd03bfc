//! Questions. Only those whose answers are numbers and text are passed on: an answer that is a handle or an address
//! would show the worker's memory, and the tenant's side knows those objects itself.

use std::ffi::c_void;

use tenure_wire::{Field, Id, REPLY_MOST, Span, Subject};

use super::create::{device_handle, own_device_handle};
use super::{Answer, Done, Here, event};
use crate::abi::{
    EVENT_EXECUTION_STATUS, Handle, INVALID_MEM_OBJECT, INVALID_OPERATION, INVALID_VALUE,
    PROFILING_INFO_NOT_AVAILABLE,
};
use crate::driver::{self, cl, driver};
use crate::fault::{Fault, checked};
use crate::object::lock;

pub fn devices() -> Answer {
    let platforms: Vec<u32> = driver().devices.iter().map(|device| device.platform).collect();
    let mut reply = Vec::new();
    platforms.put(&mut reply);
    Answer::Now(reply)
}

pub fn timer(device: u32) -> Done {
    let handle = device_handle(device)?;
    if driver().versions[driver().devices[device as usize].platform as usize] < (2, 1) {
        return Err(Fault::Code(INVALID_OPERATION));
    }
    let mut times = [0u64; 2];
    let [on_device, on_host] = &mut times;
    // SAFETY: a live device; room for both times.
    checked(unsafe { (cl().get_timers)(handle, on_device, on_host) })?;
    let mut reply = Vec::new();
    times.put(&mut reply);
    Ok(Answer::Now(reply))
}

/// Whether a question's answer holds no handle and no address.
fn harmless(subject: Subject, param: u32) -> bool {
    match subject {
        Subject::Platform => (0x0900..=0x09FF).contains(&param),
        // CL_DEVICE_PLATFORM and CL_DEVICE_PARENT_DEVICE answer with handles.
        Subject::Device => {
            matches!(param, 0x1000..=0x10FF | 0x4000..=0x42FF) && param != 0x1031 && param != 0x1042
        }
        Subject::Image => matches!(param, 0x1110..=0x1117 | 0x1119 | 0x111A),
        Subject::Program => matches!(param, 0x1165 | 0x1167 | 0x1168 | 0x116A | 0x116B),
        Subject::Build => matches!(param, 0x1181 | 0x1183 | 0x1184 | 0x1185),
        Subject::Kernel => matches!(param, 0x1190 | 0x1191 | 0x1195),
        Subject::KernelArgument => matches!(param, 0x1196..=0x119A),
        Subject::KernelOnDevice => matches!(param, 0x11B0..=0x11B5),
        Subject::SubGroup => matches!(param, 0x2033 | 0x2034 | 0x11B8..=0x11BA),
        Subject::Event => param == EVENT_EXECUTION_STATUS,
        Subject::Profile => matches!(param, 0x1280..=0x1284),
        Subject::Memory | Subject::Queue | Subject::Context => false,
    }
}

pub fn ask(
    here: Here<'_>,
    subject: Subject,
    object: Id,
    device: u32,
    index: u32,
    param: u32,
    input: &[u8],
    into: Option<Span>,
) -> Done {
    if !harmless(subject, param) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let table = &here.table;
    let put = |object: Handle, get: driver::GetInfo| {
        driver::ask(|size, value, there| {
            // SAFETY: a live object of the kind the function takes; room for `size` bytes.
            unsafe { get(object, param, size, value, there) }
        })
    };
    let answer = match subject {
        Subject::Platform => {
            let platform = driver().platforms.get(index as usize);
            put(
                *platform.ok_or(Fault::Code(INVALID_VALUE))?,
                cl().get_platform_info,
            )
        }
        Subject::Device => put(device_handle(device)?, cl().get_device_info),
        Subject::Image => {
            let memory = table.memory(object)?;
            memory.image().ok_or(Fault::Code(INVALID_MEM_OBJECT))?;
            put(memory.live.get(), cl().get_image_info)
        }
        Subject::Program => put(table.program(object)?.live.get(), cl().get_program_info),
        Subject::Kernel => put(table.kernel(object)?.live.get(), cl().get_kernel_info),
        Subject::Build => {
            let program = table.program(object)?;
            let of = own_device_handle(&program.context, device)?;
            // SAFETY: live handles; room for `size` bytes.
            driver::ask(|size, value, there| unsafe {
                (cl().get_build_info)(program.live.get(), of, param, size, value, there)
            })
        }
        Subject::KernelArgument => {
            let kernel = table.kernel(object)?;
            // SAFETY: as above.
            driver::ask(|size, value, there| unsafe {
                (cl().get_kernel_arg_info)(kernel.live.get(), index, param, size, value, there)
            })
        }
        Subject::KernelOnDevice => {
            let kernel = table.kernel(object)?;
            let of = own_device_handle(&kernel.program.context, device)?;
            // SAFETY: as above.
            driver::ask(|size, value, there| unsafe {
                (cl().get_kernel_work_group_info)(kernel.live.get(), of, param, size, value, there)
            })
        }
        Subject::SubGroup => {
            let kernel = table.kernel(object)?;
            let of = own_device_handle(&kernel.program.context, device)?;
            let version = driver().versions[driver().devices[device as usize].platform as usize];
            if version < (2, 1) || !input.len().is_multiple_of(size_of::<usize>()) || input.len() > 64 {
                return Err(Fault::Code(INVALID_VALUE));
            }
            sub_group(kernel.live.get(), of, param, input)
        }
        Subject::Event => {
            let status = event::status(&*table.event(object)?)?;
            Ok(status.to_ne_bytes().to_vec())
        }
        Subject::Profile => {
            let event = table.event(object)?;
            match event.live.get() {
                handle if handle.is_null() => lock(&event.profile)
                    .map(|times| times[(param - 0x1280) as usize].to_ne_bytes().to_vec())
                    .ok_or(PROFILING_INFO_NOT_AVAILABLE),
                handle => put(handle, cl().get_event_profiling_info),
            }
        }
        Subject::Memory | Subject::Queue | Subject::Context => Err(INVALID_VALUE),
    };
    reply(here, &answer.map_err(Fault::Code)?, into)
}

fn sub_group(kernel: Handle, device: Handle, param: u32, input: &[u8]) -> Result<Vec<u8>, i32> {
    // Aligned as the driver reads it.
    let words: Vec<usize> = input
        .chunks_exact(size_of::<usize>())
        .map(|word| usize::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect();
    let start: *const c_void = if words.is_empty() {
        std::ptr::null()
    } else {
        words.as_ptr().cast()
    };
    let mut answer = vec![0u8; 64];
    let mut length = 0;
    // SAFETY: live handles; input and room of the sizes said.
    let code = unsafe {
        (cl().get_kernel_sub_group_info)(
            kernel,
            device,
            param,
            input.len(),
            start,
            24,
            answer.as_mut_ptr().cast(),
            &mut length,
        )
    };
    match code {
        0 => {
            answer.truncate(length.min(24));
            Ok(answer)
        }
        code => Err(code),
    }
}

/// The length, then the bytes if they fit; else they go where the tenant has room, or nowhere.
fn reply(here: Here<'_>, answer: &[u8], into: Option<Span>) -> Done {
    let mut reply = Vec::with_capacity(answer.len().min(REPLY_MOST) + 8);
    (answer.len() as u64).put(&mut reply);
    if answer.len() + 8 <= REPLY_MOST {
        reply.extend_from_slice(answer);
    } else if let Some(span) = into.filter(|span| span.bytes >= answer.len() as u64) {
        here.fill(span, answer)?;
    }
    Ok(Answer::Now(reply))
}
