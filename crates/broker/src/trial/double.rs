//! An OpenCL driver that is none: objects with counts, memory that is bytes, commands that run when something waits for
//! them. It checks nothing a driver might leave unchecked and asserts everything the worker answers for.
//!
//! Handles are numbers that look like addresses and are never used twice, so a dead one is always known. Two
//! platforms, for what belongs to one vendor must never reach another. Only `trial` uses this.

mod calls;
mod queue;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use crate::abi::Handle;
use crate::connection::Region;
use crate::driver::{self, Device};
use crate::object::lock;
use queue::Command;

pub type Key = usize;

const PLATFORMS: [Key; 2] = [0x1000, 0x1001];
const DEVICES: [(Key, usize); 3] = [(0x2000, 0), (0x2001, 0), (0x2002, 1)];
const FIRST: Key = 0x5000_0000_0000;

/// What makes a piece of memory: bytes it may share with others, and where its own begin.
#[derive(Clone)]
pub struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    at: usize,
    size: usize,
    image: Option<Image>,
}

#[derive(Clone, Copy)]
pub struct Image {
    sides: [usize; 3],
    element: usize,
    row: usize,
    slice: usize,
}

type Told = unsafe extern "C" fn(Handle, i32, *mut c_void);

pub enum What {
    Context {
        platform: usize,
        devices: Vec<Key>,
    },
    Queue {
        out_of_order: bool,
        waiting: Vec<Command>,
    },
    Memory(Memory),
    Sampler,
    Program {
        built: bool,
        binary: Vec<u8>,
        has_facts: bool,
    },
    /// Each letter of the name is an argument: `b` a buffer, `i` an image, `s` a sampler, `v` a number of four bytes,
    /// `l` local memory, `u` something the driver does not say.
    Kernel {
        name: Vec<u8>,
        has_facts: bool,
        arguments: Vec<Option<Key>>,
    },
    Event {
        status: i32,
        user: bool,
        told: Vec<(Told, usize)>,
    },
}

pub struct Thing {
    pub what: What,
    count: usize,
    context: Key,
    /// Held while this lives.
    holds: Vec<Key>,
}

#[derive(Default)]
pub struct State {
    things: HashMap<Key, Thing>,
    made: usize,
    regions: Vec<Weak<Region>>,
    suspends: bool,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// The driver's state, for one call.
pub struct Inside(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Inside {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("installed")
    }
}

impl std::ops::DerefMut for Inside {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("installed")
    }
}

pub fn inside() -> Inside {
    Inside(lock(&STATE))
}

pub fn install() {
    lock(&STATE).get_or_insert_with(State::default).regions.clear();
    let device = |(key, platform): (Key, usize)| Device {
        handle: key as Handle,
        platform: platform as u32,
    };
    driver::install(
        calls::functions(),
        PLATFORMS.map(|key| key as Handle).to_vec(),
        vec![(3, 0), (1, 2)],
        DEVICES.map(device).into_iter().collect(),
    );
}

/// Commands may read and write there, while it lives.
pub fn may_touch(region: &Arc<Region>) {
    let mut state = inside();
    state.regions.retain(|region| region.strong_count() > 0);
    state.regions.push(Arc::downgrade(region));
}

/// While the slice is set aside, bytes go to memory of the worker's own.
pub fn suspends(now: bool) {
    inside().suspends = now;
}

pub fn expect_nothing_left() {
    let state = inside();
    assert!(state.things.is_empty(), "{} objects are left", state.things.len());
}

impl State {
    /// A new object with one reference.
    pub fn make(&mut self, what: What, context: Key, holds: &[Key]) -> Key {
        self.made += 1;
        let key = FIRST + self.made * 64;
        let mut held = holds.to_vec();
        if context != 0 {
            held.push(context);
        }
        held.iter().for_each(|key| self.retain(*key));
        let thing = Thing {
            what,
            count: 1,
            context: if context == 0 { key } else { context },
            holds: held,
        };
        self.things.insert(key, thing);
        key
    }

    pub fn thing(&mut self, key: Key) -> &mut Thing {
        self.things
            .get_mut(&key)
            .unwrap_or_else(|| panic!("{key:#x} is no living object"))
    }

    pub fn retain(&mut self, key: Key) {
        self.thing(key).count += 1;
    }

    pub fn release(&mut self, key: Key) {
        let thing = self.thing(key);
        thing.count -= 1;
        if thing.count > 0 {
            return;
        }
        let gone = self.things.remove(&key).expect("just seen");
        if let What::Event { told, .. } = &gone.what {
            assert!(told.is_empty(), "an event goes whose listeners were not told");
        }
        gone.holds.into_iter().for_each(|held| self.release(held));
    }

    pub fn context(&mut self, key: Key) -> (usize, Vec<Key>) {
        match &self.thing(key).what {
            What::Context { platform, devices } => (*platform, devices.clone()),
            _ => panic!("no context"),
        }
    }

    /// The context something belongs to.
    pub fn context_of(&mut self, key: Key) -> Key {
        self.thing(key).context
    }

    /// The platform of something, which everything it is used with must share.
    pub fn platform_of(&mut self, key: Key) -> usize {
        let context = self.context_of(key);
        self.context(context).0
    }

    pub fn memory(&mut self, key: Key) -> Memory {
        match &self.thing(key).what {
            What::Memory(memory) => memory.clone(),
            _ => panic!("no memory"),
        }
    }

    pub fn buffer(&mut self, key: Key) -> Memory {
        let memory = self.memory(key);
        assert!(memory.image.is_none(), "an image where a buffer is meant");
        memory
    }

    pub fn image(&mut self, key: Key) -> (Memory, Image) {
        let memory = self.memory(key);
        let image = memory.image.expect("a buffer where an image is meant");
        (memory, image)
    }

    /// Whether a device is one of a context's; asked with one of another platform, the worker is wrong.
    pub fn has_device(&mut self, context: Key, device: Key) -> bool {
        let (platform, devices) = self.context(context);
        assert_eq!(
            platform_of_device(device),
            platform,
            "a device of another platform"
        );
        devices.contains(&device)
    }

    /// Host memory may be touched.
    pub fn expect_host(&self, start: usize, bytes: usize) {
        let known = self.suspends
            || self
                .regions
                .iter()
                .filter_map(Weak::upgrade)
                .any(|region| region.contains(start, bytes));
        assert!(known, "{bytes} bytes at {start:#x} are no region's");
    }
}

pub fn platform_of_device(device: Key) -> usize {
    let found = DEVICES.iter().find(|(key, _)| *key == device);
    found.expect("a device of the driver's").1
}

impl Memory {
    pub fn new(bytes: Vec<u8>, image: Option<Image>) -> Memory {
        Memory {
            at: 0,
            size: bytes.len(),
            bytes: Arc::new(Mutex::new(bytes)),
            image,
        }
    }

    /// A part that shares the bytes.
    pub fn part(&self, at: usize, size: usize, image: Option<Image>) -> Memory {
        assert!(
            at.checked_add(size).is_some_and(|end| end <= self.size),
            "a part beyond its memory"
        );
        Memory {
            bytes: self.bytes.clone(),
            at: self.at + at,
            size,
            image,
        }
    }

    pub fn get(&self, at: usize, count: usize) -> Vec<u8> {
        assert!(
            at.checked_add(count).is_some_and(|end| end <= self.size),
            "a range beyond its memory"
        );
        lock(&self.bytes)[self.at + at..][..count].to_vec()
    }

    pub fn set(&self, at: usize, from: &[u8]) {
        let fits = at.checked_add(from.len()).is_some_and(|end| end <= self.size);
        assert!(fits, "a range beyond its memory");
        lock(&self.bytes)[self.at + at..][..from.len()].copy_from_slice(from);
    }

    /// The rows of a block: where each begins.
    pub fn rows(origin: [usize; 3], region: [usize; 3], row: usize, slice: usize) -> Vec<usize> {
        let across = |z: usize| (0..region[1]).map(move |y| (z, y));
        (0..region[2])
            .flat_map(across)
            .map(|(z, y)| (origin[2] + z) * slice + (origin[1] + y) * row + origin[0])
            .collect()
    }
}

impl Image {
    /// Where the rows of a block of pixels begin, and how long each is.
    pub fn rows(&self, origin: [usize; 3], region: [usize; 3]) -> (Vec<usize>, usize) {
        let wide = [origin[0] * self.element, origin[1], origin[2]];
        let inside = (0..3).all(|axis| {
            origin[axis]
                .checked_add(region[axis])
                .is_some_and(|end| end <= self.sides[axis])
        });
        assert!(inside, "a block beyond its image");
        (
            Memory::rows(wide, region, self.row, self.slice),
            region[0] * self.element,
        )
    }
}
