//! Buffers, images and samplers, and the host's memory that commands touch.

use super::*;

/// A copy of host memory that commands may touch.
pub(super) fn host(state: &super::super::State, start: usize, bytes: usize) -> Vec<u8> {
    state.expect_host(start, bytes);
    // SAFETY: within a region that lives, as just asserted.
    unsafe { from_raw_parts(start as *const u8, bytes) }.to_vec()
}

pub(super) fn to_host(state: &super::super::State, start: usize, bytes: &[u8]) {
    state.expect_host(start, bytes.len());
    // SAFETY: within a region that lives, as just asserted.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start as *mut u8, bytes.len()) };
}

pub(super) fn first_bytes(state: &super::super::State, flags: u64, start: usize, size: usize) -> Vec<u8> {
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

pub(super) unsafe extern "C" fn create_buffer(
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

pub(super) unsafe extern "C" fn create_sub_buffer(
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
pub(super) struct Descriptor {
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

pub(super) unsafe extern "C" fn create_image(
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

pub(super) unsafe extern "C" fn get_image_info(
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

pub(super) unsafe extern "C" fn get_image_formats(
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

pub(super) unsafe extern "C" fn create_sampler(
    context: Handle,
    _: u32,
    _: u32,
    _: u32,
    code: *mut i32,
) -> Handle {
    let mut state = inside();
    state.context(context as Key);
    // SAFETY: the worker's own variable.
    unsafe { made(state.make(What::Sampler, context as Key, &[]), code) }
}
