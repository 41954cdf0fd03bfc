//! Programs and kernels: made, built, asked, given arguments.

use super::*;

pub(super) fn new_program(context: Handle, binary: Vec<u8>, has_facts: bool, built: bool) -> Key {
    let mut state = inside();
    state.context(context as Key);
    let what = What::Program {
        built,
        binary,
        has_facts,
    };
    state.make(what, context as Key, &[])
}

pub(super) unsafe extern "C" fn create_program_with_source(
    context: Handle,
    count: u32,
    texts: *const *const c_char,
    lengths: *const usize,
    code: *mut i32,
) -> Handle {
    assert_eq!(count, 1);
    // SAFETY: one text of the length said.
    unsafe {
        let text = from_raw_parts((*texts).cast::<u8>(), *lengths).to_vec();
        made(new_program(context, text, true, false), code)
    }
}

pub(super) unsafe extern "C" fn create_program_with_binary(
    context: Handle,
    count: u32,
    devices: *const Handle,
    lengths: *const usize,
    binaries: *const *const u8,
    states: *mut i32,
    code: *mut i32,
) -> Handle {
    // SAFETY: lists of the length said.
    unsafe {
        let mut all = Vec::new();
        for (place, device) in keys(count, devices).into_iter().enumerate() {
            if !inside().has_device(context as Key, device) {
                return refused(-33, code);
            }
            all.extend_from_slice(from_raw_parts(*binaries.add(place), *lengths.add(place)));
            *states.add(place) = SUCCESS;
        }
        made(new_program(context, all, false, false), code)
    }
}

pub(super) unsafe extern "C" fn create_program_with_il(
    context: Handle,
    bytes: *const c_void,
    length: usize,
    code: *mut i32,
) -> Handle {
    assert_eq!(
        inside().platform_of(context as Key),
        0,
        "a function of another version"
    );
    // SAFETY: bytes of the length said.
    unsafe {
        let bytes = from_raw_parts(bytes.cast::<u8>(), length).to_vec();
        made(new_program(context, bytes, true, false), code)
    }
}

pub(super) unsafe extern "C" fn create_program_with_built_in_kernels(
    context: Handle,
    count: u32,
    devices: *const Handle,
    names: *const c_char,
    code: *mut i32,
) -> Handle {
    // SAFETY: a list of the length said and a C string.
    unsafe {
        if count == 0 {
            return refused(-30, code);
        }
        for device in keys(count, devices) {
            if !inside().has_device(context as Key, device) {
                return refused(-33, code);
            }
        }
        made(
            new_program(context, CStr::from_ptr(names).to_bytes().to_vec(), false, true),
            code,
        )
    }
}

/// Whether a program may be built for devices; it is not while it has kernels.
pub(super) fn may_build(state: &mut Inside, program: Key, devices: &[Key]) -> Result<(), i32> {
    let context = state.context_of(program);
    for device in devices {
        if !state.has_device(context, *device) {
            return Err(-33);
        }
    }
    let kernels = state
        .things
        .values()
        .filter(|thing| matches!(thing.what, What::Kernel { .. }))
        .any(|thing| thing.holds.contains(&program));
    if kernels { Err(IN_USE) } else { Ok(()) }
}

pub(super) fn set_built(state: &mut Inside, program: Key, options: &[u8]) -> i32 {
    let fails = options.windows(5).any(|part| part == b"-fail");
    let What::Program { built, binary, .. } = &mut state.thing(program).what else {
        panic!("no program");
    };
    *built = !fails;
    // Another size each time it is built.
    binary.resize((binary.len() * 7 + options.len()) % 2000 + 1, 1);
    if fails { BUILD_FAILED } else { SUCCESS }
}

pub(super) unsafe extern "C" fn build_program(
    program: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    _: *const c_void,
    _: *mut c_void,
) -> i32 {
    let mut state = inside();
    // SAFETY: a list of the length said and a C string.
    let (devices, options) = unsafe { (keys(count, devices), CStr::from_ptr(options)) };
    match may_build(&mut state, program as Key, &devices) {
        Ok(()) => set_built(&mut state, program as Key, options.to_bytes()),
        Err(code) => code,
    }
}

pub(super) unsafe extern "C" fn compile_program(
    program: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    headers: u32,
    programs: *const Handle,
    names: *const *const c_char,
    _: *const c_void,
    _: *mut c_void,
) -> i32 {
    let mut state = inside();
    let context = state.context_of(program as Key);
    assert_eq!(headers == 0, names.is_null());
    // SAFETY: lists of the lengths said and C strings.
    unsafe {
        for (place, header) in keys(headers, programs).into_iter().enumerate() {
            assert!(
                matches!(state.thing(header).what, What::Program { .. }),
                "no program"
            );
            assert_eq!(state.context_of(header), context, "a header of another context");
            assert!(CStr::from_ptr(*names.add(place)).count_bytes() < 1 << 16);
        }
        let (devices, options) = (keys(count, devices), CStr::from_ptr(options));
        match may_build(&mut state, program as Key, &devices) {
            Ok(()) => set_built(&mut state, program as Key, options.to_bytes()),
            Err(code) => code,
        }
    }
}

pub(super) unsafe extern "C" fn link_program(
    context: Handle,
    count: u32,
    devices: *const Handle,
    options: *const c_char,
    parts: u32,
    programs: *const Handle,
    _: *const c_void,
    _: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: lists of the lengths said and a C string.
    unsafe {
        for device in keys(count, devices) {
            if !inside().has_device(context as Key, device) {
                return refused(-33, code);
            }
        }
        for part in keys(parts, programs) {
            let mut state = inside();
            assert!(
                matches!(state.thing(part).what, What::Program { .. }),
                "no program"
            );
            assert_eq!(
                state.context_of(part),
                context as Key,
                "a part of another context"
            );
        }
        if CStr::from_ptr(options).to_bytes().starts_with(b"-fail") {
            return refused(-17, code);
        }
        made(new_program(context, b"linked".to_vec(), true, true), code)
    }
}

pub(super) unsafe extern "C" fn set_specialization(
    program: Handle,
    _: u32,
    size: usize,
    value: *const c_void,
) -> i32 {
    assert!(matches!(
        inside().thing(program as Key).what,
        What::Program { .. }
    ));
    assert_eq!(
        inside().platform_of(program as Key),
        0,
        "a function of another version"
    );
    // SAFETY: a value of the length said.
    let value = unsafe { from_raw_parts(value.cast::<u8>(), size) };
    if matches!(value.len(), 1 | 2 | 4 | 8) {
        SUCCESS
    } else {
        -30
    }
}

pub(super) unsafe extern "C" fn get_program_info(
    program: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let mut state = inside();
    let context = state.context_of(program as Key);
    let devices = state.context(context).1.len();
    let What::Program { binary, .. } = &state.thing(program as Key).what else {
        panic!("no program");
    };
    // SAFETY: as the worker says; for binaries, one place for each device with room for all of it.
    unsafe {
        match param {
            0x1165 => {
                let sizes: Vec<u8> = (0..devices).flat_map(|_| binary.len().to_ne_bytes()).collect();
                say(&sizes, size, value, there)
            }
            0x1166 => {
                assert_eq!(size, devices * size_of::<*mut u8>(), "a place for each binary");
                for place in 0..devices {
                    let to = *value.cast::<*mut u8>().add(place);
                    to.copy_from_nonoverlapping(binary.as_ptr(), binary.len());
                }
                SUCCESS
            }
            _ => say(b"b;bv", size, value, there),
        }
    }
}

pub(super) unsafe extern "C" fn get_build_info(
    program: Handle,
    device: Handle,
    _: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let mut state = inside();
    assert!(matches!(state.thing(program as Key).what, What::Program { .. }));
    let context = state.context_of(program as Key);
    if !state.has_device(context, device as Key) {
        return -33;
    }
    // SAFETY: as the worker says.
    unsafe { say(b"a log", size, value, there) }
}

pub(super) fn new_kernel(program: Key, name: &[u8]) -> Result<Key, i32> {
    let mut state = inside();
    let What::Program { built, has_facts, .. } = &state.thing(program).what else {
        panic!("no program");
    };
    if !built {
        return Err(NOT_BUILT);
    }
    if name.is_empty() || name.iter().any(|kind| !b"bisvlu".contains(kind)) {
        return Err(NO_SUCH_KERNEL);
    }
    let what = What::Kernel {
        name: name.to_vec(),
        has_facts: *has_facts,
        arguments: vec![None; name.len()],
    };
    let context = state.context_of(program);
    Ok(state.make(what, context, &[program]))
}

pub(super) unsafe extern "C" fn create_kernel(
    program: Handle,
    name: *const c_char,
    code: *mut i32,
) -> Handle {
    // SAFETY: a C string; the worker's own variable.
    unsafe {
        match new_kernel(program as Key, CStr::from_ptr(name).to_bytes()) {
            Ok(key) => made(key, code),
            Err(with) => refused(with, code),
        }
    }
}

pub(super) unsafe extern "C" fn create_kernels(
    program: Handle,
    room: u32,
    into: *mut Handle,
    count: *mut u32,
) -> i32 {
    if room < 3 {
        return -30;
    }
    for (place, name) in [b"bv", b"us", b"bb"].into_iter().enumerate() {
        match new_kernel(program as Key, name) {
            // SAFETY: room for three at least.
            Ok(key) => unsafe { *into.add(place) = key as Handle },
            Err(code) => return code,
        }
    }
    // SAFETY: the worker's own variable.
    unsafe { *count = 3 };
    SUCCESS
}

pub(super) fn kernel(state: &mut Inside, key: Handle) -> (Vec<u8>, bool, Vec<Option<Key>>) {
    match &state.thing(key as Key).what {
        What::Kernel {
            name,
            has_facts,
            arguments,
        } => (name.clone(), *has_facts, arguments.clone()),
        _ => panic!("no kernel"),
    }
}

pub(super) unsafe extern "C" fn clone_kernel(key: Handle, code: *mut i32) -> Handle {
    let mut state = inside();
    assert_eq!(state.platform_of(key as Key), 0, "a function of another version");
    let (name, has_facts, arguments) = kernel(&mut state, key);
    let context = state.context_of(key as Key);
    let program = state.thing(key as Key).holds[0];
    let what = What::Kernel {
        name,
        has_facts,
        arguments,
    };
    // SAFETY: the worker's own variable.
    unsafe { made(state.make(what, context, &[program]), code) }
}

pub(super) unsafe extern "C" fn set_kernel_arg(
    key: Handle,
    place: u32,
    size: usize,
    value: *const c_void,
) -> i32 {
    let mut state = inside();
    let (name, ..) = kernel(&mut state, key);
    let kind = *name.get(place as usize).expect("an argument the kernel has");
    let number = match (value.is_null(), size) {
        (false, 8) => {
            // SAFETY: eight bytes, as said.
            Some(unsafe { value.cast::<usize>().read_unaligned() })
        }
        _ => None,
    };
    let code = match (kind, value.is_null(), number) {
        (b'l', true, _) if size > 0 => SUCCESS,
        (b'l', ..) => -50,
        (b'v', false, _) if size == 4 => SUCCESS,
        (b'v', ..) => -51,
        (_, true, _) | (_, _, None) => -51,
        (b'b', _, Some(0)) => SUCCESS,
        (b'i' | b's' | b'u', _, Some(0)) => -50,
        // Whatever is not known to be a number is looked into.
        (b'u', _, Some(number)) if !(1 << 32..1 << 48).contains(&number) => SUCCESS,
        (kind, _, Some(object)) => {
            let context = state.context_of(key as Key);
            assert_eq!(state.context_of(object), context, "an object of another context");
            let fits = match &state.thing(object).what {
                What::Memory(memory) => kind == b'u' || (kind == b'i') == memory.image.is_some(),
                What::Sampler => matches!(kind, b's' | b'u'),
                _ => false,
            };
            assert!(fits, "an object where another kind is meant");
            SUCCESS
        }
    };
    if code == SUCCESS
        && let What::Kernel { arguments, .. } = &mut state.thing(key as Key).what
    {
        arguments[place as usize] = Some(number.filter(|_| kind != b'v').unwrap_or(0));
    }
    code
}

pub(super) unsafe extern "C" fn get_kernel_info(
    key: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let (name, ..) = kernel(&mut inside(), key);
    // SAFETY: as the worker says.
    unsafe {
        match param {
            0x1191 => say(&(name.len() as u32).to_ne_bytes(), size, value, there),
            _ => say(&[name.as_slice(), &[0]].concat(), size, value, there),
        }
    }
}

pub(super) unsafe extern "C" fn get_kernel_arg_info(
    key: Handle,
    place: u32,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let (name, has_facts, _) = kernel(&mut inside(), key);
    let Some(kind) = name.get(place as usize) else {
        return -49;
    };
    if !has_facts || *kind == b'u' {
        return -19;
    }
    let (space, text): (u32, &[u8]) = match kind {
        b'b' => (0x119B, b"uint*\0"),
        b'l' => (0x119C, b"uint*\0"),
        b'i' => (0x119B, b"image2d_t\0"),
        b's' => (0x119E, b"sampler_t\0"),
        _ => (0x119E, b"uint\0"),
    };
    // SAFETY: as the worker says.
    unsafe {
        match param {
            0x1196 => say(&space.to_ne_bytes(), size, value, there),
            _ => say(text, size, value, there),
        }
    }
}

pub(super) unsafe extern "C" fn get_kernel_work_group_info(
    key: Handle,
    device: Handle,
    _: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let mut state = inside();
    kernel(&mut state, key);
    let context = state.context_of(key as Key);
    if !state.has_device(context, device as Key) {
        return -33;
    }
    // SAFETY: as the worker says.
    unsafe { say(&64usize.to_ne_bytes(), size, value, there) }
}

pub(super) unsafe extern "C" fn get_kernel_sub_group_info(
    key: Handle,
    device: Handle,
    _: u32,
    count: usize,
    input: *const c_void,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let mut state = inside();
    kernel(&mut state, key);
    assert_eq!(state.platform_of(key as Key), 0, "a function of another version");
    let context = state.context_of(key as Key);
    if !state.has_device(context, device as Key) {
        return -33;
    }
    // SAFETY: as the worker says.
    unsafe {
        if count > 0 {
            assert!(input.is_aligned() && from_raw_parts(input.cast::<u8>(), count).len() == count);
        }
        say(&32usize.to_ne_bytes(), size, value, there)
    }
}
