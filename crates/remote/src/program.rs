//! Programs: made here, built at the broker.

use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex};

use tenure_wire::{Request, Span, Subject};

use crate::abi::{Handle, INVALID_BINARY, INVALID_DEVICE, INVALID_PROGRAM, INVALID_VALUE, SUCCESS};
use crate::bulk::{Bulk, Room};
use crate::context::{Context, Farewell, farewell};
use crate::device::{Device, Platform, ask};
use crate::export::{answer, bytes_of, done, list, made, put, text};
use crate::link::{Link, Remote, lock};
use crate::object::{self, Kind, Object, get, hold};

pub struct Program {
    pub remote: Remote,
    pub context: Arc<Object<Context>>,
    /// Numbers of its devices.
    pub devices: Vec<u32>,
    source: Vec<u8>,
    intermediate: Vec<u8>,
    options: Mutex<CString>,
    farewells: Mutex<Vec<Farewell>>,
}

impl Kind for Program {
    const MARK: u32 = 0x5052_4f47;
    const INVALID: i32 = INVALID_PROGRAM;
}

type Notify = Option<unsafe extern "C" fn(Handle, *mut c_void)>;

fn give(
    remote: Remote,
    context: Arc<Object<Context>>,
    devices: Vec<u32>,
    source: Vec<u8>,
    code: Vec<u8>,
) -> Handle {
    Object::give(Object::new(Program {
        remote,
        context,
        devices,
        source,
        intermediate: code,
        options: Mutex::default(),
        farewells: Mutex::default(),
    }))
}

fn all_devices(context: &Context) -> Vec<u32> {
    context.devices.iter().map(|device| device.number).collect()
}

/// Bytes put where the broker can read them.
fn sent(link: &'static Link, bytes: &[u8]) -> Result<Room, i32> {
    let room = Bulk::room(link, bytes.len() as u64)?;
    // SAFETY: as many bytes fit the room.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.start(), bytes.len()) };
    Ok(room)
}

pub unsafe extern "C" fn create_with_source(
    context: Handle,
    count: u32,
    strings: *const *const c_char,
    lengths: *const usize,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            let strings = list(strings, count as usize);
            let lengths = list(lengths, count as usize);
            if strings.is_empty() || strings.iter().any(|start| start.is_null()) {
                return Err(INVALID_VALUE);
            }
            let mut source = Vec::new();
            for (place, start) in strings.iter().enumerate() {
                match lengths.get(place) {
                    Some(length) if *length > 0 => {
                        source.extend_from_slice(list(start.cast::<u8>(), *length))
                    }
                    _ => source.extend_from_slice(text(*start).as_bytes()),
                }
            }
            // An end mark counted into a length ends nothing.
            while source.last() == Some(&0) {
                source.pop();
            }
            let whole = if source.is_empty() {
                b" ".to_vec()
            } else {
                source.clone()
            };
            let room = sent(context.remote.link, &whole)?;
            let (remote, _) = Remote::make(context.remote.link, |id| Request::Source {
                id,
                context: context.remote.id,
                text: room.span,
            })?;
            let devices = all_devices(&context);
            Ok(give(remote, context, devices, source, Vec::new()))
        })
    }
}

pub unsafe extern "C" fn create_with_binary(
    context: Handle,
    count: u32,
    devices: *const Handle,
    lengths: *const usize,
    binaries: *const *const u8,
    states: *mut i32,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            let count = count as usize;
            let devices = context.numbers(list(devices, count))?;
            let (lengths, starts) = (list(lengths, count), list(binaries, count));
            if devices.is_empty() || lengths.len() != count || starts.len() != count {
                return Err(INVALID_VALUE);
            }
            let mut rooms = Vec::new();
            for (start, length) in starts.iter().zip(lengths) {
                if start.is_null() || *length == 0 {
                    return Err(INVALID_VALUE);
                }
                rooms.push(sent(context.remote.link, list(*start, *length))?);
            }
            let spans: Vec<Span> = rooms.iter().map(|room| room.span).collect();
            let numbers = devices.clone();
            let state = |state: i32| {
                if !states.is_null() {
                    (0..count).for_each(|place| states.add(place).write(state));
                }
            };
            let (remote, _) = Remote::make(context.remote.link, |id| Request::Binary {
                id,
                context: context.remote.id,
                devices: numbers,
                binaries: spans,
            })
            .inspect_err(|_| state(INVALID_BINARY))?;
            state(SUCCESS);
            Ok(give(remote, context, devices, Vec::new(), Vec::new()))
        })
    }
}

pub unsafe extern "C" fn create_with_il(
    context: Handle,
    start: *const c_void,
    length: usize,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            let bytes = list(start.cast::<u8>(), length);
            if bytes.is_empty() {
                return Err(INVALID_VALUE);
            }
            let room = sent(context.remote.link, bytes)?;
            let (remote, _) = Remote::make(context.remote.link, |id| Request::Intermediate {
                id,
                context: context.remote.id,
                code: room.span,
            })?;
            let devices = all_devices(&context);
            Ok(give(remote, context, devices, Vec::new(), bytes.to_vec()))
        })
    }
}

pub unsafe extern "C" fn create_with_built_in(
    context: Handle,
    count: u32,
    devices: *const Handle,
    names: *const c_char,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            let devices = context.numbers(list(devices, count as usize))?;
            if devices.is_empty() || names.is_null() {
                return Err(INVALID_VALUE);
            }
            let numbers = devices.clone();
            let (remote, _) = Remote::make(context.remote.link, |id| Request::BuiltIn {
                id,
                context: context.remote.id,
                devices: numbers,
                names: text(names),
            })?;
            Ok(give(remote, context, devices, Vec::new(), Vec::new()))
        })
    }
}

pub unsafe extern "C" fn retain(program: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Program>(program) })
}

pub unsafe extern "C" fn release(program: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        if let Some(last) = unsafe { object::release::<Program>(program)? } {
            farewell(&last.farewells, program);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn set_release_callback(program: Handle, notify: Notify, data: *mut c_void) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let program = unsafe { get::<Program>(program)? };
        lock(&program.farewells).push((notify.ok_or(INVALID_VALUE)?, data as usize));
        Ok(())
    })
}

pub unsafe extern "C" fn build(
    handle: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    notify: Notify,
    data: *mut c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (program, devices, options) = unsafe {
            if (count == 0) != devices.is_null() || (notify.is_none() && !data.is_null()) {
                return Err(INVALID_VALUE);
            }
            (
                get::<Program>(handle)?,
                list(devices, count as usize),
                text(options),
            )
        };
        let devices = program.context.numbers(devices)?;
        *lock(&program.options) = options.clone();
        let built = program.remote.link.call(&Request::Build {
            program: program.remote.id,
            devices,
            options,
        });
        if let Some(notify) = notify {
            // SAFETY: the program's own function with its own data.
            unsafe { notify(handle, data) };
        }
        built.map(|_| ())
    })
}

pub unsafe extern "C" fn compile(
    handle: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    header_count: u32,
    headers: *const Handle,
    names: *const *const c_char,
    notify: Notify,
    data: *mut c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (program, devices, options, headers, names) = unsafe {
            if (count == 0) != devices.is_null() || (notify.is_none() && !data.is_null()) {
                return Err(INVALID_VALUE);
            }
            let headers = list(headers, header_count as usize)
                .iter()
                .map(|header| get::<Program>(*header).map(|header| header.remote.id))
                .collect::<Result<Vec<_>, _>>()?;
            let names: Vec<CString> = list(names, header_count as usize)
                .iter()
                .map(|name| text(*name))
                .collect();
            (
                get::<Program>(handle)?,
                list(devices, count as usize),
                text(options),
                headers,
                names,
            )
        };
        if headers.len() != names.len() || headers.len() != header_count as usize {
            return Err(INVALID_VALUE);
        }
        let devices = program.context.numbers(devices)?;
        *lock(&program.options) = options.clone();
        let compiled = program.remote.link.call(&Request::Compile {
            program: program.remote.id,
            devices,
            options,
            headers,
            names,
        });
        if let Some(notify) = notify {
            // SAFETY: the program's own function with its own data.
            unsafe { notify(handle, data) };
        }
        compiled.map(|_| ())
    })
}

pub unsafe extern "C" fn link(
    context: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    program_count: u32,
    programs: *const Handle,
    notify: Notify,
    data: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            if (count == 0) != devices.is_null() || (notify.is_none() && !data.is_null()) {
                return Err(INVALID_VALUE);
            }
            let devices = context.numbers(list(devices, count as usize))?;
            let programs = list(programs, program_count as usize)
                .iter()
                .map(|program| get::<Program>(*program).map(|program| program.remote.id))
                .collect::<Result<Vec<_>, _>>()?;
            if programs.is_empty() {
                return Err(INVALID_VALUE);
            }
            let options = text(options);
            let (numbers, said) = (devices.clone(), options.clone());
            let (remote, _) = Remote::make(context.remote.link, |id| Request::Link {
                id,
                context: context.remote.id,
                devices: numbers,
                options: said,
                programs,
            })?;
            let devices = if devices.is_empty() {
                all_devices(&context)
            } else {
                devices
            };
            let handle = give(remote, context, devices, Vec::new(), Vec::new());
            *lock(&get::<Program>(handle)?.options) = options;
            if let Some(notify) = notify {
                notify(handle, data);
            }
            Ok(handle)
        })
    }
}

pub unsafe extern "C" fn unload_compiler() -> i32 {
    SUCCESS
}

pub unsafe extern "C" fn unload_platform_compiler(platform: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { get::<Platform>(platform) }.map(|_| ()))
}

pub unsafe extern "C" fn set_specialization(
    program: Handle,
    number: u32,
    size: usize,
    value: *const c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (program, value) = unsafe { (get::<Program>(program)?, list(value.cast::<u8>(), size)) };
        if program.intermediate.is_empty() {
            return Err(INVALID_PROGRAM);
        }
        if value.is_empty() {
            return Err(INVALID_VALUE);
        }
        let request = Request::Specialize {
            program: program.remote.id,
            number,
            value: value.to_vec(),
        };
        program.remote.link.call(&request).map(|_| ())
    })
}

fn binary_sizes(program: &Program) -> Result<Vec<usize>, i32> {
    let bytes = ask(
        program.remote.link,
        Subject::Program,
        program.remote.id,
        0,
        0,
        0x1165,
        Vec::new(),
    )?;
    Ok(bytes
        .chunks_exact(size_of::<usize>())
        .map(|word| usize::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect())
}

/// Writes each device's binary where the caller wants it; places that are null are left out.
///
/// # Safety
/// Each place has room for its binary or is null.
unsafe fn binaries(program: &Program, places: &[*mut u8]) -> Result<(), i32> {
    let link = program.remote.link;
    let sizes = binary_sizes(program)?;
    for (number, (place, size)) in places.iter().zip(sizes).enumerate() {
        if place.is_null() || size == 0 {
            continue;
        }
        let room = Bulk::room(link, size as u64)?;
        link.call(&Request::Binaries {
            program: program.remote.id,
            place: number as u32,
            into: room.span,
        })?;
        // SAFETY: room for the binary, as promised.
        unsafe { std::ptr::copy_nonoverlapping(room.start(), *place, size) };
    }
    Ok(())
}

pub unsafe extern "C" fn get_info(
    program: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    const BINARIES: u32 = 0x1166;
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let program = unsafe { get::<Program>(program)? };
        let handles = || -> Vec<Handle> {
            let all = program.context.devices.iter();
            all.filter(|device| program.devices.contains(&device.number))
                .map(|device| device.handle())
                .collect()
        };
        let ended = |bytes: &[u8]| [bytes, b"\0"].concat();
        let bytes = match param {
            0x1160 => bytes_of(&[program.references()]),
            0x1161 => bytes_of(&[program.context.handle()]),
            0x1162 => bytes_of(&[program.devices.len() as u32]),
            0x1163 => bytes_of(&handles()),
            0x1164 => ended(&program.source),
            0x1169 => program.intermediate.clone(),
            BINARIES => {
                let needed = program.devices.len() * size_of::<usize>();
                // SAFETY: as the caller of an OpenCL function promises.
                unsafe {
                    put(size_ret, needed);
                    if value.is_null() {
                        return Ok(());
                    }
                    if size < needed {
                        return Err(INVALID_VALUE);
                    }
                    return binaries(program, list(value.cast(), program.devices.len()));
                }
            }
            _ => {
                let remote = &program.remote;
                ask(remote.link, Subject::Program, remote.id, 0, 0, param, Vec::new())?
            }
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn get_build_info(
    program: Handle,
    device: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    const OPTIONS: u32 = 0x1182;
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (program, device) = unsafe { (get::<Program>(program)?, get::<Device>(device)?) };
        if !program.devices.contains(&device.number) {
            return Err(INVALID_DEVICE);
        }
        let bytes = match param {
            OPTIONS => lock(&program.options).as_bytes_with_nul().to_vec(),
            _ => {
                let remote = &program.remote;
                ask(
                    remote.link,
                    Subject::Build,
                    remote.id,
                    device.number,
                    0,
                    param,
                    Vec::new(),
                )?
            }
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}
