//! What runs on the device: kernels that write a pattern, count where it is not, and do the same in local memory.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

use super::device::{Context, Piece, done, group_size, is_processor, largest};
use crate::abi::Handle;
use crate::driver::cl;

/// The pattern is `scrub::pattern`. A group that has all the local memory of its unit is alone there.
const SOURCE: &CStr = c"
uint pattern(ulong at, uint salt) { return (uint)at * 2654435761u ^ (uint)(at >> 32) ^ salt; }

__kernel void tenure_write(__global uint *memory, ulong words, uint salt) {
    for (ulong at = get_global_id(0); at < words; at += get_global_size(0)) memory[at] = pattern(at, salt);
}

__kernel void tenure_check(__global const uint *memory, ulong words, uint salt, __global uint *wrong) {
    uint seen = 0;
    for (ulong at = get_global_id(0); at < words; at += get_global_size(0)) seen += memory[at] != pattern(at, salt);
    if (seen) atomic_add(wrong, seen);
}

__kernel void tenure_local(__local volatile uint *local_memory, ulong words, uint salt, __global uint *wrong) {
    uint seen = 0;
    for (ulong at = get_local_id(0); at < words; at += get_local_size(0)) local_memory[at] = pattern(at, salt);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (ulong at = get_local_id(0); at < words; at += get_local_size(0)) {
        seen += local_memory[at] != pattern(at, salt);
        local_memory[at] = 0;
    }
    if (seen) atomic_add(wrong, seen);
}

__kernel void tenure_local_where(__local volatile uint *local_memory, ulong words, uint salt, __global uint *wrong, ulong places) {
    uint seen = 0;
    for (ulong at = get_local_id(0); at < words; at += get_local_size(0)) local_memory[at] = pattern(at, salt);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (ulong at = get_local_id(0); at < words; at += get_local_size(0)) {
        seen += local_memory[at] != pattern(at, salt);
        local_memory[at] = 0;
    }
    if (seen) atomic_add(wrong, seen);
    if (get_local_id(0) == 0 && get_group_id(0) < places) {
        ulong where = (ulong)(uintptr_t)local_memory;
        wrong[2 + 2 * get_group_id(0)] = (uint)where;
        wrong[3 + 2 * get_group_id(0)] = (uint)(where >> 32);
    }
}
";

/// What the kernels answer in: as large as the pages that drivers give, so that no other piece shares one with it.
const OWN_BYTES: u64 = 2 << 20;
/// Work items that go over a piece together.
const ITEMS: usize = 1 << 16;
/// How often a processor's threads are asked for their local memory until all have answered. A thread that takes no work
/// in all of them is not there: a pool may be smaller than the processor.
const ASKED_MOST: usize = 64;

pub(crate) struct Kernels {
    program: Program,
    write: Handle,
    check: Handle,
    local: Handle,
    /// Of a processor, where each thread of the driver has local memory of its own: says which it was.
    local_where: Handle,
    wrong: Piece,
}

impl Kernels {
    pub fn new(context: &Context) -> Result<Kernels, String> {
        let mut kernels = Kernels {
            program: program(context, SOURCE)?,
            write: null_mut(),
            check: null_mut(),
            local: null_mut(),
            local_where: null_mut(),
            wrong: Piece::new(context, (largest(context.device) / 16).clamp(4, OWN_BYTES) & !3)?,
        };
        kernels.write = kernels.program.kernel(c"tenure_write")?;
        kernels.check = kernels.program.kernel(c"tenure_check")?;
        kernels.local = kernels.program.kernel(c"tenure_local")?;
        if is_processor(context.device) {
            kernels.local_where = kernels.program.kernel(c"tenure_local_where")?;
        }
        Ok(kernels)
    }

    pub fn write(&self, context: &Context, piece: &Piece, salt: u32) -> Result<(), String> {
        let words = piece.words();
        let arguments = [
            of(&piece.handle),
            Argument::of_number(&words),
            Argument::of_number(&salt),
        ];
        launch(context, self.write, &arguments, ITEMS, None)
    }

    pub fn check(&self, context: &Context, piece: &Piece, salt: u32) -> Result<(), String> {
        context.zero(&self.wrong)?;
        let words = piece.words();
        let arguments = [
            of(&piece.handle),
            Argument::of_number(&words),
            Argument::of_number(&salt),
            of(&self.wrong.handle),
        ];
        launch(context, self.check, &arguments, ITEMS, None)?;
        self.none_wrong(context, "device memory")
    }

    /// Writes, checks and zeroes local memory in so many groups for each of the units, each group having all that a unit
    /// has. Which unit runs which group nobody says; a processor's threads can be told apart, and are awaited.
    pub fn local(
        &self,
        context: &Context,
        units: usize,
        rounds: usize,
        bytes: u64,
        salt: u32,
    ) -> Result<(), String> {
        if bytes < 4 {
            return Ok(());
        }
        if self.local_where.is_null() {
            return self.local_once(context, units * rounds, bytes, salt);
        }
        let mut seen = BTreeSet::new();
        for _ in 0..ASKED_MOST {
            self.local_once(context, units * rounds, bytes, salt)?;
            let places = self.places(units * rounds);
            let words = context.read(&self.wrong, 2, 2 * places as usize)?;
            seen.extend(words.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            if seen.len() >= units {
                break;
            }
        }
        Ok(())
    }

    /// How many groups can say where they were.
    fn places(&self, groups: usize) -> u64 {
        (groups as u64).min((self.wrong.words() / 2).saturating_sub(1))
    }

    fn local_once(&self, context: &Context, groups: usize, bytes: u64, salt: u32) -> Result<(), String> {
        context.zero(&self.wrong)?;
        let size = group_size(context.device);
        let places = self.places(groups);
        let mut words = bytes / 4;
        loop {
            let mut arguments = vec![
                Argument::local(words as usize * 4),
                Argument::of_number(&words),
                Argument::of_number(&salt),
                of(&self.wrong.handle),
            ];
            let kernel = if self.local_where.is_null() {
                self.local
            } else {
                arguments.push(Argument::of_number(&places));
                self.local_where
            };
            match launch(context, kernel, &arguments, groups * size, Some(size)) {
                Ok(()) => break,
                // Some of it the driver keeps for itself; what no kernel can have, no kernel can read.
                Err(_) if words > bytes / 4 * 3 / 4 => words -= (bytes / 64).max(4) / 4,
                Err(why) => return Err(why),
            }
        }
        self.none_wrong(context, "local memory")
    }

    fn none_wrong(&self, context: &Context, of_what: &str) -> Result<(), String> {
        match context.read(&self.wrong, 0, 1)?.first() {
            Some(0) => Ok(()),
            _ => Err(format!("what was written to {of_what} was not read back")),
        }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: live handles, each released once; those not made are null.
        unsafe {
            for kernel in [self.write, self.check, self.local, self.local_where] {
                if !kernel.is_null() {
                    (cl().release_kernel)(kernel);
                }
            }
        }
    }
}

/// What was built of a text for a device; released once its kernels are.
pub(crate) struct Program(Handle);

/// Builds a program.
pub(crate) fn program(context: &Context, source: &CStr) -> Result<Program, String> {
    let mut code = 0;
    let text = source.as_ptr();
    // SAFETY: one text that ends with zero, so no length is needed.
    let program = unsafe { (cl().create_program_with_source)(context.handle, 1, &text, null(), &mut code) };
    done(code, "take the program")?;
    let program = Program(program);
    // SAFETY: a live program; no options, no callback.
    let code = unsafe { (cl().build_program)(program.0, 0, null(), c"".as_ptr(), null(), null_mut()) };
    done(code, "build the program")?;
    Ok(program)
}

impl Program {
    pub fn kernel(&self, name: &CStr) -> Result<Handle, String> {
        let mut code = 0;
        // SAFETY: a built program and a text that ends with zero.
        let kernel = unsafe { (cl().create_kernel)(self.0, name.as_ptr(), &mut code) };
        done(code, "make a kernel")?;
        Ok(kernel)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: a live handle, released once; the driver keeps it for kernels that live.
        unsafe { (cl().release_program)(self.0) };
    }
}

/// What a kernel is given: a number or a handle that lives until the launch, or local memory.
pub(crate) struct Argument<'a> {
    size: usize,
    value: *const c_void,
    lives: PhantomData<&'a ()>,
}

impl<'a> Argument<'a> {
    pub fn of_number<T>(number: &'a T) -> Argument<'a> {
        Argument {
            size: size_of::<T>(),
            value: std::ptr::from_ref(number).cast(),
            lives: PhantomData,
        }
    }

    fn local(bytes: usize) -> Argument<'static> {
        Argument {
            size: bytes,
            value: null(),
            lives: PhantomData,
        }
    }
}

pub(crate) fn of(handle: &Handle) -> Argument<'_> {
    Argument::of_number(handle)
}

pub(crate) fn launch(
    context: &Context,
    kernel: Handle,
    arguments: &[Argument<'_>],
    items: usize,
    group: Option<usize>,
) -> Result<(), String> {
    for (index, argument) in arguments.iter().enumerate() {
        // SAFETY: a live kernel; the value is live and of the size said, which the driver compares with its own.
        let code = unsafe { (cl().set_kernel_arg)(kernel, index as u32, argument.size, argument.value) };
        done(code, "take an argument")?;
    }
    let size = group.as_ref().map_or(null(), std::ptr::from_ref);
    // SAFETY: live handles; one dimension, whose sizes are live.
    let code = unsafe {
        (cl().launch)(
            context.queue,
            kernel,
            1,
            null(),
            &items,
            size,
            0,
            null(),
            null_mut(),
        )
    };
    done(code, "run a kernel")?;
    // SAFETY: a live queue.
    done(unsafe { (cl().finish)(context.queue) }, "run a kernel")
}
