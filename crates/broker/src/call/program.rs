//! Programs: made from source, binaries, intermediate code or built-in names; built by helpers, since a compiler may
//! take long.

use std::ffi::{CString, c_char};
use std::sync::{Arc, Mutex};

use tenure_wire::{Field, Frame, Id, Span};

use super::command::answer_later;
use super::create::{made, own_device_handles};
use super::{Answer, DONE, Done, Here};
use crate::abi::{
    BUILD_PROGRAM_FAILURE, COMPILE_PROGRAM_FAILURE, Handle, INVALID_CONTEXT, INVALID_OPERATION,
    INVALID_PROGRAM, INVALID_VALUE, OUT_OF_RESOURCES, PROGRAM_BINARIES, PROGRAM_BINARY_SIZES, SUCCESS,
};
use crate::driver::{ask, cl, driver};
use crate::fault::{Fault, checked};
use crate::object::{Context, Live, Made, Object, Origin, Program, lock};
use crate::print;

/// The longest source, and the longest binary.
const SOURCE_MOST: u64 = 16 << 20;
const BINARY_MOST: u64 = 256 << 20;
/// The longest options, and the most programs linked or included.
const OPTIONS_MOST: usize = 32 << 10;
const PROGRAMS_MOST: usize = 1024;

fn keep(here: Here<'_>, id: Id, context: Arc<Context>, handle: Handle, origin: Origin) -> Result<(), Fault> {
    print::expect(match &origin {
        Origin::Source(text) => Some(text),
        _ => None,
    });
    let program = Program {
        live: Live::new(handle, cl().release_program),
        context,
        origin,
        made: Mutex::new(Made::Not),
        constants: Mutex::default(),
        building: Mutex::default(),
    };
    here.table.put(id, Object::Program(Arc::new(program)))
}

fn new(here: Here<'_>, id: Id, context: Id, origin: Origin) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    let handle = make(&context, &origin)?;
    keep(here, id, context, handle, origin)?;
    Ok(DONE)
}

/// Makes the driver's program from what is known of it.
pub fn make(context: &Context, origin: &Origin) -> Result<Handle, Fault> {
    let of = context.live.get();
    match origin {
        Origin::Source(text) => {
            let (start, length) = (text.as_ptr().cast::<c_char>(), text.len());
            // SAFETY: one text of the length said.
            made(|code| unsafe { (cl().create_program_with_source)(of, 1, &start, &length, code) })
        }
        Origin::Binary(devices, binaries) => {
            let handles = own_device_handles(context, devices)?;
            if handles.len() != binaries.len() || handles.is_empty() || binaries.iter().any(Vec::is_empty) {
                return Err(Fault::Code(INVALID_VALUE));
            }
            let lengths: Vec<usize> = binaries.iter().map(Vec::len).collect();
            let starts: Vec<*const u8> = binaries.iter().map(|binary| binary.as_ptr()).collect();
            let mut states = vec![SUCCESS; handles.len()];
            // SAFETY: lists of one length, each binary of the length said.
            made(|code| unsafe {
                (cl().create_program_with_binary)(
                    of,
                    handles.len() as u32,
                    handles.as_ptr(),
                    lengths.as_ptr(),
                    starts.as_ptr(),
                    states.as_mut_ptr(),
                    code,
                )
            })
        }
        Origin::Intermediate(bytes) => {
            if !newer_than(context, (2, 1)) {
                return Err(Fault::Code(INVALID_OPERATION));
            }
            // SAFETY: bytes of the length said.
            made(|code| unsafe {
                (cl().create_program_with_il)(of, bytes.as_ptr().cast(), bytes.len(), code)
            })
        }
        Origin::BuiltIn(devices, names) => {
            let handles = own_device_handles(context, devices)?;
            // SAFETY: a list of the length said and a C string.
            made(|code| unsafe {
                (cl().create_program_with_built_in_kernels)(
                    of,
                    handles.len() as u32,
                    handles.as_ptr(),
                    names.as_ptr(),
                    code,
                )
            })
        }
        Origin::Linked(devices, options, programs) => {
            let handles = own_device_handles(context, devices)?;
            let parts: Vec<Handle> = programs.iter().map(|program| program.live.get()).collect();
            // SAFETY: lists of the lengths said and a C string.
            made(|code| unsafe {
                (cl().link_program)(
                    of,
                    handles.len() as u32,
                    or_null(&handles),
                    options.as_ptr(),
                    parts.len() as u32,
                    parts.as_ptr(),
                    std::ptr::null(),
                    std::ptr::null_mut(),
                    code,
                )
            })
        }
    }
}

/// Whether all of a context's platforms have functions of a version.
pub fn newer_than(context: &Context, version: (u32, u32)) -> bool {
    context.devices.iter().all(|device| {
        let device = driver().devices.get(*device as usize);
        device.is_some_and(|device| driver().versions[device.platform as usize] >= version)
    })
}

fn or_null(handles: &[Handle]) -> *const Handle {
    if handles.is_empty() {
        std::ptr::null()
    } else {
        handles.as_ptr()
    }
}

pub fn source(here: Here<'_>, id: Id, context: Id, text: Span) -> Done {
    let text = here.copy(text, SOURCE_MOST)?;
    // Drivers take text for C strings in places.
    if text.is_empty() || text.contains(&0) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    new(here, id, context, Origin::Source(text))
}

pub fn binary(here: Here<'_>, id: Id, context: Id, devices: Vec<u32>, spans: &[Span]) -> Done {
    let binaries = spans
        .iter()
        .map(|span| here.copy(*span, BINARY_MOST))
        .collect::<Result<Vec<_>, _>>()?;
    new(here, id, context, Origin::Binary(devices, binaries))
}

pub fn intermediate(here: Here<'_>, id: Id, context: Id, code: Span) -> Done {
    let code = here.copy(code, BINARY_MOST)?;
    if code.is_empty() {
        return Err(Fault::Code(INVALID_VALUE));
    }
    new(here, id, context, Origin::Intermediate(code))
}

pub fn built_in(here: Here<'_>, id: Id, context: Id, devices: Vec<u32>, names: CString) -> Done {
    new(here, id, context, Origin::BuiltIn(devices, names))
}

fn bounded(options: &CString) -> Result<(), Fault> {
    if options.as_bytes().len() > OPTIONS_MOST {
        return Err(Fault::Code(INVALID_VALUE));
    }
    Ok(())
}

/// The options with the request to keep what kernels take, which arguments are checked by.
fn with_argument_facts(program: &Program, options: &CString) -> CString {
    const FACTS: &[u8] = b"-cl-kernel-arg-info";
    let given = options.as_bytes();
    let binary = matches!(program.origin, Origin::Binary(..) | Origin::BuiltIn(..));
    if binary || given.windows(FACTS.len()).any(|part| part == FACTS) {
        return options.clone();
    }
    let mut all = given.to_vec();
    if !all.is_empty() {
        all.push(b' ');
    }
    all.extend_from_slice(FACTS);
    CString::new(all).unwrap_or_else(|_| options.clone())
}

/// Whether a program is now what an attempt made of it, well or badly; where the driver refused even to try (it has
/// kernels, say), it is what it was.
fn was_tried(code: i32) -> bool {
    matches!(code, SUCCESS | BUILD_PROGRAM_FAILURE | COMPILE_PROGRAM_FAILURE)
}

pub fn build(here: Here<'_>, frame: Frame, id: Id, devices: Vec<u32>, options: CString) -> Done {
    bounded(&options)?;
    let program = here.table.program(id)?;
    own_device_handles(&program.context, &devices)?;
    let connection = here.clone();
    answer_later(here, frame, move || {
        let Some(_running) = connection.world.enter(&connection) else {
            return OUT_OF_RESOURCES;
        };
        let code = make_built(&program, &devices, &options);
        if was_tried(code) {
            *lock(&program.made) = Made::Built(devices, options);
        }
        code
    })
}

pub fn make_built(program: &Program, devices: &[u32], options: &CString) -> i32 {
    let Ok(handles) = own_device_handles(&program.context, devices) else {
        return INVALID_VALUE;
    };
    let _building = lock(&program.building);
    let options = with_argument_facts(program, options);
    // SAFETY: a live program; a list of the length said and a C string; no callback.
    unsafe {
        (cl().build_program)(
            program.live.get(),
            handles.len() as u32,
            or_null(&handles),
            options.as_ptr(),
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    }
}

pub fn compile(
    here: Here<'_>,
    frame: Frame,
    id: Id,
    devices: Vec<u32>,
    options: CString,
    headers: &[Id],
    names: Vec<CString>,
) -> Done {
    bounded(&options)?;
    if headers.len() != names.len() || headers.len() > PROGRAMS_MOST {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let program = here.table.program(id)?;
    own_device_handles(&program.context, &devices)?;
    let headers = headers
        .iter()
        .map(|id| here.table.program(*id))
        .collect::<Result<Vec<_>, _>>()?;
    if headers.iter().any(|header| !header.context.is(&program.context)) {
        return Err(Fault::Code(INVALID_CONTEXT));
    }
    let headers: Vec<(CString, Arc<Program>)> = names.into_iter().zip(headers).collect();
    let connection = here.clone();
    answer_later(here, frame, move || {
        let Some(_running) = connection.world.enter(&connection) else {
            return OUT_OF_RESOURCES;
        };
        let code = make_compiled(&program, &devices, &options, &headers);
        if was_tried(code) {
            *lock(&program.made) = Made::Compiled(devices, options, headers);
        }
        code
    })
}

pub fn make_compiled(
    program: &Program,
    devices: &[u32],
    options: &CString,
    headers: &[(CString, Arc<Program>)],
) -> i32 {
    let Ok(handles) = own_device_handles(&program.context, devices) else {
        return INVALID_VALUE;
    };
    let _building = lock(&program.building);
    let options = with_argument_facts(program, options);
    let names: Vec<*const c_char> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
    let included: Vec<Handle> = headers.iter().map(|(_, header)| header.live.get()).collect();
    // SAFETY: live programs; lists of the lengths said, null where empty; no callback.
    unsafe {
        (cl().compile_program)(
            program.live.get(),
            handles.len() as u32,
            or_null(&handles),
            options.as_ptr(),
            included.len() as u32,
            or_null(&included),
            if names.is_empty() {
                std::ptr::null()
            } else {
                names.as_ptr()
            },
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    }
}

pub fn link(
    here: Here<'_>,
    frame: Frame,
    id: Id,
    context: Id,
    devices: Vec<u32>,
    options: CString,
    programs: &[Id],
) -> Done {
    bounded(&options)?;
    here.table.free(id)?;
    if programs.is_empty() || programs.len() > PROGRAMS_MOST {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let context = here.table.context(context)?;
    own_device_handles(&context, &devices)?;
    let programs = programs
        .iter()
        .map(|id| here.table.program(*id))
        .collect::<Result<Vec<_>, _>>()?;
    if programs.iter().any(|program| !program.context.is(&context)) {
        return Err(Fault::Code(INVALID_CONTEXT));
    }
    let connection = here.clone();
    answer_later(here, frame, move || {
        let Some(_running) = connection.world.enter(&connection) else {
            return OUT_OF_RESOURCES;
        };
        let origin = Origin::Linked(devices, options, programs);
        let kept = make(&context, &origin).and_then(|handle| keep(&connection, id, context, handle, origin));
        match kept {
            Ok(()) => SUCCESS,
            Err(Fault::Code(code)) => code,
            Err(Fault::Broken) => INVALID_PROGRAM,
        }
    })
}

pub fn specialize(here: Here<'_>, id: Id, number: u32, value: Vec<u8>) -> Done {
    let program = here.table.program(id)?;
    if !newer_than(&program.context, (2, 2)) {
        return Err(Fault::Code(INVALID_OPERATION));
    }
    set_constant(&program, number, &value)?;
    let mut constants = lock(&program.constants);
    constants.retain(|(other, _)| *other != number);
    constants.push((number, value));
    Ok(DONE)
}

pub fn set_constant(program: &Program, number: u32, value: &[u8]) -> Result<(), Fault> {
    // SAFETY: a live program; a value of the length said.
    checked(unsafe {
        (cl().set_specialization)(program.live.get(), number, value.len(), value.as_ptr().cast())
    })
}

/// All binaries of a program, in the driver's order of devices.
pub fn all_binaries(program: &Program) -> Result<Vec<Vec<u8>>, Fault> {
    let _building = lock(&program.building);
    let lengths = ask(|size, value, there| {
        // SAFETY: a live program; room for `size` bytes.
        unsafe { (cl().get_program_info)(program.live.get(), PROGRAM_BINARY_SIZES, size, value, there) }
    })
    .map_err(Fault::Code)?;
    let mut lengths = lengths
        .chunks_exact(size_of::<usize>())
        .map(|word| usize::from_ne_bytes(word.try_into().unwrap_or_default()));
    // The driver is told where each begins, not how much room there is.
    if lengths.clone().any(|length| length as u64 > BINARY_MOST) {
        return Err(Fault::Code(OUT_OF_RESOURCES));
    }
    let mut binaries: Vec<Vec<u8>> = lengths.by_ref().map(|length| vec![0; length]).collect();
    let mut starts: Vec<*mut u8> = binaries.iter_mut().map(|binary| binary.as_mut_ptr()).collect();
    // SAFETY: as many places as the program has devices, each with room for its binary, which nothing builds anew now.
    checked(unsafe {
        (cl().get_program_info)(
            program.live.get(),
            PROGRAM_BINARIES,
            size_of_val(starts.as_slice()),
            starts.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        )
    })?;
    Ok(binaries)
}

/// One device's binary, put where the tenant wants it; the reply is its length.
pub fn binaries(here: Here<'_>, id: Id, place: u32, into: Span) -> Done {
    let program = here.table.program(id)?;
    let binaries = all_binaries(&program)?;
    let binary = binaries.get(place as usize).ok_or(Fault::Code(INVALID_VALUE))?;
    here.fill(into, binary)?;
    let mut reply = Vec::new();
    (binary.len() as u64).put(&mut reply);
    Ok(Answer::Now(reply))
}
