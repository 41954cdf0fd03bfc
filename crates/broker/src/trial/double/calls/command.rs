//! Events, and commands on queues: launches, transfers, fills, waits.

use super::*;

pub(super) unsafe extern "C" fn create_user_event(context: Handle, code: *mut i32) -> Handle {
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

pub(super) unsafe extern "C" fn set_user_event_status(event: Handle, status: i32) -> i32 {
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

pub(super) unsafe extern "C" fn set_event_callback(
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

pub(super) unsafe extern "C" fn wait_for_events(count: u32, events: *const Handle) -> i32 {
    // SAFETY: a list of the length said.
    let events = unsafe { keys(count, events) };
    let contexts: HashSet<Key> = events.iter().map(|event| inside().context_of(*event)).collect();
    assert_eq!(contexts.len(), 1, "events of several contexts");
    queue::wait(inside(), &events, false)
}

pub(super) unsafe extern "C" fn get_event_info(
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

pub(super) unsafe extern "C" fn get_event_profiling_info(
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

pub(super) unsafe extern "C" fn flush(queue: Handle) -> i32 {
    let mut state = inside();
    assert!(
        matches!(state.thing(queue as Key).what, What::Queue { .. }),
        "no queue"
    );
    drop(state.pumped());
    SUCCESS
}

pub(super) unsafe extern "C" fn queue_finish(queue: Handle) -> i32 {
    queue::finish(queue)
}

/// The end of every command's arguments.
pub(super) fn order(queue: Handle, blocks: u32, count: u32, waits: Waits, event: *mut Handle) -> Order {
    Order {
        queue,
        blocks: blocks != 0,
        count,
        waits,
        event,
    }
}

pub(super) unsafe extern "C" fn launch(
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

pub(super) unsafe extern "C" fn read_buffer(
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

pub(super) unsafe extern "C" fn write_buffer(
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
pub(super) fn rows(origin: [usize; 3], region: [usize; 3], row: usize, slice: usize) -> Vec<usize> {
    let row = if row == 0 { region[0] } else { row };
    let slice = if slice == 0 { row * region[1] } else { slice };
    Memory::rows(origin, region, row, slice)
}

pub(super) unsafe extern "C" fn read_rect(
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

pub(super) unsafe extern "C" fn write_rect(
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

pub(super) unsafe extern "C" fn copy_buffer(
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

pub(super) unsafe extern "C" fn copy_rect(
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

pub(super) unsafe extern "C" fn fill_buffer(
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

pub(super) unsafe extern "C" fn read_image(
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

pub(super) unsafe extern "C" fn write_image(
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

pub(super) unsafe extern "C" fn copy_image(
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

pub(super) unsafe extern "C" fn image_to_buffer(
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

pub(super) unsafe extern "C" fn buffer_to_image(
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

pub(super) unsafe extern "C" fn fill_image(
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

pub(super) unsafe extern "C" fn migrate(
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

pub(super) unsafe extern "C" fn marker(queue: Handle, count: u32, waits: Waits, event: *mut Handle) -> i32 {
    enqueue(inside(), order(queue, 0, count, waits, event), &[], |_| {})
}

pub(super) unsafe extern "C" fn barrier(queue: Handle, count: u32, waits: Waits, event: *mut Handle) -> i32 {
    enqueue(inside(), order(queue, 0, count, waits, event), &[], |_| {})
}

pub(super) unsafe extern "C" fn get_timers(device: Handle, on_device: *mut u64, on_host: *mut u64) -> i32 {
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
