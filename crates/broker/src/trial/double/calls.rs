//! The double's functions, as the headers have them. What a driver must check itself is answered with its code; what
//! the worker answers for is asserted.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::slice::from_raw_parts;

use super::queue::{self, Order, Tell, enqueue};
use super::{DEVICES, Image, Inside, Key, Memory, PLATFORMS, What, inside, platform_of_device};
use crate::abi::{Handle, SUCCESS};
use crate::driver::Functions;
use crate::format::element_bytes;

type Sides = *const usize;
type Waits = *const Handle;

/// The largest memory object.
const SIZE_MOST: usize = 16 << 10;

const MEM_COPY: u64 = 1 << 5;
const BUILD_FAILED: i32 = -11;
const ALLOCATION_FAILED: i32 = -4;
const NOT_BUILT: i32 = -45;
const NO_SUCH_KERNEL: i32 = -46;
const IN_USE: i32 = -59;

pub fn functions() -> Functions {
    Functions {
        get_platform_ids,
        get_platform_info: get_any_info,
        get_device_ids,
        get_device_info: get_any_info,
        create_context,
        release_context: release,
        create_queue,
        create_queue_with_properties,
        retain_queue: retain,
        release_queue: release,
        create_buffer,
        create_sub_buffer,
        create_image,
        release_memory: release,
        get_image_info,
        get_image_formats,
        create_sampler,
        release_sampler: release,
        create_program_with_source,
        create_program_with_binary,
        create_program_with_il,
        create_program_with_built_in_kernels,
        build_program,
        compile_program,
        link_program,
        set_specialization,
        release_program: release,
        get_program_info,
        get_build_info,
        create_kernel,
        create_kernels,
        clone_kernel,
        set_kernel_arg,
        release_kernel: release,
        get_kernel_info,
        get_kernel_arg_info,
        get_kernel_work_group_info,
        get_kernel_sub_group_info,
        create_user_event,
        set_user_event_status,
        set_event_callback,
        wait_for_events,
        retain_event: retain,
        release_event: release,
        get_event_info,
        get_event_profiling_info,
        flush,
        finish: queue_finish,
        launch,
        read_buffer,
        write_buffer,
        read_rect,
        write_rect,
        copy_buffer,
        copy_rect,
        fill_buffer,
        read_image,
        write_image,
        copy_image,
        image_to_buffer,
        buffer_to_image,
        fill_image,
        migrate,
        marker,
        barrier,
        get_timers,
    }
}

/// Puts an answer where the worker has room for it.
unsafe fn say(bytes: &[u8], size: usize, value: *mut c_void, there: *mut usize) -> i32 {
    // SAFETY: places of the sizes the worker says, or null.
    unsafe {
        if !there.is_null() {
            *there = bytes.len();
        }
        if !value.is_null() {
            if size < bytes.len() {
                return -30;
            }
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
    SUCCESS
}

unsafe fn made(key: Key, code: *mut i32) -> Handle {
    // SAFETY: the worker's own variable.
    unsafe { *code = SUCCESS };
    key as Handle
}

unsafe fn refused(with: i32, code: *mut i32) -> Handle {
    // SAFETY: as above.
    unsafe { *code = with };
    std::ptr::null_mut()
}

unsafe fn three(sides: Sides) -> [usize; 3] {
    // SAFETY: lists of three.
    unsafe { *sides.cast::<[usize; 3]>() }
}

unsafe fn keys(count: u32, list: *const Handle) -> Vec<Key> {
    assert_eq!(count == 0, list.is_null(), "a list as the headers want it");
    match count {
        0 => Vec::new(),
        // SAFETY: a list of the length said.
        _ => unsafe { from_raw_parts(list, count as usize) }
            .iter()
            .map(|key| *key as Key)
            .collect(),
    }
}

unsafe extern "C" fn retain(key: Handle) -> i32 {
    inside().retain(key as Key);
    SUCCESS
}

unsafe extern "C" fn release(key: Handle) -> i32 {
    inside().release(key as Key);
    SUCCESS
}

unsafe extern "C" fn get_platform_ids(_: u32, _: *mut Handle, _: *mut u32) -> i32 {
    unreachable!("the worker looks for platforms once, when it opens a driver")
}

unsafe extern "C" fn get_device_ids(_: Handle, _: u64, _: u32, _: *mut Handle, _: *mut u32) -> i32 {
    unreachable!("as for platforms")
}

unsafe extern "C" fn get_any_info(
    of: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let of = of as Key;
    assert!(PLATFORMS.contains(&of) || DEVICES.iter().any(|(key, _)| *key == of));
    let answer = if param.is_multiple_of(7) {
        vec![b'x'; 9000]
    } else {
        param.to_ne_bytes().to_vec()
    };
    // SAFETY: as the worker says.
    unsafe { say(&answer, size, value, there) }
}

unsafe extern "C" fn create_context(
    properties: *const isize,
    count: u32,
    devices: *const Handle,
    _: *const c_void,
    _: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: lists of the worker's, of the lengths said.
    unsafe {
        let devices = keys(count, devices);
        let platform = PLATFORMS
            .iter()
            .position(|key| *key as isize == *properties.add(1));
        let platform = platform.expect("a platform of the driver's");
        for device in &devices {
            assert_eq!(
                platform_of_device(*device),
                platform,
                "a device of another platform"
            );
        }
        made(inside().make(What::Context { platform, devices }, 0, &[]), code)
    }
}

fn new_queue(context: Handle, device: Handle, properties: u64) -> Option<Key> {
    let mut state = inside();
    let what = What::Queue {
        out_of_order: properties & 1 != 0,
        waiting: Vec::new(),
    };
    state
        .has_device(context as Key, device as Key)
        .then(|| state.make(what, context as Key, &[]))
}

unsafe extern "C" fn create_queue(
    context: Handle,
    device: Handle,
    properties: u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: the worker's own variable.
    unsafe {
        assert_eq!(
            inside().platform_of(context as Key),
            1,
            "a function of another version"
        );
        match new_queue(context, device, properties) {
            Some(key) => made(key, code),
            None => refused(-33, code),
        }
    }
}

unsafe extern "C" fn create_queue_with_properties(
    context: Handle,
    device: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: a list ended by zero, as the worker makes it.
    unsafe {
        assert_eq!(
            inside().platform_of(context as Key),
            0,
            "a function of another version"
        );
        match new_queue(context, device, *properties.add(1)) {
            Some(key) => made(key, code),
            None => refused(-33, code),
        }
    }
}

/// A copy of host memory that commands may touch.
fn host(state: &super::State, start: usize, bytes: usize) -> Vec<u8> {
    state.expect_host(start, bytes);
    // SAFETY: within a region that lives, as just asserted.
    unsafe { from_raw_parts(start as *const u8, bytes) }.to_vec()
}

fn to_host(state: &super::State, start: usize, bytes: &[u8]) {
    state.expect_host(start, bytes.len());
    // SAFETY: within a region that lives, as just asserted.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
}

fn first_bytes(state: &super::State, flags: u64, start: usize, size: usize) -> Vec<u8> {
    assert_eq!(
        flags & MEM_COPY != 0,
        start != 0,
        "bytes to copy where the flags say so"
    );
    assert_eq!(
        flags & (3 << 3),
        0,
        "no memory of the worker's is used as a device's"
    );
    match start {
        0 => vec![0; size],
        start => host(state, start, size),
    }
}

unsafe extern "C" fn create_buffer(
    context: Handle,
    flags: u64,
    size: usize,
    first: *mut c_void,
    code: *mut i32,
) -> Handle {
    let mut state = inside();
    state.context(context as Key);
    // SAFETY: the worker's own variable.
    unsafe {
        if size > SIZE_MOST {
            return refused(ALLOCATION_FAILED, code);
        }
        let memory = Memory::new(first_bytes(&state, flags, first as usize, size), None);
        made(state.make(What::Memory(memory), context as Key, &[]), code)
    }
}

unsafe extern "C" fn create_sub_buffer(
    of: Handle,
    _: u64,
    kind: u32,
    region: *const c_void,
    code: *mut i32,
) -> Handle {
    let mut state = inside();
    assert_eq!(kind, 0x1220);
    // SAFETY: two numbers; the worker's own variable.
    unsafe {
        let [at, size] = *region.cast::<[usize; 2]>();
        let part = state.buffer(of as Key).part(at, size, None);
        let context = state.context_of(of as Key);
        made(state.make(What::Memory(part), context, &[of as Key]), code)
    }
}

#[repr(C)]
struct Descriptor {
    kind: u32,
    width: usize,
    height: usize,
    depth: usize,
    array: usize,
    row: usize,
    slice: usize,
    mips: u32,
    samples: u32,
    of: Handle,
}

unsafe extern "C" fn create_image(
    context: Handle,
    flags: u64,
    format: *const c_void,
    descriptor: *const c_void,
    first: *mut c_void,
    code: *mut i32,
) -> Handle {
    let mut state = inside();
    // SAFETY: format and descriptor as the headers lay them out; the worker's own variable.
    unsafe {
        let [order, channel] = *format.cast::<[u32; 2]>();
        let what = &*descriptor.cast::<Descriptor>();
        let element = element_bytes(order, channel).expect("a known format") as usize;
        let sides = match what.kind {
            0x10F4 | 0x10F6 => [what.width, 1, 1],
            0x10F1 => [what.width, what.height, 1],
            0x10F5 => [what.width, what.array, 1],
            0x10F3 => [what.width, what.height, what.array],
            _ => [what.width, what.height, what.depth],
        };
        assert_eq!((what.mips, what.samples), (0, 0));
        let across = |a: usize, b: usize| a.checked_mul(b);
        let row = if what.row == 0 {
            across(sides[0], element)
        } else {
            Some(what.row)
        };
        let slice = row.and_then(|row| across(row, sides[1]));
        let size = slice
            .and_then(|slice| across(slice, sides[2]))
            .expect("a size that is one");
        let (row, slice) = (row.unwrap_or(0), slice.unwrap_or(0));
        let image = Image {
            sides,
            element,
            row,
            slice,
        };
        state.context(context as Key);
        if what.of.is_null() {
            assert_ne!(what.kind, 0x10F6, "an image of a buffer without one");
            if size > SIZE_MOST {
                return refused(ALLOCATION_FAILED, code);
            }
            let memory = Memory::new(first_bytes(&state, flags, first as usize, size), Some(image));
            return made(state.make(What::Memory(memory), context as Key, &[]), code);
        }
        assert!(first.is_null());
        assert_eq!(
            state.context_of(what.of as Key),
            context as Key,
            "memory of another context"
        );
        assert!(row >= sides[0] * element, "rows that overlap");
        let image = match state.memory(what.of as Key).image {
            // Seen through another, it lies as it lies.
            Some(under) => {
                assert!(
                    under.sides == sides && under.element == element,
                    "an image seen as another size"
                );
                under
            }
            None => image,
        };
        let part = state.memory(what.of as Key);
        let part = part.part(0, (image.slice * sides[2]).min(part.size.max(size)), Some(image));
        made(
            state.make(What::Memory(part), context as Key, &[what.of as Key]),
            code,
        )
    }
}

unsafe extern "C" fn get_image_info(
    image: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    inside().image(image as Key);
    // SAFETY: as the worker says.
    unsafe { say(&u64::from(param).to_ne_bytes(), size, value, there) }
}

unsafe extern "C" fn get_image_formats(
    context: Handle,
    _: u64,
    _: u32,
    room: u32,
    into: *mut c_void,
    count: *mut u32,
) -> i32 {
    inside().context(context as Key);
    // SAFETY: room for as many formats as said.
    unsafe {
        if !count.is_null() {
            *count = 2;
        }
        if !into.is_null() {
            let formats: [[u32; 2]; 2] = [[0x10B5, 0x10D2], [0x10B0, 0x10DE]];
            let most = (room as usize).min(2);
            into.cast::<[u32; 2]>()
                .copy_from_nonoverlapping(formats.as_ptr(), most);
        }
    }
    SUCCESS
}

unsafe extern "C" fn create_sampler(context: Handle, _: u32, _: u32, _: u32, code: *mut i32) -> Handle {
    let mut state = inside();
    state.context(context as Key);
    // SAFETY: the worker's own variable.
    unsafe { made(state.make(What::Sampler, context as Key, &[]), code) }
}

fn new_program(context: Handle, binary: Vec<u8>, has_facts: bool, built: bool) -> Key {
    let mut state = inside();
    state.context(context as Key);
    let what = What::Program {
        built,
        binary,
        has_facts,
    };
    state.make(what, context as Key, &[])
}

unsafe extern "C" fn create_program_with_source(
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

unsafe extern "C" fn create_program_with_binary(
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

unsafe extern "C" fn create_program_with_il(
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

unsafe extern "C" fn create_program_with_built_in_kernels(
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
fn may_build(state: &mut Inside, program: Key, devices: &[Key]) -> Result<(), i32> {
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

fn set_built(state: &mut Inside, program: Key, options: &[u8]) -> i32 {
    let fails = options.windows(5).any(|part| part == b"-fail");
    let What::Program { built, binary, .. } = &mut state.thing(program).what else {
        panic!("no program");
    };
    *built = !fails;
    // Another size each time it is built.
    binary.resize((binary.len() * 7 + options.len()) % 2000 + 1, 1);
    if fails { BUILD_FAILED } else { SUCCESS }
}

unsafe extern "C" fn build_program(
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

unsafe extern "C" fn compile_program(
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

unsafe extern "C" fn link_program(
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

unsafe extern "C" fn set_specialization(program: Handle, _: u32, size: usize, value: *const c_void) -> i32 {
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

unsafe extern "C" fn get_program_info(
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

unsafe extern "C" fn get_build_info(
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

fn new_kernel(program: Key, name: &[u8]) -> Result<Key, i32> {
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

unsafe extern "C" fn create_kernel(program: Handle, name: *const c_char, code: *mut i32) -> Handle {
    // SAFETY: a C string; the worker's own variable.
    unsafe {
        match new_kernel(program as Key, CStr::from_ptr(name).to_bytes()) {
            Ok(key) => made(key, code),
            Err(with) => refused(with, code),
        }
    }
}

unsafe extern "C" fn create_kernels(program: Handle, room: u32, into: *mut Handle, count: *mut u32) -> i32 {
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

fn kernel(state: &mut Inside, key: Handle) -> (Vec<u8>, bool, Vec<Option<Key>>) {
    match &state.thing(key as Key).what {
        What::Kernel {
            name,
            has_facts,
            arguments,
        } => (name.clone(), *has_facts, arguments.clone()),
        _ => panic!("no kernel"),
    }
}

unsafe extern "C" fn clone_kernel(key: Handle, code: *mut i32) -> Handle {
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

unsafe extern "C" fn set_kernel_arg(key: Handle, place: u32, size: usize, value: *const c_void) -> i32 {
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

unsafe extern "C" fn get_kernel_info(
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

unsafe extern "C" fn get_kernel_arg_info(
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

unsafe extern "C" fn get_kernel_work_group_info(
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

unsafe extern "C" fn get_kernel_sub_group_info(
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

unsafe extern "C" fn create_user_event(context: Handle, code: *mut i32) -> Handle {
    let mut state = inside();
    state.context(context as Key);
    let what = What::Event {
        status: 2,
        user: true,
        told: Vec::new(),
    };
    // SAFETY: the worker's own variable.
    unsafe { made(state.make(what, context as Key, &[]), code) }
}

unsafe extern "C" fn set_user_event_status(event: Handle, status: i32) -> i32 {
    let mut state = inside();
    let is_user = matches!(state.thing(event as Key).what, What::Event { user: true, .. });
    assert!(is_user && status <= 0, "a user event is set once, and ends by it");
    let mut tell = Tell::default();
    state.end(event as Key, status, &mut tell);
    drop(state);
    tell.all();
    drop(inside().pumped());
    SUCCESS
}

unsafe extern "C" fn set_event_callback(
    event: Handle,
    _: i32,
    told: unsafe extern "C" fn(Handle, i32, *mut c_void),
    data: *mut c_void,
) -> i32 {
    let mut state = inside();
    let now = state.status(event as Key);
    if now <= 0 {
        drop(state);
        // SAFETY: the worker's own callback and its data, told once.
        unsafe { told(event, now, data) };
        return SUCCESS;
    }
    if let What::Event { told: listeners, .. } = &mut state.thing(event as Key).what {
        listeners.push((told, data as usize));
    }
    SUCCESS
}

unsafe extern "C" fn wait_for_events(count: u32, events: *const Handle) -> i32 {
    // SAFETY: a list of the length said.
    let events = unsafe { keys(count, events) };
    let contexts: HashSet<Key> = events.iter().map(|event| inside().context_of(*event)).collect();
    assert_eq!(contexts.len(), 1, "events of several contexts");
    queue::wait(inside(), &events, false)
}

unsafe extern "C" fn get_event_info(
    event: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    assert_eq!(param, 0x11D3);
    let status = inside().pumped().status(event as Key);
    // SAFETY: as the worker says.
    unsafe { say(&status.to_ne_bytes(), size, value, there) }
}

unsafe extern "C" fn get_event_profiling_info(
    event: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    if inside().status(event as Key) != 0 {
        return -7;
    }
    // SAFETY: as the worker says.
    unsafe { say(&u64::from(param).to_ne_bytes(), size, value, there) }
}

unsafe extern "C" fn flush(queue: Handle) -> i32 {
    let mut state = inside();
    assert!(
        matches!(state.thing(queue as Key).what, What::Queue { .. }),
        "no queue"
    );
    drop(state.pumped());
    SUCCESS
}

unsafe extern "C" fn queue_finish(queue: Handle) -> i32 {
    queue::finish(queue)
}

/// The end of every command's arguments.
fn order(queue: Handle, blocks: u32, count: u32, waits: Waits, event: *mut Handle) -> Order {
    Order {
        queue,
        blocks: blocks != 0,
        count,
        waits,
        event,
    }
}

unsafe extern "C" fn launch(
    queue: Handle,
    key: Handle,
    sides: u32,
    offset: Sides,
    global: Sides,
    local: Sides,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (name, _, arguments) = kernel(&mut state, key);
    assert!((1..=3).contains(&sides));
    // SAFETY: lists of three, or null.
    unsafe {
        for list in [offset, global, local].into_iter().filter(|list| !list.is_null()) {
            three(list);
        }
    }
    let mut uses = vec![key];
    let mut memory = Vec::new();
    for (kind, argument) in name.iter().zip(arguments) {
        let argument = argument.expect("every argument is set before a launch");
        let is_object = match kind {
            b'b' | b'i' | b's' => argument != 0,
            b'u' => (1 << 32..1 << 48).contains(&argument),
            _ => false,
        };
        if is_object {
            uses.push(argument as Handle);
            if matches!(state.thing(argument).what, What::Memory(_)) {
                memory.push(state.memory(argument));
            }
        }
    }
    // The kernel adds one to the first byte of all it was given.
    enqueue(state, order(queue, 0, count, waits, event), &uses, move |_| {
        for memory in memory {
            let first = memory.get(0, 1);
            memory.set(0, &[first[0].wrapping_add(1)]);
        }
    })
}

unsafe extern "C" fn read_buffer(
    queue: Handle,
    buffer: Handle,
    blocks: u32,
    at: usize,
    bytes: usize,
    to: *mut c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let memory = state.buffer(buffer as Key);
    let to = to as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[buffer],
        move |state| {
            to_host(state, to, &memory.get(at, bytes));
        },
    )
}

unsafe extern "C" fn write_buffer(
    queue: Handle,
    buffer: Handle,
    blocks: u32,
    at: usize,
    bytes: usize,
    from: *const c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let memory = state.buffer(buffer as Key);
    let from = from as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[buffer],
        move |state| {
            memory.set(at, &host(state, from, bytes));
        },
    )
}

/// The rows of a block in memory with pitches, zero where it is packed.
fn rows(origin: [usize; 3], region: [usize; 3], row: usize, slice: usize) -> Vec<usize> {
    let row = if row == 0 { region[0] } else { row };
    let slice = if slice == 0 { row * region[1] } else { slice };
    Memory::rows(origin, region, row, slice)
}

unsafe extern "C" fn read_rect(
    queue: Handle,
    buffer: Handle,
    blocks: u32,
    origin: Sides,
    host_origin: Sides,
    region: Sides,
    row: usize,
    slice: usize,
    host_row: usize,
    host_slice: usize,
    to: *mut c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let memory = state.buffer(buffer as Key);
    // SAFETY: lists of three.
    let (origin, there, region) = unsafe { (three(origin), three(host_origin), three(region)) };
    let to = to as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[buffer],
        move |state| {
            let into = rows(there, region, host_row, host_slice);
            for (from, into) in rows(origin, region, row, slice).into_iter().zip(into) {
                to_host(state, to + into, &memory.get(from, region[0]));
            }
        },
    )
}

unsafe extern "C" fn write_rect(
    queue: Handle,
    buffer: Handle,
    blocks: u32,
    origin: Sides,
    host_origin: Sides,
    region: Sides,
    row: usize,
    slice: usize,
    host_row: usize,
    host_slice: usize,
    from: *const c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let memory = state.buffer(buffer as Key);
    // SAFETY: lists of three.
    let (origin, there, region) = unsafe { (three(origin), three(host_origin), three(region)) };
    let start = from as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[buffer],
        move |state| {
            let from = rows(there, region, host_row, host_slice);
            for (into, from) in rows(origin, region, row, slice).into_iter().zip(from) {
                memory.set(into, &host(state, start + from, region[0]));
            }
        },
    )
}

unsafe extern "C" fn copy_buffer(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: usize,
    to_at: usize,
    bytes: usize,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (one, two) = (state.buffer(from as Key), state.buffer(to as Key));
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[from, to],
        move |_| {
            two.set(to_at, &one.get(from_at, bytes));
        },
    )
}

unsafe extern "C" fn copy_rect(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: Sides,
    to_at: Sides,
    region: Sides,
    from_row: usize,
    from_slice: usize,
    to_row: usize,
    to_slice: usize,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (one, two) = (state.buffer(from as Key), state.buffer(to as Key));
    // SAFETY: lists of three.
    let (from_at, to_at, region) = unsafe { (three(from_at), three(to_at), three(region)) };
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[from, to],
        move |_| {
            let into = rows(to_at, region, to_row, to_slice);
            for (from, into) in rows(from_at, region, from_row, from_slice).into_iter().zip(into) {
                two.set(into, &one.get(from, region[0]));
            }
        },
    )
}

unsafe extern "C" fn fill_buffer(
    queue: Handle,
    buffer: Handle,
    pattern: *const c_void,
    length: usize,
    at: usize,
    bytes: usize,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let memory = state.buffer(buffer as Key);
    // SAFETY: a pattern of the length said.
    let pattern = unsafe { from_raw_parts(pattern.cast::<u8>(), length) }.to_vec();
    assert!(bytes.is_multiple_of(length) && at.is_multiple_of(length));
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[buffer],
        move |_| {
            memory.set(at, &pattern.repeat(bytes / pattern.len()));
        },
    )
}

unsafe extern "C" fn read_image(
    queue: Handle,
    key: Handle,
    blocks: u32,
    origin: Sides,
    region: Sides,
    row: usize,
    slice: usize,
    to: *mut c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (memory, image) = state.image(key as Key);
    assert_eq!((row, slice), (0, 0), "packed pixels");
    // SAFETY: lists of three.
    let (rows, length) = unsafe { image.rows(three(origin), three(region)) };
    let to = to as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[key],
        move |state| {
            for (place, row) in rows.into_iter().enumerate() {
                to_host(state, to + place * length, &memory.get(row, length));
            }
        },
    )
}

unsafe extern "C" fn write_image(
    queue: Handle,
    key: Handle,
    blocks: u32,
    origin: Sides,
    region: Sides,
    row: usize,
    slice: usize,
    from: *const c_void,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (memory, image) = state.image(key as Key);
    assert_eq!((row, slice), (0, 0), "packed pixels");
    // SAFETY: lists of three.
    let (rows, length) = unsafe { image.rows(three(origin), three(region)) };
    let from = from as usize;
    enqueue(
        state,
        order(queue, blocks, count, waits, event),
        &[key],
        move |state| {
            for (place, row) in rows.into_iter().enumerate() {
                memory.set(row, &host(state, from + place * length, length));
            }
        },
    )
}

unsafe extern "C" fn copy_image(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: Sides,
    to_at: Sides,
    region: Sides,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let ((one, image), (two, other)) = (state.image(from as Key), state.image(to as Key));
    assert_eq!(image.element, other.element, "pixels of another size");
    // SAFETY: lists of three.
    let (from_at, to_at, region) = unsafe { (three(from_at), three(to_at), three(region)) };
    let (from_rows, length) = image.rows(from_at, region);
    let (to_rows, _) = other.rows(to_at, region);
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[from, to],
        move |_| {
            for (from, to) in from_rows.into_iter().zip(to_rows) {
                two.set(to, &one.get(from, length));
            }
        },
    )
}

unsafe extern "C" fn image_to_buffer(
    queue: Handle,
    from: Handle,
    to: Handle,
    origin: Sides,
    region: Sides,
    at: usize,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let ((memory, image), buffer) = (state.image(from as Key), state.buffer(to as Key));
    // SAFETY: lists of three.
    let (rows, length) = unsafe { image.rows(three(origin), three(region)) };
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[from, to],
        move |_| {
            for (place, row) in rows.into_iter().enumerate() {
                buffer.set(at + place * length, &memory.get(row, length));
            }
        },
    )
}

unsafe extern "C" fn buffer_to_image(
    queue: Handle,
    from: Handle,
    to: Handle,
    at: usize,
    origin: Sides,
    region: Sides,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (buffer, (memory, image)) = (state.buffer(from as Key), state.image(to as Key));
    // SAFETY: lists of three.
    let (rows, length) = unsafe { image.rows(three(origin), three(region)) };
    enqueue(
        state,
        order(queue, 0, count, waits, event),
        &[from, to],
        move |_| {
            for (place, row) in rows.into_iter().enumerate() {
                memory.set(row, &buffer.get(at + place * length, length));
            }
        },
    )
}

unsafe extern "C" fn fill_image(
    queue: Handle,
    key: Handle,
    color: *const c_void,
    origin: Sides,
    region: Sides,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    let (memory, image) = state.image(key as Key);
    // SAFETY: a color of sixteen bytes and lists of three.
    let (color, (rows, length)) = unsafe {
        (
            *color.cast::<[u8; 16]>(),
            image.rows(three(origin), three(region)),
        )
    };
    enqueue(state, order(queue, 0, count, waits, event), &[key], move |_| {
        let line: Vec<u8> = color.into_iter().cycle().take(length).collect();
        rows.into_iter().for_each(|row| memory.set(row, &line));
    })
}

unsafe extern "C" fn migrate(
    queue: Handle,
    many: u32,
    objects: *const Handle,
    _: u64,
    count: u32,
    waits: Waits,
    event: *mut Handle,
) -> i32 {
    let mut state = inside();
    // SAFETY: a list of the length said.
    let objects = unsafe { from_raw_parts(objects, many as usize) };
    for object in objects {
        state.memory(*object as Key);
    }
    enqueue(state, order(queue, 0, count, waits, event), objects, |_| {})
}

unsafe extern "C" fn marker(queue: Handle, count: u32, waits: Waits, event: *mut Handle) -> i32 {
    enqueue(inside(), order(queue, 0, count, waits, event), &[], |_| {})
}

unsafe extern "C" fn barrier(queue: Handle, count: u32, waits: Waits, event: *mut Handle) -> i32 {
    enqueue(inside(), order(queue, 0, count, waits, event), &[], |_| {})
}

unsafe extern "C" fn get_timers(device: Handle, on_device: *mut u64, on_host: *mut u64) -> i32 {
    assert_eq!(
        platform_of_device(device as Key),
        0,
        "a function of another version"
    );
    // SAFETY: the worker's own variables.
    unsafe {
        *on_device = 1;
        *on_host = 2;
    }
    SUCCESS
}
