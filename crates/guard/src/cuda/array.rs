//! Arrays, plain and mipmapped: charged by their sides, zeroed level by level.

use super::abi::{
    ARRAY_DEFERRED, ARRAY_SPARSE, Array3dDescriptor, ArrayDescriptor, Code, Handle, INVALID_VALUE,
    OUT_OF_MEMORY, SUCCESS, UNKNOWN,
};
use super::bind::{Binding, current, current_context};
use super::charge::{Charge, Held, rounded};
use super::{real, zero};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuArrayCreate_v2", create as Entry),
    Hook("cuArray3DCreate_v2", create_3d as Entry),
    Hook("cuArrayDestroy", destroy as Entry),
    Hook("cuMipmappedArrayCreate", create_mipmapped as Entry),
    Hook("cuMipmappedArrayDestroy", destroy_mipmapped as Entry),
];

static ARRAYS: Held<usize> = Held::new();
static MIPMAPPED: Held<usize> = Held::new();

pub fn forget(context: usize) {
    ARRAYS.forget(context);
    MIPMAPPED.forget(context);
}

/// Bytes of one channel of one element; formats not known are taken for the largest.
fn channel_bytes(format: u32) -> usize {
    match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 16,
    }
}

/// Formats whose elements lie side by side in rows, so that a copy of rows fills them.
fn has_plain_rows(format: u32) -> bool {
    matches!(format, 0x01..=0x03 | 0x08..=0x0a | 0x10 | 0x20 | 0xc0..=0xcb)
}

/// The sides of one level of an array.
#[derive(Clone, Copy)]
struct Sides {
    row: usize,
    rows: usize,
    layers: usize,
}

/// Cube maps and layered arrays keep all their layers at every level.
const KEEPS_DEPTH: u32 = 0x01 | 0x04;

fn sides(of: &Array3dDescriptor, level: u32) -> Sides {
    let side = |side: usize| (side >> level.min(63)).max(1);
    let depth = match of.flags & KEEPS_DEPTH {
        0 => side(of.depth),
        _ => of.depth.max(1),
    };
    Sides {
        row: side(of.width)
            .saturating_mul(channel_bytes(of.format))
            .saturating_mul(of.channels.max(1) as usize),
        rows: if of.height == 0 { 1 } else { side(of.height) },
        layers: if of.depth == 0 { 1 } else { depth },
    }
}

fn bytes(of: &Array3dDescriptor, levels: u32) -> u64 {
    let level = |level| {
        let Sides { row, rows, layers } = sides(of, level);
        (row as u64)
            .saturating_mul(rows as u64)
            .saturating_mul(layers as u64)
    };
    (0..levels.max(1)).fold(0u64, |all, at| all.saturating_add(level(at)))
}

/// Has `next` make an array that takes as much as described; `clear` zeroes it, `undo` takes it back.
fn make(
    handle: *mut Handle,
    described: &Array3dDescriptor,
    levels: u32,
    held: &Held<usize>,
    next: impl FnOnce() -> Code,
    clear: impl FnOnce(&'static Binding, Handle) -> Code,
    undo: unsafe extern "C" fn(Handle) -> Code,
) -> Code {
    // Without memory of their own: they get it by handle, which is charged there.
    if described.flags & (ARRAY_SPARSE | ARRAY_DEFERRED) != 0 {
        return next();
    }
    let binding = match current() {
        Ok(binding) => binding,
        Err(code) => return code,
    };
    let Some(charge) = Charge::take(binding, rounded(bytes(described, levels))) else {
        return OUT_OF_MEMORY;
    };
    let code = next();
    if code != SUCCESS {
        return code;
    }
    // SAFETY: checked by our callers; the driver wrote it.
    let made = unsafe { *handle };
    let code = clear(binding, made);
    if code != SUCCESS {
        // SAFETY: made just now, given to nobody.
        unsafe {
            undo(made);
            *handle = std::ptr::null_mut();
        }
        return code;
    }
    held.put(made as usize, current_context(), charge);
    SUCCESS
}

/// Zeroes one level. What has no plain rows (planes of video, compressed blocks) is left to the driver: see
/// SPECIFICATION.md.
fn clear(binding: &'static Binding, array: Handle, described: &Array3dDescriptor, level: u32) -> Code {
    if !has_plain_rows(described.format) {
        return SUCCESS;
    }
    let Sides { row, rows, layers } = sides(described, level);
    zero::array(binding, array, row, rows, layers)
}

fn make_plain(handle: *mut Handle, described: Array3dDescriptor, next: impl FnOnce() -> Code) -> Code {
    let clear = |binding, array| clear(binding, array, &described, 0);
    make(
        handle,
        &described,
        1,
        &ARRAYS,
        next,
        clear,
        real!("cuArrayDestroy"),
    )
}

unsafe extern "C" fn create(handle: *mut Handle, descriptor: *const ArrayDescriptor) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const ArrayDescriptor) -> Code = real!("cuArrayCreate_v2");
    guarded!(UNKNOWN, {
        if handle.is_null() || descriptor.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null, and the caller's own.
        let given = unsafe { *descriptor };
        let described = Array3dDescriptor {
            width: given.width,
            height: given.height,
            depth: 0,
            format: given.format,
            channels: given.channels,
            flags: 0,
        };
        // SAFETY: the caller's own arguments.
        make_plain(handle, described, || unsafe { next(handle, descriptor) })
    })
}

unsafe extern "C" fn create_3d(handle: *mut Handle, descriptor: *const Array3dDescriptor) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const Array3dDescriptor) -> Code =
        real!("cuArray3DCreate_v2");
    guarded!(UNKNOWN, {
        if handle.is_null() || descriptor.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null, and the caller's own.
        let described = unsafe { *descriptor };
        // SAFETY: the caller's own arguments.
        make_plain(handle, described, || unsafe { next(handle, descriptor) })
    })
}

unsafe extern "C" fn create_mipmapped(
    handle: *mut Handle,
    descriptor: *const Array3dDescriptor,
    levels: u32,
) -> Code {
    type Next = unsafe extern "C" fn(*mut Handle, *const Array3dDescriptor, u32) -> Code;
    let next: Next = real!("cuMipmappedArrayCreate");
    let level_of: unsafe extern "C" fn(*mut Handle, Handle, u32) -> Code = real!("cuMipmappedArrayGetLevel");
    guarded!(UNKNOWN, {
        if handle.is_null() || descriptor.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null, and the caller's own.
        let described = unsafe { *descriptor };
        let clear_all = |binding, mipmapped: Handle| {
            for level in 0..levels {
                let mut array: Handle = std::ptr::null_mut();
                // SAFETY: a live array of as many levels.
                let code = match unsafe { level_of(&mut array, mipmapped, level) } {
                    SUCCESS => clear(binding, array, &described, level),
                    code => code,
                };
                if code != SUCCESS {
                    return code;
                }
            }
            SUCCESS
        };
        // SAFETY: the caller's own arguments.
        let next = || unsafe { next(handle, descriptor, levels) };
        let undo = real!("cuMipmappedArrayDestroy");
        make(handle, &described, levels, &MIPMAPPED, next, clear_all, undo)
    })
}

fn unmake(handle: Handle, held: &Held<usize>, next: unsafe extern "C" fn(Handle) -> Code) -> Code {
    let charge = held.take(&(handle as usize));
    // SAFETY: the caller's own argument.
    let code = unsafe { next(handle) };
    if let (true, Some((context, charge))) = (code != SUCCESS, charge) {
        held.put(handle as usize, context, charge);
    }
    code
}

unsafe extern "C" fn destroy(handle: Handle) -> Code {
    guarded!(UNKNOWN, unmake(handle, &ARRAYS, real!("cuArrayDestroy")))
}

unsafe extern "C" fn destroy_mipmapped(handle: Handle) -> Code {
    guarded!(
        UNKNOWN,
        unmake(handle, &MIPMAPPED, real!("cuMipmappedArrayDestroy"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(width: usize, height: usize, depth: usize, flags: u32) -> Array3dDescriptor {
        Array3dDescriptor {
            width,
            height,
            depth,
            format: 0x20,
            channels: 2,
            flags,
        }
    }

    #[test]
    fn an_array_takes_what_its_sides_say() {
        assert_eq!(bytes(&described(100, 0, 0, 0), 1), 800);
        assert_eq!(bytes(&described(16, 8, 0, 0), 1), 16 * 8 * 8);
        assert_eq!(bytes(&described(16, 8, 4, 0), 1), 16 * 8 * 4 * 8);
        assert_eq!(bytes(&described(4, 4, 4, 0), 3), (64 + 8 + 1) * 8);
        assert_eq!(
            bytes(&described(4, 4, 6, 1), 3),
            (16 + 4 + 1) * 6 * 8,
            "layers stay"
        );
        assert_eq!(bytes(&described(usize::MAX, usize::MAX, 9, 0), 1), u64::MAX);
    }
}
