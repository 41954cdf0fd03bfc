//! Images of every kind: charged by their format and size, then by what the driver says they take; images that are
//! views of a buffer or of another image are charged with that.

use std::ffi::c_void;

use super::abi::{
    Handle, INVALID_CONTEXT, INVALID_MIP_LEVEL, INVALID_PROPERTY, INVALID_VALUE, MEM_COPY_HOST_PTR,
    MEM_OBJECT_ALLOCATION_FAILURE, MEM_SIZE, MEM_USE_HOST_PTR,
};
use super::allocation::Allocation;
use super::bind::value_of;
use super::buffer::withhold;
use super::context::{context, nothing};
use super::layer::{Entry, Hook};
use super::{guarded, next, zero};

pub const HOOKS: &[Hook] = &[
    Hook("clCreateImage", create_image as Entry),
    Hook(
        "clCreateImageWithProperties",
        create_image_with_properties as Entry,
    ),
    Hook("clCreateImage2D", create_image_2d as Entry),
    Hook("clCreateImage3D", create_image_3d as Entry),
];

#[repr(C)]
#[derive(Clone, Copy)]
struct Format {
    order: u32,
    kind: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    kind: u32,
    width: usize,
    height: usize,
    depth: usize,
    array_size: usize,
    row_pitch: usize,
    slice_pitch: usize,
    mip_levels: u32,
    samples: u32,
    source: Handle,
}

const IMAGE2D: u32 = 0x10F1;
const IMAGE3D: u32 = 0x10F2;
const IMAGE2D_ARRAY: u32 = 0x10F3;
const IMAGE1D: u32 = 0x10F4;
const IMAGE1D_ARRAY: u32 = 0x10F5;

impl Description {
    /// Width, height and depth as a fill wants them; layers of an array count as its last dimension.
    fn region(&self) -> Option<[usize; 3]> {
        Some(match self.kind {
            IMAGE1D => [self.width, 1, 1],
            IMAGE1D_ARRAY => [self.width, self.array_size, 1],
            IMAGE2D => [self.width, self.height, 1],
            IMAGE2D_ARRAY => [self.width, self.height, self.array_size],
            IMAGE3D => [self.width, self.height, self.depth],
            _ => return None,
        })
    }
}

impl Format {
    /// Bytes of one pixel; at least as many as any driver packs it into.
    fn pixel_bytes(self) -> u64 {
        let channels = match self.order {
            0x10B0 | 0x10B1 | 0x10B8 | 0x10B9 | 0x10BD | 0x10BE => 1,
            0x10B2 | 0x10B3 | 0x10BA => 2,
            0x10B4 | 0x10BB | 0x10BF => 3,
            _ => 4,
        };
        let bytes = match self.kind {
            0x10D0 | 0x10D2 | 0x10D7 | 0x10DA => 1,
            0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => 2,
            // Packed: one word for all channels.
            0x10D4 | 0x10D5 => return 2,
            0x10D6 | 0x10E0 => return 4,
            _ => 4,
        };
        channels * bytes
    }
}

type CreateImage =
    unsafe extern "C" fn(Handle, u64, *const Format, *const Description, *mut c_void, *mut i32) -> Handle;
type CreateWithProperties = unsafe extern "C" fn(
    Handle,
    *const u64,
    u64,
    *const Format,
    *const Description,
    *mut c_void,
    *mut i32,
) -> Handle;

unsafe extern "C" fn create_image(
    of: Handle,
    flags: u64,
    format: *const Format,
    description: *const Description,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        let next: CreateImage = next!("clCreateImage");
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, format, description, code, || {
                next(of, flags, format, description, host, code)
            })
        }
    })
}

unsafe extern "C" fn create_image_with_properties(
    of: Handle,
    properties: *const u64,
    flags: u64,
    format: *const Format,
    description: *const Description,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        // SAFETY: a list ended by zero as the caller of an OpenCL function promises.
        if !properties.is_null() && unsafe { *properties } != 0 {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, INVALID_PROPERTY) };
        }
        let next: CreateWithProperties = next!("clCreateImageWithProperties");
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, format, description, code, || {
                next(of, properties, flags, format, description, host, code)
            })
        }
    })
}

unsafe extern "C" fn create_image_2d(
    of: Handle,
    flags: u64,
    format: *const Format,
    width: usize,
    height: usize,
    row_pitch: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    type Next = unsafe extern "C" fn(
        Handle,
        u64,
        *const Format,
        usize,
        usize,
        usize,
        *mut c_void,
        *mut i32,
    ) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Next = next!("clCreateImage2D");
        let description = legacy(IMAGE2D, width, height, 1, row_pitch, 0);
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, format, &description, code, || {
                next(of, flags, format, width, height, row_pitch, host, code)
            })
        }
    })
}

unsafe extern "C" fn create_image_3d(
    of: Handle,
    flags: u64,
    format: *const Format,
    width: usize,
    height: usize,
    depth: usize,
    row_pitch: usize,
    slice_pitch: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    type Next = unsafe extern "C" fn(
        Handle,
        u64,
        *const Format,
        usize,
        usize,
        usize,
        usize,
        usize,
        *mut c_void,
        *mut i32,
    ) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Next = next!("clCreateImage3D");
        let description = legacy(IMAGE3D, width, height, depth, row_pitch, slice_pitch);
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, format, &description, code, || {
                next(
                    of,
                    flags,
                    format,
                    width,
                    height,
                    depth,
                    row_pitch,
                    slice_pitch,
                    host,
                    code,
                )
            })
        }
    })
}

fn legacy(
    kind: u32,
    width: usize,
    height: usize,
    depth: usize,
    row_pitch: usize,
    slice_pitch: usize,
) -> Description {
    Description {
        kind,
        width,
        height,
        depth,
        array_size: 0,
        row_pitch,
        slice_pitch,
        mip_levels: 0,
        samples: 0,
        source: std::ptr::null_mut(),
    }
}

/// # Safety
/// The pointers are null or valid as for `clCreateImage`.
unsafe fn make(
    of: Handle,
    flags: u64,
    format: *const Format,
    description: *const Description,
    code: *mut i32,
    create: impl FnOnce() -> Handle,
) -> Handle {
    // SAFETY: `code` valid or null as promised.
    let refuse = |why| unsafe { nothing(code, why) };
    let Some(context) = context(of) else {
        return refuse(INVALID_CONTEXT);
    };
    if format.is_null() || description.is_null() {
        return refuse(INVALID_VALUE);
    }
    // SAFETY: not null, valid as promised.
    let (format, description) = unsafe { (*format, *description) };
    if !description.source.is_null() {
        return create();
    }
    if description.mip_levels > 1 || description.samples > 1 {
        // Only the first level could be zeroed.
        return refuse(INVALID_MIP_LEVEL);
    }
    let Some(region) = description.region() else {
        return refuse(INVALID_VALUE);
    };
    let pixels = region
        .iter()
        .fold(1u64, |all, side| all.saturating_mul(*side as u64));
    let Some(mut allocation) = Allocation::charge(&context, pixels.saturating_mul(format.pixel_bytes()))
    else {
        return refuse(MEM_OBJECT_ALLOCATION_FAILURE);
    };
    let image = create();
    if image.is_null() {
        allocation.give_back();
        return image;
    }
    let takes = value_of::<usize>(next!("clGetMemObjectInfo"), image, MEM_SIZE).unwrap_or(0) as u64;
    if !allocation.correct(takes.max(1)) {
        allocation.give_back();
        // SAFETY: not yet given out.
        return unsafe { withhold(image, code) };
    }
    let filled_by_host = flags & (MEM_COPY_HOST_PTR | MEM_USE_HOST_PTR) != 0;
    if allocation.tie_to(image) && (filled_by_host || zero::image(&context, image, of, region)) {
        return image;
    }
    // SAFETY: not yet given out.
    unsafe { withhold(image, code) }
}
