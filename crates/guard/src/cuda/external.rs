//! Memory of other processes and other interfaces, opened here: charged in full to whoever opens it, since it lives at
//! least as long as that, whatever becomes of its maker.

use super::abi::{
    Code, DevicePtr, ExternalMemory, Handle, INVALID_VALUE, IpcMemHandle, OUT_OF_MEMORY, SUCCESS, UNKNOWN,
};
use super::bind::{current, current_context};
use super::charge::{Charge, Held, rounded};
use super::real;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuIpcOpenMemHandle", open as Entry),
    Hook("cuIpcOpenMemHandle_v2", open_2 as Entry),
    Hook("cuIpcCloseMemHandle", close as Entry),
    Hook("cuImportExternalMemory", import as Entry),
    Hook("cuDestroyExternalMemory", destroy as Entry),
];

static OPENED: Held<DevicePtr> = Held::new();
static IMPORTED: Held<usize> = Held::new();

pub fn forget(context: usize) {
    OPENED.forget(context);
    IMPORTED.forget(context);
}

type Open = unsafe extern "C" fn(*mut DevicePtr, IpcMemHandle, u32) -> Code;

fn open_by(next: Open, pointer: *mut DevicePtr, handle: IpcMemHandle, flags: u32) -> Code {
    let range: unsafe extern "C" fn(*mut DevicePtr, *mut usize, DevicePtr) -> Code =
        real!("cuMemGetAddressRange_v2");
    let close: unsafe extern "C" fn(DevicePtr) -> Code = real!("cuIpcCloseMemHandle");
    if pointer.is_null() {
        return INVALID_VALUE;
    }
    let binding = match current() {
        Ok(binding) => binding,
        Err(code) => return code,
    };
    // SAFETY: the caller's own arguments.
    let code = unsafe { next(pointer, handle, flags) };
    if code != SUCCESS {
        return code;
    }
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: not null, the driver wrote it; room for the answers.
    let (at, asked) = unsafe { (*pointer, range(&mut base, &mut bytes, *pointer)) };
    let charge = match asked {
        SUCCESS => Charge::take(binding, rounded(bytes as u64)).ok_or(OUT_OF_MEMORY),
        code => Err(code),
    };
    match charge {
        Ok(charge) => {
            // Opened again it is the same address, and is charged once more: each is closed by itself.
            OPENED.put(at, current_context(), merged(at, charge));
            SUCCESS
        }
        Err(code) => {
            // SAFETY: opened just now, given to nobody.
            unsafe {
                close(at);
                *pointer = 0;
            }
            code
        }
    }
}

fn merged(at: DevicePtr, mut charge: Charge) -> Charge {
    if let Some((_, before)) = OPENED.take(&at) {
        charge.absorb(before);
    }
    charge
}

unsafe extern "C" fn open(pointer: *mut DevicePtr, handle: IpcMemHandle, flags: u32) -> Code {
    guarded!(
        UNKNOWN,
        open_by(real!("cuIpcOpenMemHandle"), pointer, handle, flags)
    )
}

unsafe extern "C" fn open_2(pointer: *mut DevicePtr, handle: IpcMemHandle, flags: u32) -> Code {
    guarded!(
        UNKNOWN,
        open_by(real!("cuIpcOpenMemHandle_v2"), pointer, handle, flags)
    )
}

unsafe extern "C" fn close(pointer: DevicePtr) -> Code {
    let next: unsafe extern "C" fn(DevicePtr) -> Code = real!("cuIpcCloseMemHandle");
    let range: unsafe extern "C" fn(*mut DevicePtr, *mut usize, DevicePtr) -> Code =
        real!("cuMemGetAddressRange_v2");
    guarded!(UNKNOWN, {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: room for the answers.
        unsafe { range(&mut base, &mut bytes, pointer) };
        let held = OPENED.take(&pointer);
        // SAFETY: the caller's own argument.
        let code = unsafe { next(pointer) };
        if let Some((context, mut charge)) = held {
            let left = match code {
                SUCCESS => charge.bytes().saturating_sub(rounded(bytes as u64)),
                _ => charge.bytes(),
            };
            charge.correct(left);
            if left > 0 {
                OPENED.put(pointer, context, charge);
            }
        }
        code
    })
}

unsafe extern "C" fn import(memory: *mut Handle, described: *const ExternalMemory) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const ExternalMemory) -> Code =
        real!("cuImportExternalMemory");
    guarded!(UNKNOWN, {
        if memory.is_null() || described.is_null() {
            return INVALID_VALUE;
        }
        let binding = match current() {
            Ok(binding) => binding,
            Err(code) => return code,
        };
        // SAFETY: not null, and the caller's own.
        let Some(charge) = Charge::take(binding, rounded(unsafe { (*described).size })) else {
            return OUT_OF_MEMORY;
        };
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(memory, described) };
        if code == SUCCESS {
            // SAFETY: not null; the driver wrote it.
            IMPORTED.put(unsafe { *memory } as usize, current_context(), charge);
        }
        code
    })
}

unsafe extern "C" fn destroy(memory: Handle) -> Code {
    let next: unsafe extern "C" fn(Handle) -> Code = real!("cuDestroyExternalMemory");
    guarded!(UNKNOWN, {
        let held = IMPORTED.take(&(memory as usize));
        // SAFETY: the caller's own argument.
        let code = unsafe { next(memory) };
        if let (true, Some((context, charge))) = (code != SUCCESS, held) {
            IMPORTED.put(memory as usize, context, charge);
        }
        code
    })
}
