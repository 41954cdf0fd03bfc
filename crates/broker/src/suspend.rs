//! Setting the slice aside and taking it up again, without its programs knowing.
//!
//! Aside: no call is taken up, every queue is drained, the bytes of all memory are fetched from the device, and every
//! object of the driver is given up. Up again: all are made anew, under the same ids, on this device or a like one.
//! Events have ended by then; what they said is kept. A slice in which a command waits for the program itself cannot
//! be drained, and says so.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::abi::{COMPLETE, Handle, SUCCESS};
use crate::call::{create, event, image, kernel, program};
use crate::driver::{ask_number, cl};
use crate::fault::Fault;
use crate::inventory::Inventory;
use crate::object::{Context, Event, Live, Made, Memory, Shape, lock};
use crate::store::Store;
use crate::worker::World;

/// What was done, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    pub bytes: u64,
    pub took: Duration,
}

const PROFILE: u32 = 0x1280;
const NOTHING: Handle = std::ptr::null_mut();

fn inventory(world: &World) -> Inventory {
    let connections = world.connections();
    Inventory::of(connections.iter().flat_map(|connection| connection.objects()))
}

/// Sets everything aside.
pub fn suspend(world: &World) -> Result<Moved, String> {
    let begun = Instant::now();
    let _alone = world.stop_calls();
    if world.suspended.load(SeqCst) {
        return Err("the slice is set aside already".into());
    }
    let all = inventory(world);
    if all.events.iter().any(|event| event.open.load(SeqCst)) {
        return Err("a command may wait for the program".into());
    }
    for queue in &all.queues {
        // SAFETY: a live queue.
        unsafe { (cl().finish)(queue.live.get()) };
    }
    // Everything is fetched before anything is given up: whatever fails, the slice goes on as it was.
    let mut stores = Vec::new();
    for memory in all.memory.iter().filter(|memory| memory.made_from().is_none()) {
        let store = Store::new(memory.bytes, world.spill.as_ref()).map_err(|error| error.to_string())?;
        fetch(&all, memory, &store).map_err(|fault| format!("memory was not fetched: {fault:?}"))?;
        stores.push((memory.clone(), store));
    }
    all.events.iter().for_each(|event| set_aside(event));
    for (memory, store) in stores {
        *lock(&memory.store) = Some(store);
    }
    give_up(&all);
    world.suspended.store(true, SeqCst);
    Ok(Moved {
        bytes: all.bytes(),
        took: begun.elapsed(),
    })
}

fn give_up(all: &Inventory) {
    all.kernels.iter().for_each(|kernel| kernel.live.replace(NOTHING));
    all.programs
        .iter()
        .rev()
        .for_each(|program| program.live.replace(NOTHING));
    all.samplers
        .iter()
        .for_each(|sampler| sampler.live.replace(NOTHING));
    all.memory
        .iter()
        .rev()
        .for_each(|memory| memory.live.replace(NOTHING));
    all.queues.iter().for_each(|queue| queue.live.replace(NOTHING));
    all.contexts
        .iter()
        .for_each(|context| context.live.replace(NOTHING));
}

/// Keeps what an ended event says, without the driver's.
fn set_aside(event: &Event) {
    let handle = event.live.get();
    if handle.is_null() {
        return;
    }
    event
        .status
        .store(event::status(event).unwrap_or(COMPLETE), SeqCst);
    let mut times = [0; 5];
    let known = times.iter_mut().zip(PROFILE..).all(|(time, param)| {
        let said = ask_number(|size, value, there| {
            // SAFETY: a live event; room for `size` bytes.
            unsafe { (cl().get_event_profiling_info)(handle, param, size, value, there) }
        });
        // The fifth is newer than some drivers.
        *time = said.unwrap_or(0);
        said.is_ok() || param == PROFILE + 4
    });
    *lock(&event.profile) = known.then_some(times);
    event.live.replace(NOTHING);
}

/// A queue of a context's: one of its own, or one made for this.
fn queue_of(all: &Inventory, context: &Context) -> Result<(Handle, Option<Live>), Fault> {
    let own = all
        .queues
        .iter()
        .find(|queue| std::ptr::eq(&*queue.context, context));
    if let Some(queue) = own {
        return Ok((queue.live.get(), None));
    }
    let device = *context.devices.first().ok_or(Fault::Broken)?;
    let made = Live::new(create::make_queue(context, device, 0, &[])?, cl().release_queue);
    Ok((made.get(), Some(made)))
}

fn fetch(all: &Inventory, memory: &Memory, store: &Store) -> Result<(), Fault> {
    let (queue, _made) = queue_of(all, &memory.context)?;
    let (handle, to) = (memory.live.get(), store.start().cast());
    let none = std::ptr::null();
    // SAFETY: live handles of one context; the store has room for all bytes of the memory; the call blocks.
    let code = unsafe {
        match &memory.shape {
            Shape::Image(image) => {
                let (origin, sides) = ([0usize; 3], image.sides.map(|side| side as usize));
                (cl().read_image)(
                    queue,
                    handle,
                    1,
                    origin.as_ptr(),
                    sides.as_ptr(),
                    0,
                    0,
                    to,
                    0,
                    none,
                    std::ptr::null_mut(),
                )
            }
            _ => (cl().read_buffer)(
                queue,
                handle,
                1,
                0,
                memory.bytes as usize,
                to,
                0,
                none,
                std::ptr::null_mut(),
            ),
        }
    };
    crate::fault::checked(code)
}

/// Takes everything up again. What fails leaves the slice set aside, whole.
pub fn resume(world: &World) -> Result<Moved, String> {
    let begun = Instant::now();
    let _alone = world.stop_calls();
    if !world.suspended.load(SeqCst) {
        return Err("the slice is not set aside".into());
    }
    let all = inventory(world);
    if let Err(fault) = make_again(&all) {
        give_up(&all);
        return Err(format!("the driver refused: {fault:?}"));
    }
    for memory in &all.memory {
        *lock(&memory.store) = None;
    }
    world.suspended.store(false, SeqCst);
    world.calls_go_on();
    Ok(Moved {
        bytes: all.bytes(),
        took: begun.elapsed(),
    })
}

fn make_again(all: &Inventory) -> Result<(), Fault> {
    for context in &all.contexts {
        context.live.replace(create::make_context(&context.devices)?);
    }
    for queue in &all.queues {
        let made = create::make_queue(&queue.context, queue.device, queue.properties, &queue.extra)?;
        queue.live.replace(made);
    }
    for memory in &all.memory {
        let first = lock(&memory.store)
            .as_ref()
            .map_or(std::ptr::null_mut(), Store::start);
        let made = match &memory.shape {
            Shape::Buffer => create::make_buffer(&memory.context, memory.flags, memory.bytes, first)?,
            Shape::Part { of, at } => create::make_part(of, memory.flags, *at, memory.bytes)?,
            Shape::Image(image) => image::make(&memory.context, memory.flags, image, first)?,
        };
        memory.live.replace(made);
    }
    for sampler in &all.samplers {
        sampler
            .live
            .replace(create::make_sampler(&sampler.context, sampler.kind)?);
    }
    for program in &all.programs {
        program
            .live
            .replace(program::make(&program.context, &program.origin)?);
        for (number, value) in lock(&program.constants).iter() {
            program::set_constant(program, *number, value)?;
        }
        // One that did not build before does not build now; that is known to who built it.
        match &*lock(&program.made) {
            Made::Not => SUCCESS,
            Made::Built(devices, options) => program::make_built(program, devices, options),
            Made::Compiled(devices, options, headers) => {
                program::make_compiled(program, devices, options, headers)
            }
        };
    }
    for one in &all.kernels {
        one.live.replace(kernel::make(&one.program, &one.name)?);
        for (kept, place) in lock(&one.arguments).iter().zip(0..) {
            if let Some(kept) = kept.as_ref().filter(|kept| kept.is_there()) {
                kernel::set(one, place, kept)?;
            }
        }
    }
    Ok(())
}
