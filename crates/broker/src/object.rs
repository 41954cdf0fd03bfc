//! What the worker knows of each object of its slice: the driver's handle, and all that is needed to make it again.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tenure_wire::ArgumentKind;

use crate::abi::Handle;
use crate::driver::cl;
use crate::store::Store;

/// One reference to an object of the driver, given up when dropped.
pub struct Live {
    handle: AtomicUsize,
    release: unsafe extern "C" fn(Handle) -> i32,
}

impl Live {
    pub fn new(handle: Handle, release: unsafe extern "C" fn(Handle) -> i32) -> Live {
        Live {
            handle: AtomicUsize::new(handle as usize),
            release,
        }
    }

    /// One more reference to an object that lives.
    pub fn retained(
        handle: Handle,
        retain: unsafe extern "C" fn(Handle) -> i32,
        release: unsafe extern "C" fn(Handle) -> i32,
    ) -> Live {
        // SAFETY: a live object, as the caller has it.
        unsafe { retain(handle) };
        Live::new(handle, release)
    }

    pub fn get(&self) -> Handle {
        self.handle.load(SeqCst) as Handle
    }

    /// Puts another object in its place; the one before is given up.
    pub fn replace(&self, handle: Handle) {
        let old = self.handle.swap(handle as usize, SeqCst) as Handle;
        if !old.is_null() {
            // SAFETY: our own reference, given up once.
            unsafe { (self.release)(old) };
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.replace(std::ptr::null_mut());
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct Context {
    pub live: Live,
    pub devices: Vec<u32>,
}

impl Context {
    /// Whether two names are of one context. Objects of several may be of several vendors, whose drivers take each
    /// other's for their own.
    pub fn is(&self, other: &Context) -> bool {
        std::ptr::eq(self, other)
    }
}

pub struct Queue {
    pub live: Live,
    pub context: Arc<Context>,
    pub device: u32,
    pub properties: u64,
    pub extra: Vec<u64>,
    /// The first failure of a command that nobody waited for.
    pub failed: AtomicI32,
}

pub enum Shape {
    Buffer,
    /// A part of a buffer.
    Part {
        of: Arc<Memory>,
        at: u64,
    },
    Image(Image),
}

#[derive(Clone)]
pub struct Image {
    pub order: u32,
    pub channel: u32,
    pub shape: [u64; 9],
    pub of: Option<Arc<Memory>>,
    /// Sides as a command's region sees them.
    pub sides: [u64; 3],
    pub element: u64,
}

pub struct Memory {
    pub live: Live,
    pub context: Arc<Context>,
    pub flags: u64,
    pub bytes: u64,
    pub shape: Shape,
    /// Its bytes, while the slice is set aside.
    pub store: Mutex<Option<Store>>,
}

impl Memory {
    pub fn image(&self) -> Option<&Image> {
        match &self.shape {
            Shape::Image(image) => Some(image),
            _ => None,
        }
    }
}

pub struct Sampler {
    pub live: Live,
    pub context: Arc<Context>,
    pub kind: [u32; 3],
}

pub enum Origin {
    Source(Vec<u8>),
    Binary(Vec<u32>, Vec<Vec<u8>>),
    Intermediate(Vec<u8>),
    BuiltIn(Vec<u32>, CString),
    Linked(Vec<u32>, CString, Vec<Arc<Program>>),
}

/// What was done to a program last.
#[derive(Clone)]
pub enum Made {
    Not,
    Built(Vec<u32>, CString),
    Compiled(Vec<u32>, CString, Vec<(CString, Arc<Program>)>),
}

pub struct Program {
    pub live: Live,
    pub context: Arc<Context>,
    pub origin: Origin,
    pub made: Mutex<Made>,
    pub constants: Mutex<Vec<(u32, Vec<u8>)>>,
    /// Held while it is built, and while its binaries are fetched, which must not grow meanwhile.
    pub building: Mutex<()>,
}

/// A kernel's argument as it was last set. It keeps no object alive, as in the driver; so before a launch each is
/// looked for again.
#[derive(Clone)]
pub enum Kept {
    Bytes(Vec<u8>),
    Local(u64),
    Memory(Option<Weak<Memory>>),
    Sampler(Weak<Sampler>),
}

/// An argument's object, kept alive.
pub enum Held {
    Nothing,
    Memory { _held: Arc<Memory> },
    Sampler { _held: Arc<Sampler> },
}

impl Kept {
    /// Keeps what it names alive; none if that is gone.
    pub fn hold(&self) -> Option<Held> {
        match self {
            Kept::Bytes(_) | Kept::Local(_) | Kept::Memory(None) => Some(Held::Nothing),
            Kept::Memory(Some(memory)) => memory.upgrade().map(|_held| Held::Memory { _held }),
            Kept::Sampler(sampler) => sampler.upgrade().map(|_held| Held::Sampler { _held }),
        }
    }

    pub fn is_there(&self) -> bool {
        match self {
            Kept::Bytes(_) | Kept::Local(_) | Kept::Memory(None) => true,
            Kept::Memory(Some(memory)) => memory.strong_count() > 0,
            Kept::Sampler(sampler) => sampler.strong_count() > 0,
        }
    }
}

pub struct Kernel {
    pub live: Live,
    pub program: Arc<Program>,
    pub name: CString,
    pub kinds: Vec<ArgumentKind>,
    pub arguments: Mutex<Vec<Option<Kept>>>,
}

pub struct Event {
    /// Null where the command never reached the driver, or has ended and was set aside.
    pub live: Live,
    /// What an event without a handle says.
    pub status: AtomicI32,
    pub queue: Option<Arc<Queue>>,
    /// None where not even the queue was known.
    pub context: Option<Arc<Context>>,
    pub user: bool,
    /// A user event nobody has set yet.
    pub open: AtomicBool,
    /// Times of an event set aside.
    pub profile: Mutex<Option<[u64; 5]>>,
}

impl Event {
    /// The event of a command.
    pub fn new(handle: Handle, queue: Option<Arc<Queue>>) -> Event {
        Event {
            live: Live::new(handle, cl().release_event),
            status: AtomicI32::new(0),
            context: queue.as_ref().map(|queue| queue.context.clone()),
            user: false,
            open: AtomicBool::new(false),
            queue,
            profile: Mutex::new(None),
        }
    }

    /// One the tenant sets itself.
    pub fn user(handle: Handle, context: Arc<Context>) -> Event {
        Event {
            context: Some(context),
            user: true,
            open: AtomicBool::new(true),
            ..Event::new(handle, None)
        }
    }

    /// Sets a user event that is open. False: it was not.
    pub fn set(&self, status: i32) -> bool {
        if !self.open.load(SeqCst) {
            return false;
        }
        // INVARIANT: the handle of an open event is never exchanged; ours keeps it while it is used.
        let held = Live::retained(self.live.get(), cl().retain_event, cl().release_event);
        let first = self.open.swap(false, SeqCst);
        if first {
            // SAFETY: a live user event, set once.
            unsafe { (cl().set_user_event_status)(held.get(), status) };
        }
        first
    }

    pub fn failed(queue: Option<Arc<Queue>>, code: i32) -> Event {
        let event = Event::new(std::ptr::null_mut(), queue);
        event.status.store(code, SeqCst);
        event
    }
}

#[derive(Clone)]
pub enum Object {
    Context(Arc<Context>),
    Queue(Arc<Queue>),
    Memory(Arc<Memory>),
    Sampler(Arc<Sampler>),
    Program(Arc<Program>),
    Kernel(Arc<Kernel>),
    Event(Arc<Event>),
}
