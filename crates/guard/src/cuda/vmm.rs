//! Memory by handle, mapped where the program wants it: charged when it is made, given back when neither a handle nor
//! a mapping of it is left, which is when the driver frees it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::abi::{
    ACCESS_READ_WRITE, AccessDesc, AllocationProp, Code, DevicePtr, INVALID_VALUE, LOCATION_DEVICE, Location,
    OUT_OF_MEMORY, SUCCESS, UNKNOWN,
};
use super::bind::{Binding, binding};
use super::charge::Charge;
use super::{real, zero};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemCreate", create as Entry),
    Hook("cuMemRelease", release as Entry),
    Hook("cuMemRetainAllocationHandle", retain as Entry),
    Hook("cuMemMap", map as Entry),
    Hook("cuMemUnmap", unmap as Entry),
];

#[derive(Default)]
struct Books {
    /// By handle: the charge, and how many references the program has by that handle.
    handles: HashMap<u64, (Arc<Charge>, u32)>,
    /// By address: the length mapped there, and the charge of what is mapped.
    mapped: BTreeMap<DevicePtr, (u64, Arc<Charge>)>,
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);

fn books() -> MutexGuard<'static, Option<Books>> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn create(
    handle: *mut u64,
    bytes: usize,
    properties: *const AllocationProp,
    flags: u64,
) -> Code {
    let next: unsafe extern "C" fn(*mut u64, usize, *const AllocationProp, u64) -> Code =
        real!("cuMemCreate");
    guarded!(UNKNOWN, {
        if handle.is_null() || properties.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null, and the caller's own.
        let location = unsafe { (*properties).location };
        // SAFETY: the caller's own arguments.
        let next = || unsafe { next(handle, bytes, properties, flags) };
        if location.kind != LOCATION_DEVICE {
            return next();
        }
        let binding = match binding(location.id) {
            Ok(binding) => binding,
            Err(code) => return code,
        };
        // The driver takes whole grains only, so what is asked is what is taken.
        let Some(charge) = Charge::take(binding, bytes as u64) else {
            return OUT_OF_MEMORY;
        };
        let code = next();
        if code != SUCCESS {
            return code;
        }
        // SAFETY: not null; the driver wrote it.
        let made = unsafe { *handle };
        let code = clear(binding, made, bytes, location);
        if code != SUCCESS {
            let free: unsafe extern "C" fn(u64) -> Code = real!("cuMemRelease");
            // SAFETY: made just now, given to nobody.
            unsafe { free(made) };
            return code;
        }
        let entry = (Arc::new(charge), 1);
        books().get_or_insert_default().handles.insert(made, entry);
        SUCCESS
    })
}

/// Zeroes new memory by mapping it for a moment.
fn clear(binding: &Binding, handle: u64, bytes: usize, location: Location) -> Code {
    type Reserve = unsafe extern "C" fn(*mut DevicePtr, usize, usize, DevicePtr, u64) -> Code;
    let reserve: Reserve = real!("cuMemAddressReserve");
    let map: Map = real!("cuMemMap");
    let access: unsafe extern "C" fn(DevicePtr, usize, *const AccessDesc, usize) -> Code =
        real!("cuMemSetAccess");
    let unmap: unsafe extern "C" fn(DevicePtr, usize) -> Code = real!("cuMemUnmap");
    let give_back: unsafe extern "C" fn(DevicePtr, usize) -> Code = real!("cuMemAddressFree");
    let allow = AccessDesc {
        location,
        flags: ACCESS_READ_WRITE,
    };
    let mut at = 0;
    // SAFETY: addresses reserved here, of the size reserved; undone in the order it was done.
    unsafe {
        let mut code = reserve(&mut at, bytes, 0, 0, 0);
        if code != SUCCESS {
            return code;
        }
        code = map(at, bytes, 0, handle, 0);
        if code == SUCCESS {
            code = access(at, bytes, &allow, 1);
            if code == SUCCESS {
                code = zero::linear(binding, at, bytes as u64);
            }
            unmap(at, bytes);
        }
        give_back(at, bytes);
        code
    }
}

unsafe extern "C" fn release(handle: u64) -> Code {
    let next: unsafe extern "C" fn(u64) -> Code = real!("cuMemRelease");
    guarded!(UNKNOWN, {
        // Held over the driver's call: the handle may be another thread's as soon as it is released.
        let mut books = books();
        // SAFETY: the caller's own argument.
        let code = unsafe { next(handle) };
        if code == SUCCESS
            && let Some(books) = books.as_mut()
            && let Some((_, references)) = books.handles.get_mut(&handle)
        {
            *references -= 1;
            if *references == 0 {
                books.handles.remove(&handle);
            }
        }
        code
    })
}

unsafe extern "C" fn retain(handle: *mut u64, address: DevicePtr) -> Code {
    let next: unsafe extern "C" fn(*mut u64, DevicePtr) -> Code = real!("cuMemRetainAllocationHandle");
    guarded!(UNKNOWN, {
        let mut books = books();
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(handle, address) };
        if code == SUCCESS
            && let Some(books) = books.as_mut()
        {
            let here = books.mapped.range(..=address).next_back();
            let charge = here
                .filter(|(at, (length, _))| address - **at < *length)
                .map(|(_, (_, charge))| charge.clone());
            // SAFETY: the driver wrote it.
            let handle = unsafe { *handle };
            if let Some(charge) = charge {
                books.handles.entry(handle).or_insert((charge, 0)).1 += 1;
            }
        }
        code
    })
}

type Map = unsafe extern "C" fn(DevicePtr, usize, usize, u64, u64) -> Code;

unsafe extern "C" fn map(at: DevicePtr, bytes: usize, offset: usize, handle: u64, flags: u64) -> Code {
    let next: Map = real!("cuMemMap");
    guarded!(UNKNOWN, {
        let mut books = books();
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(at, bytes, offset, handle, flags) };
        if code == SUCCESS
            && let Some(books) = books.as_mut()
            && let Some((charge, _)) = books.handles.get(&handle)
        {
            books.mapped.insert(at, (bytes as u64, charge.clone()));
        }
        code
    })
}

unsafe extern "C" fn unmap(at: DevicePtr, bytes: usize) -> Code {
    let next: unsafe extern "C" fn(DevicePtr, usize) -> Code = real!("cuMemUnmap");
    guarded!(UNKNOWN, {
        let mut books = books();
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(at, bytes) };
        if code == SUCCESS
            && let Some(books) = books.as_mut()
        {
            // Mappings are unmapped whole, several at once if they lie side by side.
            let end = at.saturating_add(bytes as u64);
            books.mapped.retain(|place, _| *place < at || *place >= end);
        }
        code
    })
}
